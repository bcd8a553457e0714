//! Values that another program has written in the place of ours: each concerns its own key, and nothing else. What any
//! value does to a decision is in `conformance/spoilt.rs`.

use std::thread;

use bb8_redis::redis::{Client as RedisClient, Cmd, Connection, Value};
use fastrand::Rng;

use crate::harness::{Client, Config, Deployment, Origin, Redis, Tollgate, on_each_topology};

on_each_topology!(a_spoilt_limit_concerns_its_client_alone, where_errors_deny_a_spoilt_limit_denies_once,);

/// An instance with a limit that counts on in errors of the store, and one that denies in them.
fn instance(origin: &Origin, redis: &Deployment) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
workers: 2
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
store: {{ redis: {{ {}, timeout: 5s }} }}
policies:
  open: {{ algorithm: sliding_window, key: 'header:x-client', limit: 5/1h }}
  closed: {{ algorithm: sliding_window, key: 'header:x-client', limit: 5/1h, on_store_error: deny }}
routes:
  - {{ path: /open, upstream: origin, policies: [open] }}
  - {{ path: /closed, upstream: origin, policies: [closed] }}
  - {{ path: /both, upstream: origin, policies: [open, closed] }}
",
        origin.address,
        redis.settings()
    )))
}

fn get(tollgate: &Tollgate, path: &str, client: &str) -> u16 {
    Client::connect(tollgate.address).request("GET", path, &[("x-client", client)], b"").status
}

/// Makes the number of the newest bucket in a client's limit one that no bucket has.
fn spoil(redis: &Deployment, client: &str, policy: &str) {
    const SCRIPT: &str = "local newest = struct.unpack('>d', redis.call('GET', KEYS[1]))
        return redis.call('SETRANGE', KEYS[1], '0', struct.pack('>d', newest + 0.5))";
    let is_its = |key: &String| key.contains(&format!("x-client={client}}}:{policy}:"));
    let key = redis.keys().into_iter().find(is_its).expect("it was counted");
    assert!(!redis.cli(&["eval", SCRIPT, "1", &key]).contains("ERR"));
}

fn a_spoilt_limit_concerns_its_client_alone(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis);
    assert!((0..3).all(|_| get(&tollgate, "/open", "spoilt") == 200));
    spoil(redis, "spoilt", "open");
    // Requests of others that the store can't decide would get 503.
    let burst = |client: usize| -> Vec<u16> {
        let ask = |n: usize| match client {
            0 => get(&tollgate, "/open", "spoilt"),
            _ => get(&tollgate, "/closed", &format!("{client}-{}", n / 5)),
        };
        (0..30).map(ask).collect()
    };
    let statuses: Vec<Vec<u16>> = thread::scope(|scope| {
        let clients = (0..8).map(|client| scope.spawn(move || burst(client))).collect::<Vec<_>>();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses[1..].iter().flatten().all(|status| *status == 200), "{statuses:?}");
    let (admitted, denied) = statuses[0].split_at(5);
    assert_eq!((admitted, denied), (&[200; 5][..], &[429; 25][..]), "it counts from zero");
    let is_clean = |name| tollgate.metric(name) == 0.0;
    assert!(
        is_clean("tollgate_store_errors_total{kind=\"protocol\"}") && is_clean("tollgate_store_breaker_open")
    );
    assert_eq!(tollgate.metric("tollgate_store_spoilt_total"), 1.0);
    let log = tollgate.log();
    let told: Vec<_> = log.iter().filter(|line| line.contains("can't be read, and does not count")).collect();
    assert!(told.len() == 1 && told[0].contains("a limit of policy open"), "{told:?}");
    assert!(!log.iter().any(|line| line.contains("x-client=spoilt")), "the key names a client");
}

fn where_errors_deny_a_spoilt_limit_denies_once(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis);
    for (path, client) in [("/closed", "spoilt"), ("/both", "broken")] {
        assert_eq!(get(&tollgate, "/closed", client), 200);
        spoil(redis, client, "closed");
        assert_eq!(get(&tollgate, path, client), 503, "{path}");
        assert_eq!(get(&tollgate, "/closed", "other"), 200);
        assert_eq!([(); 6].map(|()| get(&tollgate, "/closed", client)), [200, 200, 200, 200, 200, 429]);
        assert!(redis.keys().iter().all(|key| !key.contains(":open:")), "the other limit has taken nothing");
    }
    assert_eq!(tollgate.metric("tollgate_store_breaker_open"), 0.0);
}

/// A script that instances share state by: its parts, the keys it gets, and its arguments.
type Script = (&'static [&'static str], Vec<String>, fn(&mut Rng) -> Vec<String>);

macro_rules! lua {
    ($($name:literal),*) => {
        &[$(include_str!(concat!("../../../lua/", $name, ".lua"))),*]
    };
}

const CHANGES: [&str; 3] = ["ch", "ab12", "2"];
const BAN: &str = r#"{"reason":"x","by":"y"}"#;
/// About now, which is what the scripts are told by Redis.
const SOON: &str = "9000000000000000";

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn any<'a>(random: &mut Rng, words: &[&'a str]) -> &'a str {
    words[random.usize(..words.len())]
}

fn bans(random: &mut Rng) -> Vec<String> {
    let mut arguments = owned(&CHANGES);
    for _ in 0..3 {
        let (key, mode) = (any(random, &["ip:10.0.0.1", "ip:10.0.0.2", "user:a"]), any(random, &["e", "s"]));
        let level = any(random, &["0", "1"]);
        arguments.extend(owned(&match random.u8(..4) {
            0 => ["give", key, mode, "5000000", "1000", level, "rule", BAN],
            1 => ["merge", key, mode, "5000000", "1000", level, "rule", BAN],
            2 => ["lift", key, mode, "0", "1000", "0", "", ""],
            _ => ["forget", key, mode, "0", "1000", "0", "", ""],
        }));
    }
    arguments
}

fn offenses(random: &mut Rng) -> Vec<String> {
    let mut arguments = owned(&CHANGES);
    let (key, denials) = (any(random, &["ip:10.0.0.1", "user:a"]), any(random, &["1", "30"]));
    let times = ["2000000", "1000", "20", "60000000", "5000000", "2", "86400000000", "1000000"];
    arguments
        .extend(owned(&[&["rule", key, denials][..], &times, &[any(random, &["e", "s"]), BAN]].concat()));
    arguments
}

fn scripts() -> Vec<Script> {
    let keys = |tag: &str, count: usize| (0..count).map(|n| format!("ratelimit:{{{tag}}}:{n}")).collect();
    vec![
        (lua!("key_prelude", "version_prelude", "bans_prelude", "ban"), keys("b", 10), bans),
        (lua!("key_prelude", "version_prelude", "bans_prelude", "offense"), keys("b", 10), offenses),
        (lua!("bans"), keys("b", 3), |random| owned(&[any(random, &["", "0", "inf"]), "500"])),
        (lua!("key_prelude", "record_prelude", "record"), keys("r", 5), |_| {
            let first = ["c1", "", "1", "10", "5000", "twelve bytes", "60000"];
            let second = ["n2", "xxxxxxxx", "0", "5", "1000", "", "0"];
            owned(&[&["60000", "1000000", "100", "1"][..], &first, &second].concat())
        }),
        (lua!("key_prelude", "record_prelude", "record_sweep"), keys("r", 3), |random| {
            owned(&[any(random, &["0", "100000"]), any(random, &["1", "100"]), "100"])
        }),
        (lua!("key_prelude", "record_prelude", "record_remove"), keys("r", 5), |_| owned(&["c1", "n2"])),
        (lua!("key_prelude", "drains"), keys("d", 1), |random| {
            let action = any(random, &["drain", "restore", "undrain"]);
            owned(&["ch", "m", "v2", "2", "86400000", action, "api http://a", any(random, &["", "5"])])
        }),
        (lua!("heartbeat"), keys("h", 2), |random| {
            owned(&["i1", any(random, &["5000000", "0"]), "15000", "5", "abc 0.1"])
        }),
        (lua!("key_prelude", "version_prelude", "api_keys_write"), keys("k", 5), |random| {
            let (first, second) = (["id1", "0", "7", "5", "0", "{}"], ["id2", "1", "7", "6", SOON, "{}"]);
            let max = any(random, &["1", "9"]);
            owned(&[&["ch", "m", "ab12", max][..], &first, &second].concat())
        }),
        (lua!("api_keys_read"), keys("k", 3), |random| {
            owned(&[any(random, &["0", "5"]), any(random, &["", "ab12"]), "200", any(random, &["0", "1"])])
        }),
        (lua!("key_prelude", "api_keys_uses"), keys("k", 1), |_| {
            owned(&["100", "id1", "5", "c1", "29000000"])
        }),
        (lua!("key_prelude", "audit_log"), keys("a", 1), |_| owned(&["100", "1000", "{}"])),
    ]
}

/// The names by which instances know things, and others.
const NAMES: [&str; 12] = [
    "e ip:10.0.0.1",
    "s ip:10.0.0.1",
    "ip:10.0.0.1",
    "user:a",
    "epoch",
    "n",
    "version",
    "api http://a",
    "id1",
    "i1",
    "c1",
    "foreign",
];
const NUMBERS: [&str; 10] =
    ["inf", "-inf", "1e300", "-1e300", "0", "0.5", "-1", "9007199254740993", "1795900000000000", "29931666"];

/// A table of counts for each rule, as bans have it, in MessagePack: of any numbers.
fn ladder(random: &mut Rng) -> Vec<u8> {
    let numbers =
        [f64::NAN, f64::INFINITY, -1.0, 0.5, 3.0, 9.1e15, 1.7959e15, 1.7959e15 + 0.5, 239_453_333.5];
    let mut table = b"\x81\xa4rule\x9d".to_vec();
    for _ in 0..13 {
        table.push(0xcb);
        table.extend(numbers[random.usize(..numbers.len())].to_be_bytes());
    }
    table
}

fn value(random: &mut Rng) -> Vec<u8> {
    match random.u8(..6) {
        0 => ladder(random),
        1 => vec![0xff, 0x91, 0],
        2 => format!("{} {} {{}}", any(random, &NUMBERS), any(random, &NUMBERS)).into_bytes(),
        3 => format!("undrained {}", "9".repeat(400)).into_bytes(),
        4 => format!("{} 1 1 {{}}", "9".repeat(400)).into_bytes(),
        _ => any(random, &NUMBERS).into(),
    }
}

fn spoil_any(connection: &mut Connection, key: &str, random: &mut Rng) {
    let kind = random.u8(..10);
    let mut command = Cmd::new();
    command.arg(
        ["SET", "RPUSH", "SADD", "XADD", "ZADD", "ZADD", "ZADD", "HSET", "HSET", "HSET"][usize::from(kind)],
    );
    command.arg(key);
    match kind {
        3 => {
            command.arg("*").arg("a").arg(value(random));
        }
        4..7 => (0..4).for_each(|_| {
            command.arg(any(random, &NUMBERS)).arg(any(random, &NAMES));
        }),
        7.. => (0..4).for_each(|_| {
            command.arg(any(random, &NAMES)).arg(value(random));
        }),
        _ => {
            command.arg(value(random));
        }
    }
    Cmd::new().arg("DEL").arg(key).exec(connection).unwrap();
    command.exec(connection).unwrap();
}

/// Whether a reply tells a number that is none of ours: they are counts, times and sizes.
fn is_absurd(reply: &Value) -> bool {
    match reply {
        Value::Array(items) => items.iter().any(is_absurd),
        Value::Int(number) => number.unsigned_abs() > 1 << 53,
        _ => false,
    }
}

#[test]
fn no_value_stops_what_instances_tell_each_other() {
    let redis = Redis::start();
    let mut connection = RedisClient::open(redis.url()).unwrap().get_connection().unwrap();
    let mut random = Rng::with_seed(3);
    let scripts = scripts();
    for round in 0..400 {
        for (parts, keys, arguments) in &scripts {
            for key in keys {
                if random.u8(..10) < 6 {
                    spoil_any(&mut connection, key, &mut random);
                }
            }
            for _ in 0..2 {
                let arguments = arguments(&mut random);
                let mut call = Cmd::new();
                call.arg("EVAL").arg(parts.concat()).arg(keys.len()).arg(keys).arg(&arguments);
                let reply = call.query::<Value>(&mut connection);
                let reply = reply.unwrap_or_else(|error| panic!("round {round}: {arguments:?}: {error}"));
                assert!(!is_absurd(&reply), "round {round}: {arguments:?}: {reply:?}");
            }
        }
    }
}
