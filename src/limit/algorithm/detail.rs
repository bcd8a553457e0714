//! What of a request a limit takes beside its cost.

use std::sync::Arc;

use super::metadata_list::Entry;

/// Depends on the algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Detail {
    /// Most count, and that is all.
    #[default]
    None,
    /// `metadata_list`: what is written down.
    Entry(Arc<Entry>),
    /// `distinct`: the value, hashed. `concurrency`: the token of the lease.
    Member(Member),
}

/// A value or a token: 128 bits, so that nobody finds two that are one.
pub type Member = u128;

impl Detail {
    /// What is written down of the request, if anything is.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::None | Self::Member(_) => None,
        }
    }

    /// The value or token; without one, all requests are the same.
    pub fn member(&self) -> Member {
        match self {
            Self::Member(member) => *member,
            Self::None | Self::Entry(_) => 0,
        }
    }
}
