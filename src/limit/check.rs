//! One policy applied to one identifier of one request.

use compact_str::CompactString;

use super::{Policy, algorithm::Detail};

/// One policy, one identifier, one cost.
#[derive(Debug, Clone)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// The limited client or value: `ip:203.0.113.7`, or `ip:203.0.113.7+path:/a`. Parts that clients sent are
    /// percent-encoded, so a `+` is always a separator.
    pub identifier: CompactString,
    /// Units to take. 0 only reads.
    pub cost: u64,
    /// The algorithm's input besides the cost.
    pub detail: Detail,
}
