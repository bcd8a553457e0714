//! What a store of limits can do. `store::memory` is one.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::{
    Check, Policy,
    algorithm::{Verdict, metadata_list::Entry},
};

/// Keeps the state of limits and decides over it. Every call is atomic: no other sees half of it.
///
/// A store may belong to one thread: each worker has its own end of it.
pub trait Store {
    /// Admits the request iff every enforced check admits, and then takes the cost of every check that admits.
    /// A denial changes nothing at all, but for the checks that deny and whose policy counts what it denies. A
    /// shadow check never stands in the way. An empty `checks` is admitted.
    ///
    /// # Errors
    /// The store cannot be asked; nothing may be concluded.
    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Decision, Unavailable>>;

    /// What [`Store::decide`] would say to exactly these checks now, taking nothing: not one byte changes. Only whether
    /// there is memory to write something down shows when it is written.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn look(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Decision, Unavailable>>;

    /// Refunds what a decision took of these checks: each that was written, and no other, in one call. What
    /// no longer counts is left alone. A lease is known by its token; anything else must be refunded once.
    ///
    /// # Errors
    /// As [`Store::decide`]. Whether it was done is not known.
    fn refund(&self, checks: &[Check<'_>], receipt: Receipt)
    -> impl Future<Output = Result<(), Unavailable>>;
}

/// What operators look up in a store and take back, beside its decisions; and what the evidence of a denial is read by.
///
/// As those of [`Store`], its futures may belong to one thread. Code whose own futures must be `Send` runs them on the
/// thread that the store lives on, such as by `spawn_local`.
pub trait StoreAdmin: Store {
    /// How one limit stands, consuming nothing. A limit without state is untouched: `used` is 0.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn peek(
        &self,
        policy: &Policy,
        identifier: &str,
    ) -> impl Future<Output = Result<LimitUsage, Unavailable>>;

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
    ) -> impl Future<Output = Result<Vec<ClearedLimit>, Unavailable>>;

    /// Forgets the limits of these policies whose identifier is exactly `identifier`, and says which there were.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn clear(
        &self,
        policies: &[Policy],
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<ClearedLimit>, Unavailable>>;
}

/// Whoever shares a store has it.
impl<S: Store> Store for Arc<S> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        S::decide(self, checks).await
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        S::look(self, checks).await
    }

    async fn refund(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        S::refund(self, checks, receipt).await
    }
}

impl<S: StoreAdmin> StoreAdmin for Arc<S> {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        S::peek(self, policy, identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        S::entries(self, policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        S::reset(self, policies, identifier).await
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        S::clear(self, policies, identifier).await
    }
}

/// Where a decision was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionSource {
    /// In the store that holds the limits.
    Store,
    /// By the instance itself, of quota that it has taken beforehand.
    Slice,
    /// By the worker itself, since the same check was denied a moment ago.
    LocalDenial,
    /// Without the store, which was away: as the policies say in `on_store_error`.
    Fallback,
}

/// The answer to the checks of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub admitted: bool,
    pub source: DecisionSource,
    /// The time by which it was taken, in microseconds since the Unix epoch.
    pub time: i64,
    /// One a check, in the order of the checks. Where the request was admitted, remaining and reset
    /// are those after it; else those as they stand.
    pub verdicts: SmallVec<[Verdict; 2]>,
}

/// What it takes to refund what a decision took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Who took it.
    pub source: DecisionSource,
    /// When, by his clock.
    pub time: i64,
}

impl Decision {
    /// To refund what it took.
    pub fn receipt(&self) -> Receipt {
        Receipt { source: self.source, time: self.time }
    }
}

/// How one limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitUsage {
    /// Units used of the tightest tier.
    pub used: u64,
    /// The tightest tier and how it stands.
    pub verdict: Verdict,
}

/// A limit that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearedLimit {
    pub policy: String,
    pub identifier: String,
}

/// Why the store could not be asked. Not the request's fault; another try may succeed.
///
/// Those that every request meets while the store is away or slow own no text, so that nothing is allocated for them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store is unavailable: {}", self.reason())]
pub enum Unavailable {
    /// It was not asked: it has failed too often.
    BreakerOpen,
    /// It took longer than `store.redis.timeout`.
    Timeout,
    /// Others before it took so long that it was not asked within `store.redis.timeout`.
    Overdue,
    /// It can't be reached, or the connection broke.
    Connection(CompactString),
    /// It is there, and does not serve: a replica, still loading, without memory, or of other rights.
    Refused(CompactString),
    /// Its answer is none that can be understood.
    Protocol(CompactString),
    /// What was to ask it, or to pass its answer on, has ended or was too slow.
    Abandoned(&'static str),
}

impl Unavailable {
    /// What was the matter.
    pub fn reason(&self) -> &str {
        match self {
            Self::BreakerOpen => "the breaker is open",
            Self::Timeout => "it took longer than store.redis.timeout",
            Self::Overdue => "it waited longer than store.redis.timeout to be sent",
            Self::Connection(reason) | Self::Refused(reason) | Self::Protocol(reason) => reason,
            Self::Abandoned(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_store_says_why() {
        for (unavailable, words) in [
            (Unavailable::BreakerOpen, "the store is unavailable: the breaker is open"),
            (Unavailable::Timeout, "the store is unavailable: it took longer than store.redis.timeout"),
            (Unavailable::Connection("refused".into()), "the store is unavailable: refused"),
            (Unavailable::Abandoned("it ended"), "the store is unavailable: it ended"),
        ] {
            assert_eq!(unavailable.to_string(), words);
        }
    }
}
