//! Any value of any type in the place of a limit: it stops no decision, and no reply tells a number that is none.

use bb8_redis::redis::{Cmd, cmd};
use fastrand::Rng;
use futures_util::future::join_all;
use tollgate::{
    config::model::{Algorithm, CalendarUnit, Window},
    limit::{
        Check, DecisionSource, Policy, Receipt, Store, Taken,
        algorithm::{Detail, Verdict},
    },
};

use super::{
    Clustered, Harness, MINUTE, SECOND, Shared, calendar_policy, differential, entry,
    harness::{START, check, unforgiving},
    policy,
    shared::{Deployed, Place},
};

const CASES: usize = 1_500;
/// The greatest number that a reply of the script may tell: beyond it, doubles are not exact.
const EXACT: u64 = 1 << 53;

#[test]
fn no_value_stops_a_decision_of_a_server() {
    no_value_stops_a_decision::<Shared>();
}

/// Where limits of several slots are read one by one.
#[test]
fn no_value_stops_a_decision_of_a_cluster() {
    no_value_stops_a_decision::<Clustered>();
}

fn no_value_stops_a_decision<D>()
where
    D: Deployed + super::Subject<Place = Place>,
    D::Store: Store,
{
    let mut random = Rng::with_seed(7);
    let mut policies = differential::policies();
    policies.extend([("s", &[(5, SECOND)][..]), ("m", &[(5, SECOND), (9, MINUTE)])].into_iter().flat_map(
        |(name, tiers)| {
            let window = policy(name, Algorithm::SlidingWindow { buckets: 10 }, tiers);
            [unforgiving(&Policy { name: format!("{name}d"), ..window.clone() }), window]
        },
    ));
    policies.push(calendar_policy("month", "UTC", 1, &[(9, Window::Calendar(CalendarUnit::Month))]));
    let harness = Harness::<D>::new();
    for case in 0..CASES {
        let policy = &policies[random.usize(..policies.len())];
        let identifier = format!("ip:{case}");
        let key =
            format!("{}:{{{identifier}}}:{}:{}", harness.place.config.prefix, policy.name, policy.shape);
        spoil(&harness.place, &key, policy, &mut random);
        let mut checks = || {
            let detail = match policy.kind {
                kind if kind.counts_members() => Detail::Member(random.u128(..3)),
                _ if policy.keeps_entries() => Detail::Entry(entry(START, "ann")),
                _ => Detail::None,
            };
            vec![Check { detail, ..check(policy, &identifier, random.u64(..7)) }]
        };
        let (requests, refunded) = ([(); 3].map(|()| checks()), checks());
        harness.at(250_000);
        let what = format!("case {case}: {} on {key}", policy.name);
        let receipt = Receipt { source: DecisionSource::Store, time: START + 100_000 };
        let (look, decisions, settled) = harness.ask(async |store| {
            let look = store.look(&requests[0]).await;
            let decisions = join_all(requests.iter().map(|checks| store.decide(checks)));
            let taken = Taken::all(&refunded, receipt);
            let (decisions, settled) = futures_util::future::join(decisions, store.settle(&taken)).await;
            Ok::<_, ()>((look, decisions, settled))
        });
        assert_eq!(settled, Ok(()), "{what}");
        for decision in [look].into_iter().chain(decisions) {
            let decision = decision.unwrap_or_else(|error| panic!("{what}: {error}"));
            decision.verdicts.iter().for_each(|verdict| is_sound(verdict, &what));
        }
        let usage = harness.at(300_000).peek(policy, &identifier);
        assert!(usage.used < EXACT, "{what}: {usage:?}");
        is_sound(&usage.verdict, &what);
    }
}

#[track_caller]
fn is_sound(verdict: &Verdict, what: &str) {
    let times = [Some(verdict.reset), verdict.retry_after, Some(verdict.delay)];
    let are_times = times.into_iter().flatten().all(|time| (0..EXACT as i64).contains(&time));
    assert!(are_times && verdict.remaining <= verdict.limit, "{what}: {verdict:?}");
}

/// Numbers that are none, numbers that are too large, and times about now.
fn double(random: &mut Rng) -> [u8; 8] {
    let time = START as f64;
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        0.5,
        3.0,
        9.1e15,
        1e300,
        -1e300,
        5e-324,
        1.9e19,
        time,
        time + 250_000.5,
        time + 1e6,
        time - 1e6,
        time + 1e13,
    ];
    if random.bool() { odd[random.usize(..odd.len())].to_be_bytes() } else { random.u64(..).to_be_bytes() }
}

fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = random.usize(..most);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// As long as a state of the policy may be, or not.
fn string(policy: &Policy, random: &mut Rng) -> Vec<u8> {
    let window = policy.tiers[0].window;
    match random.u8(..8) {
        0 => bytes(random, 200),
        1 => Vec::new(),
        // The states of windows with buckets: the newest bucket, a count and a distance, for each tier; the counts.
        2..5 if policy.shape.starts_with("sw") => {
            let buckets = match policy.kind {
                tollgate::limit::algorithm::Kind::SlidingWindow { buckets } => buckets as usize,
                _ => 1,
            };
            let mut state = Vec::new();
            for tier in &policy.tiers {
                let now = (START / tier.window) as f64 * buckets as f64;
                let off = [0.0, 1.0, 2.0, 0.5, -0.25, -3.0, 11.0, f64::NAN][random.usize(..8)];
                state.extend((now + off).to_be_bytes());
                for _ in 0..2 {
                    state.extend([0, 1, 3, 9, u32::MAX][random.usize(..5)].to_be_bytes());
                }
            }
            for _ in 0..policy.tiers.len() * (buckets + 1) {
                state.extend([0, 0, 1, 2, u32::MAX][random.usize(..5)].to_be_bytes());
            }
            state
        }
        _ => {
            let numbers = [2, 3, 2 * policy.tiers.len()][random.usize(..3)];
            let mut state: Vec<u8> = (0..numbers).flat_map(|_| double(random)).collect();
            if random.bool() {
                state.splice(..8, ((START + window / 2) as f64).to_be_bytes());
            }
            state
        }
    }
}

fn member(random: &mut Rng) -> Vec<u8> {
    match random.u8(..4) {
        0 => bytes(random, 40),
        1 => u128::from(random.u8(..3)).to_be_bytes().to_vec(),
        2 => {
            [(START as f64 + f64::from(random.u32(..2_000_000)) - 1e6).to_be_bytes(), double(random)].concat()
        }
        _ => [double(random), double(random)].concat(),
    }
}

fn element(random: &mut Rng) -> Vec<u8> {
    let time = START + random.i64(..2_000_000);
    match random.u8(..6) {
        0 => bytes(random, 40),
        1 => format!("{time}:{} ", "9".repeat(400)).into_bytes(),
        2 => format!("{}:3 {{}}", "9".repeat(400)).into_bytes(),
        3 => format!("{time}:99999999999999999999999999 x").into_bytes(),
        4 => format!("000{time}:2 ").into_bytes(),
        _ => Vec::new(),
    }
}

/// Writes a value of any type.
fn spoil(place: &Place, key: &str, policy: &Policy, random: &mut Rng) {
    let scores = ["inf", "-inf", "1e300", "-1", "0.5", "9007199254740993", &START.to_string(), "1.7e308"];
    let slice = START / 300_000_000;
    let list_of_entries = format!("{key}:{slice}");
    for key in [key, &list_of_entries] {
        let mut command = Cmd::new();
        match random.u8(..9) {
            0..4 => command.arg("SET").arg(key).arg(string(policy, random)),
            4 => command.arg("RPUSH").arg(key).arg(element(random)).arg(element(random)),
            5 => command.arg("SADD").arg(key).arg(member(random)),
            6 => command.arg("HSET").arg(key).arg(member(random)).arg("1"),
            7 => command.arg("XADD").arg(key).arg("*").arg("a").arg(member(random)),
            _ => {
                command.arg("ZADD").arg(key);
                for _ in 0..random.usize(1..6) {
                    let near = (START + random.i64(..2_000_000) - 1_000_000).to_string();
                    let score = if random.bool() { &near } else { scores[random.usize(..scores.len())] };
                    command.arg(score).arg(member(random));
                }
                &mut command
            }
        };
        // A node that does not have the key refuses it.
        let write = |command: &Cmd| {
            let mut each = place.primaries.iter();
            each.any(|server| command.query::<()>(&mut *server.lock().unwrap()).is_ok())
        };
        assert!(write(&command), "{key}");
        assert!(write(cmd("PEXPIRE").arg(key).arg(600_000)));
        if !policy.shape.starts_with("ml") {
            break;
        }
    }
}
