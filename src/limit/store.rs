//! The traits of a store of limits, and the types of its decisions.
//!
//! Two stores keep state: `store::memory::MemoryStore` and `store::redis::RedisStore`. Three wrap another one:
//! [`SlicedStore`](super::SlicedStore), [`GuardedStore`](super::GuardedStore) and
//! [`ShardedStore`](super::ShardedStore). The [module](super) shows how a worker
//! stacks them.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::{
    Check, Policy,
    algorithm::{Verdict, metadata_list::Entry},
};

/// Keeps the state of limits and decides over it. Every call is atomic: no other call sees half of it.
///
/// A store may belong to one thread: each worker has its own handle.
pub trait Store {
    /// Admits the request iff every enforced check admits, and then takes the cost of every check that admits.
    /// A denial changes nothing, except that checks that deny are counted if their policy has `count_denied`. A shadow
    /// check never denies the request. Empty `checks` are admitted.
    ///
    /// # Errors
    /// The store could not decide. It is unknown whether anything was taken.
    fn decide(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Decision, Unavailable>>;

    /// The decision that [`Store::decide`] would make now, without changing anything. Only a lack of memory in Redis
    /// does not show, since nothing is written.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn look(&self, checks: &[Check<'_>]) -> impl Future<Output = Result<Decision, Unavailable>>;

    /// Settles what decisions took: units that a check does not cost are refunded, and units that it costs beyond its
    /// own are taken now, even past the limit. Pass each check that was taken, and no other, in one call. Refunds of
    /// units that no longer count are ignored. A lease is found by its token, so refunding it again is harmless;
    /// everything else must be settled only once.
    ///
    /// # Errors
    /// As [`Store::decide`]. It is unknown whether it was settled.
    fn settle(&self, taken: &[Taken<'_>]) -> impl Future<Output = Result<(), Unavailable>>;

    /// The shard of this check's limit: the store decides together over checks of one shard only.
    fn shard(&self, _check: &Check<'_>) -> u32 {
        0
    }

    /// Whether there may be several shards.
    fn is_sharded(&self) -> bool {
        false
    }

    /// A denial without a call, since one of the checks was denied a moment ago.
    fn known_denial(&self, _checks: &[Check<'_>]) -> Option<Decision> {
        None
    }

    /// Whether the future of [`Store::decide`] must be awaited to its end, since it may have to refund units of some of
    /// these checks.
    fn must_finish(&self, _checks: &[Check<'_>]) -> bool {
        false
    }
}

/// The operators' calls of a store: look limits up and reset them. The evidence of a denial is read through it, too.
///
/// Its futures may belong to one thread, like those of [`Store`]. Code whose own futures must be `Send` runs them on
/// the store's thread, for example with `spawn_local`.
pub trait StoreAdmin: Store {
    /// The usage of one limit. Takes nothing. A limit without state is unused: `used` is 0.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn peek(
        &self,
        policy: &Policy,
        identifier: &str,
    ) -> impl Future<Output = Result<LimitUsage, Unavailable>>;

    /// The entries that `metadata_list` recorded in the current window of one limit, oldest first.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn entries(
        &self,
        policy: &Policy,
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Entry>>, Unavailable>>;

    /// Removes the limits of these policies whose identifier is `identifier`, or a composite that begins with it.
    /// Returns the limits that were in use.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn reset(
        &self,
        policies: &[Policy],
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<ClearedLimit>, Unavailable>>;

    /// Removes the limits of these policies whose identifier is exactly `identifier`. Returns the limits that were in use.
    ///
    /// # Errors
    /// As [`Store::decide`].
    fn clear(
        &self,
        policies: &[Policy],
        identifier: &str,
    ) -> impl Future<Output = Result<Vec<ClearedLimit>, Unavailable>>;
}

/// A shared store is a store.
impl<S: Store> Store for Arc<S> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        S::decide(self, checks).await
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        S::look(self, checks).await
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        S::settle(self, taken).await
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

/// Who took a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionSource {
    /// The store that has the limits.
    Store,
    /// The instance itself, from a quota slice that it took before.
    Slice,
    /// The worker itself, since the store denied the same check a moment ago.
    LocalDenial,
    /// The policies' `on_store_error`, since the store could not be called.
    Fallback,
}

/// The decision over the checks of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub admitted: bool,
    pub source: DecisionSource,
    /// The time of the decision, by the clock of its source, in microseconds since the Unix epoch.
    pub time: i64,
    /// One verdict per check, in the order of the checks. If the request was admitted, `remaining` and `reset` are
    /// those after it; else the current ones.
    pub verdicts: SmallVec<[Verdict; 2]>,
    /// Who decided each check, and when: if they were decided apart, or the clock was set back. `None`: all were decided
    /// together, at `time`.
    pub parts: Option<Box<[Receipt]>>,
}

impl Decision {
    /// That on a request without checks.
    pub fn of_nothing() -> Self {
        Self {
            admitted: true,
            source: DecisionSource::Store,
            time: 0,
            verdicts: SmallVec::new(),
            parts: None,
        }
    }
}

/// Who decided over a check, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub source: DecisionSource,
    /// By the clock of `source`. If that was set back, by the limit's own time, which never runs back.
    pub time: i64,
}

/// A check that was taken, with the receipt for its settlement.
#[derive(Debug, Clone)]
pub struct Taken<'a> {
    pub check: Check<'a>,
    pub receipt: Receipt,
    /// What it costs after all. 0: all is refunded.
    pub actual: u64,
}

impl<'a> Taken<'a> {
    /// Checks that were all taken by one decision, to be refunded.
    pub fn all(checks: &[Check<'a>], receipt: Receipt) -> SmallVec<[Self; 2]> {
        checks.iter().map(|check| Self::refunded(check.clone(), receipt)).collect()
    }

    /// A check that costs nothing after all.
    pub fn refunded(check: Check<'a>, receipt: Receipt) -> Self {
        Self { check, receipt, actual: 0 }
    }
}

impl Decision {
    /// The receipt for refunding the units of the check with this index.
    pub fn receipt(&self, check: usize) -> Receipt {
        let part = self.parts.as_ref().and_then(|parts| parts.get(check)).copied();
        part.unwrap_or(Receipt { source: self.source, time: self.time })
    }
}

/// The usage of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitUsage {
    /// Units used of the tightest tier.
    pub used: u64,
    /// The verdict of a request of cost 0, which names the tightest tier.
    pub verdict: Verdict,
}

/// A limit that was removed while it was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearedLimit {
    pub policy: String,
    pub identifier: String,
}

/// Why the store could not decide. Not the request's fault; a retry may succeed.
///
/// The variants that every request gets while the store is away or slow own no text, so that they don't allocate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store is unavailable: {}", self.reason())]
pub enum Unavailable {
    /// The store was not called, since it failed too often.
    BreakerOpen,
    /// The store took longer than `store.redis.timeout`.
    Timeout,
    /// The request waited in the queue for `store.redis.timeout`, and was not sent.
    Overdue,
    /// The store can't be reached, and was not called.
    Unreachable(CompactString),
    /// The connection broke.
    Connection(CompactString),
    /// The store replies but refuses: it is a replica, is still loading, has no memory left, or lacks rights.
    Refused(CompactString),
    /// The keys of the request are on several nodes at the moment, and nothing was taken: decide each check alone.
    Moving,
    /// The store's reply can't be understood.
    Protocol(CompactString),
    /// The task that calls the store, or passes its reply on, has ended or was too slow.
    Abandoned(&'static str),
    /// These limits were cleared in this process; the store is away, and may still have them.
    ClearedHere(Box<(Vec<ClearedLimit>, Self)>),
}

impl Unavailable {
    /// Whether the store may still have taken units.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Timeout | Self::Connection(_) | Self::Protocol(_) | Self::Abandoned(_) => true,
            Self::ClearedHere(cleared) => cleared.1.may_have_run(),
            Self::BreakerOpen | Self::Overdue | Self::Unreachable(_) | Self::Refused(_) | Self::Moving => {
                false
            }
        }
    }

    /// The reason, as text.
    pub fn reason(&self) -> &str {
        match self {
            Self::BreakerOpen => "the circuit breaker is open",
            Self::ClearedHere(cleared) => cleared.1.reason(),
            Self::Timeout => "no reply within store.redis.timeout",
            Self::Moving => "the slot is being moved to another node",
            Self::Overdue => "the request was not sent within store.redis.timeout",
            Self::Unreachable(reason)
            | Self::Connection(reason)
            | Self::Refused(reason)
            | Self::Protocol(reason) => reason,
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
            (Unavailable::BreakerOpen, "the store is unavailable: the circuit breaker is open"),
            (Unavailable::Timeout, "the store is unavailable: no reply within store.redis.timeout"),
            (Unavailable::Connection("refused".into()), "the store is unavailable: refused"),
            (Unavailable::Abandoned("it ended"), "the store is unavailable: it ended"),
        ] {
            assert_eq!(unavailable.to_string(), words);
        }
    }
}
