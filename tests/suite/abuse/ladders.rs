//! The ladder of bans here and in Redis: the same offenses at the same times must ban alike, whatever the rule changes to.

use bb8_redis::redis::{self, Connection, Script};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tollgate::abuse::bans::{Ladder, LadderTerms};

use crate::harness::Redis;

const SECOND: i64 = 1_000_000;
const NOW: i64 = 1_783_080_001 * SECOND;
const KEYS: [&str; 10] = [
    "{t}:ends",
    "{t}:told",
    "{t}:version",
    "{t}:ladders",
    "{t}:expiries",
    "{t}:manual",
    "{t}:addresses",
    "{t}:users",
    "{t}:user_expiries",
    "{t}:lifts",
];

/// Some time passes, or comes back; then so many are denied, over so long.
#[derive(Debug, Clone)]
enum Step {
    Pass(i64),
    /// A reload.
    Rule(usize),
    Offense {
        ago: i64,
        lasted: i64,
        count: u64,
        jitter: u32,
    },
}

fn rules() -> [LadderTerms; 5] {
    let terms = |limit, window, first_duration, factor, max_duration| LadderTerms {
        limit,
        window: window * SECOND,
        first_duration: first_duration * SECOND,
        factor,
        max_duration: max_duration * SECOND,
    };
    [
        terms(5, 10, 2, 2.0, 3_600),
        terms(3, 1, 1, 1.5, 5),
        terms(20, 61, 7, 1.0, 7),
        terms(1, 3_600, 60, 1_000.0, 366 * 86_400),
        terms(50, 3_600, 1, 2.7, 86_400),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![
        4 => 0..300_000_i64,
        4 => 0..20 * SECOND,
        2 => (1..70_i64, -1..2_i64).prop_map(|(seconds, off)| seconds * SECOND + off),
        1 => 0..9_000 * SECOND,
        1 => (-9_000 * SECOND)..0,
        1 => (-2 * SECOND)..0,
    ];
    // Less than the shortest ban: what falls into one is passed over before its ladder is forgotten.
    let ago = prop_oneof![4 => 0..200_000_i64, 1 => 0..800_000_i64];
    let strike = (ago, 0..150_000_i64, prop_oneof![9 => 1..6_u64, 1 => 1..60_u64], 900_000..1_100_000_u32);
    let strike = strike.prop_map(|(ago, lasted, count, jitter)| Step::Offense {
        ago,
        lasted: lasted.min(ago),
        count,
        jitter,
    });
    vec(
        prop_oneof![8 => strike, 5 => time.prop_map(Step::Pass), 1 => (0..5_usize).prop_map(Step::Rule)],
        1..80,
    )
}

/// A production script with its clock replaced: the time is the last argument.
fn script(code: &str) -> Script {
    const CLOCK: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n";
    let prelude = concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/version_prelude.lua"),
        include_str!("../../../lua/bans_prelude.lua")
    );
    assert_eq!(prelude.matches(CLOCK).count(), 1, "the clock has another place");
    let prelude = prelude.replace(CLOCK, "local now = tonumber(ARGV[#ARGV])\n");
    Script::new(&format!("{prelude}{code}"))
}

const OFFENSE: &str = include_str!("../../../lua/offense.lua");
const BAN: &str = include_str!("../../../lua/ban.lua");

/// How long it bans, and on which level.
fn offend(
    connection: &mut Connection,
    script: &Script,
    terms: &LadderTerms,
    (ago, until, count, jitter): (i64, i64, u64, u32),
    now: i64,
) -> Option<(i64, u32)> {
    let mut call = script.prepare_invoke();
    for key in KEYS {
        call.key(key);
    }
    call.arg("channel").arg("epoch").arg(1_000);
    call.arg("bans.t").arg("ip:203.0.113.7").arg(count).arg(ago).arg(until);
    call.arg(terms.limit)
        .arg(terms.window)
        .arg(terms.first_duration)
        .arg(terms.factor)
        .arg(terms.max_duration);
    call.arg(jitter).arg("e").arg("{}").arg(now);
    let (_, _, given): (Vec<String>, u64, Vec<String>) = call.invoke(connection).unwrap();
    // A ban that ends later by a clock that went wrong would stay; the ladder is what is compared.
    let _gone: () = redis::cmd("DEL").arg(&KEYS[..3]).query(connection).unwrap();
    let told: Vec<String> = serde_json::from_str(given.first()?).unwrap();
    Some((told[4].parse().unwrap(), told[6].parse().unwrap()))
}

#[test]
fn a_ladder_here_and_one_in_redis_ban_alike() {
    let redis = Redis::start();
    let (script, rules) = (script(OFFENSE), rules());
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
            let _gone: () = redis::cmd("DEL").arg(&KEYS).query(&mut connection).unwrap();
            let (mut ladder, mut expires) = (Ladder::default(), i64::MIN);
            let (mut now, mut terms) = (NOW, rules[0]);
            for (nth, step) in steps.iter().enumerate() {
                match *step {
                    Step::Pass(time) => now += time,
                    Step::Rule(other) => terms = rules[other],
                    Step::Offense { ago, lasted, count, jitter } => {
                        let until = ago - lasted;
                        let here = ladder.count((now - ago, now - until, count), &terms, jitter, now);
                        let here = here.map(|step| (step.duration, step.level));
                        // What is of no weight any more is forgotten at once.
                        expires = ladder.expires(terms.window).max(expires);
                        if expires <= now {
                            (ladder, expires) = (Ladder::default(), i64::MIN);
                        }
                        let there =
                            offend(&mut connection, &script, &terms, (ago, until, count, jitter), now);
                        prop_assert_eq!(here, there, "step {} of {:?}", nth, steps);
                    }
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

/// An instance that could not ask Redis for a moment knows no bans that have ended.
#[test]
fn a_ban_of_an_instance_that_counted_alone_takes_no_client_down_its_ladder() {
    let redis = Redis::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let (offense, terms) = (script(OFFENSE), rules()[0]);
    let offend_at = |connection: &mut Connection, seconds: i64| {
        let now = NOW + seconds * SECOND;
        let (lasts, level) = offend(connection, &offense, &terms, (0, 0, 5, 1_000_000), now)?;
        Some((lasts / SECOND, level))
    };
    let first = [0, 2, 6].map(|seconds| offend_at(&mut connection, seconds));
    assert_eq!(first, [Some((2, 1)), Some((4, 2)), Some((8, 3))]);
    let alone = |connection: &mut Connection, seconds: i64, lasts: i64, level: u32| {
        let ban = script(BAN);
        let mut call = ban.prepare_invoke();
        for key in KEYS {
            call.key(key);
        }
        call.arg("channel").arg("epoch").arg(1_000);
        call.arg("merge").arg("ip:203.0.113.7").arg("e").arg(lasts * SECOND).arg(0).arg(level);
        call.arg("bans.t").arg("{}").arg(NOW + seconds * SECOND);
        let _: redis::Value = call.invoke(connection).unwrap();
    };
    // Another one in a row, as short as the first.
    alone(&mut connection, 14, 2, 1);
    assert_eq!(offend_at(&mut connection, 16), Some((32, 5)));
    // After a quiet while it is the first again; and an instance that knows more than Redis is believed.
    assert_eq!(offend_at(&mut connection, 48 + 5 * 32), Some((2, 1)));
    alone(&mut connection, 48 + 5 * 32 + 2, 16, 4);
    assert_eq!(offend_at(&mut connection, 48 + 5 * 32 + 18), Some((32, 5)));
}
