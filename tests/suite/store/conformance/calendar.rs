//! Windows of the calendar: hours, days, weeks and months of a time zone.

use std::time::Duration;

use jiff::Zoned;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::{self, Algorithm, CalendarUnit, Quota, Window},
    limit::{Policy, PolicyId, Receipt},
};

use super::{
    Harness, Memory, Subject,
    harness::{START, check, refunding, shadow, unforgiving},
    on_subjects, policy, with,
};

on_subjects!(
    memory_and_redis_have_the_same_windows: server Shared, sentinel BehindSentinel, cluster Clustered,
    strict_cluster InOneSlot
);

const MONTH: Window = Window::Calendar(CalendarUnit::Month);
const MINUTE: Window = Window::Length(Duration::from_secs(60));

fn settings(zone: &str, reset_day: u8) -> model::Calendar {
    model::Calendar { time_zone: model::TimeZone::named(zone).unwrap(), reset_day }
}

/// A policy with these quotas. Its ID follows from name and shape.
pub(crate) fn calendar(name: &str, zone: &str, reset_day: u8, quotas: &[(u64, Window)]) -> Policy {
    let keys = vec![
        model::KeyRecipe(vec![model::KeyPart::Ip]),
        model::KeyRecipe(vec![model::KeyPart::Ip, model::KeyPart::Path]),
    ];
    let quotas: Vec<_> = quotas.iter().map(|&(limit, window)| Quota { limit, window }).collect();
    let new = model::Policy::new(name, Algorithm::FixedWindow, keys, quotas);
    let policy = Policy::new(&model::Policy { calendar: settings(zone, reset_day), ..new }, PolicyId(0));
    let hash = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
    let id = policy.name.bytes().chain(policy.shape.bytes()).fold(7, hash);
    Policy { id: PolicyId(id), ..policy }
}

/// Microseconds after [`START`].
fn at(time: &str) -> i64 {
    time.parse::<Zoned>().unwrap().timestamp().as_microsecond() - START
}

const ENDS: [(&str, u8, &str, &str); 6] = [
    ("Europe/Berlin", 1, "2026-03-01T00:00:00[Europe/Berlin]", "2026-04-01T00:00:00[Europe/Berlin]"),
    ("Europe/Berlin", 1, "2026-10-01T00:00:00[Europe/Berlin]", "2026-11-01T00:00:00[Europe/Berlin]"),
    ("America/New_York", 1, "2026-03-01T00:00:00[America/New_York]", "2026-04-01T00:00:00[America/New_York]"),
    ("America/New_York", 1, "2026-11-01T00:00:00[America/New_York]", "2026-12-01T00:00:00[America/New_York]"),
    ("UTC", 1, "2028-02-01T00:00:00[UTC]", "2028-03-01T00:00:00[UTC]"),
    ("Asia/Kathmandu", 28, "2026-12-28T00:00:00[Asia/Kathmandu]", "2027-01-28T00:00:00[Asia/Kathmandu]"),
];

pub(crate) fn a_month_begins_and_ends_by_the_clock_of_its_zone<S: Subject>() {
    for (zone, day, start, end) in ENDS {
        let (start, end) = (at(start), at(end));
        let (harness, policy) = (Harness::<S>::new(), calendar("p", zone, day, &[(3, MONTH)]));
        assert_eq!(harness.at(start - 1).take(&policy, "ip:1", 3).reset, 1, "{zone}");
        let taken = harness.at(start).take(&policy, "ip:1", 2);
        assert_eq!((taken.admitted, taken.remaining, taken.reset), (true, 1, end - start), "{zone}");
        assert!(harness.at(end - 2).take(&policy, "ip:1", 1).admitted);
        let denied = harness.at(end - 1).take(&policy, "ip:1", 1);
        assert_eq!((denied.admitted, denied.retry_after, denied.reset), (false, Some(1), 1), "{zone}");
        let next = harness.at(end).take(&policy, "ip:1", 1);
        assert_eq!((next.admitted, next.remaining), (true, 2), "{zone}");
    }
}

pub(crate) fn a_minute_and_a_month_hold_together<S: Subject>() {
    let harness = Harness::<S>::new();
    let policy = calendar("p", "Europe/Berlin", 1, &[(6, MONTH), (2, MINUTE)]);
    let begins = at("2026-03-31T23:58:00[Europe/Berlin]");
    for (minute, remaining) in [(0, [1, 0]), (1, [1, 0])] {
        for remaining in remaining {
            let verdict = harness.at(begins + minute * 60_000_000).take(&policy, "ip:1", 1);
            assert_eq!((verdict.admitted, verdict.tier, verdict.remaining), (true, 0, remaining));
        }
        let denied = harness.take(&policy, "ip:1", 1);
        assert_eq!((denied.admitted, denied.tier, denied.retry_after), (false, 0, Some(60_000_000)));
    }
    // April.
    for minute in 2..5 {
        assert!(harness.at(begins + minute * 60_000_000).take(&policy, "ip:1", 2).admitted);
    }
    let denied = harness.at(begins + 5 * 60_000_000).take(&policy, "ip:1", 1);
    let end = at("2026-05-01T00:00:00[Europe/Berlin]");
    assert_eq!((denied.admitted, denied.tier, denied.limit), (false, 1, 6));
    assert_eq!(denied.retry_after, Some(end - begins - 5 * 60_000_000));
    assert_eq!(harness.used(&policy, "ip:1"), 6);
}

pub(crate) fn another_limit_shares_a_month_and_another_zone_does_not<S: Subject>() {
    let harness = Harness::<S>::new();
    let berlin = calendar("p", "Europe/Berlin", 1, &[(3, MONTH)]);
    harness.exhaust(&berlin, "ip:1");
    assert_eq!(harness.take(&with(&berlin, 5), "ip:1", 2).remaining, 0, "an override counts on");
    for other in [
        calendar("p", "Europe/Paris", 1, &[(3, MONTH)]),
        calendar("p", "Europe/Berlin", 2, &[(3, MONTH)]),
        calendar("p", "Europe/Berlin", 1, &[(3, Window::Calendar(CalendarUnit::Day))]),
        policy("p", Algorithm::FixedWindow, &[(3, 31 * 86_400_000)]),
    ] {
        assert_eq!(harness.used(&other, "ip:1"), 0, "{}", other.shape);
    }
}

pub(crate) fn a_month_is_refunded_until_it_ends<S: Subject>() {
    let policy = refunding(&calendar("p", "America/New_York", 1, &[(3, MONTH)]));
    let end = at("2026-04-01T00:00:00[America/New_York]");
    let harness = Harness::<S>::new();
    let checks = [check(&policy, "ip:1", 2)];
    let first = harness.at(end - 3).decide(&checks).receipt(0);
    harness.at(end - 1).refund(&checks, first);
    assert_eq!(harness.used(&policy, "ip:1"), 0);
    let late = harness.at(end - 1).decide(&checks).receipt(0);
    harness.at(end).take(&policy, "ip:1", 1);
    harness.refund(&checks, late);
    assert_eq!(harness.used(&policy, "ip:1"), 1, "March is over");
    // Beside a request that is asked at the same time.
    let april = harness.decide(&checks).receipt(0);
    assert_eq!(harness.exchange(&checks, april).verdicts[0].remaining, 0);
}

pub(crate) fn a_month_is_listed_and_reset<S: Subject>() {
    let harness = Harness::<S>::new();
    let policies = [calendar("p", "Etc/GMT+1", 1, &[(3, MONTH), (2, MINUTE)])];
    let [policy] = &policies;
    for identifier in ["ip:1", "ip:1+path:/a", "ip:2"] {
        harness.exhaust(policy, identifier);
    }
    assert_eq!(harness.peek(policy, "ip:1").used, 2);
    assert_eq!(harness.clear(&policies, "ip:1").len(), 1);
    let cleared: Vec<_> =
        harness.reset(&policies, "ip:1").into_iter().map(|limit| limit.identifier).collect();
    assert_eq!(cleared, ["ip:1+path:/a"]);
    assert!(harness.take(policy, "ip:1", 1).admitted);
    assert!(!harness.take(policy, "ip:2", 1).admitted);
}

/// Whatever the time was before: a store asks the server again about a time that it does not expect.
pub(crate) fn a_clock_that_is_set_refuses_nothing<S: Subject>() {
    const DAY: i64 = 86_400_000_000;
    let hour = Window::Calendar(CalendarUnit::Hour);
    let policies = [
        calendar("hour", "Europe/Berlin", 1, &[(9, hour)]),
        calendar("month", "America/New_York", 1, &[(99, MONTH)]),
    ];
    let harness = Harness::<S>::new();
    let mut used = 0;
    for now in [0, DAY, 400 * DAY, 401 * DAY, 4_000 * DAY, 4_001 * DAY, 3_000 * DAY, 0] {
        let checks = [check(&policies[0], "ip:1", 1), check(&policies[1], "ip:1", 1)];
        let decision = harness.at(now).decide(&checks);
        assert!(decision.admitted, "after {} days", now / DAY);
        assert_eq!(decision.time, START + now);
        used = used.max(harness.used(&policies[1], "ip:1"));
        assert_eq!(harness.look(&checks).time, START + now);
    }
    assert_eq!(used, 2, "two days of one month");
}

/// The indexes of a policy and of its override.
const OVERRIDDEN: usize = 3;
const OVERRIDE: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    /// Index of policy and cost of each check.
    Decide(Vec<(usize, u64)>),
    Together(Vec<Vec<(usize, u64)>>),
    GiveBack(usize),
    /// So many microseconds pass.
    Pass(i64),
    /// The window of a policy's last tier ends, give or take a microsecond.
    End(usize, i64),
}

fn policies(zone: &str, reset_day: u8) -> Vec<Policy> {
    let unit = |unit| Window::Calendar(unit);
    let of = |name: &str, quotas: &[(u64, Window)]| calendar(name, zone, reset_day, quotas);
    let all = [(4, unit(CalendarUnit::Hour)), (6, unit(CalendarUnit::Day)), (9, MONTH)];
    vec![
        of("hour", &all[..1]),
        of("day", &all[1..2]),
        refunding(&of("week", &[(6, unit(CalendarUnit::Week))])),
        refunding(&of("month", &all[2..])),
        refunding(&of("tiers", &[(2, MINUTE), all[0], all[1], all[2]])),
        unforgiving(&of("denied", &[(3, MINUTE), all[2]])),
        shadow(&of("shadow", &all[1..])),
        policy("plain", Algorithm::FixedWindow, &[(5, 1_000), (8, 60_000)]),
        refunding(&with(&of("month", &all[2..]), 5)),
    ]
}

fn memory_and_redis_have_the_same_windows<S: Subject>() {
    let zones =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"];
    let check = || (0..9_usize, prop_oneof![9 => 0..3_u64, 1 => Just(20)]);
    let request = || vec(check(), 1..4);
    let step = prop_oneof![
        8 => request().prop_map(Step::Decide),
        2 => vec(request(), 2..5).prop_map(Step::Together),
        3 => (0..4_usize).prop_map(Step::GiveBack),
        3 => (0..90_000_000_i64).prop_map(Step::Pass),
        1 => (0..90_000_000_000_i64).prop_map(Step::Pass),
        4 => (0..7_usize, -1..2_i64).prop_map(|(policy, off)| Step::End(policy, off)),
    ];
    let begins = 0..10 * 366 * 86_400_000_000_i64;
    let trace = (0..zones.len(), 1..29_u8, begins, vec(step, 1..60));
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() });
    let replay = |(zone, reset_day, begins, steps): (usize, u8, i64, Vec<Step>)| {
        replay::<S>(&policies(zones[zone], reset_day), begins, &steps)
    };
    runner.run(&trace, replay).unwrap_or_else(|error| panic!("{error}"));
}

fn replay<S: Subject>(policies: &[Policy], begins: i64, steps: &[Step]) -> Result<(), TestCaseError> {
    let (memory, redis) = (Harness::<Memory>::new(), Harness::<S>::new());
    let mut now = begins;
    let mut given: Vec<((usize, u64), Receipt)> = Vec::new();
    // A request is checked by a policy or by its override.
    let asked = |request: &[(usize, u64)]| {
        let has_override = request.iter().any(|(policy, _)| *policy == OVERRIDE);
        let is_asked = |check: &&(usize, u64)| check.0 != OVERRIDDEN || !has_override;
        request.iter().filter(is_asked).copied().collect::<Vec<_>>()
    };
    let checks = |request: &[(usize, u64)]| {
        let asked = asked(request);
        asked.iter().map(|&(policy, cost)| check(&policies[policy], "ip:1", cost)).collect::<Vec<_>>()
    };
    for (number, step) in steps.iter().enumerate() {
        memory.at(now);
        redis.at(now);
        match step {
            Step::Decide(request) => {
                let decision = memory.decide(&checks(request));
                prop_assert_eq!(redis.decide(&checks(request)), decision.clone(), "step {}", number);
                for ((policy, cost), verdict) in asked(request).into_iter().zip(&decision.verdicts) {
                    if !decision.admitted || !verdict.admitted || cost == 0 {
                        continue;
                    }
                    if let [Some(calendar)] = &policies[policy].calendars[..] {
                        let end = calendar.end(START + now).parse::<Zoned>().unwrap().timestamp();
                        prop_assert_eq!(START + now + verdict.reset, end.as_microsecond());
                    }
                    if policies[policy].may_refund() {
                        given.push(((policy, cost), decision.receipt(0)));
                    }
                }
            }
            Step::Together(requests) => {
                let requests: Vec<_> = requests.iter().map(|request| checks(request)).collect();
                prop_assert_eq!(redis.together(&requests), memory.together(&requests), "step {}", number);
            }
            Step::GiveBack(ago) => {
                if let Some(index) = given.len().checked_sub(ago + 1) {
                    let (taken, receipt) = given.remove(index);
                    memory.refund(&checks(&[taken]), receipt);
                    redis.refund(&checks(&[taken]), receipt);
                }
            }
            Step::Pass(time) => now += time,
            Step::End(policy, off) => {
                let calendar = policies[*policy].calendars.last().and_then(Option::as_ref).unwrap();
                now = now.max(calendar.bounds(START + now).0[2] - START + off);
            }
        }
    }
    for policy in policies {
        prop_assert_eq!(redis.peek(policy, "ip:1"), memory.peek(policy, "ip:1"), "{}", &policy.shape);
    }
    Ok(())
}
