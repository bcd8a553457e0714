//! Quota slices: several instances that share a store, and take parts of a window's quota at once.

use std::{
    cell::Cell,
    sync::{Arc, LazyLock},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Check, Cleared, Decision, Fleet, ManualClock, Peek, Policy, PolicyId, Receipt, Slices, Slicing,
        Source, Store, Unavailable,
        algorithm::{Detail, metadata_list::Entry},
    },
    store::memory::MemoryStore,
};

const HOUR: i64 = 3_600_000_000;

/// Counts how often it is asked.
struct Counting {
    store: Arc<MemoryStore>,
    asked: Cell<u64>,
    is_away: Cell<bool>,
}

impl Store for Counting {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if self.is_away.get() {
            return Err(Unavailable("away".to_owned()));
        }
        self.asked.set(self.asked.get() + 1);
        self.store.decide(checks).await
    }

    async fn give_back(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        self.store.give_back(checks, receipt).await
    }

    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<Peek, Unavailable> {
        self.store.peek(policy, identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        self.store.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        self.store.reset(policies, identifier).await
    }
}

/// Instances over one store.
struct Fleets {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    each: Vec<Instance>,
}

/// What it knows of the others, its way to the store, and what of it reaches the store.
struct Instance {
    fleet: Arc<Fleet>,
    slicing: Slicing<Arc<Counting>>,
    counting: Arc<Counting>,
}

impl Fleets {
    fn of(instances: usize) -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let store = Arc::new(MemoryStore::new(1_000, Arc::clone(&clock) as _));
        let instance = |_| {
            let fleet = Arc::new(Fleet::default());
            let counting =
                Counting { store: Arc::clone(&store), asked: Cell::new(0), is_away: Cell::new(false) };
            #[expect(
                clippy::arc_with_non_send_sync,
                reason = "a store is shared by Arc, and this by one thread"
            )]
            let counting = Arc::new(counting);
            let slices = Arc::new(Slices::new(Arc::clone(&fleet)));
            let slicing = Slicing::new(Arc::clone(&counting), slices, Arc::clone(&clock) as _);
            Instance { fleet, slicing, counting }
        };
        Self {
            clock: Arc::clone(&clock),
            each: (0..instances).map(instance).collect(),
            store: Arc::clone(&store),
        }
    }

    fn decide(&self, instance: usize, checks: &[Check<'_>]) -> Decision {
        answer(self.each[instance].slicing.decide(checks)).unwrap()
    }

    fn asked(&self) -> u64 {
        self.each.iter().map(|instance| instance.counting.asked.get()).sum()
    }
}

fn answer<T>(question: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().unwrap());
    RUNTIME.block_on(question)
}

fn policy(name: &str, limit: u64, slice: f64) -> Policy {
    let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
    let rate = model::Rate { limit, window: Duration::from_secs(3_600) };
    let config = model::Policy::new(name, Algorithm::FixedWindow, keys, vec![rate]);
    let id = name.bytes().fold(0, |id, byte| id * 31 + u32::from(byte));
    Policy::new(&model::Policy { slice, ..config }, PolicyId(id))
}

fn check<'a>(policy: &'a Policy, cost: u64) -> Check<'a> {
    Check { policy, identifier: "ip:1".into(), cost, detail: Detail::None }
}

#[test]
fn the_store_is_asked_once_a_slice_and_the_client_is_told_the_truth() {
    let fleets = Fleets::of(1);
    let policy = policy("p", 100, 0.1);
    for taken in 1..=100 {
        let decision = fleets.decide(0, &[check(&policy, 1)]);
        assert!(decision.admitted, "{taken}");
        let verdict = decision.verdicts[0];
        assert_eq!((verdict.limit, verdict.remaining, verdict.reset), (100, 100 - taken, HOUR), "{taken}");
        let expected = if taken % 10 == 1 { Source::Store } else { Source::Slice };
        assert_eq!(decision.source, expected, "{taken}");
    }
    assert_eq!(fleets.asked(), 10);
    let denied = fleets.decide(0, &[check(&policy, 1)]);
    assert_eq!((denied.admitted, denied.verdicts[0].retry_after), (false, Some(HOUR)));
}

#[test]
fn what_is_less_than_a_slice_goes_to_whoever_asks() {
    let fleets = Fleets::of(2);
    let policy = policy("p", 25, 0.4);
    // Each takes a slice of ten; of the five that are left each unit is asked for.
    let admitted = (0..60).filter(|i| fleets.decide(i % 2, &[check(&policy, 1)]).admitted).count();
    assert_eq!(admitted, 25, "nothing strands where both go on asking");
}

#[test]
fn a_slice_is_void_when_its_window_ends() {
    let fleets = Fleets::of(1);
    let policy = policy("p", 100, 0.5);
    fleets.clock.set(HOUR - 1);
    fleets.decide(0, &[check(&policy, 1)]);
    fleets.clock.set(HOUR);
    let next = fleets.decide(0, &[check(&policy, 1)]);
    assert_eq!((next.source, next.verdicts[0].remaining), (Source::Store, 99));
    assert_eq!(fleets.store.peek_now(&policy, "ip:1").used, 50, "of this window one slice was taken");
}

#[test]
fn whoever_is_denied_by_another_policy_takes_nothing() {
    let fleets = Fleets::of(1);
    let (sliced, strict) = (policy("sliced", 100, 0.1), policy("strict", 1, 0.0));
    assert!(fleets.decide(0, &[check(&sliced, 1), check(&strict, 1)]).admitted);
    for _ in 0..20 {
        let denied = fleets.decide(0, &[check(&sliced, 1), check(&strict, 1)]);
        assert_eq!((denied.admitted, denied.verdicts[0].admitted), (false, true));
    }
    assert_eq!(fleets.store.peek_now(&sliced, "ip:1").used, 10, "the first slice is enough");
    let here = fleets.decide(0, &[check(&sliced, 9)]);
    assert_eq!((here.source, here.verdicts[0].remaining), (Source::Slice, 90), "all nine are still there");
}

#[test]
fn limits_that_are_taken_back_take_the_slices_with_them() {
    let fleets = Fleets::of(1);
    let policy = policy("p", 100, 0.5);
    fleets.decide(0, &[check(&policy, 1)]);
    fleets.store.reset_now(std::slice::from_ref(&policy), "ip:1");
    fleets.each[0].fleet.pardon();
    let admitted = (0..200).filter(|_| fleets.decide(0, &[check(&policy, 1)]).admitted).count();
    assert_eq!(admitted, 100);
}

#[test]
fn a_store_that_was_away_is_asked_for_a_slice_again() {
    let fleets = Fleets::of(1);
    let policy = policy("p", 100, 0.1);
    let Instance { slicing, counting, .. } = &fleets.each[0];
    counting.is_away.set(true);
    assert!(answer(slicing.decide(&[check(&policy, 1)])).is_err());
    counting.is_away.set(false);
    for _ in 0..20 {
        assert!(fleets.decide(0, &[check(&policy, 1)]).admitted);
    }
    assert_eq!(fleets.asked(), 2);
}

proptest! {
    /// Whoever asks for what, and whatever else is asked: never more than the limit, and at most what the
    /// instances hold less.
    #[test]
    fn never_more_than_the_limit_and_a_slice_an_instance_less(
        steps in vec((0..3_usize, 1..8_u64, any::<bool>(), 0..8_i64), 1..200),
        limit in 1..60_u64,
        hundredths in 0..60_u32,
    ) {
        let fleets = Fleets::of(3);
        let policy = policy("p", limit, f64::from(hundredths) / 100.0);
        let other = policy_of_others();
        let (mut window, mut taken, mut now) = (0, 0, 0_i64);
        for (instance, cost, with_other, eighths) in steps {
            now += eighths * HOUR / 64;
            fleets.clock.set(now);
            if now / HOUR != window {
                (window, taken) = (now / HOUR, 0);
            }
            let mut checks = vec![check(&policy, cost)];
            if with_other {
                checks.push(check(&other, 1));
            }
            let decision = fleets.decide(instance, &checks);
            if decision.admitted {
                taken += cost;
            } else if decision.verdicts.get(1).is_none_or(|verdict| verdict.admitted) {
                let stranded = 3 * policy.slice;
                prop_assert!(taken + cost + stranded > limit, "denied at {taken} of {limit}");
            }
            prop_assert!(taken <= limit);
            prop_assert!(fleets.store.peek_now(&policy, "ip:1").used <= limit);
        }
    }
}

fn policy_of_others() -> Policy {
    policy("other", 5, 0.0)
}
