//! What the proxy reports, and what a worker hands over of it.

use std::sync::Arc;

use compact_str::CompactString;
use indexmap::IndexMap;
use smallvec::SmallVec;

use super::policies::Policies;
use crate::limit::algorithm::metadata_list::Entry;

/// A policy held a request back.
#[derive(Debug, Clone, Copy)]
pub struct Denial<'a> {
    /// The client as it is shown: `203.0.113.7`, `2001:db8::/64`.
    pub address: &'a str,
    /// Index into the policies.
    pub policy: usize,
    /// What was limited: `ip:203.0.113.7`, `user:acme`.
    pub identifier: &'a str,
    /// Who asked, where that is known, as he calls himself.
    pub user: Option<&'a str>,
    /// Microseconds since the Unix epoch.
    pub now: i64,
    /// Until when the same request would be held back: now and its Retry-After.
    pub until: i64,
}

/// One limit that held an address back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) policy: usize,
    pub(super) identifier: CompactString,
    pub(super) until: i64,
}

/// The denials of one address in one tick of one worker.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) until: i64,
    pub(super) denied: u64,
    pub(super) limits: Vec<Limit>,
    /// Everybody who asked, by his name as he gave it.
    pub(super) users: Asking,
    /// Requests of nobody who is known, or of users for whom there was no room.
    pub(super) others: Asked,
    /// By policy, oldest first.
    pub(super) records: Vec<(usize, Arc<Entry>)>,
    /// How many were written down beyond the policies' share.
    pub(super) few: u32,
    /// How many of each policy were written down in this second.
    pub(super) written: Written,
}

pub(super) type Asking = IndexMap<CompactString, Asked, foldhash::fast::RandomState>;
pub(super) type Written = SmallVec<[(usize, usize); 1]>;

/// What one user asked for in vain in a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) denied: u64,
    pub(super) last: i64,
    /// As [`Tally::few`].
    pub(super) few: u32,
}

/// What `metadata_list` wrote down of the requests that filled one limit of an address.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) address: CompactString,
    pub(super) policy: usize,
    pub(super) identifier: CompactString,
    /// Oldest first.
    pub(super) entries: Vec<Arc<Entry>>,
}

/// What a worker hands over at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) tallies: Vec<(CompactString, Tally)>,
    pub(super) evidence: Vec<Evidence>,
    /// Those whose indexes are in it.
    pub(super) policies: Arc<Policies>,
}

impl Batch {
    pub(super) fn denied(&self) -> u64 {
        self.tallies.iter().map(|(_, tally)| tally.denied).sum()
    }
}

impl Tally {
    /// One without a denial. `written`: in this second, before this tick.
    pub(super) fn new(denial: &Denial<'_>, written: Written) -> Self {
        Self {
            first: denial.now,
            last: denial.now,
            until: denial.until,
            denied: 0,
            limits: Vec::new(),
            users: Asking::default(),
            others: Asked::default(),
            records: Vec::new(),
            few: 0,
            written,
        }
    }
}
