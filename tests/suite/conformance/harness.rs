//! A store, a clock that stands still, and short words to drive them.

use std::{sync::Arc, time::Duration};

use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Check, Cleared, Decision, ManualClock, Peek, Policy, PolicyId, Store,
        algorithm::{Verdict, metadata_list::Entry},
    },
};

/// Milliseconds, as the tests count tiers.
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

pub(crate) const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::SingleCounter, Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::MetadataList];

/// A start of all windows that the tests use, in microseconds since the Unix epoch.
pub(crate) const START: i64 = 1_800_000_000_000_000 / (366 * 86_400_000_000) * (366 * 86_400_000_000);

/// A kind of store.
pub(crate) trait Subject {
    type Store: Store;

    /// An empty store that goes by `clock`.
    fn store(clock: Arc<ManualClock>) -> Self::Store;
}

pub(crate) struct Harness<S: Subject> {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: S::Store,
}

impl<S: Subject> Harness<S> {
    /// An empty store at [`START`].
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        Self { store: S::store(Arc::clone(&clock)), clock }
    }

    /// Moves the clock to so many microseconds after [`START`].
    pub(crate) fn at(&self, micros: i64) -> &Self {
        self.clock.set(START + micros);
        self
    }

    pub(crate) fn decide(&self, checks: &[Check<'_>]) -> Decision {
        block_on(self.store.decide(checks)).expect("the store answers")
    }

    /// One request held against one limit.
    pub(crate) fn take(&self, policy: &Policy, identifier: &str, cost: u64) -> Verdict {
        let decision = self.decide(&[check(policy, identifier, cost)]);
        assert_eq!(decision.admitted, decision.verdicts[0].admitted);
        decision.verdicts[0]
    }

    /// Takes all there is, unit by unit.
    pub(crate) fn exhaust(&self, policy: &Policy, identifier: &str) {
        while self.take(policy, identifier, 1).admitted {}
    }

    pub(crate) fn peek(&self, policy: &Policy, identifier: &str) -> Peek {
        block_on(self.store.peek(policy, identifier)).expect("the store answers")
    }

    pub(crate) fn used(&self, policy: &Policy, identifier: &str) -> u64 {
        self.peek(policy, identifier).used
    }

    pub(crate) fn entries(&self, policy: &Policy, identifier: &str) -> Vec<Arc<Entry>> {
        block_on(self.store.entries(policy, identifier)).expect("the store answers")
    }

    pub(crate) fn reset(&self, policies: &[Policy], identifier: &str) -> Vec<Cleared> {
        block_on(self.store.reset(policies, identifier)).expect("the store answers")
    }

    /// All that can be seen of these limits.
    pub(crate) fn snapshot(&self, policies: &[&Policy], identifiers: &[&str]) -> String {
        let mut seen = String::new();
        for policy in policies {
            for identifier in identifiers {
                let (peek, entries) = (self.peek(policy, identifier), self.entries(policy, identifier));
                seen += &format!("{} {identifier} {peek:?} {entries:?}\n", policy.name);
            }
        }
        seen
    }
}

/// A policy with tiers of so many in so many milliseconds. Its ID follows from name and shape.
pub(crate) fn policy(name: &str, algorithm: Algorithm, tiers: &[(u64, u64)]) -> Policy {
    let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
    let config = model::Policy {
        name: name.to_owned(),
        algorithm,
        keys: vec![model::KeyRecipe(vec![model::KeyPart::Ip])],
        missing: model::Missing::Skip,
        tiers: tiers.iter().map(rate).collect(),
        record: model::Record { keep: 50, retain: Duration::from_secs(3600) },
    };
    let policy = Policy::new(&config, PolicyId(0));
    let hash = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
    let id = policy.name.bytes().chain(policy.shape.bytes()).fold(7, hash);
    Policy { id: PolicyId(id), ..policy }
}

/// The same policy with another limit.
pub(crate) fn with(policy: &Policy, limit: u64) -> Policy {
    let mut policy = policy.clone();
    policy.tiers[0].limit = limit;
    policy
}

pub(crate) fn check<'a>(policy: &'a Policy, identifier: &str, cost: u64) -> Check<'a> {
    Check { policy, identifier: identifier.into(), cost, entry: None }
}

pub(crate) fn entry(time: i64, user: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: Some(user.into()), method: http::Method::GET, path: "/a".into() })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
