//! Metrics of bans.

use std::{
    fmt,
    sync::{OnceLock, atomic::AtomicU64},
};

use indexmap::IndexMap;
use parking_lot::Mutex;

use super::{Counter, generation::MAX_RETIRED_NAMES};
use crate::config::model::Config;

/// The name for bans by hand.
const MANUAL: &str = "ban";

/// The verdict of a ban on a request.
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

type FactsSource = Box<dyn Fn() -> BanFacts + Send + Sync>;

/// What is counted of bans for the whole process.
#[derive(Default)]
pub(super) struct BanMetrics {
    /// By the names of rules, and of bans by hand.
    issued: Mutex<IndexMap<String, u64>>,
    pub(super) dropped: AtomicU64,
    source: OnceLock<FactsSource>,
}

/// Of the rules, in the configuration's order, and last of bans by hand.
pub(super) fn names(config: &Config) -> Vec<String> {
    let rules = config.bans.iter().map(|rule| format!("bans.{}", rule.name));
    rules.chain([MANUAL.to_owned()]).collect()
}

impl BanMetrics {
    pub(super) fn new(config: &Config) -> Self {
        let metrics = Self::default();
        metrics.reconfigure(config);
        metrics
    }

    /// Counts by these names as well.
    pub(super) fn reconfigure(&self, config: &Config) {
        let mut issued = self.issued.lock();
        let present = names(config);
        let excess = issued.len().saturating_sub(MAX_RETIRED_NAMES);
        let gone = issued.keys().filter(|name| !present.contains(name)).take(excess).cloned();
        for name in gone.collect::<Vec<_>>() {
            issued.shift_remove(&name);
        }
        for name in present {
            issued.entry(name).or_default();
        }
    }

    /// Counts a ban under this name. Names of rules that only other instances have are not counted here.
    pub(super) fn issue(&self, name: &str) {
        if let Some(issued) = self.issued.lock().get_mut(name) {
            *issued += 1;
        }
    }

    pub(super) fn issued(&self) -> Vec<(String, u64)> {
        self.issued.lock().iter().map(|(name, count)| (name.clone(), *count)).collect()
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
        f.debug_struct("BanMetrics").field("issued", &self.issued).finish_non_exhaustive()
    }
}
