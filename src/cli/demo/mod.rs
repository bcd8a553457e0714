//! `tollgate demo`: what Tollgate does, to be seen in a few seconds and tried by hand afterwards.

mod origin;
mod tour;
mod traffic;

pub(super) use tour::{Args, run};
