//! Limits that two instances share through a real Redis: exact, written down as the design says, healed where
//! somebody else wrote, and taken back everywhere at once.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::{
        Client, Config, Deployment, Origin, Redis, Relay, Reply, Tollgate, eventually, on_each_topology,
        on_own_servers,
    },
    limit::exactness,
};

on_each_topology!(
    a_denial_by_one_policy_takes_nothing_of_the_other,
    a_denial_of_one_identifier_takes_nothing_of_the_other,
    a_denied_request_leaves_every_key_byte_for_byte_as_it_was,
    state_from_the_future_is_counted_when_it_is_discarded,
    a_slice_is_asked_for_once_and_spent_alone,
    an_unblock_at_one_instance_is_heard_at_the_other_at_once,
    an_unblock_lists_the_other_keys_although_it_hears_of_itself,
    foreign_values_in_our_keys_stop_nothing,
    each_instance_knows_how_many_live,
);
on_own_servers!(
    every_key_reads_as_the_design_says_and_ends,
    it_is_redis_that_tells_the_time,
    after_a_denial_a_worker_answers_for_itself
);

/// A policy of each algorithm, each on a route of its own name, and two with keys of other kinds.
const EACH_ALGORITHM: &str = "
policies:
  sc: { algorithm: single_counter, key: ip, limit: 2/1d }
  fw: { algorithm: fixed_window, key: 'header:x-key', limits: [2/1h, 5/1d] }
  sl: { algorithm: sliding_log, key: ip+path, limit: 2/1h }
  ml: { algorithm: metadata_list, key: ip, limit: 2/1m }
  sw: { algorithm: sliding_window, key: ip, limits: [2/1h, 5/1d] }
  sx: { algorithm: sliding_counter, key: ip, limit: 2/1h }
  gc: { algorithm: gcra, key: ip, limit: 2/1d }
  di: { algorithm: distinct, key: ip, value: 'header:x-key', limit: 1/1d }
  cc: { algorithm: concurrency, key: ip, limit: 2, lease: 5m }
routes:
  - { path: /sc, upstream: origin, policies: [sc] }
  - { path: /fw, upstream: origin, policies: [fw] }
  - { path: /sl/*, upstream: origin, policies: [sl] }
  - { path: /ml, upstream: origin, policies: [ml] }
  - { path: /sw, upstream: origin, policies: [sw] }
  - { path: /sx, upstream: origin, policies: [sx] }
  - { path: /gc, upstream: origin, policies: [gc] }
  - { path: /di, upstream: origin, policies: [di] }
  - { path: /cc, upstream: origin, policies: [cc] }
  - { path: /two, upstream: origin, policies: [sc, fw] }
";

/// An instance whose limits are in Redis; `rest` is YAML for the top level. The timeout is for a machine that
/// does much else.
fn instance(origin: &Origin, redis: &Deployment, workers: usize, rest: &str) -> Tollgate {
    instance_at(origin, &redis.settings(), workers, rest)
}

/// `redis`: where it is, as `store.redis` says it.
fn instance_at(origin: &Origin, redis: &str, workers: usize, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
workers: {workers}
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
store: {{ redis: {{ {redis}, timeout: 5s }} }}
{rest}
",
        origin.address,
    )))
}

fn get(tollgate: &Tollgate, path: &str, headers: &[(&str, &str)]) -> u16 {
    Client::connect(tollgate.address).request("GET", path, headers, b"").status
}

/// What every limit holds, byte for byte, and when it ends; not who lives, nor who was denied.
fn contents(redis: &Deployment) -> BTreeMap<String, (String, String)> {
    let is_limit =
        |key: &String| key.contains('{') && !key.contains("{abuse}") && !key.contains(":instances}");
    let limits = redis.keys().into_iter().filter(is_limit);
    limits
        .map(|key| {
            let held = (redis.cli(&["dump", &key]), redis.cli(&["pexpiretime", &key]));
            (key, held)
        })
        .collect()
}

/// Scripts that were run for decisions so far: all but heartbeats.
fn decisions(tollgates: &[&Tollgate]) -> usize {
    tollgates.iter().map(|tollgate| tollgate.metric("tollgate_store_batch_size_count") as usize).sum()
}

mod two_instances_admit_exactly_the_limit {
    mod server {
        crate::limit::exactness::each_algorithm!(Some(&crate::harness::Topology::Server.shared()));
    }

    mod sentinel {
        crate::limit::exactness::each_algorithm!(Some(&crate::harness::Topology::Sentinel.shared()));
    }

    mod cluster {
        crate::limit::exactness::each_algorithm!(Some(&crate::harness::Topology::Cluster.shared()));
    }
}

fn a_denial_by_one_policy_takes_nothing_of_the_other(redis: &Deployment) {
    exactness::one_policy_takes_nothing_of_the_other(Some(redis));
}

fn a_denial_of_one_identifier_takes_nothing_of_the_other(redis: &Deployment) {
    exactness::one_identifier_takes_nothing_of_the_other(Some(redis));
}

/// A request by `cc` that stays under way as long as it is held: its body does not come.
fn under_way(tollgate: &Tollgate) -> Client {
    Client::sending(tollgate.address, "POST /cc HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n")
}

fn every_key_reads_as_the_design_says_and_ends(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 2, EACH_ALGORITHM);
    let long = "x".repeat(129);
    for (path, key) in [
        ("/sc", None),
        ("/fw", Some("plain")),
        ("/fw", Some("{a}+b:c%\td*?[e]\u{7f}é")),
        ("/fw", Some(long.as_str())),
        ("/sl/a/b", None),
        ("/sl/%7Ba+b:c", None),
        ("/ml", None),
        ("/sw", None),
        ("/sx", None),
        ("/gc", None),
        ("/di", Some("a user")),
    ] {
        let mut client = Client::connect(tollgate.address);
        let headers: Vec<_> = key.map(|key| ("x-key", key)).into_iter().collect();
        // A DEL is no part of a field's value: a request with one is refused, and nothing is counted.
        let status = client.request("GET", path, &headers, b"").status;
        assert!(status == 200 || key.is_some_and(|key| key.contains('\u{7f}')), "{path} {key:?}: {status}");
    }
    assert_eq!(get(&tollgate, "/fw", &[("x-key", "{a}+b:c%\td*?[e]é")]), 200);
    // A request in progress holds a lease.
    let lease = "ratelimit:{ip:127.0.0.1}:cc:cc.5m";
    let _under_way = under_way(&tollgate);
    eventually("it holds a lease", || redis.keys().iter().any(|key| key == lease));

    let types: BTreeMap<_, _> =
        redis.keys().into_iter().map(|key| (key.clone(), redis.cli(&["type", &key]))).collect();
    let hash = types.keys().find(|key| key.contains("%sha256-")).expect("what is long is hashed").clone();
    assert!(hash.len() < 128, "{hash}");
    let expected = [
        ("ratelimit:instances", "zset"),
        ("ratelimit:{ratelimit:instances}:introductions", "hash"),
        ("ratelimit:{header:x-key=plain}:fw:fw.1h.1d", "string"),
        ("ratelimit:{header:x-key=%7Ba%7D%2Bb%3Ac%25%09d*?[e]é}:fw:fw.1h.1d", "string"),
        (hash.as_str(), "string"),
        ("ratelimit:{ip:127.0.0.1}+path:/sl/a/b:sl:sl.1h", "zset"),
        ("ratelimit:{ip:127.0.0.1}+path:/sl/%7Ba%2Bb%3Ac:sl:sl.1h", "zset"),
        ("ratelimit:{ip:127.0.0.1}:ml:ml.1m", "list"),
        ("ratelimit:{ip:127.0.0.1}:sc:sc.1d", "string"),
        ("ratelimit:{ip:127.0.0.1}:sw:sw.1h.1d", "string"),
        ("ratelimit:{ip:127.0.0.1}:sx:sx.1h", "string"),
        ("ratelimit:{ip:127.0.0.1}:gc:gcra.1d", "string"),
        ("ratelimit:{ip:127.0.0.1}:di:di.1d.header-x-key", "zset"),
        (lease, "zset"),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, kind)| (key.to_owned(), kind.to_owned())).collect();
    assert_eq!(types, expected);
    for key in types.keys() {
        let left: i64 = redis.cli(&["pttl", key]).parse().unwrap();
        assert!((1..=86_400_000 * 5 / 4).contains(&left), "{key} ends in {left} ms");
    }
}

fn a_denied_request_leaves_every_key_byte_for_byte_as_it_was(redis: &Deployment) {
    let origin = Origin::ok();
    let [one, other] = [1, 1].map(|workers| instance(&origin, redis, workers, EACH_ALGORITHM));
    let key = [("x-key", "k")];
    let paths = ["/sc", "/fw", "/sl/a", "/ml", "/sw", "/sx", "/gc", "/di"];
    for path in paths {
        assert_eq!([200, 200], [get(&one, path, &key), get(&one, path, &key)], "{path}");
    }
    let before = contents(redis);
    assert_eq!(before.len(), paths.len(), "{before:#?}");
    // Where nobody remembers a denial yet, Redis is asked; then it is asked for a fresh key behind the same.
    let asked = decisions(&[&one, &other]);
    for tollgate in [&one, &other] {
        for path in paths {
            // A value that was seen is never denied.
            let key = if path == "/di" { [("x-key", "another")] } else { key };
            assert_eq!(get(tollgate, path, &key), 429, "{path}");
        }
    }
    assert!(decisions(&[&one, &other]) >= asked + 2 * paths.len(), "every denial came from Redis");
    assert_eq!(contents(redis), before);
    // One check denies, the other has a key that Redis does not know: it does not come to know it.
    for tollgate in [&one, &other] {
        thread::sleep(Duration::from_millis(1_010));
        assert_eq!(get(tollgate, "/two", &[("x-key", "unknown")]), 429);
    }
    assert_eq!(contents(redis), before);
}

/// A proxy's own clock may go wrong; one time holds for all instances.
fn it_is_redis_that_tells_the_time(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 1, EACH_ALGORITHM);
    assert_eq!(get(&tollgate, "/ml", &[]), 200);
    redis.each(&["config", "set", "slowlog-max-len", "1000", "slowlog-log-slower-than", "0"]);
    assert_eq!(get(&tollgate, "/sc", &[]), 200);
    redis.each(&["config", "set", "slowlog-log-slower-than", "-1"]);
    let calls = redis.each(&["--no-raw", "slowlog", "get", "-1"]).join("\n");
    // As `redis-cli` prints a list: each argument behind its number, in quotes, on a line of its own.
    let is_decision = |call: &&str| call.starts_with("\"EVALSHA\"") && call.contains(":sc:sc.1d");
    let decision = calls.split("4) 1) ").find(is_decision).expect("it was decided");
    assert!(decision.contains(") \"\"\n      "), "the time is left to Redis: {decision}");
}

/// What lies further ahead than clocks are apart is void, and operators can see that a clock was set.
fn state_from_the_future_is_counted_when_it_is_discarded(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 1, EACH_ALGORITHM);
    let year = "(redis.call('TIME')[1] + 366 * 86400) * 1000000";
    let states = [
        ("/sc", "ratelimit:{ip:127.0.0.1}:sc:sc.1d", format!("struct.pack('>dd', {year}, 2)")),
        ("/sx", "ratelimit:{ip:127.0.0.1}:sx:sx.1h", format!("struct.pack('>ddd', {year}, 2, 2)")),
        ("/gc", "ratelimit:{ip:127.0.0.1}:gc:gcra.1d", format!("struct.pack('>ddd', {year}, 2, 0)")),
    ];
    for (nth, (path, key, state)) in states.into_iter().enumerate() {
        redis.cli(&["eval", &format!("return redis.call('SET', KEYS[1], {state})"), "1", key]);
        assert_eq!(tollgate.metric("tollgate_store_discarded_total"), nth as f64, "{path}");
        assert_eq!([200, 200, 429], [(); 3].map(|()| get(&tollgate, path, &[])), "{path}");
    }
    for (path, key, header) in [
        ("/di", "ratelimit:{ip:127.0.0.1}:di:di.1d.header-x-key", "a"),
        ("/cc", "ratelimit:{ip:127.0.0.1}:cc:cc.5m", "a"),
    ] {
        let before = tollgate.metric("tollgate_store_discarded_total");
        let add = format!(
            "return redis.call('ZADD', KEYS[1], {year}, 'sixteen bytes, 1', {year}, 'sixteen bytes, 2')"
        );
        redis.cli(&["eval", &add, "1", key]);
        assert_eq!(get(&tollgate, path, &[("x-key", header)]), 200, "{path}");
        assert_eq!(tollgate.metric("tollgate_store_discarded_total"), before + 1.0, "{path}");
    }
}

const SLICED: &str = "
policies:
  quota: { algorithm: fixed_window, key: ip, limit: 1000/1d, slice: 10% }
routes:
  - { path: /*, upstream: origin, policies: [quota] }
";

/// What an admitted client is told that is left.
fn remaining(reply: &Reply) -> u64 {
    assert_eq!(reply.status, 200);
    let (_, told) = reply.header("ratelimit").unwrap().split_once(";r=").unwrap();
    told.split(';').next().unwrap().parse().unwrap()
}

fn a_slice_is_asked_for_once_and_spent_alone(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 2, SLICED);
    let mut client = Client::connect(tollgate.address);
    let left = (0..500).map(|_| remaining(&client.request("GET", "/", &[], b"")));
    assert!(left.eq((500..1000).rev()), "the client is told what is left, wherever it lies");
    let by = |source: &str| {
        let name =
            format!("tollgate_decisions_total{{policy=\"quota\",verdict=\"allowed\",source=\"{source}\"}}");
        tollgate.metric(&name)
    };
    assert_eq!((by("store"), by("lease")), (5.0, 495.0));
}

/// Until an instance hears of unblocks, it may have missed one. So its first subscription voids slices and denials: there must
/// be none yet.
#[test]
fn the_first_subscription_voids_no_slice() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    relay.delay_subscriptions(Duration::from_millis(700));
    let tollgate = instance_at(&origin, &format!("url: \"{}\"", relay.url()), 1, SLICED);
    let (mut client, begun) = (Client::connect(tollgate.address), Instant::now());
    for left in (0..1000).rev().take_while(|_| begun.elapsed() < Duration::from_secs(1)) {
        let reply = client.request("GET", "/", &[], b"");
        assert_eq!(remaining(&reply), left, "after {:?}", begun.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
}

fn after_a_denial_a_worker_answers_for_itself(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 1, EACH_ALGORITHM);
    let mut client = Client::connect(tollgate.address);
    let mut ask = || client.request("GET", "/sc", &[], b"").status;
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    let calls = || -> i64 {
        let stats = redis.each(&["info", "commandstats"]).join("\n");
        let lines = stats.lines().filter(|line| line.starts_with("cmdstat_evalsha:"));
        lines.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<i64>().unwrap()).sum()
    };
    let begun = Instant::now();
    let before = calls();
    let denied = (0..200).filter(|_| ask() == 429).count();
    assert_eq!(denied, 200);
    // Heartbeats are scripts too, and once a second it is Redis that denies. Both may come at the begin and at the end.
    let most = 3 * redis.primaries().len() as i64 * (begun.elapsed().as_secs() as i64 + 4);
    let calls = calls() - before;
    assert!(calls <= most, "{calls} calls in {:?}", begun.elapsed());
    let metric = |source: &str| {
        let name =
            format!("tollgate_decisions_total{{policy=\"sc\",verdict=\"denied\",source=\"{source}\"}}");
        tollgate.metric(&name) as i64
    };
    assert!(metric("local_denial") >= 201 - 1 - most, "{}", metric("local_denial"));
    assert_eq!(metric("local_denial") + metric("store"), 201);
}

fn an_unblock_at_one_instance_is_heard_at_the_other_at_once(redis: &Deployment) {
    let origin = Origin::ok();
    let [one, other] = [2, 2].map(|workers| instance(&origin, redis, workers, EACH_ALGORITHM));
    let mut took = Vec::new();
    for round in 0..6 {
        let mut clients: Vec<_> = (0..8).map(|_| Client::connect(other.address)).collect();
        for client in &mut clients {
            // Some worker of the other instance has it in Redis that it is denied, and remembers it.
            while client.request("GET", "/sc", &[], b"").status == 200 {}
            assert_eq!(client.request("GET", "/sc", &[], b"").status, 429);
        }
        eventually("the one knows of it, or of nothing to list", || {
            one.admin("GET", "/v1/blocked").status == 200
        });
        let begun = Instant::now();
        if round % 2 == 0 {
            let reply = one.admin("DELETE", "/v1/blocked/127.0.0.1");
            assert_eq!((reply.status, reply.json()["cleared"][0]["policy"].as_str()), (200, Some("sc")));
        } else {
            let ended = one.command(&["unblock", "127.0.0.1"]);
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
        let client = &mut clients[round];
        while client.request("GET", "/sc", &[], b"").status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(20), "still denied after {:?}", begun.elapsed());
        }
        took.push(begun.elapsed());
    }
    eprintln!("6 unblocks let the client through after {took:?}");
    // A busy machine may hold up some of them, but hardly all.
    assert!(took.iter().min().unwrap() < &Duration::from_secs(1), "{took:?}");
    let denied = "tollgate_decisions_total{policy=\"sc\",verdict=\"denied\",source=\"local_denial\"}";
    assert!(other.metric(denied) > 0.0);
}

fn an_unblock_lists_the_other_keys_although_it_hears_of_itself(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 1, EACH_ALGORITHM);
    // Held back by its header alone: no limit of the address has a unit taken.
    while get(&tollgate, "/fw", &[("x-key", "k")]) == 200 {}
    eventually("it is listed", || tollgate.admin("GET", "/v1/blocked/127.0.0.1").status == 200);
    let reply = tollgate.admin("DELETE", "/v1/blocked/127.0.0.1");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["other_keys"], serde_json::json!(["header:x-key=k"]));
    assert_eq!(tollgate.admin("GET", "/v1/blocked/127.0.0.1").json()["state"], "unblocked");
}

fn foreign_values_in_our_keys_stop_nothing(redis: &Deployment) {
    let origin = Origin::ok();
    let tollgate = instance(&origin, redis, 1, EACH_ALGORITHM);
    let (sc, fw) = ("ratelimit:{ip:127.0.0.1}:sc:sc.1d", "ratelimit:{header:x-key=k}:fw:fw.1h.1d");
    let (sl, ml) = ("ratelimit:{ip:127.0.0.1}+path:/sl/a:sl:sl.1h", "ratelimit:{ip:127.0.0.1}:ml:ml.1m");
    let limits = [("/sc", sc), ("/fw", fw), ("/sl/a", sl), ("/ml", ml)];
    let far = "99999999999999999999999";
    let garbage: [&[&str]; 12] = [
        &["set", "KEY", "garbage"],
        &["set", "KEY", ""],
        &["set", "KEY", "-5:-5"],
        &["set", "KEY", "99999999999999999999999:99999999999999999999999"],
        &["set", "KEY", "nan:inf 1:"],
        &["zadd", "KEY", "5", "foreign"],
        &["zadd", "KEY", "inf", "foreign"],
        &["zadd", "KEY", "1e300", far, "-inf", "-1"],
        &["rpush", "KEY", "foreign", ""],
        &["rpush", "KEY", "99999999999999999999999:1 {}"],
        &["hset", "KEY", "a", "b"],
        &["sadd", "KEY", "a"],
    ];
    for command in garbage {
        for (path, key) in limits {
            redis.cli(&["del", key]);
            let command: Vec<_> =
                command.iter().map(|&word| if word == "KEY" { key } else { word }).collect();
            let said = redis.cli(&command);
            assert!(!said.contains("ERR"), "{command:?}: {said}");
            // What was there is no count of ours: it is a limit that nobody has used. Others in the same batch
            // are asked for at the same time.
            let clients: Vec<_> = (0..8)
                .map(|client| {
                    let (address, header) = (tollgate.address, if client < 4 { "k" } else { "other" });
                    let path = if client < 4 { path } else { "/fw" };
                    thread::spawn(move || {
                        Client::connect(address).request("GET", path, &[("x-key", header)], b"").status
                    })
                })
                .collect();
            let statuses: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            let admitted = |statuses: &[u16]| statuses.iter().filter(|&&status| status == 200).count();
            assert_eq!(
                [admitted(&statuses[..4]), admitted(&statuses[4..])],
                [2, 2],
                "{command:?} {statuses:?}"
            );
            assert!(
                redis.cli(&["pttl", key]).parse::<i64>().unwrap() > 0,
                "{command:?} of {key} does not end"
            );
            for key in [fw, "ratelimit:{header:x-key=other}:fw:fw.1h.1d"] {
                redis.cli(&["del", key]);
            }
            // Forgets the local denials.
            tollgate.command(&["unblock", "127.0.0.1"]);
        }
    }
    assert_eq!(tollgate.metric("tollgate_store_breaker_open"), 0.0);
    let fallback = |policy: &str| {
        tollgate.metric(&format!(
            "tollgate_decisions_total{{policy=\"{policy}\",verdict=\"allowed\",source=\"fallback\"}}"
        ))
    };
    assert_eq!(["sc", "fw", "sl", "ml"].map(fallback), [0.0; 4]);
}

fn each_instance_knows_how_many_live(redis: &Deployment) {
    let origin = Origin::ok();
    let start = || instance(&origin, redis, 1, EACH_ALGORITHM);
    let knows = |tollgates: &[&Tollgate], count: f64| {
        eventually(&format!("all know of {count}"), || {
            tollgates.iter().all(|tollgate| tollgate.metric("tollgate_instances") == count)
        });
    };
    let (one, mut two, mut three) = (start(), start(), start());
    knows(&[&one, &two, &three], 3.0);
    // One that ends in order says so.
    let begun = Instant::now();
    two.signal("TERM");
    two.wait();
    knows(&[&one, &three], 2.0);
    eprintln!("an instance that ended in order was gone after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(4));
    // One that can't is missed.
    let begun = Instant::now();
    three.signal("KILL");
    three.wait();
    knows(&[&one], 1.0);
    eprintln!("an instance that was killed was gone after {:?}", begun.elapsed());
    assert!((Duration::from_secs(3)..Duration::from_secs(20)).contains(&begun.elapsed()));
    assert_eq!(redis.cli(&["zcard", "ratelimit:instances"]), "1");
    assert!(redis.cli(&["pttl", "ratelimit:instances"]).parse::<i64>().unwrap() > 0);
    // Somebody else writes there: first what is to come, then what is no set.
    redis.cli(&["zadd", "ratelimit:instances", "99999999999999999", "ghost"]);
    eventually("no ghost counts", || redis.cli(&["zcard", "ratelimit:instances"]) == "1");
    redis.cli(&["set", "ratelimit:instances", "garbage"]);
    eventually("it is a set again", || redis.cli(&["type", "ratelimit:instances"]) == "zset");
    knows(&[&one], 1.0);
    drop(one);
    eventually("nothing is left of them", || !redis.keys().contains(&"ratelimit:instances".to_owned()));
}
