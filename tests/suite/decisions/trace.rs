//! The same trace through the proxy and through each real front: identical verdicts, counts and records.

use std::{collections::HashMap, fs, net::SocketAddr};

use fastrand::Rng;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Asking, Front};
use crate::harness::{Client, Config, Origin, Tollgate, eventually};

/// Limits of every kind that the head of a request decides on. Their windows are longer than the test.
const LIMITS: &str = r#"
trusted_proxies: [127.0.0.1]
user: [{ header: x-user-id, from: anyone }]
api_keys: { file: "KEYS", required: false, from: [{ header: x-key }], headers: { customer: x-customer } }
policies:
  login: { algorithm: sliding_log, key: ip, limit: 12/1h }
  per-user: { algorithm: gcra, key: user, limit: 60/1d, missing: ip }
  per-key: { algorithm: sliding_window, key: "header:x-api-key+path", limit: 9/1d }
  per-host: { algorithm: metadata_list, key: [host+ip, "query:page"], limit: 30/1h }
  methods: { algorithm: sliding_counter, key: ip+method, limit: 50/1d, count_denied: true }
  users: { algorithm: distinct, key: ip, value: user, limit: 4/1h }
  customer: { algorithm: sliding_log, key: customer, limit: 20/1h }
  shadow: { algorithm: sliding_log, key: ip, limit: 5/1h, mode: shadow }
routes:
  - { path: /login, methods: [POST], policies: [login, shadow]ACTION }
  - { path: /free/*, policies: []ACTION }
  - { path: /secret/*, deny: [127.0.0.7], policies: [per-host]ACTION }
  - { path: /users/*, policies: [users]ACTION }
  - { path: "/items/{id}", headers: { x-version: "2" }, policies: [{ name: per-user, cost: 3 }]ACTION }
  - { path: /keys/*, require: api_key, policies: [customer]ACTION }
  - { hosts: [shop.example.org], path: /*, policies: [per-host, per-user]ACTION }
  - { path: /api/*, policies: [per-user, per-key, methods]ACTION }
  - { path: /*, policies: [methods]ACTION }
"#;

/// A request of a client.
#[derive(Debug, Clone)]
struct Sent {
    source: String,
    method: &'static str,
    target: &'static str,
    fields: Vec<(&'static str, String)>,
}

const TARGETS: [&str; 25] = [
    "/",
    "/login",
    "/login/",
    "/LOGIN",
    "/Login?next=/a",
    "/api/a",
    "/api/a?x=1&page=2",
    "/api/%61",
    "/api//a",
    "/api/a;v=1",
    "/api/A",
    "/api/a|b",
    "/api/a%20b",
    "/api/{x}",
    "/api/a?q=%22",
    "/api/./a",
    "/api/x/../a",
    "/secret/a",
    "/secret",
    "/users/1",
    "/users/1?page=7",
    "/items/5",
    "/items/5/",
    "/free/a",
    "/keys/a",
];

/// What clients send that describes a request to one front or another.
const FORGED: [(&str, &str); 9] = [
    ("x-original-url", "http://api.example.org/free/a"),
    ("x-original-uri", "/free/a"),
    ("x-original-method", "DELETE"),
    ("x-forwarded-uri", "/free/a"),
    ("x-forwarded-method", "DELETE"),
    ("x-forwarded-host", "free.example.org"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-for", "198.51.100.7"),
    ("x-tollgate-status", "200"),
];

fn trace(seed: u64, length: usize) -> Vec<Sent> {
    let mut rng = Rng::with_seed(seed);
    let mut request = || {
        let mut fields = Vec::new();
        let host = ["api.example.org", "shop.example.org", "API.Example.Org", "api.example.org:8080"];
        fields.push(("host", host[rng.usize(..4)].to_owned()));
        if rng.u8(..10) < 6 {
            fields.push(("x-user-id", format!("user-{}", rng.u8(..9))));
        }
        if rng.u8(..10) < 5 {
            fields.push(("x-api-key", format!("key-{}", rng.u8(..6))));
        }
        if rng.u8(..10) < 5 {
            fields.push(("x-version", rng.u8(1..4).to_string()));
        }
        if rng.u8(..10) < 2 {
            // Two customers, and one whose key is not valid.
            fields.push((
                "x-key",
                ["acme-key-0000000001", "globex-key-000000001", "guessed-key-00000001"][rng.usize(..3)]
                    .to_owned(),
            ));
        }
        if rng.u8(..10) < 3 {
            let (name, value) = FORGED[rng.usize(..FORGED.len())];
            fields.push((name, value.to_owned()));
        }
        Sent {
            source: format!("127.0.0.{}", rng.u8(2..10)),
            method: ["GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"][rng.usize(..9)],
            target: TARGETS[rng.usize(..TARGETS.len())],
            fields,
        }
    };
    (0..length).map(|_| request()).collect()
}

/// The status of each request.
fn send(address: SocketAddr, trace: &[Sent]) -> Vec<u16> {
    let mut clients: HashMap<&str, Client> = HashMap::new();
    let mut statuses = Vec::with_capacity(trace.len());
    for sent in trace {
        let fields: Vec<(&str, &str)> =
            sent.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let source = sent.source.as_str();
        let client =
            clients.entry(source).or_insert_with(|| Client::connect_from(source.parse().unwrap(), address));
        let reply = client.request(sent.method, sent.target, &fields, b"");
        if reply.header("connection").is_some_and(|options| options.eq_ignore_ascii_case("close")) {
            clients.remove(source);
        }
        statuses.push(reply.status);
    }
    statuses
}

/// What policies have counted, and who was recorded, without times: once as many requests are counted as were denied.
fn counted(tollgate: &Tollgate, denied: usize) -> (String, Vec<String>) {
    let listed =
        || tollgate.admin("GET", "/v1/blocked?limit=1000").json()["blocked"].as_array().unwrap().clone();
    let all =
        |name: &str| listed().iter().map(|client| client[name].as_u64().unwrap_or_default()).sum::<u64>();
    eventually("all denials are recorded", || all("denied") as usize >= denied);
    let counts: Value = tollgate.admin("GET", "/v1/policies").json();
    let record = |client: Value| {
        let address = client["address"].as_str().unwrap_or_default();
        let mut detail = tollgate.admin("GET", &format!("/v1/blocked/{address}")).json();
        // Of many limits and requests of a client, the record keeps some: which ones is a matter of moments.
        if detail["limits"].as_array().is_some_and(|limits| limits.len() > 12) {
            for bounded in ["limits", "more_limits", "records"] {
                detail[bounded] = Value::Null;
            }
        }
        format!("{address} {}", without_times(&detail))
    };
    let mut records: Vec<String> = listed().into_iter().map(record).collect();
    records.sort_unstable();
    (without_times(&counts).to_string(), records)
}

/// The same without times, IDs, and what differs with them.
fn without_times(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            // Evidence of one moment may be in any order.
            let mut items: Vec<Value> = items.iter().map(without_times).collect();
            items.sort_by_key(ToString::to_string);
            items.into()
        }
        Value::Object(members) => {
            let is_kept = |name: &str| {
                ![
                    "time", "until", "since", "at", "first", "last", "seen", "reset", "retry", "expires",
                    "age", "rate", "id",
                    // What the responses say of a client is not known where another proxy has them.
                    "hint",
                ]
                .iter()
                .any(|part| name.contains(part))
            };
            let kept = members.iter().filter(|(name, _)| is_kept(name));
            Value::Object(kept.map(|(name, value)| (name.clone(), without_times(value))).collect())
        }
        other => other.clone(),
    }
}

/// Sends the trace through the proxy, and through this front.
fn compare(front: Front) {
    if !front.is_installed() {
        return;
    }
    let length = std::env::var("TOLLGATE_TEST_TRACE").map_or(800, |length| length.parse().unwrap());
    let origin = Origin::ok();
    let directory = TempDir::new().unwrap();
    let hash = |key: &str| {
        let hex: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    let keys = format!(
        "keys:\n- {{ id: acme1, hash: \"{}\", customer: acme }}\n- {{ id: globex1, hash: \"{}\", customer: globex }}\n",
        hash("acme-key-0000000001"),
        hash("globex-key-000000001")
    );
    fs::write(directory.path().join("keys.yaml"), keys).unwrap();
    let limits = LIMITS.replace("KEYS", directory.path().join("keys.yaml").to_str().unwrap());
    let proxying = format!(
        "upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}\n{}",
        origin.address,
        limits.replace("ACTION", ", upstream: api")
    );
    let listener = front
        .listener()
        .replace("10.0.0.3:8081", "\"127.0.0.1:0\"")
        .replace("0.0.0.0:8081", "\"127.0.0.1:0\"");
    let deciding = format!("listeners: {listener}\n{}", limits.replace("ACTION", ""));
    let trace = trace(60, length);

    let direct = Tollgate::start(Config::yaml(proxying));
    let expected = send(direct.address, &trace);
    let asking = Asking::start(front, &deciding, false).unwrap();
    let found = send(asking.address, &trace);

    for (nth, sent) in trace.iter().enumerate() {
        assert_eq!(found[nth], expected[nth], "{front:?}, request {nth}: {sent:?}");
    }
    let of = |status: u16| expected.iter().filter(|of| **of == status).count();
    assert!(
        of(200) > length / 10 && of(429) > length / 10 && of(403) > 5 && of(401) > 5,
        "{} {} {}",
        of(200),
        of(429),
        of(403)
    );
    assert_eq!(asking.origin.heads().len(), of(200), "{front:?}");
    let ((counts, records), (their_counts, their_records)) =
        (counted(&direct, of(429)), counted(&asking.tollgate, of(429)));
    assert_eq!(their_counts, counts, "{front:?}");
    assert!(records.len() > 3, "{records:?}");
    assert_eq!(their_records, records, "{front:?}");
}

#[test]
fn through_nginx() {
    compare(Front::Nginx);
}

#[test]
fn through_ingress_nginx() {
    compare(Front::IngressNginx);
}

#[test]
fn through_traefik() {
    compare(Front::Traefik);
}

#[test]
fn through_caddy() {
    compare(Front::Caddy);
}

#[test]
fn through_envoy_by_grpc() {
    compare(Front::ExtAuthz);
}

#[test]
fn through_envoy_by_http() {
    compare(Front::Envoy);
}
