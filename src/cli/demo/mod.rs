//! `tollgate demo`: a tour of a few seconds, after which the demo keeps serving.

mod configuration;
mod customers;
mod origin;
mod tour;
mod traffic;

pub(super) use tour::{Args, run};
