//! What the proxy reports, and what a worker hands over of it.

use std::sync::Arc;

use compact_str::CompactString;
use indexmap::IndexMap;
use smallvec::SmallVec;

use super::super::clients::policies::RecordPolicies;
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
pub(in crate::abuse) struct TalliedLimit {
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    pub(in crate::abuse) until: i64,
}

/// The denials of one address in one tick of one worker.
#[derive(Debug)]
pub(in crate::abuse) struct Tally {
    pub(in crate::abuse) first: i64,
    pub(in crate::abuse) last: i64,
    pub(in crate::abuse) until: i64,
    pub(in crate::abuse) denied: u64,
    pub(in crate::abuse) limits: Vec<TalliedLimit>,
    /// Everybody who asked, by his name as he gave it.
    pub(in crate::abuse) users: UserTallies,
    /// Requests of nobody who is known, or of users for whom there was no room.
    pub(in crate::abuse) others: UserTally,
    /// By policy, oldest first.
    pub(in crate::abuse) records: Vec<(usize, Arc<Entry>)>,
    /// How many were written down beyond the policies' share.
    pub(in crate::abuse) over_share: u32,
    /// How many of each policy were written down in this second.
    pub(in crate::abuse) written: RecordCounts,
}

pub(in crate::abuse) type UserTallies = IndexMap<CompactString, UserTally, foldhash::fast::RandomState>;
pub(in crate::abuse) type RecordCounts = SmallVec<[(usize, usize); 1]>;

/// What one user asked for in vain in a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::abuse) struct UserTally {
    pub(in crate::abuse) denied: u64,
    pub(in crate::abuse) last: i64,
    /// As [`Tally::over_share`].
    pub(in crate::abuse) over_share: u32,
}

/// What `metadata_list` wrote down of the requests that filled one limit of an address.
#[derive(Debug)]
pub(in crate::abuse) struct Evidence {
    pub(in crate::abuse) address: CompactString,
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    /// Oldest first.
    pub(in crate::abuse) entries: Vec<Arc<Entry>>,
}

/// What a worker hands over at once.
#[derive(Debug, Default)]
pub(in crate::abuse) struct Batch {
    pub(in crate::abuse) tallies: Vec<(CompactString, Tally)>,
    pub(in crate::abuse) evidence: Vec<Evidence>,
    /// Those whose indexes are in it.
    pub(in crate::abuse) policies: Arc<RecordPolicies>,
}

impl Batch {
    pub(in crate::abuse) fn record(&self) -> u64 {
        self.tallies.iter().map(|(_, tally)| tally.denied).sum()
    }
}

impl Tally {
    /// One without a denial. `written`: in this second, before this tick.
    pub(in crate::abuse) fn new(denial: &Denial<'_>, written: RecordCounts) -> Self {
        Self {
            first: denial.now,
            last: denial.now,
            until: denial.until,
            denied: 0,
            limits: Vec::new(),
            users: UserTallies::default(),
            others: UserTally::default(),
            records: Vec::new(),
            over_share: 0,
            written,
        }
    }
}
