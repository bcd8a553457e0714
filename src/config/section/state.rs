//! `store` and `abuse`: what is remembered, and how long.

use std::time::Duration;

use crate::config::{
    model::{Abuse, MemoryStore, Store},
    value::{LONGEST, choice, count, duration},
    walk::Cursor,
};

/// The store: `memory`, or a mapping that sizes it.
pub(super) fn store(value: Option<Cursor<'_>>) -> Store {
    let default = 1_000_000;
    let max_keys = value.map_or(Some(default), |value| {
        if value.written().is_some() {
            return value.parse(choice(&[("memory", default)]));
        }
        let mut at = value.mapping()?;
        let memory = at.take("memory");
        at.finish();
        let mut at = memory?.mapping()?;
        let max_keys = at.parse_or("max_keys", default, count(1..=1_000_000_000));
        at.finish();
        Some(max_keys)
    });
    Store { memory: MemoryStore { max_keys: max_keys.unwrap_or(default) }, redis: None }
}

pub(super) fn abuse(value: Option<Cursor<'_>>) -> Abuse {
    let default = Abuse { retain: Duration::from_secs(24 * 60 * 60) };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let retain = at.parse_or("retain", default.retain, duration(Duration::from_secs(1)..=LONGEST));
    at.finish();
    Abuse { retain }
}
