//! One policy applied to one identifier of one request.

use compact_str::CompactString;

use super::{Policy, algorithm::Detail};

/// One policy, one identifier, one cost.
#[derive(Debug, Clone)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// What is limited: `ip:203.0.113.7`, or `ip:203.0.113.7+path:/a`. What came from clients in it is
    /// percent-encoded, so that `+` parts it unmistakably.
    pub identifier: CompactString,
    /// Units taken. 0 only looks.
    pub cost: u64,
    /// What the algorithm takes beside it.
    pub detail: Detail,
}
