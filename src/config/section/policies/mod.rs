//! `policies`: the limits of requests.

mod algorithm;
mod cost;
mod exceptions;
mod foreign_limits;
mod keys;
mod limits;
mod memory;
mod policy;
mod reply;
mod unreachable_tiers;

pub(super) use exceptions::exempt;
pub(super) use keys::key;
pub(super) use memory::StoreMemory;
pub(super) use policy::{Policies, policies};
pub(super) use reply::{reply, reply_fields};
