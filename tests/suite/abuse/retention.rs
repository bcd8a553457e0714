//! How long records of limited clients are kept, and how much of Redis they may take.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use crate::{
    harness::{
        Client, Config, Deployment, Origin, Tollgate, eventually, get_from, on_each_store, on_own_servers,
    },
    store::redis_audit::warnings,
};

on_each_store!(records_expire_with_their_retention, entries_of_a_metadata_list_expire_with_their_retention);
on_own_servers!(
    records_of_a_lost_instance_expire,
    list_entries_of_a_lost_instance_expire_and_its_requests_still_count,
    a_server_that_evicts_is_named_within_seconds,
);
on_own_servers!([server cluster] evidence_takes_its_share_of_redis_and_pushes_out_no_limit);

/// What a client sends that must not be kept for longer than said.
const USER: &str = "a-user-who-is-found-again";
const PATH: &str = "/a-path-that-is-found-again";

fn limited(origin: &Origin, redis: Option<&Deployment>, policy: &str, rest: &str) -> Tollgate {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [per-ip] }}
policies:
  per-ip: {{ {policy} }}
routes:
  - {{ path: /*, upstream: origin }}
{rest}
{store}
",
        origin.address
    )))
}

/// Sends requests from an address, by users with this name or one that begins so.
fn ask(tollgate: &Tollgate, source: &str, count: usize) -> Vec<u16> {
    let mut client = Client::connect_from(source.parse().unwrap(), tollgate.address);
    (0..count).map(|_| client.request("GET", PATH, &[("x-user-id", USER)], b"").status).collect()
}

/// Keys that name the user or the path, or have them in their values.
fn keys_with_names(redis: &Deployment) -> Vec<String> {
    let script = "local found = {}
    for _, key in ipairs(redis.call('KEYS', ARGV[3])) do
        local kind, all = redis.call('TYPE', key).ok, {}
        if kind == 'string' then all = { redis.call('GET', key) }
        elseif kind == 'hash' then all = redis.call('HGETALL', key)
        elseif kind == 'zset' then all = redis.call('ZRANGE', key, 0, -1)
        elseif kind == 'list' then all = redis.call('LRANGE', key, 0, -1) end
        local text = key .. table.concat(all, ' ')
        if text:find(ARGV[1], 1, true) or text:find(ARGV[2], 1, true) then found[#found + 1] = key end
    end
    return table.concat(found, ' ')";
    let found = redis.each(&["EVAL", script, "0", USER, PATH, redis.pattern()]);
    found.iter().flat_map(|keys| keys.split_whitespace()).map(str::to_owned).collect()
}

fn records(tollgate: &Tollgate, address: &str) -> usize {
    let evidence = tollgate.admin("GET", &format!("/v1/blocked/{address}")).json();
    evidence["records"].as_array().map_or(0, Vec::len)
}

fn records_expire_with_their_retention(redis: Option<&Deployment>) {
    records_expire(redis, "single_counter", 0);
}

fn entries_of_a_metadata_list_expire_with_their_retention(redis: Option<&Deployment>) {
    records_expire(redis, "metadata_list", 1);
}

/// How long records are kept.
const KEPT: Duration = Duration::from_secs(6);
/// How long clients are listed.
const LISTED: Duration = Duration::from_secs(15);

/// `listed`: how many admitted requests are recorded, too.
fn records_expire(redis: Option<&Deployment>, algorithm: &str, listed: usize) {
    let origin = Origin::ok();
    let policy = &format!("algorithm: {algorithm}, key: ip, limit: 1/1h, record: {{ keep: 50, for: 6s }}");
    let rest = "abuse: { retain: 15s }";
    let tollgate = limited(&origin, redis, policy, rest);
    let other = redis.map(|_| limited(&origin, redis, policy, rest));
    assert_eq!(ask(&tollgate, "127.1.0.1", 1), [200]);
    // At times that are apart: each record has an end of its own.
    let mut denied = Vec::new();
    for _ in 0..5 {
        assert_eq!(ask(&tollgate, "127.1.0.1", 1), [429]);
        denied.push(Instant::now());
        // On a busy machine, the first ones may be over by now.
        let is_over = |denied: &&Instant| denied.elapsed() > KEPT;
        eventually("it is recorded", || {
            let records = records(&tollgate, "127.1.0.1");
            let over = denied.iter().filter(is_over).count();
            let all = listed + denied.len();
            records == all || over > 0 && (all.saturating_sub(listed + over)..all).contains(&records)
        });
        if let Some(redis) = redis {
            eventually("it is published", || {
                !keys_with_names(redis).is_empty() || denied.iter().all(|denied| is_over(&denied))
            });
        }
        // The test is about time.
        std::thread::sleep(Duration::from_millis(300));
    }
    let instances = || [Some(&tollgate), other.as_ref()].into_iter().flatten();
    // Far less than they stay listed for.
    let late = Duration::from_secs(4);
    // Once it is over, and at once where the test comes to it later.
    let gone = |what: &str, ends: Instant, is_gone: &dyn Fn() -> bool| {
        let due = ends.max(Instant::now());
        eventually(what, is_gone);
        assert!(Instant::now() < due + late, "{what} {:?} after its end", ends.elapsed());
    };
    for (index, denied) in denied.iter().enumerate() {
        gone("a record", *denied + KEPT, &|| {
            instances().all(|instance| records(instance, "127.1.0.1") < 5 - index)
        });
    }
    let last = *denied.last().unwrap();
    if let Some(redis) = redis {
        gone("each name and path in Redis", last + KEPT, &|| keys_with_names(redis).is_empty());
    }
    for instance in instances() {
        let addresses = instance.admin("GET", &format!("/v1/users/{USER}")).json()["addresses"].take();
        assert_eq!(addresses.as_array().map_or(0, Vec::len), 0);
        assert_eq!(instance.admin("GET", "/v1/blocked/127.1.0.1").json()["denied"], 5, "it stays listed");
    }
    gone("the client in the list", last + LISTED, &|| {
        instances().all(|instance| instance.admin("GET", "/v1/blocked/127.1.0.1").status == 404)
    });
    if let Some(redis) = redis {
        let of_clients = || redis.keys().iter().filter(|key| key.contains("{abuse}")).count();
        gone("all of it in Redis", last + LISTED, &|| of_clients() == 0);
    }
}

fn records_of_a_lost_instance_expire(redis: &Deployment) {
    let origin = Origin::ok();
    let other = after_a_loss(&origin, redis, "single_counter, key: ip, limit: 1/1h", &[200, 429, 429]);
    eventually("it is listed", || other.admin("GET", "/v1/blocked/127.1.0.1").json()["denied"] == 2);
}

/// A `metadata_list` names those who filled it, and counts them until its window ends.
fn list_entries_of_a_lost_instance_expire_and_its_requests_still_count(redis: &Deployment) {
    let origin = Origin::ok();
    let other = after_a_loss(&origin, redis, "metadata_list, key: ip, limit: 3/1h", &[200, 200]);
    assert_eq!(ask(&other, "127.1.0.1", 2), [200, 429], "all of them count");
    eventually("it is listed with whom the list still has", || records(&other, "127.1.0.1") == 2);
}

/// An instance answers with `statuses` and is killed. Another one starts when the names and paths of those have expired.
fn after_a_loss(origin: &Origin, redis: &Deployment, policy: &str, statuses: &[u16]) -> Tollgate {
    let policy = format!("algorithm: {policy}, record: {{ keep: 50, for: 3s }}");
    let mut tollgate = limited(origin, Some(redis), &policy, "");
    assert_eq!(ask(&tollgate, "127.1.0.1", statuses.len()), statuses);
    let asked = Instant::now();
    if statuses.contains(&429) {
        eventually("the denials are published", || !keys_with_names(redis).is_empty());
    }
    assert!(!keys_with_names(redis).is_empty());
    tollgate.signal("KILL");
    tollgate.wait();
    eventually("no name and no path is left", || keys_with_names(redis).is_empty());
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    limited(origin, Some(redis), &policy, "")
}

/// Fills a server until it evicts.
fn a_server_that_evicts_is_named_within_seconds(redis: &Deployment) {
    let origin = Origin::ok();
    redis.each(&["config", "set", "maxmemory", "64mb", "maxmemory-policy", "volatile-ttl"]);
    let tollgate = limited(&origin, Some(redis), "algorithm: single_counter, key: ip, limit: 1/1h", "");
    let servers = redis.primaries().len();
    eventually("it is in touch", || {
        tollgate.log().iter().filter(|line| line.contains("connected to Redis")).count() == servers
    });
    eventually("there is nothing to warn of", || warnings(&tollgate).is_empty());
    let evicting = redis.primaries()[servers - 1];
    // So that each was looked at once.
    let commands = || {
        let info = evicting.cli(&["info", "commandstats"]);
        info.lines()
            .find_map(|line| line.strip_prefix("cmdstat_info:calls=")?.split(',').next()?.parse::<u64>().ok())
    };
    let before = commands().unwrap_or(0);
    eventually("its memory was looked at", || commands().unwrap_or(0) > before + 6);
    let fill = "for i = 1, 200 do redis.call('SET', KEYS[1] .. i, ('x'):rep(10000), 'EX', 1000 + i) end";
    let slot =
        (0..100_000).map(|n| format!("{{{n}}}")).find(|tag| redis.server_of(tag).port == evicting.port);
    evicting.cli(&["eval", fill, "1", &slot.unwrap()]);
    let used = evicting.cli(&["eval", "return redis.call('INFO', 'memory'):match('used_memory:(%d+)')", "0"]);
    let used: u64 = used.trim_matches('"').parse().unwrap();
    let begun = Instant::now();
    evicting.cli(&["config", "set", "maxmemory", &(used - 1_000_000).to_string()]);
    let told = |texts: &[String]| {
        let about = texts.iter().filter(|text| text.contains("Redis evicts keys"));
        let names_it = |text: &String| servers == 1 || text.contains(&format!(":{}: ", evicting.port));
        let about: Vec<_> = about.collect();
        about.len() == 1 && names_it(about[0])
    };
    eventually("it is in the status", || told(&warnings(&tollgate)));
    eventually("it is in the log", || told(&tollgate.log()));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    eprintln!("told after {:?}", begun.elapsed());
}

/// Bytes that keys with this in their names take, by their server.
fn bytes_of(redis: &Deployment, part: &str) -> u64 {
    let keys = redis.keys().into_iter().filter(|key| key.contains(part));
    let bytes =
        |key: String| redis.cli(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).parse::<u64>().unwrap_or(0);
    keys.map(bytes).sum()
}

fn evicted(redis: &Deployment) -> u64 {
    let of = |info: String| {
        info.lines().find_map(|line| line.strip_prefix("evicted_keys:")?.trim().parse::<u64>().ok()).unwrap()
    };
    redis.each(&["info", "stats"]).into_iter().map(of).sum()
}

/// Many addresses send much that is worth recording.
fn evidence_takes_its_share_of_redis_and_pushes_out_no_limit(redis: &Deployment) {
    const ADDRESSES: u32 = 900;
    const REQUESTS: usize = 25;
    const MAXMEMORY: u64 = 8 << 20;
    redis.each(&["config", "set", "maxmemory", &MAXMEMORY.to_string(), "maxmemory-policy", "volatile-ttl"]);
    let origin = Origin::ok();
    let policy = "algorithm: single_counter, key: ip, limit: 5/1h";
    let tollgate = limited(&origin, Some(redis), policy, "");
    let admitted =
        |count: usize| ask(&tollgate, "127.9.0.1", count).iter().filter(|code| **code == 200).count();
    assert_eq!(admitted(5), 5);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let tollgate = &tollgate;
            scope.spawn(move || {
                for n in (part..ADDRESSES).step_by(4) {
                    let source = IpAddr::from(Ipv4Addr::from(0x7f02_0000 + n));
                    let mut client = Client::connect_from(source, tollgate.address);
                    for request in 0..REQUESTS {
                        let path = format!("/{n}/{request}/{}", "x".repeat(600));
                        let user = format!("{n}-{request}-{}", "u".repeat(60));
                        client.request("GET", &path, &[("x-user-id", &user)], b"");
                    }
                }
            });
        }
    });
    eventually("the last are published", || {
        tollgate.admin("GET", "/v1/blocked?limit=1").status == 200
            && redis
                .cli(&["ZCARD", "ratelimit:{abuse}:v3:clients"])
                .parse::<u32>()
                .is_ok_and(|count| count > 0)
            && get_from("127.9.0.2", tollgate.address, "/", &[]).status == 200
    });
    // Rounds of the publisher, in which what is too much leaves.
    let rounds = || redis.each(&["info", "stats"]).concat();
    let before = rounds();
    eventually("time passes", || rounds() != before);
    let share = MAXMEMORY / 4;
    let mut records = 0;
    let mut is_within = || {
        records = bytes_of(redis, "{abuse}");
        records <= share
    };
    eventually("records are within their share", &mut is_within);
    assert!(records > share / 4, "{records} bytes of records");
    let limits = redis.keys().iter().filter(|key| key.contains("{ip:127.2.")).count();
    assert_eq!((limits, evicted(redis)), (ADDRESSES as usize, 0));
    assert_eq!(admitted(3), 0, "the limit holds");
    eventually("it is logged", || tollgate.has_logged(&["records of limited clients may take 2.0 MiB"]));
    eprintln!("{records} bytes of records, {limits} limits, none evicted");
}
