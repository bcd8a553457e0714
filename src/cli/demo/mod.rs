//! `tollgate demo`: shows in a few seconds what Tollgate does, and serves on to be tried by hand.

mod origin;
mod tour;
mod traffic;

pub(super) use tour::{Args, run};
