//! What operators see of the Redis servers of a store: in the status, in metrics, and as `tollgate status` prints it.

use serde_json::Value;

use crate::harness::{Cluster, Config, Origin, Redis, Sentinels, Tollgate, becomes, eventually, get};

/// One instance on this store. Its breaker opens after few failures.
fn instance(origin: &Origin, store: &str) -> Tollgate {
    let rest = format!(
        "store: {{ redis: {{ {store}, timeout: 2s, breaker: {{ failures: 3, retry_after: 200ms }} }} }}
policies: {{ each: {{ algorithm: fixed_window, key: path, limit: 1000/1h, on_store_error: allow }} }}
"
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("each"))
}

fn nodes(tollgate: &Tollgate) -> Vec<Value> {
    tollgate.admin("GET", "/v1/status").json()["store"]["nodes"].as_array().unwrap().clone()
}

#[test]
fn one_server_is_seen_up_down_and_up_again() {
    let (origin, mut redis) = (Origin::ok(), Redis::start());
    let tollgate = instance(&origin, &format!("url: \"{}\"", redis.url()));
    let address = format!("127.0.0.1:{}", redis.port);
    let node = || nodes(&tollgate)[0].clone();
    let up = format!("tollgate_redis_node_up{{node=\"{address}\",role=\"primary\"}}");
    eventually("it is up", || node()["state"] == "up");
    let seen = node();
    assert_eq!((&seen["address"], &seen["role"]), (&Value::from(address.as_str()), &"primary".into()));
    assert!(seen["latency_us"].as_u64().is_some_and(|micros| micros > 0), "{seen}");
    assert!(seen["version"].as_str().is_some_and(|version| version.contains('.')), "{seen}");
    assert_eq!(
        (&seen["failure"], &seen["primary"], &seen["slots"]),
        (&Value::Null, &Value::Null, &Value::from([0; 0].as_slice()))
    );
    becomes(1.0, || tollgate.metric(&up));
    let row = |word: &str| {
        let status = tollgate.command(&["status"]);
        assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""));
        status.stdout.lines().any(|line| line.starts_with(&address) && line.contains(word))
    };
    assert!(row("primary"));
    let json = tollgate.command(&["status", "--json"]).stdout;
    assert_eq!(
        serde_json::from_str::<Value>(&json).unwrap()["store"]["nodes"][0]["address"],
        address.as_str()
    );

    redis.kill();
    eventually("its breaker is open, and why", || {
        get(tollgate.address, "/", &[]);
        let seen = node();
        seen["state"] == "breaker_open" && seen["failure"].is_string() && seen["latency_us"].is_null()
    });
    assert_eq!(tollgate.metric(&up), 0.0);
    assert!(row("breaker open: "));

    redis.restart();
    eventually("it is up again", || node()["state"] == "up" && node()["failure"].is_null());
    becomes(1.0, || tollgate.metric(&up));
}

/// The node at this server's port; `null` if it is not seen.
fn node_of(tollgate: &Tollgate, server: &Redis) -> Value {
    let address = format!("127.0.0.1:{}", server.port);
    nodes(tollgate).into_iter().find(|node| node["address"] == address.as_str()).unwrap_or_default()
}

/// Waits until these servers are seen in this role and state.
#[track_caller]
fn sees(tollgate: &Tollgate, what: &str, servers: &[&Redis], role: &str, state: &str) {
    eventually(what, || {
        servers.iter().all(|server| {
            let node = node_of(tollgate, server);
            node["role"] == role && node["state"] == state && node["failure"].is_null() == (state == "up")
        })
    });
}

fn sum(tollgate: &Tollgate, field: &str) -> u64 {
    nodes(tollgate).iter().map(|node| node[field].as_u64().unwrap_or(0)).sum()
}

/// Sends requests until decisions are counted by the second.
#[track_caller]
fn decides(tollgate: &Tollgate) {
    let before = sum(tollgate, "decisions");
    let mut sent = 0;
    eventually("decisions are counted by the second", || {
        // Each path has a key of its own, and a cluster a node for each.
        for path in 0..50 {
            assert_eq!(get(tollgate.address, &format!("/{path}"), &[]).status, 200);
        }
        sent += 50;
        sum(tollgate, "decisions_per_second") > 0
    });
    assert_eq!(sum(tollgate, "decisions"), before + sent, "each decision is one node's");
}

/// A server that is down is no outage once another one decides in its place.
#[track_caller]
fn has_no_outage(tollgate: &Tollgate) {
    eventually("there is no outage", || {
        tollgate.admin("GET", "/v1/status").json()["outages"].as_array().is_some_and(Vec::is_empty)
    });
}

#[test]
fn a_primary_and_its_replicas_are_seen() {
    let (origin, mut redis) = (Origin::ok(), Sentinels::start());
    let tollgate = instance(&origin, &redis.settings());
    let [primary, first, second] = redis.servers.as_slice() else { panic!("three servers") };
    sees(&tollgate, "the primary is up", &[primary], "primary", "up");
    sees(&tollgate, "its replicas are up", &[first, second], "replica", "up");
    assert_eq!(nodes(&tollgate).len(), 3);
    assert_eq!(tollgate.admin("GET", "/v1/status").json()["store"]["topology"], "sentinel");
    let of_primary = node_of(&tollgate, primary);
    assert!(of_primary["latency_us"].is_u64() && of_primary["version"].is_string(), "{of_primary}");
    for replica in [first, second] {
        let seen = node_of(&tollgate, replica);
        assert_eq!(seen["primary"], of_primary["address"]);
        assert!(seen["lag_bytes"].is_u64(), "{seen}");
    }
    decides(&tollgate);
    assert!(node_of(&tollgate, primary)["decisions"].as_u64() >= Some(50));

    // A replica that stands still is behind by what is written meanwhile.
    first.pause();
    eventually("it lags behind", || {
        get(tollgate.address, "/", &[]);
        node_of(&tollgate, first)["lag_bytes"].as_u64() > Some(1000)
    });
    let address = format!("127.0.0.1:{}", first.port);
    assert!(
        tollgate.metric(&format!("tollgate_redis_node_replication_lag_bytes{{node=\"{address}\"}}")) > 1000.0
    );
    first.resume();
    eventually("it is in step", || node_of(&tollgate, first)["lag_bytes"].as_u64() < Some(1000));

    redis.kill(1);
    sees(&tollgate, "the replica is down", &[&redis.servers[1]], "replica", "down");
    sees(&tollgate, "the others are up", &[&redis.servers[2]], "replica", "up");
    redis.restart(1);
    sees(&tollgate, "it is back", &[&redis.servers[1]], "replica", "up");

    let new = redis.failover();
    sees(&tollgate, "the new primary is up", &[&redis.servers[new]], "primary", "up");
    sees(&tollgate, "the old one is down", &[&redis.servers[0]], "primary", "down");
    let new_address = format!("127.0.0.1:{}", redis.servers[new].port);
    eventually("the other replica follows it", || {
        node_of(&tollgate, &redis.servers[3 - new])["primary"] == new_address.as_str()
    });
    decides(&tollgate);
    has_no_outage(&tollgate);
    redis.restart(0);
    sees(&tollgate, "it comes back as a replica", &[&redis.servers[0]], "replica", "up");
}

/// How many slots the nodes serve together.
fn slots(tollgate: &Tollgate) -> f64 {
    let samples = tollgate.admin("GET", "/metrics").text();
    let of_slots = samples.lines().filter(|line| line.starts_with("tollgate_redis_node_slots{"));
    of_slots.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn each_node_of_a_cluster_is_seen() {
    let (origin, mut redis) = (Origin::ok(), Cluster::start());
    let tollgate = instance(&origin, &redis.settings());
    let all: Vec<_> = redis.nodes.iter().collect();
    sees(&tollgate, "the primaries are up", &all[..3], "primary", "up");
    sees(&tollgate, "the replicas are up", &all[3..], "replica", "up");
    assert_eq!((nodes(&tollgate).len(), slots(&tollgate)), (6, 16_384.0));
    assert_eq!(tollgate.admin("GET", "/v1/status").json()["store"]["topology"], "cluster");
    assert_eq!(node_of(&tollgate, all[0])["slots"], serde_json::json!(["0-5460"]));
    assert_eq!(node_of(&tollgate, all[3])["primary"], node_of(&tollgate, all[0])["address"]);
    decides(&tollgate);
    for primary in &all[..3] {
        let seen = node_of(&tollgate, primary);
        assert!(seen["decisions"].as_u64() > Some(0) && seen["latency_us"].is_u64(), "{seen}");
    }

    redis.kill(4);
    sees(&tollgate, "the replica is down", &[&redis.nodes[4]], "replica", "down");
    redis.restart(4);
    sees(&tollgate, "it is back", &[&redis.nodes[4]], "replica", "up");

    let promoted = redis.failover(0);
    sees(&tollgate, "the new primary is up", &[&redis.nodes[promoted]], "primary", "up");
    sees(&tollgate, "the old one is down", &[&redis.nodes[0]], "primary", "down");
    eventually("it has all its slots", || {
        node_of(&tollgate, &redis.nodes[promoted])["slots"] == serde_json::json!(["0-5460"])
    });
    assert_eq!(slots(&tollgate), 16_384.0);
    decides(&tollgate);
    has_no_outage(&tollgate);
    let status = tollgate.command(&["status"]).stdout;
    assert!(status.contains("store          cluster, 5/6 up"), "{status}");
    let top = tollgate.command(&["top"]).stdout;
    assert!(top.contains(&format!("\nnot up     127.0.0.1:{} (down)\n", redis.nodes[0].port)), "{top}");
    redis.restart(0);
    sees(&tollgate, "it comes back as a replica", &[&redis.nodes[0]], "replica", "up");
}
