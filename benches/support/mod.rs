//! The shared part of the benchmarks.
#![allow(dead_code, reason = "each uses a part of it")]

pub(crate) mod load;
pub(crate) mod process;
mod redis;

use std::time::Duration;

use tollgate::{
    config::model::{self, Algorithm},
    limit::{Policy, PolicyId},
};

#[allow(unused_imports, reason = "memory is measured without it")]
pub(crate) use redis::{Redis, settings};

/// A policy with these tiers: units and milliseconds of each.
pub(crate) fn policy(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Policy {
    let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
    let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
    let config = model::Policy::new("bench", algorithm, keys, tiers.iter().map(rate).collect());
    Policy::new(&config, PolicyId(0))
}

/// An identifier of 18 bytes, like those of most addresses.
pub(crate) fn address(i: usize) -> String {
    format!("ip:{}.{}.{}.{}", 100 + i / 1_000_000, 100 + i / 10_000 % 100, 100 + i / 100 % 100, 100 + i % 100)
}
