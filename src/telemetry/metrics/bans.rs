//! What is counted of bans.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::Counter;
use crate::config::model::{BanRule, Config};

/// What bans by hand are counted as.
const HAND: &str = "ban";

/// What a ban said to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanVerdict {
    Denied,
    /// It would have, but comes from a shadow rule.
    ShadowDenied,
}

impl BanVerdict {
    pub(super) const ALL: [(Self, &'static str); 2] =
        [(Self::Denied, "denied"), (Self::ShadowDenied, "shadow_denied")];
}

/// How many bans there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BanFacts {
    pub enforced: u64,
    pub shadow: u64,
}

/// The requests that the bans of one rule denied in one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct BanRow(pub(super) [Counter; BanVerdict::ALL.len()]);

type Source = Box<dyn Fn() -> BanFacts + Send + Sync>;

/// What is counted of bans for the whole process.
#[derive(Default)]
pub(super) struct BanMetrics {
    /// Of the rules, in the configuration's order, and last of bans by hand.
    pub(super) names: Vec<String>,
    issued: Vec<AtomicU64>,
    pub(super) dropped: AtomicU64,
    source: OnceLock<Source>,
}

impl BanMetrics {
    pub(super) fn new(config: &Config) -> Self {
        let rules = config.bans.iter().map(|rule| -> &BanRule { rule });
        let names: Vec<_> =
            rules.map(|rule| format!("bans.{}", rule.name)).chain([HAND.to_owned()]).collect();
        let issued = names.iter().map(|_| AtomicU64::new(0)).collect();
        Self { names, issued, ..Self::default() }
    }

    /// One was given under this name. Those of rules that only others have they count.
    pub(super) fn issue(&self, name: &str) {
        let place = self.names.iter().position(|known| known == name);
        if let Some(issued) = place.and_then(|place| self.issued.get(place)) {
            issued.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn issued(&self) -> impl Iterator<Item = (&str, u64)> {
        self.names.iter().map(String::as_str).zip(self.issued.iter().map(|count| count.load(Relaxed)))
    }

    /// The first call holds.
    pub(super) fn watch(&self, source: impl Fn() -> BanFacts + Send + Sync + 'static) {
        let _already = self.source.set(Box::new(source));
    }

    pub(super) fn facts(&self) -> BanFacts {
        self.source.get().map(|source| source()).unwrap_or_default()
    }
}

impl fmt::Debug for BanMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BanMetrics").field("names", &self.names).finish_non_exhaustive()
    }
}
