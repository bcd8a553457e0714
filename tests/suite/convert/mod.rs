//! `tollgate convert` beside the program that it converts from: random configurations, which the real program and a
//! Tollgate with the converted file serve before the same services, and random requests, which both get.
//!
//! To add a source: a file (or folder) with a type that is a [`source::Source`], and a test that calls
//! [`agreement::run`] with it. `nginx` is the example.
//!
//! `TOLLGATE_TEST_ROUNDS=17` for 510 configurations; `TOLLGATE_TEST_SEED=7` for the one with this seed;
//! `TOLLGATE_TEST_PRINTED=100` to print more of the configurations with failures;
//! `TOLLGATE_TEST_SHRINK=1` to see what is left of each configuration with a failure when all lines are left out that it
//! does not need.

mod agreement;
mod compare;
mod converted;
mod counts;
mod dice;
mod haproxy;
mod in_front;
mod nginx;
mod origins;
mod outcome;
mod sent;
mod shrink;
mod source;
mod standing;
mod traefik;
