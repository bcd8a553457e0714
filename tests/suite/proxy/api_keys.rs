//! API keys: which requests have a valid one, what each customer may do, and what becomes of the key.

use std::fs;

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::harness::{Config, Issuer, Origin, Redis, Reply, Tollgate, eventually, get, in_seconds, request};

const ACME: &str = "tgk_acmeacme01_0123456789abcdefghijABCDEFGHIJ01_000000";
const ACME_SECOND: &str = "acme-second-key-0001";
const GLOBEX: &str = "globex-key-000000001";
const LIMITED: &str = "key-for-one-route-01";

fn hash(key: &str) -> String {
    let hex: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A directory with a file of keys.
fn keys() -> TempDir {
    let directory = TempDir::new().unwrap();
    let keys = format!(
        "keys:\n\
         - {{ id: acme1, hash: \"{}\", customer: acme, plan: pro }}\n\
         - {{ id: acme2, hash: \"{}\", customer: acme, plan: pro }}\n\
         - {{ id: globex1, hash: \"{}\", customer: globex }}\n\
         - {{ id: narrow, hash: \"{}\", customer: narrow, routes: [files] }}\n",
        hash(ACME),
        hash(ACME_SECOND),
        hash(GLOBEX),
        hash(LIMITED),
    );
    fs::write(directory.path().join("keys.yaml"), keys).unwrap();
    directory
}

const PLANS: &str = "
plans: { pro: { per-customer: 4/1h, free-of: unlimited } }
policies:
  per-customer: { algorithm: fixed_window, key: customer, limit: 2/1h }
  free-of: { algorithm: fixed_window, key: customer, limit: 3/1h }
";

/// A proxy with the keys of [`keys`]. `settings`: of `api_keys`.
fn start(origin: &Origin, directory: &TempDir, settings: &str, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
api_keys: {{ file: \"{}\", {settings} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
{rest}
",
        directory.path().join("keys.yaml").display(),
        origin.address
    )))
}

const ROUTES: &str = "
routes:
  - { name: public, path: /public/*, upstream: a, require: none }
  - { name: files, path: /files/*, upstream: a }
  - { name: usage, path: /usage, usage: true }
  - { name: all, path: /*, upstream: a, policies: [per-customer, free-of] }
";

/// The lines of the last head that the origin saw.
fn last_head(origin: &Origin) -> String {
    origin.heads().pop().unwrap_or_default()
}

fn challenge(reply: &Reply) -> (u16, Option<&str>) {
    (reply.status, reply.header("www-authenticate"))
}

const INVALID: (u16, Option<&str>) = (401, Some(r#"Bearer realm="api", error="invalid_token""#));

#[test]
fn a_valid_key_is_required_and_every_other_one_gets_the_same_401() {
    let (origin, directory) = (Origin::ok(), keys());
    let tollgate = start(&origin, &directory, "attempts: 1000/1m", &format!("{PLANS}{ROUTES}"));
    let ask = |headers: &[(&str, &str)]| get(tollgate.address, "/files/a", headers);
    assert_eq!(challenge(&ask(&[])), (401, Some(r#"Bearer realm="api""#)));
    assert_eq!(ask(&[("x-api-key", ACME)]).status, 200);
    let of_upstream = [("x-api-key", ACME), ("authorization", "Bearer a-token-of-the-upstream")];
    assert_eq!(ask(&of_upstream).status, 200);
    assert!(last_head(&origin).contains("a-token-of-the-upstream"), "{}", last_head(&origin));
    assert_eq!(ask(&[("authorization", &format!("Bearer {ACME}"))]).status, 200);
    assert_eq!(
        ask(&[("authorization", &format!("bearer {GLOBEX}"))]).status,
        200,
        "no token is verified here"
    );
    assert_eq!(ask(&[("x-api-key", ACME), ("authorization", &format!("Bearer {ACME}"))]).status, 200);
    let bodies: Vec<String> = [
        &[("x-api-key", "tgk_acmeacme01_0123456789abcdefghijABCDEFGHIJ02_000000")][..],
        &[("x-api-key", "tgk_nobody0001_0123456789abcdefghijABCDEFGHIJ01_000000")],
        &[("x-api-key", "short")],
        &[("x-api-key", "a key with spaces in it, 0001")],
        &[("x-api-key", &"k".repeat(10_000))],
        &[("x-api-key", "key-with-a-\u{e9}-in-it-0001")],
        &[("x-api-key", ACME), ("x-api-key", GLOBEX)],
        &[("authorization", &format!("Bearer {ACME}")), ("x-api-key", GLOBEX)],
    ]
    .into_iter()
    .map(|headers| {
        let reply = ask(headers);
        assert_eq!(challenge(&reply), INVALID, "{headers:?}");
        reply.text()
    })
    .collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    assert_eq!(origin.heads().len(), 5);
}

#[test]
fn a_key_for_some_routes_gets_403_elsewhere_and_public_routes_need_none() {
    let (origin, directory) = (Origin::ok(), keys());
    let tollgate = start(&origin, &directory, "", &format!("{PLANS}{ROUTES}"));
    let ask = |path: &str, key: &str| get(tollgate.address, path, &[("x-api-key", key)]);
    assert_eq!(ask("/files/a", LIMITED).status, 200);
    let error = Some(r#"Bearer realm="api", error="insufficient_scope""#);
    assert_eq!(challenge(&ask("/other", LIMITED)), (403, error));
    assert_eq!(get(tollgate.address, "/public/a", &[]).status, 200);
    assert_eq!(ask("/public/a", "not-a-key-of-anyone").status, 200, "a bad key counts as none");
    assert!(!last_head(&origin).contains("not-a-key-of-anyone"), "{}", last_head(&origin));
}

#[test]
fn a_customer_has_its_limits_over_all_its_keys_and_plans_change_them() {
    let (origin, directory) = (Origin::ok(), keys());
    let tollgate = start(&origin, &directory, "", &format!("{PLANS}{ROUTES}"));
    let statuses = |keys: &[&str]| -> Vec<u16> {
        keys.iter().map(|key| get(tollgate.address, "/", &[("x-api-key", key)]).status).collect()
    };
    assert_eq!(
        statuses(&[ACME, ACME_SECOND, ACME, ACME_SECOND, ACME, ACME_SECOND]),
        [200, 200, 200, 200, 429, 429]
    );
    assert_eq!(statuses(&[GLOBEX, GLOBEX, GLOBEX]), [200, 200, 429], "without a plan");
    let limits = |key: &str| get(tollgate.address, "/usage", &[("x-api-key", key)]).json();
    let acme = limits(ACME);
    assert_eq!(
        (&acme["customer"], &acme["api_key"], &acme["plan"]),
        (&json!("acme"), &json!("acme1"), &json!("pro"))
    );
    let of = |usage: &Value, policy: &str| -> Value {
        let all = usage["limits"].as_array().unwrap();
        all.iter().find(|of| of["policy"] == policy).cloned().unwrap_or_default()
    };
    let used = of(&acme, "per-customer");
    assert_eq!((&used["limit"], &used["used"], &used["remaining"]), (&json!(4), &json!(4), &json!(0)));
    assert_eq!(used["key"], "customer:acme");
    assert_eq!(of(&acme, "free-of"), json!({ "policy": "free-of", "unlimited": true }));
    let globex = limits(GLOBEX);
    assert_eq!((&of(&globex, "per-customer")["limit"], &globex["plan"]), (&json!(2), &Value::Null));
    let used = |usage: &Value| of(usage, "per-customer")["used"].clone();
    assert_eq!(used(&limits(GLOBEX)), used(&globex), "reading takes nothing");
    assert_eq!(get(tollgate.address, "/usage", &[]).status, 401);
}

#[test]
fn neither_the_service_nor_the_log_sees_the_key() {
    let (origin, directory) = (Origin::ok(), keys());
    let settings = "from: [{ header: x-api-key }, bearer, { query: api_key }], \
                    headers: { customer: x-customer, plan: x-plan, key: x-key-id }";
    let tollgate = start(&origin, &directory, settings, &format!("{PLANS}{ROUTES}access_log: json\n"));
    let query = format!("/files/a?x=1&api_key={ACME}&y=2");
    let forged = [("x-customer", "globex"), ("X_Customer", "globex"), ("x-key-id", "1")];
    assert_eq!(get(tollgate.address, &query, &forged).status, 200);
    let head = last_head(&origin).to_lowercase();
    assert!(head.starts_with("get /files/a?x=1&y=2 http/1.1"), "{head}");
    for line in ["\nx-customer: acme", "\nx-plan: pro", "\nx-key-id: acme1"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(!head.contains("globex"), "{head}");
    let bearer = format!("Bearer {GLOBEX}");
    assert_eq!(get(tollgate.address, "/files/b", &[("authorization", &bearer)]).status, 200);
    let head = last_head(&origin).to_lowercase();
    assert!(!head.contains("authorization") && !head.contains("x-plan"), "{head}");
    let basic = [("authorization", "Basic YTpi"), ("x-api-key", ACME)];
    assert_eq!(get(tollgate.address, "/files/c", &basic).status, 200);
    assert!(last_head(&origin).contains("Basic YTpi"), "other credentials are the upstream's");
    let twice = format!("/files/a?api_key={ACME}&api_key={GLOBEX}");
    assert_eq!(get(tollgate.address, &twice, &[]).status, 401);
    let referer = format!("https://api.example.com/files/a?x=1&api_key={ACME}");
    let read = [("x-api-key", ACME), ("referer", referer.as_str())];
    assert_eq!(get(tollgate.address, "/files/d", &read).status, 200);
    assert!(!last_head(&origin).contains(ACME), "{}", last_head(&origin));
    let refused = format!("/files/e?api_key={ACME}");
    assert_eq!(get(tollgate.address, &refused, &[("x-long", &"x".repeat(40_000))]).status, 431);

    let explained = tollgate.command(&["explain", "-H", &format!("X-API-Key: {ACME}"), &query]);
    let logged = r#""customer":"acme","plan":"pro","api_key":"acme1""#;
    eventually("the log of the request", || {
        tollgate.stdout().iter().any(|line| line.contains("/files/c") && line.contains(logged))
    });
    let everything =
        [tollgate.stdout().join("\n"), tollgate.log().join("\n"), explained.stdout, explained.stderr];
    for text in everything {
        assert!(!text.contains(ACME) && !text.contains(GLOBEX), "{text}");
    }
}

#[test]
fn a_key_in_a_query_is_passed_on_once_beside_a_rewritten_path() {
    let (origin, directory) = (Origin::ok(), keys());
    let routes = "routes: [{ path: /v1/*, upstream: a, rewrite: { strip_prefix: /v1 } }]\n";
    let settings = "from: [{ header: x-api-key }, { query: api_key }], forward: true";
    let tollgate = start(&origin, &directory, settings, &format!("{PLANS}{routes}"));
    for (sent, passed_on) in [
        (format!("/v1/files/a?api_key={ACME}&x=1"), format!("GET /files/a?x=1&api_key={ACME} ")),
        (format!("/v1/files/a?api_key={ACME}"), format!("GET /files/a?api_key={ACME} ")),
        (format!("/v1?x=1&api_key={ACME}"), format!("GET /?x=1&api_key={ACME} ")),
    ] {
        assert_eq!(get(tollgate.address, &sent, &[]).status, 200, "{sent}");
        let head = last_head(&origin);
        assert!(head.starts_with(&passed_on) && head.matches(ACME).count() == 1, "{sent}: {head}");
    }
}

#[test]
fn upstreams_get_the_key_if_they_are_to() {
    let (origin, directory) = (Origin::ok(), keys());
    let settings = "from: [{ header: x-api-key }, { query: api_key }], forward: true";
    let tollgate = start(&origin, &directory, settings, &format!("{PLANS}{ROUTES}"));
    assert_eq!(get(tollgate.address, &format!("/files/a?api_key={ACME}&x=1"), &[]).status, 200);
    assert!(
        last_head(&origin).starts_with(&format!("GET /files/a?x=1&api_key={ACME} ")),
        "{}",
        last_head(&origin)
    );
    assert_eq!(get(tollgate.address, "/files/a", &[("x-api-key", ACME)]).status, 200);
    assert!(last_head(&origin).contains(ACME));
}

#[test]
fn wrong_keys_are_counted_by_address_and_good_ones_are_not() {
    let (origin, directory) = (Origin::ok(), keys());
    let rest = format!(
        "{PLANS}{ROUTES}bans: {{ guessing: {{ key: ip, policies: [api_keys], after: 5/1m, for: 10m }} }}\n"
    );
    let tollgate = start(&origin, &directory, "attempts: 3/1h", &rest);
    let ask = |key: &str| get(tollgate.address, "/files/a", &[("x-api-key", key)]).status;
    let guess = |number: usize| ask(&format!("wrong-key-of-nobody-{number}"));
    assert_eq!((0..3).map(guess).collect::<Vec<_>>(), [401; 3]);
    assert_eq!(guess(3), 429);
    assert_eq!(ask(ACME), 200, "a customer behind the same address goes on");
    assert_eq!(get(tollgate.address, "/files/a", &[]).status, 401, "a request without a key is no guess");
    for number in 4..8 {
        assert_eq!(guess(number), 429);
    }
    eventually("the ban", || guess(9) == 403);
    assert_eq!(ask(ACME), 403);
    let limited = tollgate.admin("GET", "/v1/blocked/127.0.0.1").text();
    assert!(limited.contains(r#""api_keys""#), "{limited}");
}

#[test]
fn optional_keys_are_checked_if_there_are_any_and_preflights_need_none() {
    let (origin, directory) = (Origin::ok(), keys());
    let routes = "routes: [{ path: /*, upstream: a, cors: { origins: [\"https://app.example.com\"] } }]\n";
    let tollgate = start(&origin, &directory, "required: false", &format!("{PLANS}{routes}"));
    let ask = |headers: &[(&str, &str)]| get(tollgate.address, "/", headers).status;
    assert_eq!(
        [ask(&[]), ask(&[("x-api-key", ACME)]), ask(&[("x-api-key", "wrong-key-of-nobody-1")])],
        [200, 200, 401]
    );
    assert_eq!(ask(&[("authorization", "Bearer of-somebody-else-0001")]), 200, "a token of another kind");
    assert_eq!(ask(&[("authorization", "Bearer tgk_of-somebody-else-0001")]), 401);
    let preflight = [
        ("origin", "https://app.example.com"),
        ("access-control-request-method", "PUT"),
        ("x-api-key", "wrong-key-of-nobody-1"),
    ];
    assert_eq!(request(tollgate.address, "OPTIONS", "/", &preflight, b"").status, 204);
    let cross = [("origin", "https://app.example.com"), ("x-api-key", "wrong-key-of-nobody-1")];
    let refused = get(tollgate.address, "/", &cross);
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (401, Some("https://app.example.com"))
    );
}

#[test]
fn a_preflight_needs_no_key_where_a_route_requires_one_or_shows_the_usage() {
    let (origin, directory) = (Origin::ok(), keys());
    let cors = "cors: { origins: [\"https://app.example.com\"], methods: [GET, PUT] }";
    let routes = format!(
        "routes:
  - {{ path: /usage, usage: true, {cors} }}
  - {{ path: /keyed/*, upstream: a, require: api_key, {cors} }}
  - {{ path: /plain/*, upstream: a, require: api_key }}
"
    );
    let tollgate = start(&origin, &directory, "", &format!("{PLANS}{routes}"));
    let preflight = |path: &str, from: &str| {
        let fields = [("origin", from), ("access-control-request-method", "GET")];
        let reply = request(tollgate.address, "OPTIONS", path, &fields, b"");
        let allows = ["access-control-allow-origin", "access-control-allow-methods"];
        (reply.status, allows.map(|name| reply.header(name).map(str::to_owned)))
    };
    let (app, granted) = ("https://app.example.com", ["https://app.example.com", "GET, PUT"]);
    for path in ["/usage", "/keyed/a"] {
        assert_eq!(preflight(path, app), (204, granted.map(|value| Some(value.to_owned()))), "{path}");
        assert_eq!(preflight(path, "https://elsewhere.example").0, 403, "{path}");
        let cross = [("origin", app)];
        let refused = get(tollgate.address, path, &cross);
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(app)));
    }
    assert!(origin.heads().is_empty(), "preflights are answered here");
    assert_eq!(preflight("/plain/a", app).0, 200, "the upstream answers it");
    let usage = get(tollgate.address, "/usage", &[("origin", app), ("x-api-key", ACME)]);
    assert_eq!((usage.status, usage.header("access-control-allow-origin")), (200, Some(app)));
}

#[test]
fn wrong_tokens_are_counted_by_address_without_api_keys() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let issuer = Issuer::new(Algorithm::ES256);
    let public = directory.path().join("issuer.pem");
    fs::write(&public, issuer.public()).unwrap();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
user: [{{ jwt: {{ key: {{ file: \"{}\" }}, algorithm: ES256 }} }}]
policies: {{ per-user: {{ algorithm: fixed_window, key: user, limit: 3/1h }} }}
bans: {{ guessing: {{ key: ip, policies: [api_keys], after: 5/1m, for: 10m }} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ path: /user/*, upstream: a, require: user, policies: [per-user] }}
  - {{ path: /*, upstream: a }}
",
        public.display(),
        origin.address
    )));
    let token = issuer.sign(&json!({ "sub": "ann", "exp": in_seconds(3600) }));
    let ask = |path: &str, token: &str| {
        let credential = [("authorization", &*format!("Bearer {token}"))];
        request(tollgate.address, "POST", path, &credential, b"").status
    };
    let stranger = Issuer::new(Algorithm::ES256);
    let guess = |number: usize| {
        let forged = json!({ "sub": "ann", "exp": in_seconds(3600 + number as i64) });
        ask("/user/a", &stranger.sign(&forged))
    };
    assert_eq!((0..30).map(guess).collect::<Vec<_>>(), [401; 30]);
    assert_eq!([guess(30), guess(31)], [429, 429]);
    assert_eq!(
        ask("/user/a", &token),
        200,
        "guesses take nothing of the user's own limit, nor of its address"
    );
    assert_eq!(get(tollgate.address, "/user/a", &[]).status, 401, "a request without a token is no guess");
    assert_eq!(ask("/other", "a-token-of-the-upstream"), 200, "the route requires none");
    for number in 32..35 {
        assert_eq!(guess(number), 429);
    }
    eventually("the ban", || guess(35) == 403);
    assert_eq!(ask("/user/a", &token), 403);
    let limited = || tollgate.admin("GET", "/v1/blocked/127.0.0.1").text();
    assert!(limited().contains(r#""api_keys""#), "{}", limited());
    eventually("the hint", || limited().contains("password guessing"));
}

#[test]
fn the_usage_of_all_limits_is_one_question_and_unknown_while_redis_is_away() {
    let (origin, directory, redis) = (Origin::ok(), keys(), Redis::start());
    let policies = "
plans: { pro: { one: 5/1h } }
policies:
  one: { algorithm: fixed_window, key: customer, limit: 1/1h }
  two: { algorithm: sliding_log, key: api_key, limit: 7/1h }
  three: { algorithm: gcra, key: [customer, api_key], limit: 9/1h }
  off: { algorithm: fixed_window, key: customer, limit: 9/1h, exempt: [\"customer:acme\"] }
";
    let rest = format!("store: {{ redis: {{ url: \"{}\", timeout: 3s }} }}\n{policies}{ROUTES}", redis.url())
        .replace("[per-customer, free-of]", "[one, two, three, off]");
    let tollgate = start(&origin, &directory, "", &rest);
    let ask = |path: &str, key: &str| get(tollgate.address, path, &[("x-api-key", key)]);
    assert_eq!([ask("/", ACME).status, ask("/", ACME).status, ask("/", ACME_SECOND).status], [200; 3]);
    let batches = || {
        let metrics = get(tollgate.admin, "/metrics", &[]).text();
        let count = metrics.lines().find_map(|line| line.strip_prefix("tollgate_store_batch_size_count "));
        count.and_then(|count| count.parse::<f64>().ok())
    };
    let before = batches().unwrap();
    let usage = ask("/usage", ACME).json();
    assert_eq!(batches(), Some(before + 1.0), "{usage:#}");
    let limits = usage["limits"].as_array().unwrap();
    let rows: Vec<_> = limits.iter().map(|of| (&of["policy"], &of["used"], &of["remaining"])).collect();
    let row = |policy: &str, used: u64, remaining: u64| (json!(policy), json!(used), json!(remaining));
    let expected = [row("one", 3, 2), row("two", 2, 5), row("three", 3, 6), row("three", 2, 7)];
    for (found, expected) in rows.iter().zip(&expected) {
        assert_eq!(*found, (&expected.0, &expected.1, &expected.2), "{usage:#}");
    }
    assert_eq!(limits[4], json!({ "policy": "off", "unlimited": true }));
    redis.pause();
    let away = ask("/usage", ACME);
    redis.resume();
    assert_eq!((away.status, away.header("retry-after")), (503, Some("1")), "{}", away.text());
    eventually("Redis is asked again", || ask("/usage", ACME).status == 200);
}

#[test]
fn a_bound_by_address_on_a_usage_route_counts_its_requests_and_no_units() {
    let (origin, directory) = (Origin::ok(), keys());
    let rest = "
policies:
  own: { algorithm: fixed_window, key: customer, limit: 9/1h }
  traffic: { algorithm: fixed_window, key: ip, limit: 1MiB/1h, cost: { response: bytes, reserve: 1KiB } }
  asked: { algorithm: fixed_window, key: ip, limit: 3/1h, cost: 3 }
  both: { algorithm: fixed_window, key: [ip, customer], limit: 4/1h, cost: 2 }
plans: { pro: { own: 7/1h } }
routes:
  - { path: /usage, usage: true, policies: [own, traffic, asked, both] }
  - { path: /*, upstream: a, policies: [own] }
";
    let tollgate = start(&origin, &directory, "", rest);
    let ask = |path: &str| get(tollgate.address, path, &[("x-api-key", ACME)]);
    assert_eq!(ask("/").status, 200);
    let used = |usage: &Reply, policy: &str| {
        let limits = usage.json()["limits"].as_array().unwrap().clone();
        limits.into_iter().find(|limit| limit["policy"] == policy).map(|limit| limit["used"].clone())
    };
    for _ in 0..3 {
        let usage = ask("/usage");
        let used = (used(&usage, "own"), used(&usage, "both"));
        assert_eq!((usage.status, used), (200, (Some(json!(1)), Some(json!(0)))), "{}", usage.text());
    }
    let explained = tollgate.command(&["explain", "-H", &format!("X-API-Key: {ACME}"), "/usage"]).stdout;
    assert!(explained.contains("the usage of limits is shown, and takes nothing from them"), "{explained}");
    assert_eq!(ask("/usage").status, 429, "by `asked`");
    let limits = |key: &str| tollgate.admin("GET", &format!("/v1/limits?key={key}")).json();
    for (policy, units) in [("asked", 3), ("traffic", 0)] {
        let limits = limits("ip:127.0.0.1");
        let found = limits["limits"].as_array().unwrap().iter().find(|limit| limit["policy"] == policy);
        let used = found.and_then(|limit| limit["used"].as_u64()).unwrap_or(0);
        assert_eq!(used, units, "{policy}: {limits}");
    }
    assert_eq!(ask("/").status, 200);
}

#[test]
fn a_route_may_require_a_verified_user_or_either() {
    let (origin, directory) = (Origin::ok(), keys());
    let issuer = Issuer::new(Algorithm::ES256);
    let public = directory.path().join("issuer.pem");
    fs::write(&public, issuer.public()).unwrap();
    let rest = format!(
        "{PLANS}user: [{{ jwt: {{ key: {{ file: \"{}\" }}, algorithm: ES256 }} }}]
routes:
  - {{ path: /user/*, upstream: a, require: user }}
  - {{ path: /any/*, upstream: a, require: any }}
",
        public.display()
    );
    let tollgate = start(&origin, &directory, "attempts: 4/1h", &rest);
    let token = issuer.sign(&json!({ "sub": "ann", "exp": in_seconds(3600) }));
    let expired = issuer.sign(&json!({ "sub": "ann", "exp": 1 }));
    let ask = |path: &str, token: &str| {
        get(tollgate.address, path, &[("authorization", &format!("Bearer {token}"))])
    };
    assert_eq!([ask("/user/a", &token).status, ask("/any/a", &token).status], [200, 200]);
    assert!(last_head(&origin).contains(&token), "tokens are the upstream's");
    assert_eq!(challenge(&get(tollgate.address, "/user/a", &[])), (401, Some(r#"Bearer realm="api""#)));
    assert_eq!(challenge(&ask("/user/a", &expired)), INVALID);
    assert_eq!(challenge(&ask("/any/a", &expired)), INVALID);
    assert_eq!(get(tollgate.address, "/user/a", &[("x-api-key", ACME)]).status, 401, "a key is no user");
    assert_eq!(get(tollgate.address, "/any/a", &[("x-api-key", ACME)]).status, 200);
    assert_eq!(
        challenge(&get(tollgate.address, "/any/a", &[("x-api-key", "wrong-key-of-nobody-1")])),
        INVALID
    );
    let forged = Issuer::new(Algorithm::ES256).sign(&json!({ "sub": "ann", "exp": in_seconds(3600) }));
    assert_eq!([(); 4].map(|()| ask("/any/a", &forged).status), [401, 401, 401, 429], "guesses are counted");
    assert_eq!(ask("/any/a", &expired).status, 401, "it is none");
}
