//! `store` and `abuse`: what is remembered, and how long.

use std::time::Duration;

use super::redis_store::{self, redis};
use crate::config::{
    model::{Abuse, MemoryStore, Store},
    value::{LONGEST, choice, count, duration},
    walk::Cursor,
};

const MEMORY: MemoryStore = MemoryStore { max_keys: 1_000_000 };

/// The store: `memory`, or a mapping of what it is made of.
pub(super) fn store(value: Option<Cursor<'_>>) -> Store {
    let default = Store { memory: MEMORY, redis: None };
    let Some(value) = value else { return default };
    if let Some(word) = value.written() {
        if word == "redis" || word.contains("://") {
            value
                .report("a store in Redis is a mapping that holds the URL", redis_store::SMALLEST.to_owned());
        } else {
            value.parse(choice(&[("memory", ())]));
        }
        return default;
    }
    let Some(mut at) = value.mapping() else { return default };
    let redis = at.take("redis").and_then(redis);
    let memory = at.take("memory").map_or(MEMORY, memory);
    at.finish();
    Store { memory, redis }
}

fn memory(value: Cursor<'_>) -> MemoryStore {
    let Some(mut at) = value.mapping() else { return MEMORY };
    let max_keys = at.parse_or("max_keys", MEMORY.max_keys, count(1..=1_000_000_000));
    at.finish();
    MemoryStore { max_keys }
}

pub(super) fn abuse(value: Option<Cursor<'_>>) -> Abuse {
    let default = Abuse { retain: Duration::from_secs(24 * 60 * 60) };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let retain = at.parse_or("retain", default.retain, duration(Duration::from_secs(1)..=LONGEST));
    at.finish();
    Abuse { retain }
}
