//! What clients are told of their limits, on admitted answers and on denials.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::harness::{Client, Config, Origin, Reply, Tollgate, get, get_from, request};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Everything is held back by `policies`, a mapping of YAML of which every policy applies.
fn limited(origin: &Origin, policies: &[(&str, &str)]) -> Tollgate {
    let names: Vec<_> = policies.iter().map(|(name, _)| *name).collect();
    let policies: String =
        policies.iter().map(|(name, policy)| format!("  {name}: {{ {policy} }}\n")).collect();
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [{}] }}
policies:
{policies}
routes:
  - {{ path: /*, upstream: origin }}
",
        origin.address,
        names.join(", ")
    )))
}

/// The `r` and `t` of a `RateLimit` field that names this quota.
#[track_caller]
fn state(reply: &Reply, name: &str) -> (u64, u64) {
    let field = reply.header("ratelimit").unwrap_or_else(|| panic!("no RateLimit: {reply:?}"));
    let rest = field.strip_prefix(&format!("\"{name}\";r=")).unwrap_or_else(|| panic!("not {name}: {field}"));
    let (remaining, reset) = rest.split_once(";t=").unwrap();
    (remaining.parse().unwrap(), reset.parse().unwrap())
}

#[test]
fn a_denial_is_a_problem_that_names_the_policy_and_when_to_come_back() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: sliding_log, key: ip, limit: 1/1m")]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    let problem = denied.json();
    assert_eq!(problem["type"], QUOTA_EXCEEDED);
    assert_eq!((&problem["status"], &problem["title"]), (&json!(429), &json!("Too Many Requests")));
    assert_eq!(problem["violated-policies"], json!(["per-ip"]));
    assert_eq!(denied.all("ratelimit-policy"), ["\"per-ip\";q=1;w=60"]);
    let (remaining, reset) = state(&denied, "per-ip");
    assert_eq!(remaining, 0);
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((50..=60).contains(&retry_after) && retry_after >= reset, "{retry_after} {reset}");
    assert!(!denied.text().contains("127.0.0.1"), "no key is told");
}

#[test]
fn every_tier_is_listed_and_the_tightest_is_shown() {
    let origin = Origin::ok();
    let policy = "algorithm: fixed_window, key: ip, limits: [9/1d, 10/1s, 120/30d]";
    let tollgate = limited(&origin, &[("login", policy)]);
    let mut client = Client::connect(tollgate.address);
    for left in (0..9).rev() {
        let admitted = client.request("GET", "/", &[], b"");
        assert_eq!(admitted.status, 200);
        assert_eq!(
            admitted.all("ratelimit-policy"),
            ["\"login-1s\";q=10;w=1, \"login-1d\";q=9;w=86400, \"login-30d\";q=120;w=2592000"]
        );
        let (remaining, reset) = state(&admitted, "login-1d");
        assert_eq!(remaining, left);
        assert!((1..=86_400).contains(&reset), "{reset}");
        assert_eq!(admitted.header("retry-after"), None);
    }
    let denied = client.request("GET", "/", &[], b"");
    assert_eq!(denied.json()["violated-policies"], json!(["login-1d"]));
}

#[test]
fn several_policies_share_one_field() {
    let origin = Origin::ok();
    let tollgate = limited(
        &origin,
        &[
            ("wide", "algorithm: sliding_log, key: ip, limit: 100/1m"),
            ("narrow", "algorithm: single_counter, key: [ip, user], limit: 2/1h"),
        ],
    );
    let user = [("x-user-id", "acme")];
    let admitted = get(tollgate.address, "/", &user);
    assert_eq!(admitted.all("ratelimit-policy"), ["\"wide\";q=100;w=60, \"narrow\";q=2;w=3600"]);
    assert_eq!(state(&admitted, "narrow").0, 1);
    assert_eq!(get(tollgate.address, "/", &user).status, 200);
    let denied = get(tollgate.address, "/", &user);
    // Denied twice over, by address and by user: named once.
    assert_eq!(denied.json()["violated-policies"], json!(["narrow"]));
    assert_eq!(state(&denied, "narrow").0, 0);
}

#[test]
fn of_two_denying_policies_the_one_that_frees_last_is_shown() {
    let origin = Origin::ok();
    let tollgate = limited(
        &origin,
        &[
            ("minute", "algorithm: single_counter, key: ip, limit: 1/1m"),
            ("hour", "algorithm: single_counter, key: ip, limit: 1/1h"),
        ],
    );
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!(denied.json()["violated-policies"], json!(["minute", "hour"]));
    let (_, reset) = state(&denied, "hour");
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(retry_after > 60 && retry_after >= reset, "{retry_after} {reset}");
}

#[track_caller]
fn retry_after_is_kept(algorithm: &str) {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("short", &format!("algorithm: {algorithm}, key: ip, limit: 2/1s"))]);
    let mut client = Client::connect(tollgate.address);
    // Calendar windows: begin with a new one, so that both fall into it.
    while algorithm == "fixed_window" && millis_of_second() > 300 {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!([(); 2].map(|()| client.request("GET", "/", &[], b"").status), [200, 200]);
    let denied = client.request("GET", "/", &[], b"");
    let asked = Instant::now();
    assert_eq!(denied.status, 429);
    let seconds: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    // The buckets of a window are one more than make it up, and a window's share decays over the next.
    let most = if matches!(algorithm, "sliding_window" | "sliding_counter") { 2 } else { 1 };
    assert!((1..=most).contains(&seconds), "{algorithm}: {seconds}");
    thread::sleep(Duration::from_secs(seconds).saturating_sub(asked.elapsed()));
    assert_eq!(client.request("GET", "/", &[], b"").status, 200, "{algorithm}");
}

fn millis_of_second() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_millis()
}

#[test]
fn a_client_that_waits_for_retry_after_is_admitted() {
    let algorithms = [
        "single_counter",
        "fixed_window",
        "sliding_log",
        "metadata_list",
        "sliding_window",
        "sliding_counter",
        "gcra",
    ];
    thread::scope(|scope| {
        for algorithm in algorithms {
            scope.spawn(move || retry_after_is_kept(algorithm));
        }
    });
}

#[test]
fn the_upstream_s_own_fields_are_kept_and_ours_follow() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            let fields = [("ratelimit", "\"own\";r=7;t=8"), ("ratelimit-policy", "\"own\";q=9")];
            conn.answer("200 OK", &fields, b"ok")?;
        }
        Ok(())
    });
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 5/1h")]);
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.all("ratelimit-policy"), ["\"own\";q=9", "\"per-ip\";q=5;w=3600"]);
    assert_eq!(reply.all("ratelimit"), ["\"own\";r=7;t=8", "\"per-ip\";r=4;t=3600"]);
}

#[test]
fn a_route_without_policies_tells_nothing() {
    let origin = Origin::ok();
    let reply = get(Tollgate::start(Config::new(&[origin.address], "")).address, "/", &[]);
    assert_eq!((reply.header("ratelimit"), reply.header("ratelimit-policy")), (None, None));
}

#[test]
fn a_preflight_is_not_counted_and_never_denied() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    let preflight = [("origin", "https://app.example"), ("access-control-request-method", "PUT")];
    for _ in 0..3 {
        assert_eq!(request(tollgate.address, "OPTIONS", "/", &preflight, b"").status, 200);
    }
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/", &[]).status, 429);
    assert_eq!(request(tollgate.address, "OPTIONS", "/", &preflight, b"").status, 200);
    let plain = request(tollgate.address, "OPTIONS", "/", &preflight[..1], b"");
    assert_eq!(plain.status, 429, "any other OPTIONS counts");
}

#[test]
fn a_page_s_script_may_read_a_denial_s_fields() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    let cross_origin = [("origin", "https://app.example")];
    let admitted = get(tollgate.address, "/", &cross_origin);
    assert_eq!(admitted.header("access-control-expose-headers"), None, "the upstream's answer is its own");
    let denied = get(tollgate.address, "/", &cross_origin);
    assert_eq!(
        denied.header("access-control-expose-headers"),
        Some("RateLimit, RateLimit-Policy, Retry-After")
    );
    assert_eq!(get(tollgate.address, "/", &[]).header("access-control-expose-headers"), None);
}

#[test]
fn a_denied_request_with_a_small_body_leaves_its_connection_as_it_was() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("POST", "/", &[], b"small").status, 200);
    for _ in 0..50 {
        // In two writes: the body may come after the answer has been made.
        let denied = client.request("POST", "/", &[], b"small");
        assert_eq!((denied.status, denied.header("connection")), (429, None));
    }
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nsmall\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 429);
    assert_eq!(client.request("GET", "/", &[], b"").status, 429);
}

#[test]
fn a_denied_request_is_answered_before_its_body_has_come_and_the_next_one_follows_it() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf");
    let denied = client.reply();
    assert_eq!((denied.status, denied.header("connection")), (429, None));
    client.send("-half");
    assert_eq!(client.request("GET", "/", &[], b"").status, 429);
}

#[test]
fn a_denied_upload_gets_its_answer() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut client = Client::connect(tollgate.address);
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 64 << 20));
    let mut upload = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        let chunk = [b'x'; 16 << 10];
        // Ends when the proxy has had enough.
        for _ in 0..(64 << 20) / chunk.len() {
            if std::io::Write::write_all(&mut upload, &chunk).is_err() {
                break;
            }
        }
    });
    let denied = client.reply();
    assert_eq!((denied.status, denied.header("connection")), (429, Some("close")));
    assert!(client.closed());
    sender.join().unwrap();
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_client_that_reads_only_after_it_has_sent_its_upload_gets_the_denial() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut client = Client::connect(tollgate.address);
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 512 << 10));
    // In pieces: were the socket closed with bytes unread, one of them would meet a reset.
    for _ in 0..32 {
        client.send([b'x'; 16 << 10]);
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.reply().status, 429);
}

#[test]
fn a_client_that_expects_100_is_denied_without_it() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: single_counter, key: ip, limit: 1/1h")]);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(client.reply().status, 429);
}

#[test]
fn pipelined_requests_are_counted_one_by_one_and_answered_in_order() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, &[("per-ip", "algorithm: sliding_log, key: ip, limit: 3/1h")]);
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(5));
    assert_eq!([(); 5].map(|()| client.reply().status), [200, 200, 200, 429, 429]);
}

#[test]
fn a_policy_used_by_two_routes_is_one_budget() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
policies: {{ shared: {{ algorithm: single_counter, key: ip, limit: 1/1h }} }}
routes:
  - {{ path: /a, upstream: origin, policies: [shared] }}
  - {{ path: /b, upstream: origin, policies: [shared] }}
",
        origin.address
    )));
    assert_eq!(get(tollgate.address, "/a", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/b", &[]).status, 429);
    assert_eq!(get_from("127.0.0.2", tollgate.address, "/b", &[]).status, 200);
}
