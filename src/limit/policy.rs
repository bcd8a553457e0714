//! A policy as the stores see it: an algorithm with its tiers, and the names by which it is known.

use crate::{
    config::model,
    limit::algorithm::{Kind, Tier},
};

/// Stands for a policy's name and shape in the memory store's keys. Two policies share one iff both
/// are the same, so that a policy whose algorithm or windows change starts afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId(pub u32);

/// What a store needs to know of a policy, and what clients are told of it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    pub kind: Kind,
    /// Never empty.
    pub tiers: Vec<Tier>,
    /// The algorithm and its windows, never its counts: `fw.1s.1m.1h`.
    pub shape: String,
    /// The recipes of its keys, each limited on its own.
    pub keys: Vec<model::KeyRecipe>,
    /// What an identifier does that a request lacks.
    pub missing: model::Missing,
    /// The evidence kept.
    pub record: model::Record,
    /// A name for each tier: the policy's own where there is one tier, else `login-1s`.
    pub quota_names: Vec<String>,
}
