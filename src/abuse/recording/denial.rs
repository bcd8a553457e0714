//! Denials: the proxy's reports, and the tallies that a worker hands over.

use std::sync::Arc;

use compact_str::CompactString;
use indexmap::IndexMap;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    super::{clients::policies::RecordPolicies, incidents::RouteNotes, traffic::Traffic},
    response::ResponseTally,
};
use crate::{limit::algorithm::metadata_list::Entry, memory_budget::heap};

/// A request that a policy denied.
#[derive(Debug, Clone, Copy)]
pub struct DenialReport<'a> {
    /// The text of the client's address: `203.0.113.7`, `2001:db8::/64`.
    pub address: &'a str,
    /// Index into the policies.
    pub policy: usize,
    /// The limited key: `ip:203.0.113.7`, `user:acme`.
    pub identifier: &'a str,
    /// The user, if known, by name or in the stored form.
    pub user: Option<&'a str>,
    /// Whether a token, a certificate or a trusted proxy verifies the user.
    pub is_user_verified: bool,
    /// Whether it has a valid API key or a verified user.
    pub is_customer: bool,
    /// Microseconds since the Unix epoch.
    pub now: i64,
    /// When the same request would be admitted: `now` plus its Retry-After.
    pub until: i64,
}

/// One limit that denied an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::abuse) struct TalliedLimit {
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    pub(in crate::abuse) until: i64,
}

/// The denials of one address in one tick of one worker.
#[derive(Debug)]
pub(in crate::abuse) struct DenialTally {
    pub(in crate::abuse) first: i64,
    pub(in crate::abuse) last: i64,
    pub(in crate::abuse) until: i64,
    pub(in crate::abuse) denied: u64,
    /// How many of them were of customers.
    pub(in crate::abuse) customers: u64,
    pub(in crate::abuse) limits: Vec<TalliedLimit>,
    /// The requests themselves; their number is `denied`.
    pub(in crate::abuse) traffic: Traffic,
    /// All users, as reported.
    pub(in crate::abuse) users: UserTallies,
    /// Requests without a known user, or of users beyond the tick's capacity.
    pub(in crate::abuse) others: UserTally,
    /// By policy, oldest first.
    pub(in crate::abuse) records: Vec<(usize, Arc<Entry>)>,
    /// Number of requests recorded beyond the number that their policies keep per second.
    pub(in crate::abuse) extra_records: u32,
    /// Number of requests of each policy recorded in this second.
    pub(in crate::abuse) record_counts: RecordCounts,
}

pub(in crate::abuse) type UserTallies = IndexMap<CompactString, UserTally, foldhash::fast::RandomState>;
pub(in crate::abuse) type RecordCounts = SmallVec<[(usize, usize); 1]>;

/// The denials of one user in a tick.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::abuse) struct UserTally {
    pub(in crate::abuse) denied: u64,
    /// How many of them had a verified user; any client can send a name.
    pub(in crate::abuse) verified: u64,
    pub(in crate::abuse) last: i64,
    /// As [`DenialTally::extra_records`].
    pub(in crate::abuse) extra_records: u32,
}

/// The entries of `metadata_list` for the requests that filled one limit of an address.
#[derive(Debug)]
pub(in crate::abuse) struct CapturedEvidence {
    pub(in crate::abuse) address: CompactString,
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    /// Oldest first.
    pub(in crate::abuse) entries: Vec<Arc<Entry>>,
}

/// The records that a worker hands over at the end of a tick.
#[derive(Debug, Default)]
pub(in crate::abuse) struct TickDenials {
    pub(in crate::abuse) tallies: Vec<(CompactString, DenialTally)>,
    pub(in crate::abuse) evidence: Vec<CapturedEvidence>,
    pub(in crate::abuse) responses: Vec<(IpNet, ResponseTally)>,
    pub(in crate::abuse) notes: RouteNotes,
    /// The policies that its indexes refer to.
    pub(in crate::abuse) policies: Arc<RecordPolicies>,
}

impl TickDenials {
    /// Bytes that it takes.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        let tallies = self.tallies.iter().map(|(address, tally)| heap::text(address) + tally.heap_bytes());
        let evidence = self.evidence.iter().map(CapturedEvidence::heap_bytes);
        heap::array::<(CompactString, DenialTally)>(self.tallies.capacity())
            + heap::array::<CapturedEvidence>(self.evidence.capacity())
            + heap::array::<(IpNet, ResponseTally)>(self.responses.capacity())
            + self.notes.bytes()
            + tallies.chain(evidence).sum::<usize>()
    }

    pub(in crate::abuse) fn denials(&self) -> u64 {
        self.tallies.iter().map(|(_, tally)| tally.denied).sum()
    }
}

impl CapturedEvidence {
    /// Bytes on the heap. The store shares the entries until they leave their list.
    fn heap_bytes(&self) -> usize {
        heap::text(&self.identifier)
            + heap::array::<Arc<Entry>>(self.entries.capacity())
            + self.entries.iter().map(|entry| entry.heap_bytes()).sum::<usize>()
    }
}

impl DenialTally {
    /// Bytes on the heap.
    fn heap_bytes(&self) -> usize {
        let limits = self.limits.iter().map(|limit| heap::text(&limit.identifier)).sum::<usize>();
        let users = self.users.keys().map(heap::text).sum::<usize>();
        let user = size_of::<(CompactString, UserTally)>() + size_of::<u64>();
        heap::array::<TalliedLimit>(self.limits.capacity())
            + limits
            + heap::block(self.users.capacity() * user)
            + heap::hash_table(self.users.capacity(), size_of::<usize>())
            + users
            + heap::array::<(usize, Arc<Entry>)>(self.records.capacity())
            + self.records.iter().map(|(_, entry)| entry.heap_bytes()).sum::<usize>()
    }

    /// A tally without a denial. `record_counts`: of this second, before this tick.
    pub(in crate::abuse) fn new(denial: &DenialReport<'_>, record_counts: RecordCounts) -> Self {
        Self {
            first: denial.now,
            last: denial.now,
            until: denial.until,
            denied: 0,
            customers: 0,
            limits: Vec::new(),
            traffic: Traffic::default(),
            users: UserTallies::default(),
            others: UserTally::default(),
            records: Vec::new(),
            extra_records: 0,
            record_counts,
        }
    }
}
