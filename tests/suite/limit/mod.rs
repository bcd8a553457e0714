//! Limits: what each algorithm and each setting of a policy admits, and what clients are told of it.

pub mod exactness;
mod limits;
mod peaks;
mod pictures;
mod plans;
mod policies;
mod response_costs;
mod slices;
mod streams;
