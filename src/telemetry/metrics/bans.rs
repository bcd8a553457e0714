//! Metrics of bans.

use std::sync::atomic::AtomicU64;

use indexmap::IndexMap;
use parking_lot::Mutex;
use tollgate_derive::Label;

use super::{Counter, names::MAX_RETIRED_NAMES};

/// The verdict of a ban on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum BanVerdict {
    Denied,
    /// A shadow rule would have denied it.
    ShadowDenied,
}

/// The numbers of active bans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BanFacts {
    pub enforced: u64,
    pub shadow: u64,
}

/// Requests denied in one worker by the bans of one rule.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct BanRow(pub(super) [Counter; BanVerdict::ALL.len()]);

/// The counters of bans of the whole process.
#[derive(Debug, Default)]
pub(super) struct BanMetrics {
    /// By the names of rules and of manual bans.
    issued: Mutex<IndexMap<String, u64>>,
    pub(super) dropped: AtomicU64,
}

impl BanMetrics {
    pub(super) fn new(names: &[String]) -> Self {
        let metrics = Self::default();
        metrics.reconfigure(names);
        metrics
    }

    /// Counts by these names, too.
    pub(super) fn reconfigure(&self, names: &[String]) {
        let mut issued = self.issued.lock();
        let excess = issued.len().saturating_sub(MAX_RETIRED_NAMES);
        let gone = issued.keys().filter(|name| !names.contains(name)).take(excess).cloned();
        for name in gone.collect::<Vec<_>>() {
            issued.shift_remove(&name);
        }
        for name in names {
            issued.entry(name.clone()).or_default();
        }
    }

    /// Counts a ban under this name. Rules that only other instances have are not counted here.
    pub(super) fn issue(&self, name: &str) {
        if let Some(issued) = self.issued.lock().get_mut(name) {
            *issued += 1;
        }
    }

    pub(super) fn issued(&self) -> Vec<(String, u64)> {
        self.issued.lock().iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}
