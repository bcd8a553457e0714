//! A store, a clock that stands still, and short words to drive them.

use std::{
    any::Any,
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join, join_all};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Check, ClearedLimit, Decision, LimitUsage, ManualClock, Policy, PolicyId, Receipt, Store, StoreAdmin,
        Taken, Unavailable,
        algorithm::{Detail, Kind, Member, Verdict, metadata_list::Entry},
    },
};

/// Milliseconds, as the tests count tiers.
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

pub(crate) const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::SingleCounter,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::MetadataList,
    Algorithm::SlidingCounter,
    GCRA,
    Algorithm::SlidingWindow { buckets: 10 },
];

/// With the limit as its burst, as [`policy`] and [`with`] have it.
pub(crate) const GCRA: Algorithm = Algorithm::Gcra { burst: 0, delay: Duration::ZERO };

/// Those whose times are told without rounding, as no buckets are.
pub(crate) const PUNCTUAL: [Algorithm; 6] = [
    Algorithm::SingleCounter,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::MetadataList,
    Algorithm::SlidingCounter,
    GCRA,
];

/// A start of all windows that the tests use, in microseconds since the Unix epoch.
pub(crate) const START: i64 = 1_800_000_000_000_000 / (366 * 86_400_000_000) * (366 * 86_400_000_000);

/// A kind of store.
pub(crate) trait Subject {
    /// Where the state is.
    type Place: Send + Sync;
    /// One thread's end of it.
    type Store: StoreAdmin + 'static;

    /// An empty store that goes by `clock`.
    fn place(clock: Arc<ManualClock>) -> Self::Place;

    /// An end of it, for this thread.
    fn store(place: &Self::Place) -> Self::Store;

    /// Every byte of the state, and when each part expires.
    fn dump(place: &Self::Place) -> String;
}

pub(crate) struct Harness<S: Subject> {
    pub(crate) clock: Arc<ManualClock>,
    pub(super) place: S::Place,
    /// Tells its ends from those of others.
    number: u64,
}

impl<S: Subject> Harness<S> {
    /// An empty store at [`START`].
    pub(crate) fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let clock = Arc::new(ManualClock::new(START));
        let place = S::place(Arc::clone(&clock));
        Self { clock, place, number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Asks this thread's end of the store; again, as long as it finds no connection: then it was not asked.
    pub(super) fn ask<T, E: std::fmt::Debug>(
        &self,
        mut question: impl AsyncFnMut(&S::Store) -> Result<T, E>,
    ) -> T {
        ENDS.with_borrow_mut(|Ends { runtime, of }| {
            let answer = runtime.block_on(async {
                let end = of.entry(self.number).or_insert_with(|| Box::new(S::store(&self.place)));
                let end = end.downcast_ref().expect("a harness has one kind of store");
                loop {
                    match question(end).await {
                        Err(error) if format!("{error:?}").contains("no connection within") => {}
                        answer => return answer,
                    }
                }
            });
            answer.expect("the store answers")
        })
    }

    /// Moves the clock to so many microseconds after [`START`].
    pub(crate) fn at(&self, micros: i64) -> &Self {
        self.clock.set(START + micros);
        self
    }

    pub(crate) fn decide(&self, checks: &[Check<'_>]) -> Decision {
        self.ask(async |store| store.decide(checks).await)
    }

    /// What would be decided, which must leave every byte as it was.
    pub(crate) fn look(&self, checks: &[Check<'_>]) -> Decision {
        let before = S::dump(&self.place);
        let decision = self.ask(async |store| store.look(checks).await);
        assert_eq!(S::dump(&self.place), before, "{checks:?}");
        decision
    }

    /// Requests that are asked at once, each of its checks; a store may decide over them together.
    pub(crate) fn together(&self, requests: &[Vec<Check<'_>>]) -> Vec<Decision> {
        self.ask(async |store| {
            let decisions = join_all(requests.iter().map(|checks| store.decide(checks))).await;
            decisions.into_iter().collect::<Result<_, _>>()
        })
    }

    /// Refunds what a decision took of these checks.
    pub(crate) fn refund(&self, checks: &[Check<'_>], receipt: Receipt) {
        self.ask(async |store| store.settle(&Taken::all(checks, receipt)).await);
    }

    /// Settles what a decision took of these checks. Those that can't be charged more, or a part, are refunded: of some
    /// algorithms, and where denied requests count.
    pub(crate) fn settle(&self, checks: &[Check<'_>], receipt: Receipt, actual: u64) {
        let mut taken = Taken::all(checks, receipt);
        let can_settle = |policy: &Policy| policy.kind.can_settle() && !policy.count_denied;
        for settled in taken.iter_mut().filter(|taken| can_settle(taken.check.policy)) {
            settled.actual = actual;
        }
        self.ask(async |store| store.settle(&taken).await);
    }

    /// Refunds what was taken, and asks for the same at once.
    pub(crate) fn exchange(&self, checks: &[Check<'_>], receipt: Receipt) -> Decision {
        let taken = Taken::all(checks, receipt);
        self.ask(async |store| {
            let (given, decision) = join(store.settle(&taken), store.decide(checks)).await;
            given?;
            decision
        })
    }

    /// One request held against one limit that counts members.
    pub(crate) fn enter(&self, policy: &Policy, identifier: &str, member: Member) -> Verdict {
        self.decide(&[member_check(policy, identifier, member)]).verdicts[0]
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

    pub(crate) fn peek(&self, policy: &Policy, identifier: &str) -> LimitUsage {
        self.ask(async |store| store.peek(policy, identifier).await)
    }

    /// Several limits, asked for at once.
    pub(crate) fn peeks<'a>(&self, limits: impl Iterator<Item = (&'a Policy, &'a str)>) -> Vec<LimitUsage> {
        let limits: Vec<_> = limits.collect();
        self.ask(async |store| {
            let peeks =
                join_all(limits.iter().map(|&(policy, identifier)| store.peek(policy, identifier))).await;
            peeks.into_iter().collect::<Result<_, _>>()
        })
    }

    pub(crate) fn used(&self, policy: &Policy, identifier: &str) -> u64 {
        self.peek(policy, identifier).used
    }

    pub(crate) fn entries(&self, policy: &Policy, identifier: &str) -> Vec<Arc<Entry>> {
        self.ask(async |store| store.entries(policy, identifier).await)
    }

    pub(crate) fn clear(&self, policies: &[Policy], identifier: &str) -> Vec<ClearedLimit> {
        self.ask(async |store| store.clear(policies, identifier).await)
    }

    pub(crate) fn reset(&self, policies: &[Policy], identifier: &str) -> Vec<ClearedLimit> {
        self.ask(async |store| store.reset(policies, identifier).await)
    }

    /// All that can be seen of these limits.
    pub(crate) fn snapshot(&self, policies: &[&Policy], identifiers: &[&str]) -> String {
        let limits = policies.iter().flat_map(|&policy| identifiers.iter().map(move |id| (policy, *id)));
        self.ask(async |store| {
            let seen = limits.clone().map(async |(policy, identifier)| {
                let (peek, entries) =
                    join(store.peek(policy, identifier), store.entries(policy, identifier)).await;
                Ok(format!("{} {identifier} {:?} {:?}\n", policy.name, peek?, entries?))
            });
            join_all(seen).await.into_iter().collect::<Result<String, Unavailable>>()
        })
    }
}

/// A policy with tiers of so many in so many milliseconds. Its ID follows from name and shape.
pub(crate) fn policy(name: &str, algorithm: Algorithm, tiers: &[(u64, u64)]) -> Policy {
    let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
    let keys = vec![
        model::KeyRecipe(vec![model::KeyPart::Ip]),
        model::KeyRecipe(vec![model::KeyPart::Ip, model::KeyPart::Path]),
    ];
    let config = model::Policy::new(name, algorithm, keys, tiers.iter().map(rate).collect());
    let mut policy = Policy::new(&config, PolicyId(0));
    if let Kind::Gcra { burst: burst @ 0, .. } = &mut policy.kind {
        *burst = policy.tiers[0].limit;
    }
    let hash = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
    let id = policy.name.bytes().chain(policy.shape.bytes()).fold(7, hash);
    Policy { id: PolicyId(id), ..policy }
}

/// The same policy with another limit, which is its burst, too.
pub(crate) fn with(policy: &Policy, limit: u64) -> Policy {
    let mut policy = policy.clone();
    policy.tiers[0].limit = limit;
    if let Kind::Gcra { burst, .. } = &mut policy.kind {
        *burst = limit;
    }
    policy
}

pub(crate) fn check<'a>(policy: &'a Policy, identifier: &str, cost: u64) -> Check<'a> {
    Check { policy, identifier: identifier.into(), cost, detail: Detail::None }
}

pub(crate) fn member_check<'a>(policy: &'a Policy, identifier: &str, member: Member) -> Check<'a> {
    Check { detail: Detail::Member(member), ..check(policy, identifier, 1) }
}

/// The same policy, of which what was taken may be refunded.
pub(crate) fn refunding(policy: &Policy) -> Policy {
    let statuses = model::Statuses(vec![401..=403]);
    Policy { count: Some(model::CountedResponses { statuses, grpc_statuses: Vec::new() }), ..policy.clone() }
}

/// The same `metadata_list`, whose entries may not be kept as long as its window.
pub(crate) fn forgetful(policy: &Policy) -> Policy {
    Policy { kind: Kind::MetadataList { retain: 300_000 }, ..policy.clone() }
}

/// The same policy, which counts what it denies.
pub(crate) fn unforgiving(policy: &Policy) -> Policy {
    Policy { count_denied: true, ..policy.clone() }
}

/// The same policy, which never denies.
pub(crate) fn shadow(policy: &Policy) -> Policy {
    Policy { is_shadow: true, ..policy.clone() }
}

pub(crate) fn entry(time: i64, user: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: Some(user.into()), method: http::Method::GET, path: "/a".into() })
}

/// The ends of stores that a thread has, by the numbers of their harnesses, and what drives them.
struct Ends {
    // Dropped first: what the ends have spawned runs here.
    of: HashMap<u64, Box<dyn Any>>,
    runtime: tokio::runtime::LocalRuntime,
}

thread_local! {
    static ENDS: RefCell<Ends> = RefCell::new(Ends {
        of: HashMap::new(),
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime"),
    });
}

impl<S: Subject> Drop for Harness<S> {
    fn drop(&mut self) {
        // A thread that has ended has dropped its ends itself.
        let _ = ENDS.try_with(|ends| {
            let Ends { of, runtime } = &mut *ends.borrow_mut();
            runtime.block_on(async { of.remove(&self.number) });
        });
    }
}
