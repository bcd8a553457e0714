//! The admin port as its clients see it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ipnet::IpNet;
use serde_json::json;

use super::{ProcessPhase, server::CONNECTIONS, testing::Harness};
use crate::{
    abuse::{Archive, ChangesPage, PeerView, UserAddresses, bans::BannedKey},
    limit::Unavailable,
    telemetry::{
        metrics::{StoreFacts, StoreTopology},
        testing::cluster,
    },
};

#[test]
fn evidence_names_everyone_behind_the_address() {
    let harness = Harness::with_shared_address(None);
    let reply = harness.get("/v1/blocked/203.0.113.7");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("cache-control: no-store"));
    let record = |time: &str, user: &str, policy: &str| json!({"time": time, "user": user, "method": "GET", "path": "/a", "policy": policy});
    assert_eq!(
        reply.json(),
        json!({
            "address": "203.0.113.7",
            "policies": ["per-user", "per-ip"],
            "first": "2026-07-03T11:59:59.500Z",
            "last": "2026-07-03T12:00:00.000Z",
            "until": "2026-07-03T12:01:00.000Z",
            "state": "limited",
            "banned_until": null,
            "unblocked": null,
            "denied": 2,
            "distinct_users": 3,
            "hint": "unknown",
            "hint_reason": "3 users, 2 requests, to one URL", "hint_advice": null,
            "records": [
                record("2026-07-03T12:00:00.000Z", "acme", "per-ip"),
                record("2026-07-03T11:59:59.500Z", "acme", "per-user"),
                record("2026-07-03T11:59:59.000Z", "eve", "per-ip"),
                record("2026-07-03T11:59:58.000Z", "bob", "per-ip"),
            ],
            "users": [
                {"user": "acme", "records": 2, "banned_until": null},
                {"user": "bob", "records": 1, "banned_until": null},
                {"user": "eve", "records": 1, "banned_until": null},
            ],
            "limits": [
                {"policy": "per-ip", "key": "ip:203.0.113.7", "used": 2, "limit": 3, "remaining": 1, "reset": "41s", "window_ends": null, "condition": null},
                {"policy": "per-user", "key": "user:acme", "used": 0, "limit": 3, "remaining": 3, "reset": "0s", "window_ends": null, "condition": null},
            ],
            "unlimited": [],
            "more_limits": 0,
            "bans": [],
        })
    );
}

#[test]
fn an_unblock_clears_the_address_and_nothing_else() {
    let harness = Harness::with_shared_address(None);
    let reply = harness.send("DELETE", "/v1/blocked/203.0.113.7", "");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(
        reply.json(),
        json!({
            "address": "203.0.113.7",
            "cleared": [
                {"policy": "per-ip", "key": "ip:203.0.113.7"},
                {"policy": "per-ip", "key": "ip:203.0.113.7+path:/a"},
            ],
            "redis_away": false,
            "bans_lifted": 0,
            "shared": true,
            "records_kept": 4,
            "still_banned": [],
            "other_keys": ["user:acme"],
        })
    );
    let evidence = harness.get("/v1/blocked/203.0.113.7").json();
    assert_eq!(
        [&evidence["state"], &evidence["until"], &evidence["unblocked"]],
        [
            &json!("unblocked"),
            &json!("2026-07-03T12:00:01.000Z"),
            &json!({"time": "2026-07-03T12:00:01.000Z", "by": "operator at 127.0.0.1"})
        ]
    );
    assert_eq!((&evidence["denied"], evidence["records"].as_array().map(Vec::len)), (&json!(2), Some(4)));
    harness.send("DELETE", "/v1/blocked/203.0.113.7", "").is_problem(404);
    assert_eq!(harness.get("/v1/blocked").json()["blocked"][0]["state"], "unblocked");
    assert_eq!(harness.get("/v1/blocked?active=true").json(), json!({"blocked": [], "cursor": null}));
    // Not listed, but limited.
    let other = harness.send("DELETE", "/v1/blocked/203.0.113.70", "content-type: application/json\r\n");
    assert_eq!(other.json()["cleared"], json!([{"policy": "per-ip", "key": "ip:203.0.113.70"}]));
}

#[test]
fn a_list_is_filtered_sorted_and_paged() {
    let harness = Harness::start(None);
    for (address, times, user) in
        [("203.0.113.7", 3, "a"), ("203.0.113.9", 1, "a"), ("10.0.0.1", 2, ""), ("2001:db8::/64", 5, "b")]
    {
        let policy = usize::from(address == "10.0.0.1");
        for ago in 0..times {
            harness.deny(address, policy, "user:a", user, -ago - times);
        }
    }
    harness.settle("2001:db8::/64");
    let listed = |query: &str| {
        let reply = harness.get(&format!("/v1/blocked{query}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        let list = reply.json();
        let addresses = list["blocked"].as_array().unwrap().iter().map(|found| found["address"].to_string());
        (addresses.collect::<Vec<_>>().join(" ").replace('"', ""), list["cursor"].as_str().map(str::to_owned))
    };
    let addresses = |query: &str| listed(query).0;
    assert_eq!(addresses(""), "203.0.113.9 10.0.0.1 203.0.113.7 2001:db8::/64");
    assert_eq!(addresses("?sort=last"), addresses(""));
    assert_eq!(addresses("?sort=denied"), "2001:db8::/64 203.0.113.7 10.0.0.1 203.0.113.9");
    assert_eq!(addresses("?sort=address"), "10.0.0.1 203.0.113.7 203.0.113.9 2001:db8::/64");
    assert_eq!(addresses("?policy=per-user"), "10.0.0.1");
    assert_eq!(addresses("?prefix=203.0.113.0/24&sort=address"), "203.0.113.7 203.0.113.9");
    assert_eq!(addresses("?prefix=2001:db8::/32"), "2001:db8::/64");
    assert_eq!(addresses("?prefix=2001:db8::1"), "2001:db8::/64");
    assert_eq!(addresses("?prefix=2001:db8:1::1"), "");

    for sort in ["last", "first", "denied", "address"] {
        let mut pages = Vec::new();
        let mut cursor = String::new();
        loop {
            let (page, next) = listed(&format!("?sort={sort}&limit=1{cursor}"));
            pages.push(page);
            let Some(next) = next else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(pages.join(" "), addresses(&format!("?sort={sort}")));
    }
    assert_eq!(addresses("?users=none"), "10.0.0.1");
    assert_eq!(addresses("?hint=unknown"), addresses(""));
    assert_eq!(addresses("?hint=password%20guessing"), "");
    let users =
        |address: &str| harness.get(&format!("/v1/blocked/{address}")).json()["distinct_users"].clone();
    assert_eq!((users("10.0.0.1"), users("203.0.113.9")), (0.into(), 1.into()));
    // Any address of the prefix, and the prefix itself.
    assert_eq!((users("2001:db8::5"), users("2001:db8::%2F64")), (1.into(), 1.into()));
}

#[test]
fn mistakes_are_told() {
    let harness = Harness::with_shared_address(None);
    harness.get("/v1/blocked/10.0.0.1").is_problem(404);
    harness.get("/v1/nothing").is_problem(404);
    harness.get("/v1/blocked/").is_problem(404);
    harness.get("/v1/blocked?policy=unknown").is_problem(404);
    for target in [
        "/v1/blocked/not-an-address",
        "/v1/blocked/203.0.113.0%2F24",
        "/v1/blocked/%ff",
        "/v1/blocked/203.0.113.7?verbose=1",
        "/v1/blocked?polcy=per-ip",
        "/v1/blocked?prefix=300.0.0.0/8",
        "/v1/blocked?sort=user",
        "/v1/blocked?hint=two",
        "/v1/blocked?users=two",
        "/v1/blocked?active=yes",
        "/v1/blocked?limit=0",
        "/v1/blocked?limit=1001",
        "/v1/blocked?limit=-1",
        "/v1/blocked?limit=1&limit=2",
        "/v1/blocked?cursor=nonsense",
        "/v1/status?x=1",
    ] {
        harness.get(target).is_problem(400);
    }
    let unknown = harness.get("/v1/blocked?polcy=per-ip").json()["detail"].to_string();
    assert!(unknown.contains("polcy") && unknown.contains("policy"), "{unknown}");
    let wrong = harness.send("POST", "/v1/blocked/203.0.113.7", "content-length: 0\r\n");
    let allowed = wrong.is_problem(405).head.lines().find(|line| line.starts_with("allow:"));
    assert_eq!(allowed.map(|line| line.contains("delete") && line.contains("get")), Some(true), "{wrong:?}");
    assert!(harness.send("DELETE", "/healthz", "").is_problem(405).head.contains("allow: get"));
}

#[test]
fn a_form_in_a_foreign_page_changes_nothing() {
    let harness = Harness::with_shared_address(None);
    let target = "/v1/blocked/203.0.113.7";
    for fields in [
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: text/plain\r\n",
        "content-type: application/jsonp\r\n",
    ] {
        harness.send("DELETE", target, fields).is_problem(415);
    }
    let host = harness.address;
    let body = "content-length: 2\r\nconnection: close\r\n\r\n{}";
    harness.raw(&format!("DELETE {target} HTTP/1.1\r\nhost: {host}\r\n{body}")).is_problem(415);
    harness.send("DELETE", target, "origin: http://evil.example\r\n").is_problem(403);
    harness
        .raw(&format!("DELETE {target} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"))
        .is_problem(403);
    harness.raw(&format!("GET {target} HTTP/1.0\r\n\r\n")).is_problem(403);
    assert_eq!(harness.get(target).status, 200, "nothing was changed");
    let typed =
        "content-type: application/json; charset=utf-8\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    assert_eq!(harness.raw(&format!("DELETE {target} HTTP/1.1\r\nhost: {host}\r\n{typed}")).status, 200);
}

#[test]
fn a_foreign_page_in_the_operator_s_browser_may_lead_here_and_nothing_else() {
    for token in [None, Some("s3cret")] {
        let harness = Harness::with_shared_address(token);
        let fields = |site: &str, mode: &str, dest: &str| {
            format!("sec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\nsec-fetch-dest: {dest}\r\n")
        };
        let page = if token.is_some() { "/login" } else { "/" };
        for target in [page, "/assets/page.js"] {
            for site in ["cross-site", "same-site"] {
                for (mode, dest) in [("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe")] {
                    harness.send("GET", target, &fields(site, mode, dest)).is_problem(403);
                }
                let led = harness.send("GET", target, &fields(site, "navigate", "document"));
                assert_eq!(led.status, 200, "{led:?}");
                harness.send("POST", target, &fields(site, "navigate", "document")).is_problem(403);
            }
            for site in ["same-origin", "none"] {
                assert_eq!(harness.send("GET", target, &fields(site, "cors", "empty")).status, 200);
            }
        }
    }
}

#[test]
fn where_strangers_may_ask_no_token_is_looked_at() {
    let harness = Harness::start(Some("s3cret"));
    let of = |target: &str, token: &str| {
        let fields = format!("authorization: Bearer {token}\r\norigin: https://evil.example\r\n");
        harness.send("GET", target, &fields).status
    };
    for target in ["/login", "/assets/page.js"] {
        assert_eq!(of(target, "s3cret"), of(target, "wrong"), "{target} tells which token is right");
    }
    assert_eq!((of("/v1/status", "s3cret"), of("/v1/status", "wrong")), (200, 401));
}

#[test]
fn a_token_stands_before_everything_but_health() {
    let harness = Harness::with_shared_address(Some("s3cret"));
    for target in ["/healthz", "/readyz"] {
        assert_eq!(harness.get(target).status, 200);
    }
    for target in ["/metrics", "/v1/status", "/v1/blocked", "/v1/blocked/203.0.113.7", "/nothing"] {
        let reply = harness.get(target);
        assert!(reply.is_problem(401).head.contains("www-authenticate: bearer"), "{reply:?}");
        harness.send("GET", target, "authorization: Bearer wrong!\r\n").is_problem(401);
    }
    harness.send("DELETE", "/v1/blocked/203.0.113.7", "").is_problem(401);
    let bearer = "authorization: Bearer s3cret\r\n";
    assert_eq!(harness.send("GET", "/v1/blocked", bearer).status, 200);
    // With the token, any Host is accepted.
    let request =
        format!("GET /metrics HTTP/1.1\r\nhost: proxy.internal\r\n{bearer}connection: close\r\n\r\n");
    assert_eq!(harness.raw(&request).status, 200);
}

#[test]
fn readiness_follows_the_process() {
    let harness = Harness::start(None);
    for (phase, status) in
        [(ProcessPhase::Starting, 503), (ProcessPhase::Ready, 200), (ProcessPhase::Draining, 503)]
    {
        harness.readiness.enter(phase);
        assert_eq!(harness.get("/readyz").status, status);
        assert_eq!(harness.get("/healthz").status, 200);
    }
    harness.get("/readyz").is_problem(503);
    assert_eq!(harness.get("/v1/status").json()["draining"], true);
}

#[test]
fn status_and_metrics_are_told() {
    let harness = Harness::start(None);
    let status = harness.get("/v1/status").json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        status["configuration"],
        json!({"hash": "abc123", "decides": "def456", "loaded": "2026-07-03T12:00:01.000Z", "last_reload": null})
    );
    assert_eq!(status["store"], json!({"topology": "memory", "keys": 0, "evicted": 0}));
    assert_eq!(status["workers"], 1);
    assert_eq!(status["listeners"], json!(["127.0.0.1:8080"]));
    assert_eq!(status["warnings"], json!(["mind the gap"]));
    let metrics = harness.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"));
    assert!(metrics.body.contains("tollgate_build_info{version="));
    assert_eq!(harness.send("HEAD", "/metrics", "").body, "");
}

#[test]
fn status_shows_each_redis_server() {
    let store = &Harness::with_store(cluster()).get("/v1/status").json()["store"];
    assert_eq!((&store["topology"], &store["latency"]), (&json!("cluster"), &json!("1ms")));
    let nodes = store["nodes"].as_array().unwrap();
    assert_eq!(
        nodes[0],
        json!({
            "address": "10.0.0.1:6379", "role": "primary", "primary": null, "slots": ["0-8192"], "state": "up",
            "failure": null, "latency_us": 310, "lag_bytes": null, "decisions": 1200, "decisions_per_second": 40,
            "version": "7.2.4",
        })
    );
    assert_eq!(
        (&nodes[1]["state"], &nodes[1]["failure"]),
        (&json!("breaker_open"), &json!("Connection refused"))
    );
    assert_eq!(nodes[1]["slots"], json!(["8193-16382", "16383"]));
    assert_eq!((&nodes[2]["role"], &nodes[2]["state"]), (&json!(null), &json!("unknown")));
    assert_eq!((&nodes[3]["primary"], &nodes[3]["lag_bytes"]), (&json!("10.0.0.1:6379"), &json!(4096)));
    for (topology, name) in [(StoreTopology::Single, "redis"), (StoreTopology::Sentinel, "sentinel")] {
        let harness = Harness::with_store(StoreFacts { topology, ..cluster() });
        assert_eq!(harness.get("/v1/status").json()["store"]["topology"], name);
    }
}

#[test]
fn a_client_that_says_nothing_is_closed_and_a_stop_does_not_wait_for_it() {
    let harness = Harness::start(None);
    let mut silent = TcpStream::connect(harness.address).unwrap();
    silent.write_all(b"GET /healthz HTTP/1.1\r\nhost: local").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut idle = TcpStream::connect(harness.address).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _reset = silent.read_to_end(&mut rest);
    rest.clear();
    let _reset = idle.read_to_end(&mut rest);
    assert!(rest.starts_with(b"HTTP/1.1 200"));
    let took = begun.elapsed();
    assert!((Duration::from_secs(8)..Duration::from_secs(20)).contains(&took), "closed after {took:?}");

    let _silent = TcpStream::connect(harness.address).unwrap();
    let begun = Instant::now();
    let address = harness.address;
    harness.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(TcpStream::connect(address).is_err());
}

fn connections(harness: &Harness, head: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(harness.address).unwrap();
        // Writing to an evicted connection may fail.
        let _gone = stream.write_all(head.as_bytes());
        stream
    };
    (0..CONNECTIONS).map(connect).collect()
}

#[test]
fn slow_unauthenticated_connections_do_not_block_others() {
    let harness = Harness::start(Some("s3cret"));
    let host = harness.address;
    let bearer = "authorization: Bearer s3cret\r\n";
    let mut operator = TcpStream::connect(host).unwrap();
    let ask = format!("GET /v1/events HTTP/1.1\r\nhost: {host}\r\n{bearer}\r\n");
    operator.write_all(ask.as_bytes()).unwrap();
    operator.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut listening = [0; 12];
    operator.read_exact(&mut listening).unwrap();
    assert_eq!(&listening, b"HTTP/1.1 200");
    let begun = Instant::now();
    // Silent connections; heads that never end; bodies that never arrive; refused clients that keep their connection.
    let typed = "content-type: application/json\r\ncontent-length: 100\r\n";
    let _unauthenticated = [
        String::new(),
        format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\nx-slow: "),
        format!("POST /login HTTP/1.1\r\nhost: {host}\r\n{typed}\r\n{{"),
        format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\n\r\n"),
    ]
    .map(|head| {
        let held = connections(&harness, &head);
        assert_eq!(harness.send("GET", "/v1/status", bearer).status, 200);
        assert_eq!(harness.get("/healthz").status, 200);
        held
    });
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited until one had given its place back");
    // The authenticated connection is still there.
    harness.events.publish(|| crate::telemetry::Event::Unblocked { address: "203.0.113.7".into() });
    let (mut received, mut part) = (String::new(), [0; 1024]);
    while !received.contains("203.0.113.7") {
        let read = operator.read(&mut part).unwrap();
        assert_ne!(read, 0, "the operator was closed: {received}");
        received.push_str(&String::from_utf8_lossy(&part[..read]));
    }
}

#[test]
fn without_a_configured_token_slow_connections_do_not_block_others() {
    let harness = Harness::start(None);
    let host = harness.address;
    let begun = Instant::now();
    let _known = connections(&harness, &format!("GET /v1/status HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    assert_eq!(harness.get("/v1/status").status, 200);
    let _foreign = connections(&harness, "GET /v1/status HTTP/1.1\r\nhost: evil.example\r\n\r\n");
    assert_eq!(harness.get("/v1/status").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited until one had given its place back");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let harness = Harness::start(None);
    let head = "content-type: application/json\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    let begun = Instant::now();
    let late = harness.raw(&format!("POST /v1/explain HTTP/1.1\r\nhost: {}\r\n{head}", harness.address));
    late.is_problem(408);
    assert!(begun.elapsed() > Duration::from_secs(5), "a body may take a while");
}

/// An unavailable archive: it fails at once, or never replies.
struct UnavailableArchive {
    hangs: bool,
    asked: Arc<AtomicUsize>,
}

impl UnavailableArchive {
    async fn answer<T>(&self) -> Result<T, Unavailable> {
        self.asked.fetch_add(1, Relaxed);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(Unavailable::Connection("away".into()))
    }
}

impl Archive for UnavailableArchive {
    async fn changed(&self, _: i64) -> Result<ChangesPage, Unavailable> {
        self.answer().await
    }

    async fn read(&self, _: &[IpNet]) -> Result<Vec<PeerView>, Unavailable> {
        self.answer().await
    }

    async fn user(&self, _: &str, _: i64) -> Result<UserAddresses, Unavailable> {
        self.answer().await
    }

    async fn unblock(&self, _: IpNet, _: &str) -> Result<(), Unavailable> {
        self.answer().await
    }

    async fn bans(&self, _: &BannedKey) -> Result<u64, Unavailable> {
        self.answer().await
    }
}

#[test]
fn an_unavailable_archive_delays_answers_a_little_and_no_instance_forgets_alone() {
    for hangs in [false, true] {
        let asked = Arc::<AtomicUsize>::default();
        let harness = Harness::with_archive(None, UnavailableArchive { hangs, asked: Arc::clone(&asked) });
        harness.deny("203.0.113.7", 0, "ip:203.0.113.7", "acme", -1);
        harness.settle("203.0.113.7");
        let begun = Instant::now();
        let ask = |target: &str| {
            let mut stream = TcpStream::connect(harness.address).unwrap();
            let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        };
        let asking: Vec<_> =
            ["/v1/blocked", "/v1/blocked/203.0.113.7"].repeat(20).into_iter().map(ask).collect();
        for mut stream in asking {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("203.0.113.7"), "{answer}");
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "they wait together, not one behind the other");
        assert!((1..20).contains(&asked.load(Relaxed)));
        harness.send("DELETE", "/v1/blocked/203.0.113.7", "").is_problem(503);
        assert_eq!(harness.get("/v1/blocked/203.0.113.7").status, 200);
        // Health does not wait for it at all.
        assert_eq!(harness.get("/healthz").status, 200);
    }
}

#[test]
fn a_change_is_completed_and_audited_although_the_client_hangs_up() {
    for (target, action) in
        [("/v1/limits?key=ip:203.0.113.7", "reset"), ("/v1/blocked/203.0.113.7", "unblock")]
    {
        let harness = Harness::with_shared_address(None);
        let fault = &harness.store.fault;
        fault.holds_changes.store(true, Relaxed);
        let mut client = TcpStream::connect(harness.address).unwrap();
        let head = format!("DELETE {target} HTTP/1.1\r\nhost: {}\r\n\r\n", harness.address);
        client.write_all(head.as_bytes()).unwrap();
        harness.until("the change begins", |harness| harness.store.fault.held.load(Relaxed) == 1);
        drop(client);
        // The port has one thread: after these responses it has noticed that the client is gone.
        for _ in 0..3 {
            assert_eq!(harness.get("/healthz").status, 200);
            assert_eq!(harness.get("/v1/audit").json()["entries"], json!([]), "{action} is under way");
        }
        fault.holds_changes.store(false, Relaxed);
        fault.resume.notify_one();
        harness.until("the change is audited", |harness| {
            harness.get("/v1/audit").json()["entries"][0]["action"] == action
        });
        assert_eq!(fault.held.load(Relaxed), 1);
        let limits = harness.get("/v1/limits?policy=per-ip&key=ip:203.0.113.7");
        assert_eq!(limits.json()["limits"][0]["used"], 0, "{limits:?}");
    }
}

#[test]
fn a_panic_ends_its_connection_and_not_the_port() {
    let harness = Harness::with_shared_address(None);
    let panics = &harness.store.fault.panics;
    panics.store(true, Relaxed);
    for _ in 0..3 {
        // The handler panics within the task of its connection.
        let broken_off = harness.get("/v1/limits?key=ip:203.0.113.7");
        assert_eq!((broken_off.status, broken_off.head.as_str()), (0, ""));
        // A change panics in its own task, so its client gets a response.
        harness.send("DELETE", "/v1/limits?key=ip:203.0.113.7", "").is_problem(500);
        harness.send("DELETE", "/v1/blocked/203.0.113.7", "").is_problem(500);
    }
    panics.store(false, Relaxed);
    assert_eq!(harness.get("/v1/limits?key=ip:203.0.113.7").status, 200);
    assert_eq!(harness.send("DELETE", "/v1/blocked/203.0.113.7", "").status, 200);
    // The slots of the connections that panicked are released, or this would wait for them.
    let begun = Instant::now();
    harness.stop();
    assert!(begun.elapsed() < Duration::from_millis(1_500));
}
