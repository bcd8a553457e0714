//! Guessed API keys: what they cost, and what they tell.
//!
//! `TOLLGATE_TEST_GUESSES=10000` for a long run.

use std::{
    env,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use serde_json::{Value, json};

use crate::harness::{Client, Config, Origin, Reply, Tollgate, eventually, get_from, request};

const GUESSER: &str = "127.0.0.2";
const CUSTOMER: &str = "127.0.0.3";
/// Wrong keys that an address may send.
const ATTEMPTS: usize = 30;

fn guesses() -> usize {
    env::var("TOLLGATE_TEST_GUESSES").map_or(2_000, |guesses| guesses.parse().unwrap())
}

/// A proxy whose keys are made at the admin port, and one key.
fn start(origin: &Origin, attempts: usize, rest: &str) -> (Tollgate, String) {
    let tollgate = Tollgate::start(Config::new(
        &[origin.address],
        &format!("api_keys: {{ store: true, data: keys.json, attempts: {attempts}/30d }}\n{rest}"),
    ));
    let key = make(&tollgate, &json!({ "customer": "acme", "id": "acme1" }));
    (tollgate, key)
}

fn send(tollgate: &Tollgate, path: &str, body: &Value) -> Reply {
    let json = [("content-type", "application/json")];
    request(tollgate.admin, "POST", path, &json, body.to_string().as_bytes())
}

fn make(tollgate: &Tollgate, new: &Value) -> String {
    let made = send(tollgate, "/v1/keys", new);
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}

/// Sends wrong keys one after the other. The statuses.
fn guess(address: SocketAddr, count: usize) -> Vec<u16> {
    let mut connection = None;
    let mut statuses = Vec::new();
    for number in 0..count {
        let mut client =
            connection.take().unwrap_or_else(|| Client::connect_from(GUESSER.parse().unwrap(), address));
        let key = format!("tgk_{number:010}_0123456789abcdefghijABCDEFGHIJ01_000000");
        let reply = client.request("GET", "/", &[("x-api-key", &key)], b"");
        statuses.push(reply.status);
        // Who is banned has to connect again each time.
        connection = Some(client).filter(|_| reply.header("connection") != Some("close"));
    }
    statuses
}

/// Is set when this ends, also by a panic: nobody would end the other thread then.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Whether all requests of a customer are admitted, until `guesses` has returned.
fn while_a_customer_goes_on<T>(address: SocketAddr, key: &str, guesses: impl FnOnce() -> T) -> (T, usize) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let customer = scope.spawn(|| {
            let mut client = Client::connect_from(CUSTOMER.parse().unwrap(), address);
            let mut sent = 0;
            while !stop.load(SeqCst) {
                let reply = client.request("GET", "/", &[("x-api-key", key)], b"");
                assert_eq!(reply.status, 200, "{reply:?}");
                sent += 1;
            }
            sent
        });
        let found = {
            let _stop = SetAtEnd(&stop);
            guesses()
        };
        (found, customer.join().unwrap())
    })
}

#[test]
fn an_address_that_guesses_is_limited_then_banned_and_others_are_unharmed() {
    let origin = Origin::ok();
    let rest = "bans: { guessing: { key: ip, policies: [api_keys], after: 20/10m, for: 1h } }\n";
    let (tollgate, key) = start(&origin, ATTEMPTS, rest);
    let (statuses, sent) =
        while_a_customer_goes_on(tollgate.address, &key, || guess(tollgate.address, guesses()));
    let runs: Vec<(u16, usize)> =
        statuses.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect();
    let [(401, unauthorized), (429, limited), (403, banned)] = runs[..] else { panic!("{runs:?}") };
    assert_eq!(unauthorized, ATTEMPTS);
    // Denials are counted in the background.
    assert!(limited >= 20, "{runs:?}");
    assert!(sent > 0);
    eprintln!(
        "{unauthorized} × 401, {limited} × 429, {banned} × 403; {sent} requests of the customer, all 200"
    );
    assert_eq!(get_from(GUESSER, tollgate.address, "/", &[("x-api-key", &key)]).status, 403);
    assert_eq!(get_from(CUSTOMER, tollgate.address, "/", &[("x-api-key", &key)]).status, 200);
    assert_eq!(origin.heads().len(), sent + 1, "no wrong key reached the origin");
    let log = tollgate.log();
    assert!(!log.iter().any(|line| line.contains("_0123456789abcdefghij")), "{log:#?}");
}

#[test]
fn keys_that_are_known_and_empty_ones_are_no_guesses() {
    let origin = Origin::ok();
    let rest = "bans: { guessing: { key: ip, policies: [api_keys], after: 20/10m, for: 1h } }\n\
                access_log: { format: json, to: access.log }\n";
    let (tollgate, key) = start(&origin, ATTEMPTS, rest);
    let revoked = make(&tollgate, &json!({ "customer": "acme", "id": "revoked" }));
    assert_eq!(send(&tollgate, "/v1/keys/revoked/revoke", &json!({ "reason": "leaked" })).status, 200);
    let mut client = Client::connect_from(GUESSER.parse().unwrap(), tollgate.address);
    for _ in 0..3 * ATTEMPTS {
        let reply = client.request("GET", "/", &[("x-api-key", &revoked)], b"");
        assert_eq!(reply.status, 401, "{reply:?}");
        let reply = client.request("GET", "/", &[("x-api-key", "")], b"");
        assert_eq!(
            (reply.status, &*reply.json()["detail"].to_string()),
            (401, "\"An API key is required.\"")
        );
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"api\""));
    }
    let bearer = format!("Bearer {key}");
    let both = [("x-api-key", ""), ("authorization", bearer.as_str())];
    assert_eq!(client.request("GET", "/", &both, b"").status, 200);
    for (reason, count) in [("expired", 3 * ATTEMPTS), ("no", 3 * ATTEMPTS), ("wrong", 0)] {
        let metric = format!("tollgate_requests_refused_total{{reason=\"{reason}_credential\"}}");
        assert_eq!(tollgate.metric(&metric), count as f64, "{metric}");
    }
    let log = || std::fs::read_to_string(tollgate.directory().join("access.log")).unwrap();
    eventually("the log tells them apart", || {
        log().matches("\"verdict\":\"expired\"").count() == 3 * ATTEMPTS
    });
}

#[test]
fn guesses_take_no_more_memory_the_more_there_are() {
    /// What the allocator and the buffers of connections may take besides.
    const SLACK_KIB: u64 = 4 << 10;
    let origin = Origin::ok();
    let (tollgate, key) = start(&origin, ATTEMPTS, "");
    let ((before, after), sent) = while_a_customer_goes_on(tollgate.address, &key, || {
        guess(tollgate.address, 1_000);
        let before = tollgate.resident_kib();
        let statuses = guess(tollgate.address, guesses());
        assert!(statuses.iter().all(|&status| status == 429));
        (before, tollgate.resident_kib())
    });
    eprintln!("{before} KiB, {after} KiB after {} guesses more; {sent} requests of the customer", guesses());
    assert!(after < before + SLACK_KIB, "{before} KiB, {after} KiB");
}

/// A proxy with a public route, whose origin is told the customer of each request.
fn start_public(origin: &Origin, attempts: usize, rest: &str) -> (Tollgate, String) {
    let keys = format!(
        "api_keys: {{ store: true, data: keys.json, attempts: {attempts}/30d, headers: {{ customer: x-customer }} }}"
    );
    let tollgate = Tollgate::start(Config::yaml(format!(
        "{keys}
policies: {{ many: {{ algorithm: fixed_window, key: customer, limit: 1000/1d }} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ name: public, path: /public/*, upstream: a, require: none, policies: [many] }}
  - {{ path: /*, upstream: a }}
{rest}",
        origin.address
    )));
    let key = make(&tollgate, &json!({ "customer": "acme", "id": "acme1" }));
    (tollgate, key)
}

/// Imports the key of a customer.
fn import(tollgate: &Tollgate, id: &str, key: &str) {
    let keys = json!({ "keys": [{ "id": id, "key": key, "customer": id }] });
    assert_eq!(send(tollgate, "/v1/keys/import", &keys).status, 200);
}

#[test]
fn on_a_route_that_requires_none_guesses_count_and_beyond_attempts_no_key_does() {
    let origin = Origin::ok();
    let rest = "bans: { guessing: { key: ip, policies: [api_keys], after: 20/10m, for: 1h } }\n\
                access_log: { format: json, to: access.log }\n";
    let (tollgate, key) = start_public(&origin, ATTEMPTS, rest);
    // Whose request the origin was told that it is, and the quota in the response.
    let ask = |from: &str, key: &str| {
        let reply = get_from(from, tollgate.address, "/public/a", &[("x-api-key", key)]);
        assert_eq!(reply.status, 200, "{reply:?}");
        let head = origin.heads().pop().unwrap().to_lowercase();
        assert!(!head.contains("x-api-key"), "{head}");
        (head.contains("x-customer: acme"), reply.header("ratelimit").map(str::to_owned))
    };
    let wrong = |nth: usize| format!("tgk_{nth:010}_0123456789abcdefghijABCDEFGHIJ01_000000");
    assert!(ask(GUESSER, &key).0);
    let revoked = make(&tollgate, &json!({ "customer": "acme", "id": "revoked" }));
    assert_eq!(send(&tollgate, "/v1/keys/revoked/revoke", &json!({})).status, 200);
    for _ in 0..2 * ATTEMPTS {
        assert!(!ask(GUESSER, &revoked).0, "it is known, and no guess");
    }
    let explain = || {
        let arguments = ["explain", "--peer", GUESSER, "-H", &format!("X-API-Key: {key}"), "/public/a"];
        tollgate.command(&arguments).stdout
    };
    let ignored = "the API key is ignored, because the address has sent too many wrong ones";
    assert!(!explain().contains(ignored), "{}", explain());
    for nth in 0..ATTEMPTS {
        assert!(ask(GUESSER, &key).0, "{nth}");
        assert!(!ask(GUESSER, &wrong(nth)).0);
    }
    let before = get_from(GUESSER, tollgate.address, "/public/a", &[]);
    let told = [&key, &wrong(ATTEMPTS + 1)].map(|key| ask(GUESSER, key).0);
    assert_eq!(told, [false, false], "nothing tells a right key from a wrong one");
    assert_eq!(ask(GUESSER, &key).1.is_some(), before.header("ratelimit").is_some());
    assert!(explain().contains(ignored), "{}", explain());
    let log = || std::fs::read_to_string(tollgate.directory().join("access.log")).unwrap();
    let of_customer = 1 + ATTEMPTS;
    eventually("the log has no customer where the key is ignored", || {
        log().lines().count() >= 3 * ATTEMPTS + of_customer
            && log().matches("\"customer\":\"acme\"").count() == of_customer
    });
    assert!(ask(CUSTOMER, &key).0, "others are unharmed");
    let required = get_from(GUESSER, tollgate.address, "/", &[("x-api-key", &key)]);
    assert_eq!(required.status, 200, "where a key is required, a right one is");
    let banned =
        || get_from(GUESSER, tollgate.address, "/public/a", &[("x-api-key", &wrong(7))]).status == 403;
    eventually("who goes on is banned", banned);
}

#[test]
fn an_imported_key_is_removed_on_a_route_that_requires_none_also_when_it_is_revoked() {
    let origin = Origin::ok();
    let (tollgate, _) = start_public(&origin, 3, "");
    import(&tollgate, "globex", "globex-key-000000001");
    let forwards = |fields: &[(&str, &str)]| {
        assert_eq!(get_from(GUESSER, tollgate.address, "/public/a", fields).status, 200);
        origin.heads().pop().unwrap().contains("Bearer ")
    };
    let (known, other) = ("Bearer globex-key-000000001", "Bearer a-token-of-the-upstream");
    assert!(!forwards(&[("authorization", known)]));
    assert!(forwards(&[("authorization", other)]));
    assert_eq!(send(&tollgate, "/v1/keys/globex/revoke", &json!({})).status, 200);
    assert!(!forwards(&[("authorization", known)]));
    assert!(forwards(&[("authorization", other), ("x-api-key", "wrong-key-of-nobody-1")]));
    // Tokens of another kind count, and nobody is limited or listed for them.
    for _ in 0..9 {
        assert!(forwards(&[("authorization", other)]));
    }
    assert!(forwards(&[("authorization", known)]), "no key is looked up any more");
    assert_eq!(tollgate.admin("GET", "/v1/blocked").json()["blocked"], json!([]));
}

#[test]
fn beside_a_key_the_response_tells_nothing_of_another_bearer_token() {
    let origin = Origin::ok();
    let (tollgate, key) = start_public(&origin, 3, "");
    import(&tollgate, "globex", "globex-key-000000001");
    for path in ["/", "/public/a"] {
        let replies = ["globex-key-000000001", "globex-key-000000002"].map(|token| {
            let bearer = format!("Bearer {token}");
            let fields = [("x-api-key", key.as_str()), ("authorization", bearer.as_str())];
            let reply = get_from(GUESSER, tollgate.address, path, &fields);
            let head = origin.heads().pop().unwrap().to_lowercase();
            (reply.status, head.contains("x-customer: acme"), head.contains(&bearer.to_lowercase()))
        });
        assert_eq!(replies, [(200, true, true); 2], "{path}");
    }
}

#[test]
fn the_response_tells_nothing_of_why_a_key_is_not_valid() {
    let origin = Origin::ok();
    let (tollgate, key) = start(&origin, 1_000_000, "");
    let revoked = make(&tollgate, &json!({ "customer": "acme", "id": "revoked" }));
    assert_eq!(send(&tollgate, "/v1/keys/revoked/revoke", &json!({ "reason": "leaked" })).status, 200);
    let expired = make(&tollgate, &json!({ "customer": "acme", "id": "expired", "expires": "1s" }));
    let mut client = Client::connect(tollgate.address);
    eventually("it has expired", || {
        client.request("GET", "/", &[("x-api-key", &expired)], b"").status == 401
    });
    let forwarded = origin.heads().len();
    let secret_of = |key: &str| key.split('_').nth(2).unwrap().to_owned();
    let wrong_secret = key.replace(&secret_of(&key), &secret_of(&revoked));
    let unknown = "tgk_0000000000_0123456789abcdefghijABCDEFGHIJ01_000000";
    for (method, name, scheme) in [("GET", "x-api-key", ""), ("POST", "authorization", "Bearer ")] {
        let replies = [unknown, &wrong_secret, &revoked, &expired].map(|key| {
            let value = format!("{scheme}{key}");
            let mut reply = client.request(method, "/orders", &[(name, &value)], b"");
            assert_eq!(reply.status, 401);
            let before = reply.headers.len();
            reply.headers.retain(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id"));
            assert!(before - reply.headers.len() <= 2, "{reply:?}");
            format!("{} {:?} {}", reply.reason, reply.headers, reply.text())
        });
        assert_eq!(replies, [const { String::new() }; 4].map(|_| replies[0].clone()));
    }
    assert_eq!(origin.heads().len(), forwarded);
}
