//! `store` and `abuse`: what is remembered, and how long.

use std::time::Duration;

use super::redis_store::{self, redis};
use crate::config::{
    model::{Abuse, MemoryStore, Secret, Store, Users},
    value::{LONGEST_DURATION, choice, count, duration},
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
    let default = Abuse { retain: Duration::from_secs(24 * 60 * 60), users: Users::Plain, secret: None };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let retain = at.parse_or("retain", default.retain, duration(Duration::from_secs(1)..=LONGEST_DURATION));
    let written = at.take("users");
    let words = [("plain", Users::Plain), ("hashed", Users::Hashed), ("off", Users::Off)];
    let users = written.and_then(|value| value.parse(choice(&words))).unwrap_or(default.users);
    let secret = at.take("secret").map(|value| value.parse_secret(|text| Ok(text.to_owned())));
    at.finish();
    // One that is wrong was reported as such; it isn't missing as well.
    let is_missing = secret.as_ref().is_none_or(|secret| secret.as_deref() == Some(""));
    if let Some(value) = written.filter(|_| users == Users::Hashed && is_missing) {
        let help = "set `secret`, to the same on every instance".to_owned();
        value.report("there is no secret to hash users by", help);
    }
    let secret = secret.flatten().filter(|secret| !secret.is_empty()).map(Secret::new);
    Abuse { retain, users, secret }
}
