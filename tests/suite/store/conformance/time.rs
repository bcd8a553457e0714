//! When limits give units back, and what a clock that is moved does to them.

use tollgate::config::model::Algorithm::{self, FixedWindow, SlidingCounter, SlidingLog};

use super::{
    ALGORITHMS, GCRA, Harness, MINUTE, SECOND, Subject,
    harness::{PUNCTUAL, START, check},
    policy, with,
};

/// When one more unit fits, of a limit of three a second that were all taken at 0, and how many are left then.
fn one_of_three_fits(algorithm: Algorithm) -> (i64, u64) {
    match algorithm {
        // A third of a second drains a unit, but not before its last microsecond is full.
        GCRA => (333_334, 0),
        // They leave evenly over the second after theirs.
        SlidingCounter => (1_333_334, 0),
        _ => (1_000_000, 2),
    }
}

pub(crate) fn retry_after_is_exact<S: Subject>() {
    for algorithm in ALGORITHMS {
        for (cost, time) in [(1, 0), (2, 999_000), (3, 1_234_567), (5, 999_999)] {
            let harness = Harness::<S>::new();
            let policy = policy("p", algorithm, &[(5, SECOND)]);
            for spread in 0..5 {
                assert!(
                    harness.at(time + spread * 1_000).take(&policy, "ip:1", 1).admitted || time == 999_000
                );
            }
            let now = time + 5_000;
            let denied = harness.at(now).take(&policy, "ip:1", cost);
            if denied.admitted {
                continue; // a calendar window ended in between
            }
            let retry_after = denied.retry_after.expect("it fits the limit");
            assert!(retry_after >= denied.reset, "{algorithm:?}");
            let early = harness.at(now + retry_after - 1).take(&policy, "ip:1", cost);
            assert_eq!((early.admitted, early.retry_after), (false, Some(1)), "{algorithm:?}");
            assert!(harness.at(now + retry_after).take(&policy, "ip:1", cost).admitted, "{algorithm:?}");
        }
    }
}

pub(crate) fn reset_is_when_units_come_back<S: Subject>() {
    for algorithm in PUNCTUAL {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        harness.at(100).take(&policy, "ip:1", 2);
        let verdict = harness.at(300).take(&policy, "ip:1", 2);
        let (reset, left) = match algorithm {
            FixedWindow => (999_700, 0),
            SlidingLog => (999_800, 2),
            // A thousandth of a unit has drained.
            GCRA => (199_800, 3),
            // A quarter into the next window.
            SlidingCounter => (1_249_700, 3),
            _ => (999_800, 0),
        };
        assert_eq!(verdict.reset, reset, "{algorithm:?}");
        let before = harness.at(300 + verdict.reset - 1).peek(&policy, "ip:1");
        assert_eq!((before.used, before.verdict.reset), (4, 1), "{algorithm:?}");
        assert_eq!(harness.at(300 + verdict.reset).used(&policy, "ip:1"), left, "{algorithm:?}");
    }
}

pub(crate) fn windows_are_half_open<S: Subject>() {
    for algorithm in PUNCTUAL {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(1, SECOND)]);
        // All of a calendar window's only unit counts until the next one is over.
        let apart = if algorithm == SlidingCounter { 2_000_000 } else { 1_000_000 };
        for window in 0..5 {
            assert!(harness.at(window * apart).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
            assert!(!harness.at((window + 1) * apart - 1).take(&policy, "ip:1", 1).admitted);
        }
    }
}

pub(crate) fn time_that_runs_backward_frees_nothing<S: Subject>() {
    for algorithm in PUNCTUAL {
        let (harness, (fits, left)) = (Harness::<S>::new(), one_of_three_fits(algorithm));
        let policy = policy("p", algorithm, &[(3, SECOND)]);
        harness.at(0).exhaust(&policy, "ip:1");
        for back in [-1, -500_000, -1_000_000] {
            let denied = harness.at(back).take(&policy, "ip:1", 1);
            assert_eq!((denied.admitted, denied.retry_after), (false, Some(fits - back)));
        }
        assert!(!harness.at(fits - 1).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
        assert!(harness.at(fits).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");

        // What is taken while the clock is behind counts as taken at the newest time seen.
        let harness = Harness::<S>::new();
        harness.at(0).take(&policy, "ip:1", 1);
        harness.at(-600_000).exhaust(&policy, "ip:1");
        assert!(!harness.at(fits - 1).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
        let verdict = harness.at(fits).take(&policy, "ip:1", 1);
        assert_eq!((verdict.admitted, verdict.remaining), (true, left), "{algorithm:?}");
    }
}

pub(crate) fn a_clock_that_jumped_forth_freezes_nothing<S: Subject>() {
    const YEAR: i64 = 366 * 86_400_000_000;
    for algorithm in PUNCTUAL {
        let (harness, (fits, _)) = (Harness::<S>::new(), one_of_three_fits(algorithm));
        let policy = policy("p", algorithm, &[(3, SECOND)]);
        harness.at(YEAR).exhaust(&policy, "ip:1");
        assert_eq!(harness.at(0).take(&policy, "ip:1", 1).remaining, 2, "{algorithm:?}");
        harness.exhaust(&policy, "ip:1");
        assert!(!harness.at(fits - 1).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
        assert!(harness.at(fits).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
    }
    let harness = Harness::<S>::new();
    let tiers = policy("p", FixedWindow, &[(2, SECOND), (9, MINUTE)]);
    harness.at(10_000_000).take(&tiers, "ip:1", 2);
    let verdict = harness.at(0).take(&tiers, "ip:1", 2);
    assert!(verdict.admitted, "the second lies far ahead");
    assert_eq!(harness.take(&with(&tiers, 100), "ip:1", 6).limit, 9, "the minute does not");
}

pub(crate) fn a_billion_over_366_days_is_exact<S: Subject>() {
    const BILLION: u64 = 1_000_000_000;
    const DAYS: u64 = 366 * 24 * 60 * MINUTE;
    for algorithm in PUNCTUAL {
        let harness = Harness::<S>::new();
        let policy = policy("p", algorithm, &[(BILLION, DAYS)]);
        let window = policy.tiers[0].window;
        if matches!(algorithm, SlidingCounter | GCRA) {
            // A unit leaves in 31 622.4 µs: at once, or when its window is over.
            let (last, next) = if algorithm == GCRA { (0, 31_623) } else { (window - 1, window + 31_623) };
            assert_eq!(harness.take(&policy, "ip:1", BILLION - 1).remaining, 1, "{algorithm:?}");
            assert_eq!(harness.at(last).take(&policy, "ip:1", 1).remaining, 0, "{algorithm:?}");
            let denied = harness.take(&policy, "ip:1", 1);
            assert_eq!((denied.admitted, denied.retry_after), (false, Some(next - last)), "{algorithm:?}");
            assert!(!harness.at(next - 1).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
            assert!(harness.at(next).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
            continue;
        }
        // A log takes a thousand at a time, so that for it the limit comes down to what was taken.
        let cost = if algorithm == SlidingLog { 1_000 } else { BILLION };
        let policy = if algorithm == SlidingLog { with(&policy, cost) } else { policy };
        assert_eq!(harness.take(&policy, "ip:1", cost - 1).remaining, 1, "{algorithm:?}");
        assert_eq!(harness.at(window - 1).take(&policy, "ip:1", 1).remaining, 0, "{algorithm:?}");
        let denied = harness.take(&policy, "ip:1", 1);
        assert_eq!((denied.admitted, denied.retry_after), (false, Some(1)), "{algorithm:?}");
        assert!(harness.at(window).take(&policy, "ip:1", 1).admitted, "{algorithm:?}");
    }
    let harness = Harness::<S>::new();
    for now in [i64::MIN, -1, 0, i64::MAX] {
        harness.clock.set(now);
        let policies = ALGORITHMS.map(|algorithm| policy("p", algorithm, &[(BILLION, DAYS)]));
        let checks: Vec<_> = policies.iter().map(|policy| check(policy, "ip:1", 1)).collect();
        assert!(harness.decide(&checks).admitted, "at {now}");
    }
    assert_eq!(START % policy("p", FixedWindow, &[(1, DAYS)]).tiers[0].window, 0);
}
