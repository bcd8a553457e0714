//! The store of limits: memory or Redis.

use tollgate_derive::Settings;

use super::Redis;
use crate::config::{
    reader::Cursor,
    settings::{Read, ReadOver},
    value::choice,
};

const SMALLEST_REDIS: &str = "such as `store: { redis: { url: redis://127.0.0.1:6379 } }`";

/// The store of limits.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "redis.md")]
pub struct StoreSettings {
    /// Counts limits in Redis, so that all instances share them. While Redis is down, limits are counted in memory.
    #[setting(mapping, read = redis, unset = "limits are counted in memory")]
    #[setting(example = "{ url: \"redis://127.0.0.1:6379\" }")]
    #[setting(see = ["policies.*.on_store_error"])]
    pub redis: Option<Redis>,
    /// How many limits may be held in memory, and how much of it they may take.
    #[setting(mapping, unset = "the defaults of its settings", example = "{ max_keys: 100000 }")]
    pub memory: MemoryStoreSettings,
}

impl StoreSettings {
    /// Reads `memory`, or a mapping.
    pub(in crate::config) fn read(value: Option<Cursor<'_>>) -> Self {
        let default = Self::default();
        let Some((value, word)) = value.and_then(|value| Some((value, value.scalar()?))) else {
            return Self::or(value, default);
        };
        if word == "redis" || word.contains("://") {
            value.report("`redis` needs a URL", SMALLEST_REDIS.to_owned());
        } else {
            value.parse(choice(&[("memory", ())]));
        }
        default
    }
}

fn redis(value: Cursor<'_>) -> Option<Redis> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", SMALLEST_REDIS.to_owned());
        return None;
    }
    Redis::read(value)
}

/// The limits that this process holds in memory.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "limits.md#memory")]
pub struct MemoryStoreSettings {
    /// The most limits in memory: one for each policy and client (key). When there are more, expired ones are dropped
    /// first, and those that deny requests last.
    #[setting(count = "1..=1000000000", default = "1000000", example = "100000")]
    pub max_keys: usize,
    /// The most memory that all limits may take.
    #[setting(size = "1MiB..=16TiB", example = "256MiB")]
    #[setting(unset = "a quarter of what the cgroup or the machine has, at most 1GiB")]
    pub max_bytes: Option<usize>,
}
