//! Envoy's services, asked by grpcio, with messages that the test encodes itself.

use std::net::SocketAddr;

use crate::harness::{Config, Deployment, Origin, Redis, Tollgate, eventually, on_each_topology, python};

/// Functions for scripts: `limit(DOMAIN, DESCRIPTORS, HITS)` returns the overall code, and for each descriptor its code and what is left;
/// `check(…)` the status. A fault is returned as its code.
const CLIENT: &str = r#"
import sys, grpc
def varint(n):
    out = b""
    while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def field(n, value):
    if isinstance(value, int): return varint(n << 3) + varint(value)
    if isinstance(value, str): value = value.encode()
    return varint(n << 3 | 2) + varint(len(value)) + value
def fields(data):
    found, at = {}, 0
    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte, at = data[at], at + 1
            n |= (byte & 127) << shift
            if byte < 128: return n
            shift += 7
    while at < len(data):
        key = number()
        if key & 7 == 0: value = number()
        else:
            length = number()
            value, at = data[at:at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found
def one(found, n, default=0): return found.get(n, [default])[0]
channels = [grpc.insecure_channel(address) for address in sys.argv[1].split(",")]
def call(path, message, nth=0):
    try: return channels[nth].unary_unary(path)(message, timeout=60)
    except grpc.RpcError as error: return error.code().name
LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CHECK = "/envoy.service.auth.v3.Authorization/Check"
def descriptor(entries, hits=None, negative=False):
    message = b"".join(field(1, field(1, key) + field(2, value)) for key, value in entries)
    if hits is not None: message += field(3, field(1, hits) if hits else b"")
    return field(2, message + (field(4, 1) if negative else b""))
def request(domain, descriptors, hits=0):
    return field(1, domain) + b"".join(descriptors) + (field(3, hits) if hits else b"")
def limit(domain, descriptors, hits=0, nth=0):
    answer = call(LIMIT, request(domain, descriptors, hits), nth)
    if isinstance(answer, str): return answer
    answer = fields(answer)
    statuses = [fields(status) for status in answer.get(2, [])]
    return one(answer, 1), [(one(status, 1), one(status, 3)) for status in statuses]
def check(path="/", source="198.51.100.4", method="GET", headers=(), certificate=""):
    address = field(1, field(1, field(2, source) + field(3, 1))) if source else b""
    peer = address + (field(5, certificate) if certificate else b"")
    http = field(2, method) + b"".join(field(3, field(1, key) + field(2, value)) for key, value in headers)
    http += field(4, path) + field(5, "api.example.org")
    answer = call(CHECK, field(1, field(1, peer) + field(4, field(2, http))))
    if isinstance(answer, str): return answer
    answer = fields(answer)
    if 3 in answer: return 200
    return one(fields(one(fields(answer[2][0]), 1, b"")), 1)
def expect(found, expected):
    assert found == expected, f"{found} and not {expected}"
"#;

/// Runs `script` with the functions above, against these addresses. False: grpcio is not installed.
#[track_caller]
fn run(addresses: &[SocketAddr], script: &str) -> bool {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let printed = python(&format!("{CLIENT}{script}\nprint('done')"), &[&addresses.join(",")]);
    printed.is_some_and(|printed| {
        assert_eq!(printed.trim(), "done");
        true
    })
}

const DECIDING: &str =
    "listeners: [{ address: \"127.0.0.1:0\", serves: decisions }]\ntrusted_proxies: [127.0.0.1]\n";

fn start(yaml: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!("{DECIDING}{yaml}")))
}

const DESCRIPTORS: &str = r#"
policies:
  login: { algorithm: sliding_log, key: "descriptor:generic_key", limit: 6/1h }
  address: { algorithm: sliding_log, key: ip, limit: 3/1h }
  strict: { algorithm: sliding_log, key: ip, limit: 3/1h, missing: deny }
  path: { algorithm: sliding_log, key: "ip+path", limit: 2/1h }
  agents: { algorithm: sliding_log, key: "header:user-agent", limit: 2/1h }
  several: { algorithm: sliding_log, key: "descriptor:tag", limit: 2/1h }
  users: { algorithm: distinct, key: ip, value: user, limit: 2/1h }
  shadow: { algorithm: sliding_log, key: ip, limit: 1/1h, mode: shadow }
routes:
  - { domain: edge, descriptor: { generic_key: login }, policies: [login, address] }
  - { domain: edge, descriptor: { generic_key: strict }, policies: [strict] }
  - { domain: edge, path: /orders/*, methods: [POST], policies: [path] }
  - { domain: agents, policies: [agents, shadow] }
  - { domain: tags, descriptor: { tag: a }, policies: [several] }
  - { domain: users, policies: [users] }
"#;

#[test]
fn descriptors_are_requests_and_one_decision() {
    let tollgate = start(DESCRIPTORS);
    run(
        &[tollgate.address],
        r#"
OK, OVER = 1, 2
login = lambda address: descriptor([("generic_key", "login"), ("remote_address", address)])
for left in (2, 1, 0): expect(limit("edge", [login("203.0.113.7")]), (OK, [(OK, left)]))
expect(limit("edge", [login("203.0.113.7")]), (OVER, [(OVER, 0)]))
# All or none: the second would fit, and takes nothing.
expect(limit("edge", [login("203.0.113.7"), login("203.0.113.8")])[0], OVER)
expect(limit("edge", [login("203.0.113.8"), login("203.0.113.9")]), (OK, [(OK, 1), (OK, 1)]))
expect(limit("edge", [login("203.0.113.8")]), (OK, [(OK, 0)]))
expect(limit("edge", [login("203.0.113.9")]), (OVER, [(OVER, 0)]))
# Without an address, `key: ip` does not count, unless it is required.
expect(limit("edge", [descriptor([("generic_key", "other")])]), (OK, [(OK, 0)]))
expect(limit("edge", [descriptor([("generic_key", "strict")])])[0], OVER)
# Conditions of routes, and their spellings.
order = lambda path, method="POST": [descriptor([("method", method), ("path", path), ("remote_address", "203.0.113.20")])]
expect(limit("edge", order("/orders/5?a=b"))[0], OK)
expect(limit("edge", order("//orders/5"))[0], OVER) # An origin may take it for the route's.
expect(limit("edge", order("/ORDERS/%35/"))[0], OK)
expect(limit("edge", order("/orders/5"))[0], OVER)
expect(limit("edge", order("/orders/5", "GET"))[0], OK)
expect(limit("other", order("/orders/5"))[0], OK)
# What a client has sent in a path is refused, and does not pass as a fault.
for path in ("/orders/%2e%2e%2", "/orders/a b", "/orders/5 HTTP/1.1\r\n", "*", "", "orders/5"):
    expect(limit("edge", order(path))[0] == OVER or path == "", True)
expect(limit("agents", [descriptor([("header.user-agent", "a\nb")])])[0], OVER)
# Headers, several of one name, and shadow policies.
agent = [descriptor([("header.user-agent", "curl"), ("remote_address", "203.0.113.30")])]
expect([limit("agents", agent)[0] for _ in range(3)], [OK, OK, OVER])
# A key twice: any of its values matches, and both make the identifier.
tags = lambda *values: [descriptor([("tag", value) for value in values])]
expect([limit("tags", tags("a", "b"))[0] for _ in range(3)], [OK, OK, OVER])
expect([limit("tags", tags("b", "a"))[0], limit("tags", tags("a"))[0]], [OK, OK])
user = lambda name: [descriptor([("user", name), ("remote_address", "203.0.113.40")])]
expect([limit("users", user(name))[0] for name in ("ann", "bob", "ann", "eve", "bob")], [OK, OK, OK, OVER, OK])
"#,
    );
}

#[test]
fn hits_are_added_looked_at_and_given_back() {
    let tollgate = start(
        r"
policies:
  units: { algorithm: fixed_window, key: descriptor:key, limit: 100/1d }
  tokens: { algorithm: fixed_window, key: descriptor:key, limit: 100/1d, overdraw: true }
  counter: { algorithm: sliding_counter, key: descriptor:key, limit: 100/1d, overdraw: true }
  bucket: { algorithm: gcra, key: descriptor:key, limit: 100/1d, overdraw: true }
routes:
  - { domain: units, policies: [units] }
  - { domain: tokens, policies: [tokens] }
  - { domain: counter, policies: [counter] }
  - { domain: bucket, policies: [bucket] }
  - { domain: both, policies: [units, tokens] }
",
    );
    run(
        &[tollgate.address],
        r#"
OK, OVER = 1, 2
def ask(domain, hits=None, of_call=0, negative=False, key="k"):
    answer = limit(domain, [descriptor([("key", key)], hits, negative)], of_call)
    return answer if isinstance(answer, str) else (answer[0], answer[1][0][1])
# The call's 0 is 1; the descriptor's stands above it, and its 0 only looks.
expect(ask("units"), (OK, 99))
expect(ask("units", of_call=9), (OK, 90))
expect(ask("units", 40, 9), (OK, 50))
expect([ask("units", 0, 9), ask("units", 0)], [(OK, 50), (OK, 50)])
# What does not fit takes nothing, however much it is.
for hits in (51, 100, 2**32 - 1, 2**53, 2**64 - 1): expect(ask("units", hits), (OVER, 50))
expect(ask("units", of_call=2**32 - 1), (OVER, 50))
expect(ask("units", 50), (OK, 0))
expect(ask("units", 0), (OVER, 0))
expect(ask("units", 5, negative=True), "INVALID_ARGUMENT")
for domain in ("tokens", "counter", "bucket"):
    expect(ask(domain, 60), (OK, 40))
    expect(ask(domain, 60), (OK, 0))
    expect([ask(domain, 0)[0], ask(domain)[0]], [OVER, OVER])
    # 121 are used.
    expect(ask(domain, 30, negative=True), (OK, 9))
    expect(ask(domain, 2**32 - 1, key="huge")[0], OK)
    expect(ask(domain, 0, key="huge")[0], OVER)
# Charged only if all is admitted.
expect(ask("both", 60, key="b"), (OK, 40))
expect(ask("both", 60, key="b")[0], OVER)
expect(ask("both", 40, key="b")[0], OK)
"#,
    );
}

#[test]
fn faults_of_a_call_are_told() {
    let tollgate = start(DESCRIPTORS);
    run(
        &[tollgate.address],
        r#"
import random
entry = ("generic_key", "login")
for domain, descriptors in (
    ("", [descriptor([entry])]), ("edge", []), ("edge", [descriptor([])]), ("edge", [descriptor([("", "x")])]),
    ("edge", [descriptor([("header.", "x")])]), ("edge", [descriptor([entry])] * 65),
): expect(limit(domain, descriptors), "INVALID_ARGUMENT")
# What clients may have sent is a refusal: as a fault, it might pass.
for domain, descriptors in (
    ("edge", [descriptor([entry, ("remote_address", "203.0.113.7"), ("remote_address", "203.0.113.8")])]),
    ("edge", [descriptor([("path", "/a"), ("path", "/b")])]), ("edge", [descriptor([("remote_address", "nobody")])]),
    ("edge", [descriptor([entry]), descriptor([("header.x", "a\nb")])]),
    ("users", [descriptor([("user", name), ("remote_address", "203.0.113.1")]) for name in ("a", "b")]),
): expect(limit(domain, descriptors)[0], 2)
# The paths of another service, and messages of another method.
for path in ("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", "/grpc.health.v1.Health/Watch", CHECK + "x", "/"):
    expect(call(path, request("edge", [descriptor([entry])])), "UNIMPLEMENTED")
expect(fields(call("/grpc.health.v1.Health/Check", field(1, "ratelimit"))), {1: [1]})
expect(call(CHECK, b""), "INVALID_ARGUMENT")
expect(call(CHECK, field(1, field(4, field(2, field(2, "GET"))))), "INVALID_ARGUMENT")
expect(call(LIMIT, b"x" * (2 << 20)), "RESOURCE_EXHAUSTED")
compressed = grpc.insecure_channel(sys.argv[1], compression=grpc.Compression.Gzip)
try: compressed.unary_unary(LIMIT)(request("edge", [descriptor([entry])] * 20), timeout=60); raise SystemExit("read")
except grpc.RpcError as error: expect(error.code().name, "UNIMPLEMENTED")
# Garbage, whole and cut.
random.seed(60)
good = [(LIMIT, request("edge", [descriptor([entry, ("remote_address", "203.0.113.7")])])), (CHECK, field(1, field(4, field(2, field(2, "GET") + field(4, "/")))))]
for _ in range(400):
    path, message = random.choice(good)
    message = bytearray(message)
    for _ in range(random.randrange(1, 4)): message[random.randrange(len(message))] = random.randrange(256)
    answer = call(path, bytes(message[:random.randrange(len(message) + 1)]))
    assert not isinstance(answer, str) or answer in ("INVALID_ARGUMENT", "UNIMPLEMENTED"), answer
expect(limit("edge", [descriptor([("generic_key", "still")])])[0], 1)
"#,
    );
}

#[test]
fn a_wrong_key_does_not_change_who_the_user_is() {
    let keys = tempfile::TempDir::new().unwrap();
    let data = keys.path().join("keys.json");
    let tollgate = start(&format!(
        "api_keys: {{ store: true, data: \"{}\", attempts: 2/30d }}\n\
         policies:\n  user: {{ algorithm: sliding_log, key: user, limit: 6/1h }}\n\
         routes: [{{ domain: users, require: none, policies: [user] }}]\n",
        data.display()
    ));
    run(
        &[tollgate.address],
        r#"
entries = [("user", "ann"), ("remote_address", "203.0.113.7")]
wrong = [("header.x-api-key", "tgk_0000000001_0123456789abcdefghijABCDEFGHIJ01_000000")]
expect([limit("users", [descriptor(entries + wrong)])[0] for _ in range(8)], [1] * 6 + [2] * 2)
expect(limit("users", [descriptor(entries)])[0], 2)
"#,
    );
    assert!(!tollgate.log().iter().any(|line| line.contains("tgk_0000000001_0123456789")));
}

#[test]
fn whole_requests_are_checked() {
    let tollgate = Tollgate::start(Config::yaml(format!(
        "{}{}",
        DECIDING.replace("[127.0.0.1]", "[127.0.0.1, 198.51.100.0/24]"),
        r"
policies:
  address: { algorithm: sliding_log, key: ip, limit: 3/1h }
  full: { algorithm: sliding_log, key: ip, limit: 1/1h, reply: { status: 503 } }
routes:
  - { path: /open/* }
  - { path: /full, policies: [full] }
  - { path: /*, policies: [address] }
"
    )));
    run(
        &[tollgate.address],
        r#"
expect([check("/a", "203.0.113.7") for _ in range(4)], [200, 200, 200, 429])
# What is no trusted proxy can't say who it asks for.
expect(check("/a", "203.0.113.7", headers=[("x-forwarded-for", "203.0.113.99")]), 429)
proxied = lambda client: check("/a", "198.51.100.4", headers=[("x-forwarded-for", client)])
expect([proxied("203.0.113.8") for _ in range(4)], [200, 200, 200, 429])
expect(proxied("203.0.113.9, 203.0.113.8"), 429)
expect(check("/open/a", "203.0.113.7", headers=[(":path", "/a"), ("x-original-url", "/a")]), 200)
# What is no request is refused: as a fault, it might pass.
for path, method in (("/a b", "GET"), ("/a%2", "GET"), ("a", "GET"), ("/a", "G T"), ("/a", "CONNECT")):
    expect(check(path, "203.0.113.7", method) in (400, 501, 429), True)
expect(check("/a", "203.0.113.50", headers=[("x y", "z")]), 400)
# A policy's own 503 is a denial, and no fault.
expect([check("/full", "203.0.113.7") for _ in range(2)], [200, 503])
# A path that the API may resolve, or read in another way, is none of another route.
for path in ("/open/../a", "/open/%2e%2e/a", "/open/..;/a", "//open/a"): expect(check(path, "203.0.113.51"), 400)
# As many fields as a message has room for.
expect(check("/open/a", "203.0.113.7", headers=[(f"x{n}", "") for n in range(40000)]), 431)
# No address is Envoy's own word, as over a Unix socket.
expect(check("/a", "not an address"), 400)
expect(check("/a", "fe80::7%eth0"), 200)
expect(check("/a", None), 200)
# A tunnel has no path.
expect(check("", "203.0.113.7", "CONNECT"), 501)
expect(check("/open#/../a", "203.0.113.7"), 400)
"#,
    );
}

#[test]
fn others_than_trusted_proxies_may_not_ask() {
    let tollgate = start(DESCRIPTORS);
    let script = r#"
import socket
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)])
expect(limit("edge", [descriptor([("generic_key", "login")])]), "PERMISSION_DENIED")
"#;
    // Tollgate knows the peer by another address than the trusted one.
    let yaml = format!("{}{DESCRIPTORS}", DECIDING.replace("[127.0.0.1]", "[192.0.2.1]"));
    let untrusting = Tollgate::start(Config::yaml(yaml));
    run(&[untrusting.address], script);
    drop(tollgate);
}

on_each_topology!(two_instances_are_exact);

/// Two instances decide as one, and what is denied counts nowhere: the peers' services take first, and refuse then.
fn two_instances_are_exact(redis: &Deployment) {
    let yaml = format!(
        "store: {{ redis: {{ {}, timeout: 10s }} }}\n{}",
        redis.settings(),
        r#"
policies:
  route: { algorithm: sliding_log, key: "descriptor:route", limit: 40/1h }
  user: { algorithm: sliding_log, key: user, limit: 15/1h }
routes:
  - { domain: edge, descriptor: { route: a }, policies: [route] }
  - { domain: edge, policies: [user] }
"#
    );
    let instances = [start(&yaml), start(&yaml)];
    run(
        &instances.each_ref().map(|instance| instance.address),
        r#"
from concurrent.futures import ThreadPoolExecutor
def ask(nth):
    user = "abcd"[nth % 4]
    return user, limit("edge", [descriptor([("route", "a")]), descriptor([("user", user)])], nth=nth // 4 % 2)[0]
with ThreadPoolExecutor(16) as pool: answers = list(pool.map(ask, range(240)))
admitted = [user for user, code in answers if code == 1]
expect(len(admitted), 40)
assert all(admitted.count(user) <= 15 for user in "abcd"), admitted
# Nobody has lost a unit to a denial: each may still use the rest of its own limit.
for user in "abcd":
    left = 15 - admitted.count(user)
    codes = [limit("edge", [descriptor([("user", user)])], nth=nth % 2)[0] for nth in range(left + 2)]
    expect(codes, [1] * left + [2, 2])
"#,
    );
}

#[test]
fn an_undecided_call_is_unavailable() {
    let mut redis = Redis::start();
    let origin = Origin::ok();
    let yaml = format!(
        "store: {{ redis: {{ url: \"{}\" }} }}\n{}\nupstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}\n",
        redis.url(),
        r"
policies:
  strict: { algorithm: sliding_log, key: ip, limit: 3/1h, on_store_error: deny }
  open: { algorithm: sliding_log, key: ip, limit: 3/1h, on_store_error: allow }
routes:
  - { domain: strict, policies: [strict] }
  - { domain: open, policies: [open] }
  - { path: /strict, policies: [strict] }
  - { path: /open, policies: [open] }
",
        origin.address
    );
    let tollgate = start(&yaml);
    let ask = r#"
address = [descriptor([("remote_address", "203.0.113.7")])]
strict, open = limit("strict", address), limit("open", address)[0]
"#;
    if !run(&[tollgate.address], &format!("{ask}expect((strict[0], open, check('/strict')), (1, 1, 200))")) {
        return;
    }
    redis.kill();
    eventually("the store is away", || {
        tollgate.metric_total("tollgate_store_errors_total") > 0.0 || {
            run(&[tollgate.address], ask);
            false
        }
    });
    run(
        &[tollgate.address],
        &format!(
            "{ask}expect((strict, open), ('UNAVAILABLE', 1))\nexpect((check('/strict'), check('/open')), ('UNAVAILABLE', 200))"
        ),
    );
    let undecided = |front: &str| {
        tollgate.metric(&format!("tollgate_decisions_asked_total{{front=\"{front}\",answer=\"undecided\"}}"))
    };
    assert!(undecided("rate_limits") >= 1.0 && undecided("ext_authz") >= 1.0);
}
