//! Requests that are asked about at once, and so leave for Redis together: they must be decided as if one came after
//! the other.

use futures_util::future::{join, join_all};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::{
    config::model::Algorithm,
    limit::{Check, Policy, Receipt, Store, Taken, algorithm::Detail},
};

use super::{
    ALGORITHMS, Harness, MINUTE, Memory, Subject, entry, harness::refunding, on_subjects, policy, with,
};

// Of identifiers in several slots, a cluster leaves the verdicts unknown that a denial made superfluous. `sharded_store.rs` tests
// these.
on_subjects!(
    requests_of_one_batch_are_decided_one_after_the_other: server Shared, sentinel BehindSentinel,
    strict_cluster InOneSlot
);

const IDENTIFIERS: [&str; 3] = ["ip:1", "user:a", "ip:1+path:/a"];

/// Each request's checks, as index of policy, index of identifier, cost, member; and how many microseconds pass
/// before the next round.
type Round = (Vec<Vec<(usize, usize, u64, u128)>>, i64);

fn rounds(policies: usize) -> impl Strategy<Value = Vec<Round>> {
    let check = (0..policies, 0..IDENTIFIERS.len(), 0..4_u64, 0..6_u128);
    let requests = vec(vec(check, 1..4), 1..100);
    vec((requests, 0..72_000_000_i64), 1..4)
}

/// Each algorithm as it is, with an override's limits, as a shadow, counting what it denies, and with refunds.
fn policies() -> Vec<Policy> {
    // Longer than a busy machine stands still for: in Redis, keys expire by its own clock.
    let of = |(index, algorithm): (usize, Algorithm)| {
        let plain = policy(&format!("p{index}"), algorithm, &[(7, MINUTE)]);
        let other = with(&plain, 40);
        let shadow = Policy { is_shadow: true, ..policy(&format!("s{index}"), algorithm, &[(3, MINUTE)]) };
        let counting =
            Policy { count_denied: true, ..policy(&format!("d{index}"), algorithm, &[(9, MINUTE)]) };
        let giving = refunding(&policy(&format!("g{index}"), algorithm, &[(7, MINUTE)]));
        let other_giving = with(&giving, 40);
        [plain, other, shadow, counting, giving, other_giving]
    };
    let all = ALGORITHMS.into_iter().chain([Algorithm::Distinct, Algorithm::Concurrency]);
    all.enumerate().flat_map(of).collect()
}

fn requests_of_one_batch_are_decided_one_after_the_other<S: Subject>() {
    let policies = policies();
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let replayed = runner.run(&rounds(policies.len()), |rounds| replay::<S>(&policies, &rounds));
    replayed.unwrap_or_else(|error| panic!("{error}"));
}

fn replay<S: Subject>(policies: &[Policy], rounds: &[Round]) -> Result<(), TestCaseError> {
    let (memory, redis) = (Harness::<Memory>::new(), Harness::<S>::new());
    let mut now = 0;
    // What was taken before, a part of which is refunded with the next round.
    let mut taken: Vec<(Vec<Check<'_>>, Receipt)> = Vec::new();
    for (requests, passes) in rounds {
        memory.at(now);
        redis.at(now);
        let requests: Vec<Vec<Check<'_>>> = requests.iter().map(|wanted| checks(policies, wanted)).collect();
        let together = redis.ask(async |store| {
            let given =
                taken.iter().map(|(checks, receipt)| Taken::all(checks, *receipt)).collect::<Vec<_>>();
            let given = join_all(given.iter().map(|taken| store.settle(taken)));
            let decisions = join_all(requests.iter().map(|checks| store.decide(checks)));
            let (given, decisions) = join(given, decisions).await;
            given.into_iter().collect::<Result<Vec<_>, _>>()?;
            decisions.into_iter().collect::<Result<Vec<_>, _>>()
        });
        for (checks, receipt) in taken.drain(..) {
            memory.refund(&checks, receipt);
        }
        for (number, (checks, decision)) in requests.iter().zip(together).enumerate() {
            prop_assert_eq!(&decision, &memory.decide(checks), "request {}", number);
            if decision.admitted && number % 3 > 0 {
                let written = checks.iter().zip(&decision.verdicts);
                let written =
                    written.filter(|(check, verdict)| verdict.admitted && check.policy.may_refund());
                let written: Vec<Check<'_>> = written.map(|(check, _)| check.clone()).collect();
                taken.push((written, decision.receipt(0)));
            }
        }
        now += passes;
    }
    Ok(())
}

/// For a request a policy has limits of one kind only, and a member is named once.
fn checks<'a>(policies: &'a [Policy], wanted: &[(usize, usize, u64, u128)]) -> Vec<Check<'a>> {
    let mut checks: Vec<Check<'_>> = Vec::new();
    for check in wanted.iter().map(|&one| check(policies, one)) {
        let goes_with = |own: &Check<'_>| {
            own.policy.id != check.policy.id
                || own.policy.tiers == check.policy.tiers && !own.policy.kind.counts_members()
        };
        if checks.iter().all(goes_with) {
            checks.push(check);
        }
    }
    checks
}

fn check(policies: &[Policy], (policy, identifier, cost, member): (usize, usize, u64, u128)) -> Check<'_> {
    let policy = &policies[policy];
    let detail = match policy.kind {
        kind if kind.counts_members() => Detail::Member(member),
        _ if policy.keeps_entries() => Detail::Entry(entry(i64::try_from(member).unwrap_or(0), "acme")),
        _ => Detail::None,
    };
    Check { policy, identifier: IDENTIFIERS[identifier].into(), cost, detail }
}
