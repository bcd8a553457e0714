//! What is particular to the memory store: that it is bounded, and what it gives up first.

use std::sync::Arc;

use tollgate::{
    config::model::Algorithm::{Concurrency, Distinct, FixedWindow, MetadataList, SingleCounter, SlidingLog},
    limit::{
        Check, ManualClock, Policy,
        algorithm::{Detail, metadata_list::Entry},
    },
    store::memory::MemoryStore,
};

use super::conformance::{ALGORITHMS, MINUTE, SECOND, policy, with};

fn take(store: &MemoryStore, policy: &Policy, identifier: &str) -> bool {
    store
        .decide_now(&[Check { policy, identifier: identifier.into(), cost: 1, detail: Detail::None }])
        .admitted
}

/// The same for one that has a value, or a token.
fn enter(store: &MemoryStore, policy: &Policy, identifier: &str, member: u128) -> bool {
    let detail = Detail::Member(member);
    store.decide_now(&[Check { policy, identifier: identifier.into(), cost: 1, detail }]).admitted
}

/// The same with an entry, as of a request at `time`.
fn write_down(store: &MemoryStore, policy: &Policy, identifier: &str, time: i64) -> bool {
    let entry = Entry { time, user: None, method: http::Method::GET, path: "/".into() };
    let detail = Detail::Entry(Arc::new(entry));
    store.decide_now(&[Check { policy, identifier: identifier.into(), cost: 1, detail }]).admitted
}

fn store(max_keys: usize) -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::new(0));
    (Arc::clone(&clock), MemoryStore::new(max_keys, clock))
}

#[test]
fn rotating_addresses_neither_flush_a_denial_nor_grow_the_store() {
    for algorithm in ALGORITHMS {
        for max_keys in [2, 100, 5_000] {
            let policy = policy("p", algorithm, &[(2, MINUTE)]);
            let (clock, store) = store(max_keys);
            while take(&store, &policy, "ip:denied") {}
            // Of those that are not at their limit, it would be the first to go.
            clock.advance(1);
            for i in 0..max_keys * 10 {
                assert!(take(&store, &policy, &format!("ip:{i}")));
            }
            assert!(!take(&store, &policy, "ip:denied"), "{algorithm:?} among {max_keys}");
            let stats = store.stats();
            assert!(stats.keys <= max_keys && stats.keys * 10 >= max_keys * 8, "{stats:?} of {max_keys}");
            assert_eq!(stats.dropped, (max_keys * 10 + 1 - stats.keys) as u64);
        }
    }
}

#[test]
fn rotating_addresses_flush_no_denial_of_values_and_no_lock_that_is_held() {
    for algorithm in [Distinct, Concurrency] {
        for max_keys in [2, 100, 5_000] {
            let policy = policy("p", algorithm, &[(2, MINUTE)]);
            let (clock, store) = store(max_keys);
            assert!(enter(&store, &policy, "ip:denied", 1) && enter(&store, &policy, "ip:denied", 2));
            assert!(!enter(&store, &policy, "ip:denied", 3), "{algorithm:?}");
            clock.advance(1);
            for i in 0..max_keys * 10 {
                assert!(enter(&store, &policy, &format!("ip:{i}"), 1));
            }
            assert!(!enter(&store, &policy, "ip:denied", 4), "{algorithm:?} among {max_keys}");
            assert!(store.stats().keys <= max_keys, "{:?} of {max_keys}", store.stats());
        }
    }
}

#[test]
fn a_sweep_removes_what_is_over_of_every_algorithm_and_nothing_before() {
    for algorithm in ALGORITHMS.into_iter().chain([Distinct, Concurrency]) {
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        let (clock, store) = store(100);
        for member in 1..=2 {
            assert!(enter(&store, &policy, "ip:1", member), "{algorithm:?}");
        }
        clock.set(999_999);
        assert_eq!((store.sweep(1_000), store.stats().keys), (0, 1), "{algorithm:?}");
        clock.set(5_000_000);
        assert_eq!((store.sweep(1_000), store.stats().keys), (1, 0), "{algorithm:?}");
    }
}

/// Units of several policies can't be compared: a request is one, and a response has millions of bytes.
#[test]
fn a_month_that_is_nearly_used_up_outlasts_a_flood_of_bytes_and_of_minutes() {
    const MONTH: u64 = 30 * 24 * 60 * MINUTE;
    let bytes = policy("bytes", SingleCounter, &[(1_000_000_000, 60 * MINUTE)]);
    let minute = policy("minute", SingleCounter, &[(60, MINUTE)]);
    let months = [
        policy("month", FixedWindow, &[(1_000, MONTH)]),
        // The second has fewer units left, and is hardly used.
        policy("tiers", FixedWindow, &[(50, SECOND), (1_000, MONTH)]),
    ];
    let take = |store: &MemoryStore, policy: &Policy, identifier: &str, cost| {
        let check = Check { policy, identifier: identifier.into(), cost, detail: Detail::None };
        store.decide_now(&[check]).admitted
    };
    for month in &months {
        let (clock, store) = store(2_000);
        let wait_and_take = |cost| {
            clock.advance(100_000);
            take(&store, month, "ip:customer", cost)
        };
        assert!((0..900).all(|_| wait_and_take(1)));
        for i in 0..6_000 {
            let (cost, of_minute) = if i % 2 == 0 { (5_000_000, 1) } else { (900_000_000, 57) };
            assert!(take(&store, &bytes, &format!("ip:{i}"), cost));
            assert!(take(&store, &minute, &format!("ip:{i}"), of_minute));
        }
        assert!(store.stats().dropped >= 4_000, "{:?}", store.stats());
        for left in [50, 50, 0] {
            clock.advance(1_000_000);
            assert_eq!(wait_and_take(50), left > 0, "{}: {left}", month.name);
        }
    }
}

#[test]
fn even_a_store_full_of_denials_but_for_one_keeps_them_all() {
    let policy = policy("p", SlidingLog, &[(2, MINUTE)]);
    let (_, store) = store(64);
    let denied: Vec<String> = (0..63).map(|i| format!("ip:denied:{i}")).collect();
    for identifier in &denied {
        while take(&store, &policy, identifier) {}
    }
    for i in 0..10_000 {
        take(&store, &policy, &format!("ip:{i}"));
    }
    assert!(denied.iter().all(|identifier| !take(&store, &policy, identifier)));
}

#[test]
fn a_store_full_of_denials_goes_on_limiting() {
    let policy = policy("p", SingleCounter, &[(1, MINUTE)]);
    let (_, store) = store(64);
    for i in 0..1_000 {
        let identifier = format!("ip:{i}");
        assert!(take(&store, &policy, &identifier));
        assert!(!take(&store, &policy, &identifier), "the newcomer is limited too");
    }
    assert_eq!(store.stats().keys, 64);
}

#[test]
fn a_limit_that_was_lowered_below_its_count_is_protected_once_it_denies() {
    let generous = policy("p", SingleCounter, &[(100, MINUTE)]);
    let strict = with(&generous, 1);
    let (_, store) = store(64);
    take(&store, &generous, "ip:lowered");
    assert!(!take(&store, &strict, "ip:lowered"));
    for i in 0..10_000 {
        take(&store, &generous, &format!("ip:{i}"));
    }
    assert!(!take(&store, &strict, "ip:lowered"));
}

#[test]
fn a_limit_that_is_free_again_protects_nothing() {
    // At their limit for a second, while their state matters for an hour, longer than the denial.
    let tiers = policy("p", FixedWindow, &[(1, SECOND), (1_000, 60 * MINUTE)]);
    let denying = policy("d", SlidingLog, &[(1, 10 * MINUTE)]);
    let (clock, store) = store(64);
    for i in 0..64 {
        take(&store, &tiers, &format!("ip:{i}"));
    }
    clock.advance(1_000_000);
    while take(&store, &denying, "ip:denied") {}
    for i in 0..500 {
        take(&store, &tiers, &format!("ip:other:{i}"));
        clock.advance(200_000);
    }
    assert!(!take(&store, &denying, "ip:denied"));
}

#[test]
fn expired_limits_leave_before_any_other_is_dropped() {
    let (short, long) = (policy("s", SlidingLog, &[(5, SECOND)]), policy("l", SlidingLog, &[(5, MINUTE)]));
    let (clock, store) = store(64);
    for i in 0..40 {
        take(&store, &short, &format!("ip:{i}"));
        take(&store, &long, &format!("ip:{}", i % 24));
    }
    clock.advance(1_000_000);
    for i in 0..40 {
        take(&store, &long, &format!("ip:new:{i}"));
    }
    assert_eq!(store.stats().dropped, 0);
    assert!((0..24).all(|i| store.peek_now(&long, &format!("ip:{i}")).used > 0));
}

#[test]
fn a_sweep_removes_what_is_over_within_its_budget() {
    let (short, long) = (policy("s", SlidingLog, &[(5, SECOND)]), policy("l", SlidingLog, &[(5, MINUTE)]));
    let (clock, store) = store(100);
    for i in 0..50 {
        take(&store, &short, &format!("ip:{i}"));
        take(&store, &long, &format!("ip:{i}"));
    }
    assert_eq!(store.sweep(1_000), 0);
    clock.advance(1_000_000);
    let first = store.sweep(10);
    assert!(first <= 10);
    assert_eq!(first + (0..20).map(|_| store.sweep(10)).sum::<usize>(), 50);
    assert_eq!(store.stats().keys, 50);
    assert!((0..50).all(|i| store.peek_now(&long, &format!("ip:{i}")).used == 1));
}

#[test]
fn keys_that_come_and_go_do_not_pile_up() {
    let policy = policy("p", SlidingLog, &[(5, SECOND)]);
    let (clock, store) = store(100_000);
    for i in 0..50_000 {
        take(&store, &policy, &format!("ip:{i}"));
        clock.advance(1_000); // a thousand matter at a time
    }
    assert!(store.stats().keys < 4_000, "{:?}", store.stats());
}

#[test]
fn state_from_the_future_is_counted_when_it_is_discarded() {
    for algorithm in ALGORITHMS {
        let policy = policy("p", algorithm, &[(5, SECOND)]);
        let (clock, store) = store(100);
        clock.set(60_000_000);
        take(&store, &policy, "ip:1");
        clock.set(0);
        assert_eq!(store.stats().discarded, 0);
        take(&store, &policy, "ip:1");
        take(&store, &policy, "ip:1");
        assert_eq!(store.stats().discarded, 1, "{algorithm:?}");
    }
}

#[test]
fn a_request_with_more_limits_than_the_store_holds_is_decided() {
    let policies = ALGORITHMS.map(|algorithm| policy("p", algorithm, &[(5, MINUTE)]));
    let (_, store) = store(1);
    let check = |policy| Check { policy, identifier: "ip:1".into(), cost: 1, detail: Detail::None };
    let checks: Vec<_> = policies.iter().map(check).collect();
    for _ in 0..20 {
        assert!(store.decide_now(&checks).admitted);
        assert_eq!(store.stats().keys, 1);
    }
}

#[test]
fn rotating_addresses_do_not_grow_the_lists_without_bound() {
    let policy = policy("p", MetadataList, &[(40, MINUTE)]);
    for (max_keys, most) in [(2, 64), (64, 64), (1_000, 1_000)] {
        let (_, store) = store(max_keys);
        for i in 0..max_keys * 2 {
            for time in 0..40 {
                assert!(write_down(&store, &policy, &format!("ip:{i}"), time));
            }
            assert!(!write_down(&store, &policy, &format!("ip:{i}"), 40), "what is not kept counts");
            assert!(store.stats().entries <= most, "{:?} of {most}", store.stats());
        }
        let listed = |i| store.entries_now(&policy, &format!("ip:{i}")).len();
        assert_eq!(store.stats().entries, (0..max_keys * 2).map(listed).sum::<usize>());
        assert!(store.stats().entries * 10 >= most * 5, "{:?} of {most}", store.stats());
    }
}

#[test]
fn a_list_without_room_replaces_its_own_entries() {
    let (first, second) =
        (policy("a", MetadataList, &[(99, MINUTE)]), policy("b", MetadataList, &[(99, MINUTE)]));
    let (_, store) = store(10);
    let times =
        |policy| -> Vec<_> { store.entries_now(policy, "ip:1").iter().map(|entry| entry.time).collect() };
    for time in 0..40 {
        write_down(&store, &first, "ip:1", time);
        write_down(&store, &second, "ip:1", time);
        write_down(&store, &second, "ip:late", 0);
    }
    let kept = times(&second);
    assert_eq!(store.stats().entries, 64);
    assert!(!kept.is_empty() && kept.len() < 40);
    assert_eq!(kept, (40 - kept.len() as i64..40).collect::<Vec<_>>(), "the newest");
}

#[test]
fn room_for_entries_comes_back_with_whatever_removes_them() {
    let list = policy("p", MetadataList, &[(99, MINUTE)]);
    let (clock, store) = store(64);
    let fill = |identifier| {
        (0..50).for_each(|time| assert!(write_down(&store, &list, identifier, time)));
        assert_eq!(store.stats().entries, 50);
    };
    fill("ip:1");
    store.reset_now(std::slice::from_ref(&list), "ip:1");
    assert_eq!(store.stats().entries, 0, "cleared");

    fill("ip:1");
    clock.advance(60_000_000);
    write_down(&store, &list, "ip:1", 0);
    assert_eq!(store.stats().entries, 1, "a new window");

    clock.advance(60_000_000);
    store.sweep(64);
    assert_eq!(store.stats().entries, 0, "swept");

    fill("ip:1");
    for i in 0..64 {
        take(&store, &list, &format!("ip:other:{i}"));
    }
    assert_eq!(store.stats().entries, store.entries_now(&list, "ip:1").len());
    for i in 0..1_000 {
        take(&store, &list, &format!("ip:another:{i}"));
    }
    assert_eq!(store.stats().entries, store.entries_now(&list, "ip:1").len(), "evicted");
}

/// A store without a bound in keys that matters.
fn store_of_bytes(max_bytes: usize) -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::new(0));
    (Arc::clone(&clock), MemoryStore::with_budget(1_000_000, max_bytes, clock))
}

#[test]
fn a_flood_of_new_keys_neither_exceeds_the_budget_nor_frees_who_is_limited() {
    const BUDGET: usize = 4 << 20;
    for algorithm in ALGORITHMS {
        let policy = policy("p", algorithm, &[(4, MINUTE)]);
        let (clock, store) = store_of_bytes(BUDGET);
        let denied: Vec<String> = (0..50).map(|i| format!("ip:denied:{i}")).collect();
        let half: Vec<String> = (0..50).map(|i| format!("ip:half:{i}")).collect();
        for identifier in &denied {
            while take(&store, &policy, identifier) {}
        }
        for identifier in &half {
            assert!(take(&store, &policy, identifier) && take(&store, &policy, identifier));
        }
        clock.advance(1);
        for i in 0..100_000 {
            assert!(take(&store, &policy, &format!("ip:2001:db8:1234:5678::{i:x}/64+path:/a")));
            if i % 1_000 == 0 {
                store.sweep(1_000);
                let held = store.stats().bytes;
                assert!(held <= BUDGET + BUDGET / 32, "{algorithm:?}: {held} bytes");
            }
        }
        let stats = store.stats();
        assert!(stats.bytes >= BUDGET * 8 / 10 && stats.dropped > 10_000, "{algorithm:?}: {stats:?}");
        assert!(denied.iter().all(|identifier| !take(&store, &policy, identifier)), "{algorithm:?}");
        let forgotten = half.iter().filter(|identifier| store.peek_now(&policy, identifier).used < 2).count();
        assert!(forgotten <= 1, "{algorithm:?}: {forgotten} that were far from unused were forgotten");
    }
}

#[test]
fn lists_are_given_up_before_any_limit() {
    const BUDGET: usize = 4 << 20;
    let list = policy("a", MetadataList, &[(100, MINUTE)]);
    let plain = policy("b", SingleCounter, &[(100, MINUTE)]);
    let (_, store) = store_of_bytes(BUDGET);
    for i in 0..1_000 {
        for time in 0..40 {
            write_down(&store, &list, &format!("ip:{i}"), time);
        }
    }
    let full = store.stats();
    assert!(full.bytes <= BUDGET && full.bytes > BUDGET * 4 / 10, "{full:?}");
    assert_eq!((full.dropped, full.keys), (0, 1_000));
    let mut others = 0;
    while store.stats().entries > 0 {
        assert_eq!(store.stats().dropped, 0, "{:?}", store.stats());
        assert!(take(&store, &plain, &format!("ip:{others}")));
        others += 1;
        if others % 10 == 0 {
            store.sweep(0);
        }
    }
    let stats = store.stats();
    assert!(stats.dropped_entries > 0 && others > 10_000, "{stats:?} after {others}");
    assert!(
        (0..1_000).all(|i| store.peek_now(&list, &format!("ip:{i}")).used == 40),
        "all are still counted"
    );
}

#[test]
fn where_all_are_at_their_limit_the_first_to_be_free_goes() {
    let policy = policy("p", SingleCounter, &[(1, MINUTE)]);
    let (clock, store) = store_of_bytes(1 << 20);
    let mut total: usize = 0;
    while store.stats().dropped == 0 {
        total += 1;
        assert!(take(&store, &policy, &format!("ip:{total}")));
        clock.advance(1_000);
    }
    let first = total;
    for _ in 0..first {
        total += 1;
        assert!(take(&store, &policy, &format!("ip:{total}")));
        assert!(!take(&store, &policy, &format!("ip:{total}")), "the newcomer is limited, too");
        clock.advance(1_000);
    }
    let is_held = |i: &usize| store.peek_now(&policy, &format!("ip:{i}")).used == 1;
    let (old, new) = ((1..=first).filter(is_held).count(), (first + 1..=total).filter(is_held).count());
    let dropped = total - old - new;
    assert_eq!(dropped as u64, store.stats().dropped);
    // One of eight candidates goes each time.
    assert!(
        dropped > first / 2 && (first - old) * 100 > dropped * 90,
        "{dropped}: of {first} {old} are left, {new}"
    );
}

#[test]
fn a_log_that_would_take_more_than_its_share_of_the_budget_has_a_lower_limit() {
    const LOWERED: u64 = (1 << 20) / 8 / 8;
    let policy = policy("p", SlidingLog, &[(1_000_000, MINUTE)]);
    let (_, store) = store_of_bytes(1 << 20);
    let check = || Check { policy: &policy, identifier: "ip:1".into(), cost: 64, detail: Detail::None };
    let admitted = (0..1_000).filter(|_| store.decide_now(&[check()]).admitted).count() as u64;
    assert_eq!(admitted * 64, LOWERED);
    let decision = store.decide_now(&[check()]);
    assert_eq!((decision.verdicts[0].limit, decision.verdicts[0].remaining), (LOWERED, 0));
    assert_eq!(decision.verdicts[0].retry_after, Some(60_000_000));
    assert_eq!(store.peek_now(&policy, "ip:1").verdict.limit, LOWERED);
    assert!(store.stats().bytes <= 1 << 20);
}
