//! What a store of limits can do. `store::memory` is one.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Check, Policy,
    algorithm::{Verdict, metadata_list::Entry},
};

/// Keeps the state of limits and decides over it. Every call is atomic: no other sees half of it.
pub trait Store: Send + Sync {
    /// Admits the request iff every check admits, and then takes every check's cost. A denial changes
    /// nothing at all. An empty `checks` is admitted.
    ///
    /// # Errors
    /// The store cannot be asked; nothing may be concluded.
    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Decision, Unavailable>>;

    /// How one limit stands, consuming nothing. A limit without state is untouched: `used` is 0.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn peek(&self, policy: &Policy, identifier: &str) -> impl Future<Output = Result<Peek, Unavailable>>;

    /// What `metadata_list` wrote down in the current window of one limit, oldest first.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn entries(
        &self,
        policy: &Policy,
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Entry>>, Unavailable>>;

    /// Forgets the limits of these policies whose identifier is `identifier`, or a composite that
    /// begins with it, and says which there were.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn reset(
        &self,
        policies: &[Policy],
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<Cleared>, Unavailable>>;
}

/// The answer to the checks of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub admitted: bool,
    /// One a check, in the order of the checks. Where the request was admitted, remaining and reset
    /// are those after it; else those as they stand.
    pub verdicts: SmallVec<[Verdict; 2]>,
}

/// How one limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peek {
    /// Units used of the tightest tier.
    pub used: u64,
    /// The tightest tier and how it stands.
    pub verdict: Verdict,
}

/// A limit that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    pub policy: String,
    pub identifier: String,
}

/// The store could not be asked. Not the request's fault; another try may succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store is unavailable: {0}")]
pub struct Unavailable(pub String);
