//! The input of some algorithms besides a request's cost.

use std::sync::Arc;

use super::metadata_list::Entry;

/// The detail of one check. [`DetailKind`](super::DetailKind) says which one an algorithm needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Detail {
    /// Most algorithms need only the cost.
    #[default]
    None,
    /// `metadata_list`: the entry that is recorded.
    Entry(Arc<Entry>),
    /// `distinct`: the value, hashed. `concurrency`: the token of the lease.
    Member(Member),
}

/// A value's hash or a lease's token. 128 bits, so that collisions cannot be found.
pub type Member = u128;

impl Detail {
    /// The entry to record, if there is one.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::None | Self::Member(_) => None,
        }
    }

    /// The value or token. 0 if there is none: then all requests count as one member.
    pub fn member(&self) -> Member {
        match self {
            Self::Member(member) => *member,
            Self::None | Self::Entry(_) => 0,
        }
    }
}
