//! Quota slices: several instances that share a store, and take parts of a window's quota at once.

use std::{
    cell::Cell,
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Check, Decision, DecisionSource, Instances, ManualClock, Policy, PolicyId, SlicedStore, Slices,
        Store, Taken, Unavailable, algorithm::Detail,
    },
    store::memory::MemoryStore,
};

const HOUR: i64 = 3_600_000_000;

/// Counts how often it is asked.
struct Counting {
    store: Arc<MemoryStore>,
    asked: Cell<u64>,
    is_away: Cell<bool>,
    /// The next question takes a while to arrive, or its answer to come back.
    is_late: Cell<Late>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    No,
    Question,
    Answer,
}

impl Store for Counting {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if self.is_away.get() {
            return Err(Unavailable::Unreachable("away".into()));
        }
        self.asked.set(self.asked.get() + 1);
        let late = self.is_late.replace(Late::No);
        if late == Late::Question {
            tokio::task::yield_now().await;
        }
        let decision = self.store.decide(checks).await;
        if late == Late::Answer {
            tokio::task::yield_now().await;
        }
        decision
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        self.store.look(checks).await
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        self.store.settle(taken).await
    }
}

/// Instances over one store.
struct Deployment {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    each: Vec<Instance>,
}

/// What it knows of the others, its way to the store, and what of it reaches the store.
struct Instance {
    instances: Arc<Instances>,
    store_slices: SlicedStore<Arc<Counting>>,
    counting: Arc<Counting>,
}

impl Deployment {
    fn of(instances: usize) -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let store = Arc::new(MemoryStore::new(1_000, Arc::clone(&clock) as _));
        let instance = |_| {
            let instances = Arc::new(Instances::default());
            let counting = Counting {
                store: Arc::clone(&store),
                asked: Cell::new(0),
                is_away: Cell::new(false),
                is_late: Cell::new(Late::No),
            };
            #[expect(
                clippy::arc_with_non_send_sync,
                reason = "a store is shared by Arc, and this by one thread"
            )]
            let counting = Arc::new(counting);
            let slices = Arc::new(Slices::new(Arc::clone(&instances)));
            let store_slices = SlicedStore::new(Arc::clone(&counting), slices, Arc::clone(&clock) as _);
            Instance { instances, store_slices, counting }
        };
        Self {
            clock: Arc::clone(&clock),
            each: (0..instances).map(instance).collect(),
            store: Arc::clone(&store),
        }
    }

    fn decide(&self, instance: usize, checks: &[Check<'_>]) -> Decision {
        answer(self.each[instance].store_slices.decide(checks)).unwrap()
    }

    /// The same, while something else happens between question and answer.
    fn decide_while(
        &self,
        instance: usize,
        checks: &[Check<'_>],
        late: Late,
        meanwhile: impl FnOnce(),
    ) -> Decision {
        let Instance { store_slices, counting, .. } = &self.each[instance];
        counting.is_late.set(late);
        let mut question = pin!(store_slices.decide(checks));
        let first = question.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(first, Poll::Pending), "the store was asked");
        meanwhile();
        answer(question).unwrap()
    }

    /// The store decides, and its answer does not arrive: the client has gone, or it came too late.
    fn decide_unheard(&self, instance: usize, checks: &[Check<'_>]) {
        let Instance { store_slices, counting, .. } = &self.each[instance];
        counting.is_late.set(Late::Answer);
        let question = pin!(store_slices.decide(checks));
        assert!(question.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "the store was asked");
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
fn the_store_is_asked_once_per_slice_and_fields_are_exact() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.1);
    for taken in 1..=100 {
        let decision = deployment.decide(0, &[check(&policy, 1)]);
        assert!(decision.admitted, "{taken}");
        let verdict = decision.verdicts[0];
        assert_eq!((verdict.limit, verdict.remaining, verdict.reset), (100, 100 - taken, HOUR), "{taken}");
        let expected = if taken % 10 == 1 { DecisionSource::Store } else { DecisionSource::Slice };
        assert_eq!(decision.source, expected, "{taken}");
    }
    assert_eq!(deployment.asked(), 10);
    let denied = deployment.decide(0, &[check(&policy, 1)]);
    assert_eq!((denied.admitted, denied.verdicts[0].retry_after), (false, Some(HOUR)));
}

#[test]
fn fields_are_exact_whatever_requests_cost() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 40, 0.25);
    let left = |cost| {
        let decision = deployment.decide(0, &[check(&policy, cost)]);
        (decision.admitted, decision.verdicts[0].remaining)
    };
    assert_eq!([3, 12, 15].map(left), [(true, 37), (true, 25), (true, 10)], "more than a slice");
    assert_eq!(left(12), (false, 10), "seven here, and three in the store");
    assert_eq!([3, 3].map(left), [(true, 7), (true, 4)]);
    assert_eq!([3, 1].map(left), [(true, 1), (true, 0)], "no slice is left in the store, but three units");
    assert_eq!(left(1), (false, 0));
}

#[test]
fn less_than_a_slice_goes_to_any_request() {
    let deployment = Deployment::of(2);
    let policy = policy("p", 25, 0.4);
    // Each takes a slice of ten; of the five that are left each unit is asked for.
    let admitted = (0..60).filter(|i| deployment.decide(i % 2, &[check(&policy, 1)]).admitted).count();
    assert_eq!(admitted, 25, "nothing strands where both go on asking");
}

#[test]
fn a_slice_is_void_when_its_window_ends() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.5);
    deployment.clock.set(HOUR - 1);
    deployment.decide(0, &[check(&policy, 1)]);
    deployment.clock.set(HOUR);
    let next = deployment.decide(0, &[check(&policy, 1)]);
    assert_eq!((next.source, next.verdicts[0].remaining), (DecisionSource::Store, 99));
    assert_eq!(deployment.store.peek_now(&policy, "ip:1").used, 50, "of this window one slice was taken");
}

#[test]
fn a_request_denied_by_another_policy_takes_nothing() {
    let deployment = Deployment::of(1);
    let (sliced, strict) = (policy("sliced", 100, 0.1), policy("strict", 1, 0.0));
    assert!(deployment.decide(0, &[check(&sliced, 1), check(&strict, 1)]).admitted);
    for _ in 0..20 {
        let denied = deployment.decide(0, &[check(&sliced, 1), check(&strict, 1)]);
        assert_eq!((denied.admitted, denied.verdicts[0].admitted), (false, true));
    }
    assert_eq!(deployment.store.peek_now(&sliced, "ip:1").used, 10, "the first slice is enough");
    let here = deployment.decide(0, &[check(&sliced, 9)]);
    assert_eq!(
        (here.source, here.verdicts[0].remaining),
        (DecisionSource::Slice, 90),
        "all nine are still there"
    );
}

#[test]
fn a_request_denied_by_another_policy_puts_its_units_back_though_the_slice_was_refilled_meanwhile() {
    let deployment = Deployment::of(1);
    let (sliced, strict) = (policy("sliced", 100, 0.1), policy("strict", 1, 0.0));
    assert!(deployment.decide(0, &[check(&sliced, 1), check(&strict, 1)]).admitted);
    let both = [check(&sliced, 4), check(&strict, 1)];
    let denied = deployment.decide_while(0, &both, Late::Answer, || {
        // The last units of the slice, and the first of the next one, whose answer is on its way for a while.
        assert_eq!(deployment.decide(0, &[check(&sliced, 5)]).source, DecisionSource::Slice);
        let refill = deployment.decide_while(0, &[check(&sliced, 1)], Late::Question, || {
            deployment.clock.set(1_000);
        });
        assert!(refill.admitted);
    });
    assert!(!denied.admitted && denied.verdicts[0].admitted);
    assert_eq!(deployment.store.peek_now(&sliced, "ip:1").used, 20, "two slices");
    let here = |cost| deployment.decide(0, &[check(&sliced, cost)]);
    // Of 20 units, requests have taken seven.
    assert_eq!([9, 4].map(|cost| here(cost).source), [DecisionSource::Slice; 2]);
    assert_eq!(deployment.store.peek_now(&sliced, "ip:1").used, 20, "no unit is lost");
    assert_eq!(here(1).source, DecisionSource::Store, "nor is there one too many");
}

#[test]
fn units_of_a_window_that_has_passed_are_not_put_into_the_next() {
    let deployment = Deployment::of(1);
    let (sliced, strict) = (policy("sliced", 100, 0.1), policy("strict", 1, 0.0));
    deployment.clock.set(HOUR - 1);
    assert!(deployment.decide(0, &[check(&sliced, 1)]).admitted);
    let mut taken = 0;
    let both = [check(&sliced, 9), check(&strict, 1)];
    let denied = deployment.decide_while(0, &both, Late::Question, || {
        deployment.clock.set(HOUR);
        assert!(deployment.store.decide_now(&[check(&strict, 1)]).admitted);
        taken = (0..5).filter(|_| deployment.decide(0, &[check(&sliced, 1)]).admitted).count();
    });
    assert!(!denied.admitted);
    taken += (0..200).filter(|_| deployment.decide(0, &[check(&sliced, 1)]).admitted).count();
    assert_eq!(taken, 100);
}

#[test]
fn limits_that_are_taken_back_take_the_slices_with_them() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.5);
    deployment.decide(0, &[check(&policy, 1)]);
    deployment.store.reset_now(std::slice::from_ref(&policy), "ip:1");
    deployment.each[0].instances.invalidate();
    let admitted = (0..200).filter(|_| deployment.decide(0, &[check(&policy, 1)]).admitted).count();
    assert_eq!(admitted, 100);
}

#[test]
fn a_store_that_was_away_is_asked_for_a_slice_again() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.1);
    let Instance { store_slices, counting, .. } = &deployment.each[0];
    counting.is_away.set(true);
    assert!(answer(store_slices.decide(&[check(&policy, 1)])).is_err());
    counting.is_away.set(false);
    for _ in 0..20 {
        assert!(deployment.decide(0, &[check(&policy, 1)]).admitted);
    }
    assert_eq!(deployment.asked(), 2);
}

/// Each of them could be lost, until nothing is left for anybody.
#[test]
fn after_an_answer_that_was_not_heard_no_other_slice_is_asked_for_in_the_window() {
    let deployment = Deployment::of(2);
    let policy = policy("p", 100, 0.1);
    let used = || deployment.store.peek_now(&policy, "ip:1").used;
    for _ in 0..20 {
        deployment.decide_unheard(0, &[check(&policy, 1)]);
    }
    assert_eq!(used(), 10 + 19, "a slice, and units");
    // The other has heard all answers.
    assert_eq!(deployment.decide(1, &[check(&policy, 1)]).source, DecisionSource::Store);
    assert_eq!((deployment.decide(1, &[check(&policy, 1)]).source, used()), (DecisionSource::Slice, 39));

    // Amid the window, what is left of the slice before is spent.
    deployment.clock.set(HOUR);
    for _ in 0..8 {
        assert!(deployment.decide(0, &[check(&policy, 1)]).admitted);
    }
    deployment.decide_unheard(0, &[check(&policy, 3)]);
    assert_eq!(used(), 20);
    let source = |cost| deployment.decide(0, &[check(&policy, cost)]).source;
    assert_eq!([source(2), source(1)], [DecisionSource::Slice, DecisionSource::Store]);
    assert_eq!(used(), 21);
}

#[test]
fn a_shadow_policy_stands_in_nobodys_way_where_no_whole_slice_is_left() {
    let deployment = Deployment::of(1);
    let sliced = policy("sliced", 100, 0.5);
    let shadow = Policy { is_shadow: true, ..policy("shadow", 1, 0.0) };
    for (policy, units) in [(&sliced, 60), (&shadow, 1)] {
        assert!(deployment.store.decide_now(&[check(policy, units)]).admitted);
    }
    let decision = deployment.decide(0, &[check(&sliced, 1), check(&shadow, 1)]);
    assert!(decision.admitted, "40 are left, and a shadow policy never denies: {decision:?}");
    assert!(!decision.verdicts[1].admitted, "it says what it would have done");
}

#[test]
fn no_request_is_denied_while_the_last_slice_is_on_its_way() {
    let policy = policy("p", 10, 0.5);
    let checks = [check(&policy, 1)];
    // The slice comes before the denial is heard, or only while the store is asked once more.
    for is_asked_again in [false, true] {
        let deployment = Deployment::of(1);
        let Instance { store_slices, counting, .. } = &deployment.each[0];
        for _ in 0..5 {
            assert!(deployment.decide(0, &checks).admitted);
        }
        let poll_late = |question: std::pin::Pin<&mut dyn Future<Output = Result<Decision, Unavailable>>>| {
            counting.is_late.set(Late::Answer);
            question.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        };
        let mut refill = pin!(store_slices.decide(&checks));
        assert!(poll_late(refill.as_mut()), "the last slice is asked for");
        let mut other = pin!(store_slices.decide(&checks));
        assert!(poll_late(other.as_mut()), "the store is asked for a single unit");
        if is_asked_again {
            assert!(poll_late(other.as_mut()), "it is asked again");
        }
        assert!(answer(refill).unwrap().admitted);
        let other = answer(other).unwrap();
        assert_eq!((other.admitted, other.source), (true, DecisionSource::Slice));
        let rest = (0..5).filter(|_| deployment.decide(0, &checks).admitted).count();
        assert_eq!(rest, 3, "10 in all");
    }
}

#[test]
fn a_slice_that_cannot_be_had_is_no_denial_of_what_still_fits() {
    let deployment = Deployment::of(1);
    let (sliced, strict) = (policy("sliced", 100, 0.5), policy("strict", 1, 0.0));
    for (policy, units) in [(&sliced, 60), (&strict, 1)] {
        assert!(deployment.store.decide_now(&[check(policy, units)]).admitted);
    }
    let decision = deployment.decide(0, &[check(&sliced, 1), check(&strict, 1)]);
    assert!(!decision.admitted && !decision.verdicts[1].admitted);
    // It would be remembered, and told to the client.
    let verdict = decision.verdicts[0];
    assert_eq!((verdict.admitted, verdict.retry_after, verdict.remaining), (true, Some(0), 40));
}

#[test]
fn the_rest_of_a_slice_ends_with_its_window_while_the_next_is_asked_for() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.1);
    deployment.clock.set(HOUR - 1);
    assert!(deployment.decide(0, &[check(&policy, 6)]).admitted, "four are left here");
    let mut taken = 0;
    deployment.decide_while(0, &[check(&policy, 9)], Late::Answer, || {
        deployment.clock.set(HOUR);
        taken = (0..200).filter(|_| deployment.decide(0, &[check(&policy, 1)]).admitted).count();
    });
    taken += (0..200).filter(|_| deployment.decide(0, &[check(&policy, 1)]).admitted).count();
    assert!(taken <= 100, "{taken} in one window");
}

#[test]
fn the_rest_of_a_slice_ends_with_its_window_where_the_next_has_none() {
    let deployment = Deployment::of(2);
    let policy = policy("p", 100, 0.1);
    deployment.clock.set(HOUR - 1);
    assert!(deployment.decide(0, &[check(&policy, 6)]).admitted, "four are left here");
    let mut taken = 0;
    let late = deployment.decide_while(0, &[check(&policy, 9)], Late::Question, || {
        deployment.clock.set(HOUR);
        assert!(deployment.store.decide_now(&[check(&policy, 98)]).admitted);
        taken = 98;
    });
    assert!(!late.admitted);
    taken += (0..200).filter(|_| deployment.decide(0, &[check(&policy, 1)]).admitted).count();
    assert_eq!(taken, 100);
}

#[test]
fn no_override_spends_a_slice_of_another_limit() {
    let deployment = Deployment::of(1);
    let strict = policy("p", 10, 0.2);
    let generous = policy("p", 1_000, 0.1);
    assert_eq!(strict.id, generous.id, "as an override has its policy's");
    assert!(deployment.decide(0, &[check(&generous, 1)]).admitted);
    let decision = deployment.decide(0, &[check(&strict, 1)]);
    assert!(!decision.admitted, "100 are used of 10: {decision:?}");
}

#[test]
fn a_slice_that_was_asked_for_before_its_limit_was_taken_back_is_void() {
    let deployment = Deployment::of(1);
    let policy = policy("p", 100, 0.5);
    let mut admitted = 0;
    let first = deployment.decide_while(0, &[check(&policy, 1)], Late::Answer, || {
        deployment.store.reset_now(std::slice::from_ref(&policy), "ip:1");
        deployment.each[0].instances.invalidate();
        // Somebody asks for a slice of the new count, and is told later than the one before.
        let second = deployment.decide_while(0, &[check(&policy, 1)], Late::Answer, || {});
        admitted += usize::from(second.admitted);
    });
    assert!(first.admitted);
    admitted += (0..200).filter(|_| deployment.decide(0, &[check(&policy, 1)]).admitted).count();
    assert_eq!(admitted, 100);
}

proptest! {
    /// Any order of requests: never more than the limit, and at most what the
    /// instances hold less.
    #[test]
    fn never_more_than_the_limit_and_a_slice_an_instance_less(
        steps in vec((0..3_usize, 1..8_u64, any::<bool>(), 0..8_i64), 1..200),
        limit in 1..60_u64,
        hundredths in 0..60_u32,
    ) {
        let deployment = Deployment::of(3);
        let policy = policy("p", limit, f64::from(hundredths) / 100.0);
        let other = policy_of_others();
        let (mut window, mut taken, mut now) = (0, 0, 0_i64);
        for (instance, cost, with_other, eighths) in steps {
            now += eighths * HOUR / 64;
            deployment.clock.set(now);
            if now / HOUR != window {
                (window, taken) = (now / HOUR, 0);
            }
            let mut checks = vec![check(&policy, cost)];
            if with_other {
                checks.push(check(&other, 1));
            }
            let decision = deployment.decide(instance, &checks);
            if decision.admitted {
                taken += cost;
            } else if decision.verdicts.get(1).is_none_or(|verdict| verdict.admitted) {
                let stranded = 3 * policy.slice;
                prop_assert!(taken + cost + stranded > limit, "denied at {taken} of {limit}");
            }
            prop_assert!(taken <= limit);
            prop_assert!(deployment.store.peek_now(&policy, "ip:1").used <= limit);
        }
    }
}

fn policy_of_others() -> Policy {
    policy("other", 5, 0.0)
}
