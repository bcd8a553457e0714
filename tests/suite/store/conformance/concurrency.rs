//! Many threads on one budget.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tollgate::{config::model::Algorithm, limit::Check};

use super::{
    ALGORITHMS, Harness, MINUTE, Subject,
    harness::{START, check},
    policy,
};

const THREADS: u64 = 64;
const ROUNDS: usize = 25;

pub(crate) fn threads_take_exactly_the_budget<S: Subject>() {
    for algorithm in ALGORITHMS {
        let policy = policy("p", algorithm, &[(50, MINUTE)]);
        // With fewer requests than the budget, with as many, and with more.
        for each in [0, 1, 7] {
            let attempts = THREADS * each + 50;
            // Threads that have just connected, and those that have asked before.
            for _ in 0..5 {
                let harness = Harness::<S>::new();
                let identifier = |round: usize| format!("ip:{round}");
                let admitted = on_threads_in_rounds(ROUNDS / 5, |round, thread| {
                    let attempts = (attempts + thread) / THREADS; // sums to all of them
                    let take = |_: &u64| harness.take(&policy, &identifier(round), 1).admitted;
                    (0..attempts).filter(take).count() as u64
                });
                for (round, admitted) in admitted.into_iter().enumerate() {
                    assert_eq!(admitted, attempts.min(50), "{algorithm:?}");
                    assert_eq!(harness.used(&policy, &identifier(round)), admitted, "{algorithm:?}");
                }
            }
        }
    }
}

pub(crate) fn threads_with_several_checks_neither_over_admit_nor_deadlock<S: Subject>() {
    let policies = ALGORITHMS.map(|algorithm| policy("p", algorithm, &[(100, MINUTE)]));
    for round in 0..ROUNDS {
        let harness = Harness::<S>::new();
        harness.clock.set(START + round as i64);
        // Each takes of a budget of its own and of a common one, in one order or the other.
        let admitted = on_threads(|thread| {
            let mut checks: Vec<Check<'_>> = policies
                .iter()
                .flat_map(|policy| [check(policy, &format!("user:{thread}"), 1), check(policy, "global", 1)])
                .collect();
            if thread % 2 == 0 {
                checks.reverse();
            }
            let admitted = (0..4).filter(|_| harness.decide(&checks).admitted).count() as u64;
            for policy in &policies {
                assert_eq!(harness.used(policy, &format!("user:{thread}")), admitted, "denials took none");
            }
            admitted
        });
        assert_eq!(admitted, 100);
        for policy in &policies {
            assert_eq!(harness.used(policy, "global"), 100);
        }
    }
}

pub(crate) fn threads_enter_up_to_the_limit<S: Subject>() {
    for algorithm in [Algorithm::Concurrency, Algorithm::Distinct] {
        for limit in [1, 50, 200] {
            let policy = policy("p", algorithm, &[(limit, MINUTE)]);
            let harness = Harness::<S>::new();
            let admitted = on_threads(|thread| {
                let enter = || harness.enter(&policy, "ip:1", u128::from(thread)).admitted;
                let first = enter();
                assert_eq!(
                    [enter(), enter()],
                    [first; 2],
                    "a member that is in stays in, and no other comes in"
                );
                u64::from(first)
            });
            assert_eq!(admitted, limit.min(THREADS), "{algorithm:?}");
            assert_eq!(harness.used(&policy, "ip:1"), admitted, "{algorithm:?}");
        }
    }
}

/// Runs `work` on all threads at once and adds up what they say.
fn on_threads(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    on_threads_in_rounds(1, |_, thread| work(thread))[0]
}

/// Likewise in each of several rounds, which all threads begin together. Threads keep their ends of the store.
fn on_threads_in_rounds(rounds: usize, work: impl Fn(usize, u64) -> u64 + Sync) -> Vec<u64> {
    let start = Barrier::new(usize::try_from(THREADS).unwrap());
    let sums: Vec<_> = (0..rounds).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, sums, work) = (&start, &sums, &work);
            scope.spawn(move || {
                let mut panic = None;
                for (round, sum) in sums.iter().enumerate() {
                    // All have to come here, or the others would wait for ever.
                    start.wait();
                    match panic::catch_unwind(AssertUnwindSafe(|| work(round, thread))) {
                        Ok(said) => _ = sum.fetch_add(said, Ordering::Relaxed),
                        Err(error) => panic = Some(error),
                    }
                }
                if let Some(error) = panic {
                    panic::resume_unwind(error);
                }
            });
        }
    });
    sums.into_iter().map(AtomicU64::into_inner).collect()
}
