//! What `POST /v1/explain` says of a request is what becomes of it, and `tollgate replay` decides as Tollgate did: with
//! random configurations and random requests.
//!
//! `TOLLGATE_TEST_ROUNDS=20` for a long run; `TOLLGATE_TEST_SEED=7` for the one configuration with this seed.

mod generator;
mod keys;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Display,
    fs, io,
    io::{Read, Write},
    net::{IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Authority, Client, Config, Conn, Issued, Origin, Reply, TlsConnector, Tollgate, eventually, file_name,
    request, tollgate_in,
};
use generator::{
    Body, Configuration, Kind, Listener, ORIGINS, REDIRECTING, Sent, TLS, TRAP, TRAPPED, TlsFiles,
};
use keys::{Material, TOLD, without_key};

const CONFIGURATIONS: u64 = 30;
/// The seed of the first. The run from here on meets all that [`TO_BE_MET`] names.
const FIRST_SEED: u64 = 15;
const REQUESTS: usize = 40;
/// The rule for bans, as it is named in explanations and logs.
const RULE: &str = "bans.trapped";
/// The policy that limits wrong keys, as it is named in explanations and logs.
const ATTEMPTS: &str = "api_keys";
/// The reasons for 401 and 403, as operators read them, and what is met.
const FAULTS: [(&str, &str); 11] = [
    ("requires an API key, and the request has none", "401: no key"),
    ("requires a verified user, and the request has none", "401: no user"),
    ("requires an API key or a verified user, and the request has neither", "401: neither key nor user"),
    ("has several API keys that differ", "401: keys that differ"),
    ("the bearer token is no API key", "401: a token that is no key"),
    ("the API key is not one of 16 to 512", "401: a malformed key"),
    ("the API key is unknown", "401: an unknown key"),
    ("the API key has expired", "401: an expired key"),
    ("requires a verified user, and the token is not valid", "401: a token that is not valid"),
    ("requires a verified user, and the token has expired", "401: a token that has expired"),
    ("the API key is for other routes only", "403: a key for other routes"),
];
/// How many of the failures are printed.
const PRINTED: usize = 20;

/// Each has to happen at least once in a run, or it has tested less than it should.
const TO_BE_MET: [&str; 68] = [
    "401: a malformed key",
    "401: a token that is no key",
    "401: a token that is not valid",
    "401: an expired key",
    "401: an unknown key",
    "401: keys that differ",
    "401: neither key nor user",
    "401: no key",
    "401: no user",
    "403: a key for other routes",
    "429: too many wrong keys",
    "a bad key where none is required",
    "a key as a bearer token",
    "a key in the query",
    "a key that is forwarded",
    "a key that is ignored after too many wrong ones",
    "a key that is removed",
    "a preflight with a bad key",
    "a client certificate",
    "a route for its listener",
    "a route for other listeners",
    "a limit of a plan that is listed",
    "a limit that is listed",
    "admitted by the policies",
    "banned by a rule",
    "banned by an operator",
    "bans of a rule in shadow",
    "changed request headers",
    "changed response headers",
    "delayed",
    "denied by a plan's limit",
    "denied by a policy",
    "denied for a missing key",
    "endpoint by a hash",
    "exempt",
    "exempt by its customer",
    "exempt by its plan",
    "forbidden at the top level",
    "forbidden by the route",
    "forbidden, since the address is unknown",
    "forwarded",
    "limited by another limit (override)",
    "malformed: 400",
    "malformed: 417",
    "malformed: 501",
    "limits of a customer",
    "no route: 404",
    "no verdict",
    "preflight allowed",
    "preflight not counted",
    "preflight refused",
    "priced by the route",
    "redirect of the listener",
    "redirect of the route",
    "redirect without a value: 400",
    "refused by the listener for a certificate",
    "replayed",
    "reply of the route",
    "request body too long: 413",
    "rewrite without a value: 400",
    "rewritten path",
    "route by split_by",
    "route by weights",
    "shadow denial",
    "skipped key",
    "spent Max-Forwards: 204",
    "spent Max-Forwards: 405",
    "undecided",
];

#[test]
fn explain_serving_and_replay_agree() {
    let rounds = env::var("TOLLGATE_TEST_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let only: Option<u64> = env::var("TOLLGATE_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
    let origins: Vec<Origin> = (0..ORIGINS).map(|_| Origin::start(serve)).collect();
    let authority = Authority::new("authority");
    let certificates = Certificates {
        server: authority.issue("server", &["localhost"]),
        client: authority.issue("acme", &[]),
        authority,
    };
    let directory = TempDir::new().unwrap();
    let material = Material::new(directory.path());
    let mut run = Run { origins, certificates, material, met: BTreeMap::new(), failures: Vec::new() };
    match only {
        Some(seed) => run.configuration(seed),
        None => (FIRST_SEED..FIRST_SEED + CONFIGURATIONS * rounds).for_each(|seed| run.configuration(seed)),
    }
    let Run { failures, met, .. } = run;
    println!("{met:#?}");
    let printed = failures.iter().take(PRINTED).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} disagreements, such as:\n\n{printed}\n", failures.len());
    let missed: Vec<_> = TO_BE_MET.iter().filter(|kind| !met.contains_key(*kind)).collect();
    assert!(only.is_some() || missed.is_empty(), "never met: {missed:?}");
}

/// Half of all configurations can be replayed.
fn kind(seed: u64) -> Kind {
    match seed {
        _ if seed % 10 == 5 => Kind::WithoutStore,
        _ if seed.is_multiple_of(2) => Kind::Replayable,
        _ => Kind::Any,
    }
}

/// An origin: the status is the one that `x-want` names.
fn serve(conn: &mut Conn) -> io::Result<()> {
    while let Some(head) = conn.head()? {
        conn.body(&head)?;
        let status = if head.contains("\r\nx-want: 401") { "401 Unauthorized" } else { "200 OK" };
        match head.starts_with("HEAD ") {
            true => conn.send(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n").as_bytes())?,
            false => conn.answer(status, &[], b"ok")?,
        }
    }
    Ok(())
}

struct Certificates {
    authority: Authority,
    server: Issued,
    client: Issued,
}

impl Certificates {
    fn files(&self) -> TlsFiles {
        TlsFiles {
            cert: file_name(&self.server.cert).to_owned(),
            key: file_name(&self.server.key).to_owned(),
            ca: file_name(&self.authority.file()).to_owned(),
        }
    }

    fn connector(&self, has_certificate: bool) -> TlsConnector {
        match has_certificate {
            true => TlsConnector::with_certificate(&self.authority, &self.client),
            false => TlsConnector::new(&self.authority),
        }
    }
}

/// All configurations of a run.
struct Run {
    origins: Vec<Origin>,
    certificates: Certificates,
    material: Material,
    /// What has happened, and how often.
    met: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

/// A request that was explained and then served.
struct Exchange<'a> {
    sent: &'a Sent,
    explained: Value,
    /// The limits that hold for it and are not listed for their keys.
    mislisted: Vec<String>,
    reply: Reply,
    /// Its line in the access log.
    line: Value,
    /// The heads that the origins got.
    forwarded: Vec<String>,
}

impl Run {
    /// Explains and sends requests under the configuration with this seed.
    fn configuration(&mut self, seed: u64) {
        let kind = kind(seed);
        let addresses: Vec<SocketAddr> = self.origins.iter().map(|origin| origin.address).collect();
        let (tls, material) = (self.certificates.files(), &self.material);
        let mut configuration = generator::configuration(seed, kind, &addresses, &tls, material);
        material.write(&configuration.yaml);
        configuration.yaml = without_hidden_routes(&configuration.yaml);
        material.write(&configuration.yaml);
        let requests = generator::requests(seed, &configuration, material, REQUESTS);
        let tollgate = Tollgate::start(Config::yaml(configuration.yaml.as_str()));
        let before = prepare(&tollgate, &configuration);
        let mut admin = Client::connect(tollgate.admin);
        let mut exchanges = Vec::new();
        for sent in &requests {
            let explained = self.explain(&mut admin, kind, sent);
            let mislisted = match kind {
                Kind::WithoutStore => Vec::new(),
                _ => self.mislisted(&mut admin, &explained),
            };
            let reply = self.send(&tollgate, sent);
            let (line, forwarded) = (Value::Null, Vec::new());
            exchanges.push(Exchange { sent, explained, mislisted, reply, line, forwarded });
        }
        let lines = log_lines(&tollgate, before + exchanges.len());
        let mut received: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for head in self.origins.iter().flat_map(Origin::heads) {
            let id = header(&head, "x-request-id").unwrap_or_default().to_owned();
            received.entry(id).or_default().push(head);
        }
        let mut failures = Vec::new();
        for (nth, exchange) in exchanges.iter_mut().enumerate() {
            let id = exchange.reply.header("x-request-id").unwrap_or_default();
            exchange.line = lines.iter().find(|line| line["request_id"] == id).cloned().unwrap_or_default();
            exchange.forwarded = received.remove(id).unwrap_or_default();
            let mut differences = self.differences(&configuration, exchange);
            differences.append(&mut exchange.mislisted);
            if !differences.is_empty() {
                failures.push(exchange.failure(nth, &differences));
            }
        }
        if kind == Kind::Replayable {
            self.meet("replayed", true);
            failures.extend(replayed(&tollgate, &exchanges));
        }
        let yaml = fs::read_to_string(tollgate.directory().join("proxy.yaml")).unwrap();
        let describe = |failure| format!("--- TOLLGATE_TEST_SEED={seed}\n{yaml}\n{failure}");
        self.failures.extend(failures.into_iter().map(describe));
    }

    fn meet(&mut self, kind: &'static str, has_happened: bool) {
        if has_happened {
            *self.met.entry(kind).or_default() += 1;
        }
    }

    fn explain(&self, admin: &mut Client, kind: Kind, sent: &Sent) -> Value {
        let mut headers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in &sent.headers {
            headers.entry(*name).or_default().push(value);
        }
        let mut url = sent.target.clone();
        if sent.by_url {
            let scheme = if matches!(sent.listener, Listener::Tls { .. }) { "https" } else { "http" };
            let host = headers.remove("host").unwrap();
            url = format!("{scheme}://{}{url}", host[0]);
        }
        let mut asked = json!({ "method": sent.method, "url": url, "peer": sent.peer, "headers": headers });
        if sent.listener == (Listener::Tls { has_certificate: true }) {
            let pem = fs::read_to_string(&self.certificates.client.cert).unwrap();
            asked["client_certificate"] = json!({ "pem": pem });
        }
        if kind != Kind::Replayable {
            asked["listener"] = json!(sent.listener.address().to_string());
        }
        let json = [("content-type", "application/json")];
        let reply = admin.request("POST", "/v1/explain", &json, asked.to_string().as_bytes());
        assert_eq!(reply.status, 200, "{}: {asked:#}", reply.text());
        reply.json()
    }

    /// The limits that are explained of a request, and that `GET /v1/limits` does not list for their keys. Where it lists
    /// one alone, it is this one.
    fn mislisted(&mut self, admin: &mut Client, explained: &Value) -> Vec<String> {
        let mut mislisted = Vec::new();
        for check in explained["checks"].as_array().unwrap() {
            // It has no key, or is not read.
            if check["used"].is_null() {
                continue;
            }
            let [policy, key] = ["policy", "key"].map(|field| check[field].as_str().unwrap());
            let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
            let reply = admin.request("GET", &format!("/v1/limits?policy={policy}&key={key}"), &[], b"");
            assert_eq!(reply.status, 200, "{check}: {}", reply.text());
            let listed = reply.json();
            let limits = listed["limits"].as_array().unwrap();
            // A request that is admitted is included in what is explained.
            let own = if check["verdict"] == "allowed" { check["cost"].as_u64().unwrap() } else { 0 };
            let is_used = check["used"].as_u64().unwrap() > own;
            // Which is the tightest of several depends on the cost.
            let is_one = !check["because"].as_str().unwrap().contains("tightest limit");
            let is_of_plan =
                |row: &Value| row["condition"].as_str().is_some_and(|of| of.starts_with("plan:"));
            self.meet("a limit that is listed", is_used);
            self.meet("a limit of a plan that is listed", limits.iter().any(is_of_plan));
            if is_used && is_one && !limits.iter().any(|row| row["limit"] == check["limit"]) {
                mislisted.push(format!("explained {check}, listed {listed}"));
            }
        }
        mislisted
    }

    fn send(&self, tollgate: &Tollgate, sent: &Sent) -> Reply {
        let listener = sent.listener.address().ip();
        let address = addresses(tollgate).into_iter().find(|address| address.ip() == listener).unwrap();
        let client = Client::connect_from(sent.peer.parse().unwrap(), address);
        match sent.listener {
            Listener::Tls { has_certificate } => {
                let connector = self.certificates.connector(has_certificate);
                exchange(connector.over(client.stream, "localhost").unwrap().into_http(), sent)
            }
            Listener::Plain | Listener::Redirecting => exchange(client, sent),
        }
    }
}

fn exchange<S: Read + Write>(mut client: Client<S>, sent: &Sent) -> Reply {
    client.send(sent.bytes());
    let reply = if sent.method == "HEAD" { client.try_head() } else { client.try_reply() };
    reply.unwrap_or_else(|error| panic!("{error}: {sent:#?}: {}", client.unread()))
}

impl Listener {
    /// As configured: with port 0.
    fn address(self) -> SocketAddr {
        let address = match self {
            Self::Plain => "127.0.0.1:0",
            Self::Redirecting => REDIRECTING,
            Self::Tls { .. } => TLS,
        };
        address.parse().unwrap()
    }
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        bytes += "\r\n";
        bytes += &match self.body {
            Body::None => String::new(),
            Body::Length(length) => "x".repeat(length),
            Body::Chunked(length) => format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length)),
        };
        bytes.into_bytes()
    }
}

/// The configuration without the routes that no request can reach, which are errors.
fn without_hidden_routes(yaml: &str) -> String {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("proxy.yaml"), yaml).unwrap();
    let checked = tollgate_in(directory.path(), &[], &["check"]);
    let hidden: BTreeSet<usize> = format!("{}{}", checked.stdout, checked.stderr)
        .lines()
        .filter_map(|line| line.strip_prefix("proxy.yaml:")?.split_once(": no request ever reaches"))
        .filter_map(|(place, _)| place.split(':').next()?.parse().ok())
        .collect();
    let lines = yaml.lines().zip(1..).filter(|(_, number)| !hidden.contains(number));
    lines.map(|(line, _)| format!("{line}\n")).collect()
}

/// Has the clients banned that the configuration wants banned. The number of requests that this took.
fn prepare(tollgate: &Tollgate, configuration: &Configuration) -> usize {
    let json = [("content-type", "application/json")];
    for key in &configuration.bans {
        let ban = json!({ "key": key, "for": "1h", "reason": "a test", "force": true }).to_string();
        let reply = request(tollgate.admin, "POST", "/v1/bans", &json, ban.as_bytes());
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    }
    let mut requests = 0;
    if configuration.has_trap {
        let forwarded = format!("for={TRAPPED}");
        let headers =
            [("x-forwarded-for", TRAPPED), ("x-real-ip", TRAPPED), ("forwarded", forwarded.as_str())];
        eventually("the trap is shut", || {
            request(tollgate.address, "GET", TRAP, &headers, b"");
            requests += 1;
            let bans = tollgate.admin("GET", "/v1/bans").json();
            bans["bans"].as_array().unwrap().iter().any(|ban| ban["by"] == RULE)
        });
    }
    requests
}

/// The addresses that it listens on.
fn addresses(tollgate: &Tollgate) -> Vec<SocketAddr> {
    let lines = tollgate.log();
    let serving = lines.iter().filter(|line| line.contains("serving clients"));
    let address = |line: &String| line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok();
    serving.filter_map(address).collect()
}

/// The lines of the access log, once it has `count`.
fn log_lines(tollgate: &Tollgate, count: usize) -> Vec<Value> {
    let file = tollgate.directory().join("access.log");
    let mut text = String::new();
    eventually("all is logged", || {
        text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().count() >= count
    });
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The value of a field in a head that an origin got.
fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What two sides disagree about.
struct Differences {
    sides: [&'static str; 2],
    found: Vec<String>,
}

impl Differences {
    fn between(one: &'static str, other: &'static str) -> Self {
        Self { sides: [one, other], found: Vec::new() }
    }

    fn same<T: Copy + PartialEq + Display>(&mut self, what: &str, one: T, other: T) {
        if one != other {
            let [by_one, by_other] = self.sides;
            self.found.push(format!("{what}: {by_one} {one}, {by_other} {other}"));
        }
    }

    fn holds(&mut self, what: &str, holds: bool) {
        if !holds {
            self.found.push(what.to_owned());
        }
    }
}

impl Run {
    /// Compares what was explained of a request with what became of it.
    fn differences(&mut self, configuration: &Configuration, exchange: &Exchange<'_>) -> Vec<String> {
        let Exchange { sent, explained, reply, line, forwarded, .. } = exchange;
        let mut differences = Differences::between("explained", "served");
        if line.is_null() {
            return vec!["no line in the access log has its ID".to_owned()];
        }
        differences.same("status in the log", reply.status.into(), line["status"].as_u64().unwrap());
        // The client, once the target is known to be well-formed.
        let is_well_formed = !explained["route"].is_null();
        if is_well_formed {
            let [client, logged] = [&explained["client_address"]["address"], &line["client"]];
            let what = format!("client: explained {client}, served {logged}");
            differences.holds(&what, is_client(client.as_str().unwrap(), logged.as_str().unwrap()));
        }

        let address = sent.listener.address().to_string();
        let listeners = explained["listeners"].as_array().unwrap();
        if let Some(listener) = listeners.iter().find(|listener| listener["listener"] == address.as_str()) {
            self.listener(sent, &listener["reply"], exchange, &mut differences);
            return differences.found;
        }

        // The status, and whether it was forwarded.
        let wanted = if sent.headers.contains(&("x-want", "401".to_owned())) { 401 } else { 200 };
        let status = explained["status"].as_u64();
        differences.same("status", status.unwrap_or(wanted), reply.status.into());
        let times = if status.is_none() { 1 } else { 0 };
        differences.same("times forwarded", times, forwarded.len());

        // The verdict, and who is responsible.
        let (verdict, policies) = verdict(explained, configuration);
        differences.same("verdict", &json!(verdict), &line["verdict"]);
        let policy = &line["policy"];
        let is_named = match policy.as_str() {
            Some(policy) => policies.iter().any(|expected| expected == policy),
            None => policies.is_empty(),
        };
        differences.holds(&format!("policy: explained {policies:?}, served {policy}"), is_named);
        let shadow = shadow_denials(explained, configuration);
        let is_checked = matches!(verdict, Some("allowed" | "shadow_denied"))
            || verdict == Some("denied") && !is_unidentified(explained) && policy != ATTEMPTS;
        if is_checked {
            let served = line["shadow_policy"].as_str();
            let is_told = served.map_or(shadow.is_empty(), |served| shadow.contains(served));
            let what = format!("shadow_policy: explained {shadow:?}, served {}", line["shadow_policy"]);
            differences.holds(&what, is_told);
        }

        let because = explained["because"].as_str().unwrap();
        let route = &explained["route"]["name"];
        let is_forbidden_everywhere =
            explained["verdict"] == "forbidden" && because.contains(" at the top level");
        let is_routed = is_well_formed && !is_forbidden_everywhere;
        self.keys(exchange, &mut differences);
        if is_routed {
            differences.same("user", &explained["user"]["user"], &line["user"]);
            differences.same("route", route, &line["route"]);
        } else {
            differences.same("route of a request that is refused before", &Value::Null, &line["route"]);
        }

        // The reply of the route.
        let location = reply.header("location");
        if let Some(explained) = explained["reply"]["location"].as_str()
            && (300..400).contains(&reply.status)
        {
            differences.same("location", explained, location.unwrap_or_default());
        }
        self.quota(configuration, exchange, &mut differences);
        if status.is_none() && forwarded.len() == 1 {
            self.forwarded(configuration, exchange, &mut differences);
        } else {
            differences.same("upstream", &Value::Null, &line["upstream"]);
        }
        if is_routed && line["route"].is_string() {
            if let Some(cors) = explained["cors"].as_str() {
                let may_read = reply.header("access-control-allow-origin").is_some();
                differences.same("pages may read it", !cors.contains("may not read"), may_read);
            }
            let changes = explained["response_headers"].as_array().unwrap();
            self.meet("changed response headers", !changes.is_empty());
            for change in changes {
                let name = change["name"].as_str().unwrap();
                let served = json!(reply.header(name));
                differences.same(&format!("response header {name}"), &change["value"], &served);
            }
        }
        self.meet_all(exchange, verdict, &shadow);
        differences.found
    }

    /// The request came to a listener that, as was explained, replies itself.
    fn listener(
        &mut self,
        sent: &Sent,
        explained: &Value,
        exchange: &Exchange<'_>,
        differences: &mut Differences,
    ) {
        let Exchange { reply, line, forwarded, .. } = exchange;
        differences.same("status of the listener", &explained["status"], &json!(reply.status));
        differences.same("location", &explained["location"], &json!(reply.header("location")));
        for field in ["verdict", "policy", "route", "upstream", "user"] {
            differences.same(&format!("{field} at the listener"), &Value::Null, &line[field]);
        }
        differences.same("times forwarded", 0, forwarded.len());
        self.meet("redirect of the listener", sent.listener == Listener::Redirecting);
        let is_tls = matches!(sent.listener, Listener::Tls { .. });
        self.meet("refused by the listener for a certificate", is_tls);
    }

    /// Compares what is left of the tightest limit.
    fn quota(&self, configuration: &Configuration, exchange: &Exchange<'_>, differences: &mut Differences) {
        let Exchange { explained, reply, line, .. } = exchange;
        let Some(field) = reply.header("ratelimit") else { return };
        let name = field.split('"').nth(1).unwrap_or_default();
        let left: Option<u64> =
            field.split("r=").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
        let checks = explained["checks"].as_array().unwrap();
        // With several limits, each has a name that begins with the policy's.
        let of: Vec<_> =
            checks.iter().filter(|check| name.starts_with(check["policy"].as_str().unwrap())).collect();
        let is_inexact = configuration.inexact.iter().any(|policy| name.starts_with(policy.as_str()));
        if !is_inexact && line["source"] == "store" {
            let is_told = of.iter().any(|check| check["remaining"].as_u64() == left);
            differences.holds(&format!("{field} is not what the checks say"), is_told);
        }
    }

    /// Compares what the origin got.
    fn forwarded(
        &mut self,
        configuration: &Configuration,
        exchange: &Exchange<'_>,
        differences: &mut Differences,
    ) {
        let Exchange { sent, explained, line, forwarded, .. } = exchange;
        let head = &forwarded[0];
        let authority = line["upstream"].as_str().unwrap_or_default();
        let is_endpoint = |address: &SocketAddr| address.to_string() == authority;
        let upstream =
            configuration.upstreams.iter().find(|(_, endpoints)| endpoints.iter().any(is_endpoint));
        differences.same("upstream", &explained["upstream"], &json!(upstream.map(|(name, _)| name)));
        if let Some(url) = explained["endpoint"]["url"].as_str() {
            differences.same("endpoint", url, &format!("http://{authority}"));
            self.meet("endpoint by a hash", true);
        }
        let target = &*without_key(head.split(' ').nth(1).unwrap_or_default());
        let because = explained["route"]["because"].as_str().unwrap();
        let resolved =
            because.split("and is sent as ").nth(1).and_then(|rest| rest.split([',', ' ', ';']).next());
        match (explained["rewritten_path"].as_str(), resolved) {
            (Some(rewritten), _) => {
                self.meet("rewritten path", true);
                differences.same("path for the upstream", rewritten, target);
            }
            (None, Some(resolved)) => differences.same("path for the upstream", resolved, target),
            // Tollgate encodes other characters.
            (None, None) if !sent.target.is_ascii() => {}
            (None, None) => differences.same("path for the upstream", &*without_key(&sent.target), target),
        }
        self.keys_forwarded(configuration, exchange, differences);
        let changes = explained["request_headers"].as_array().unwrap();
        self.meet("changed request headers", !changes.is_empty());
        for change in changes {
            let name = change["name"].as_str().unwrap();
            let served = json!(header(head, name));
            differences.same(&format!("request header {name}"), &change["value"], &served);
        }
    }

    /// Compares whose key it is, and what nobody may see.
    fn keys(&mut self, exchange: &Exchange<'_>, differences: &mut Differences) {
        let Exchange { sent, explained, reply, line, .. } = exchange;
        let because = explained["because"].as_str().unwrap();
        let is_refused = explained["verdict"] == "unauthorized";
        let challenge = reply.header("www-authenticate");
        if is_refused {
            let has_error = challenge.is_some_and(|challenge| challenge.contains("error="));
            differences.holds("a challenge for who lacks a credential", challenge.is_some());
            // Nothing was wrong with what was not sent.
            differences.same("error in the challenge", !because.contains("and the request has n"), has_error);
            let fault = FAULTS.iter().find(|(reason, _)| because.contains(reason));
            differences.holds("a reason that is known", fault.is_some());
            self.meet(fault.map_or("", |(_, met)| met), fault.is_some());
        }
        // The service may challenge clients, too.
        let is_own = explained["status"].is_number();
        differences.same("challenge of Tollgate", is_refused, is_own && challenge.is_some());
        let is_told = !line["route"].is_null();
        let is_ignored = explained.to_string().contains("the API key is ignored");
        self.meet("a key that is ignored after too many wrong ones", is_told && is_ignored);
        if is_ignored {
            differences.same("customer in the log", &Value::Null, &line["customer"]);
        } else if let Some(key) = sent.keys.only.filter(|key| is_told && key.is_valid()) {
            differences.same("customer in the log", &json!(key.customer), &line["customer"]);
            differences.same("key in the log", &json!(key.id), &line["api_key"]);
        } else if is_told && sent.keys.only.is_some() {
            differences.same("customer in the log", &Value::Null, &line["customer"]);
        }
        for key in &sent.keys.concealed {
            for (place, text) in [("the log", line.to_string()), ("the explanation", explained.to_string())] {
                differences.holds(&format!("{place} has the key {key}"), !text.contains(key));
            }
            let text = format!("{:?}{}", reply.headers, reply.text());
            differences.holds(&format!("the reply has the key {key}"), !text.contains(key));
        }
        self.meet("a key in the query", !is_refused && without_key(&sent.target) != sent.target);
        if line["route"] == "usage" && reply.status == 200 && sent.method != "HEAD" {
            differences.same("customer of the limits", &line["customer"], &reply.json()["customer"]);
            self.meet("limits of a customer", true);
        }
    }

    /// Compares what the origin got of the key, and what it was told.
    fn keys_forwarded(
        &mut self,
        configuration: &Configuration,
        exchange: &Exchange<'_>,
        differences: &mut Differences,
    ) {
        let (Exchange { sent, line, forwarded, .. }, Some(settings)) = (exchange, configuration.keys) else {
            return;
        };
        let head = &forwarded[0];
        for key in &sent.keys.concealed {
            differences.same(&format!("{key} is forwarded"), settings.forward, head.contains(key));
        }
        let has_key = !sent.keys.concealed.is_empty();
        self.meet("a key that is forwarded", has_key && settings.forward);
        self.meet("a key that is removed", has_key && !settings.forward);
        let has_bearer = sent.headers.iter().any(|(_, value)| value.starts_with("Bearer tgk_"));
        self.meet("a key as a bearer token", has_bearer && !line["api_key"].is_null());
        let is_bad = has_key && line["api_key"].is_null();
        self.meet("a bad key where none is required", is_bad);
        for (header_name, field) in TOLD.iter().filter(|_| settings.tells) {
            differences.same(
                &format!("{header_name} for the upstream"),
                &line[field],
                &json!(header(head, header_name)),
            );
        }
    }

    /// Notes what has happened to the request, so that a run that misses something is noticed.
    fn meet_all(&mut self, exchange: &Exchange<'_>, verdict: Option<&str>, shadow: &BTreeSet<String>) {
        let Exchange { sent, explained, reply, line, forwarded, .. } = exchange;
        let because = explained["because"].as_str().unwrap();
        let (is_well_formed, has_route) =
            (!explained["route"].is_null(), explained["route"]["name"].is_string());
        let has = |name| sent.headers.iter().any(|(header, _)| *header == name);
        let is_preflight = sent.method == "OPTIONS" && has("access-control-request-method") && has("origin");
        let is_admitted = matches!(verdict, None | Some("allowed" | "shadow_denied"));
        let is_own = has_route && is_admitted && forwarded.is_empty();
        for status in [400, 417, 501] {
            let name = match status {
                400 => "malformed: 400",
                417 => "malformed: 417",
                _ => "malformed: 501",
            };
            self.meet(name, !is_well_formed && reply.status == status);
        }
        let route = &explained["route"];
        let is_for = |because: &Value| because.as_str().unwrap().contains("the listener is one of");
        self.meet("a route for its listener", is_well_formed && is_for(&route["because"]));
        let is_for_others =
            |passed: &Value| passed["because"].as_str().unwrap().contains("the listener is not");
        let passed_over = route["passed_over"].as_array();
        let is_passed_over = passed_over.is_some_and(|routes| routes.iter().any(is_for_others));
        self.meet("a route for other listeners", is_passed_over);
        self.meet("a client certificate", !explained["client_certificate"].is_null());
        self.meet("no route: 404", is_well_formed && !has_route && reply.status == 404);
        self.meet("no verdict", verdict.is_none());
        self.meet("forwarded", !forwarded.is_empty());
        self.meet("admitted by the policies", verdict == Some("allowed"));
        self.meet("shadow denial", verdict == Some("shadow_denied"));
        self.meet("bans of a rule in shadow", shadow.contains(RULE));
        self.meet("denied by a policy", verdict == Some("denied") && !is_unidentified(explained));
        self.meet("denied for a missing key", verdict == Some("denied") && is_unidentified(explained));
        self.meet("undecided", verdict == Some("undecided"));
        self.meet("banned by an operator", verdict == Some("banned") && line["policy"] == "ban");
        self.meet("banned by a rule", verdict == Some("banned") && line["policy"] == RULE);
        let is_forbidden = verdict == Some("forbidden");
        self.meet("forbidden at the top level", is_forbidden && because.contains("at the top level"));
        self.meet("forbidden by the route", is_forbidden && because.contains("of the route"));
        let is_unknown = is_forbidden && because.contains("the client's address is unknown");
        self.meet("forbidden, since the address is unknown", is_unknown);
        self.meet("request body too long: 413", reply.status == 413);
        let allows = reply.header("access-control-allow-origin").is_some();
        let is_answered = is_own && is_preflight;
        let is_bad = !sent.keys.concealed.is_empty() && line["api_key"].is_null();
        self.meet("a preflight with a bad key", is_answered && is_bad);
        self.meet("429: too many wrong keys", verdict == Some("denied") && line["policy"] == ATTEMPTS);
        self.meet("preflight allowed", is_answered && allows && reply.status == 204);
        self.meet("preflight refused", is_answered && !allows && reply.status == 403);
        let is_spent = is_own && !is_preflight && sent.headers.contains(&("max-forwards", "0".to_owned()));
        let is_reply = !explained["reply"].is_null();
        self.meet("spent Max-Forwards: 204", is_spent && !is_reply && reply.status == 204);
        self.meet("spent Max-Forwards: 405", is_spent && !is_reply && reply.status == 405);
        let is_redirected = is_own && (300..400).contains(&reply.status);
        self.meet("redirect of the route", is_redirected);
        self.meet("reply of the route", is_own && is_reply && !is_redirected && !is_answered);
        let lacks = is_own && reply.status == 400;
        self.meet("redirect without a value: 400", lacks && explained["upstream"].is_null());
        self.meet("rewrite without a value: 400", lacks && !explained["upstream"].is_null());
        let why_route = explained["route"]["because"].as_str().unwrap_or_default();
        self.meet("route by split_by", !forwarded.is_empty() && why_route.contains("chosen by"));
        self.meet("route by weights", !forwarded.is_empty() && why_route.contains("at random"));
        for check in explained["checks"].as_array().unwrap() {
            let because = check["because"].as_str().unwrap();
            let is_preflight = because.contains("preflight");
            self.meet("exempt", check["verdict"] == "exempt" && !is_preflight);
            self.meet("preflight not counted", check["verdict"] == "exempt" && is_preflight);
            self.meet("exempt by its plan", because == "exempt: plan:all");
            self.meet("exempt by its customer", because == "exempt: customer:umbrella");
            let is_priced = because.contains("cost set for this route");
            self.meet("priced by the route", is_priced && check["cost"].as_u64() > Some(1));
            let is_of_plan = because.starts_with("override for plan");
            let is_denied = verdict == Some("denied") && check["policy"] == line["policy"];
            self.meet("denied by a plan's limit", is_of_plan && is_denied && check["verdict"] == "denied");
            self.meet("skipped key", check["verdict"] == "skipped");
            self.meet("limited by another limit (override)", because.starts_with("override for"));
            self.meet("delayed", is_admitted && because.contains("delayed by"));
        }
    }
}

/// The verdict that the log should have, and the policies, one of which it should name.
fn verdict(explained: &Value, configuration: &Configuration) -> (Option<&'static str>, Vec<String>) {
    let because = explained["because"].as_str().unwrap();
    let shadow = shadow_denials(explained, configuration);
    let checked = || {
        let was_asked =
            |check: &Value| matches!(check["verdict"].as_str(), Some("allowed" | "denied" | "unknown"));
        match shadow.is_empty() {
            false => (Some("shadow_denied"), shadow.iter().cloned().collect()),
            true if explained["checks"].as_array().unwrap().iter().any(was_asked) => {
                (Some("allowed"), Vec::new())
            }
            true => (None, Vec::new()),
        }
    };
    match explained["verdict"].as_str().unwrap() {
        "allowed" => checked(),
        "denied" => {
            let by = because.strip_prefix("denied by ").and_then(|rest| rest.split(':').next());
            (Some("denied"), by.map(str::to_owned).into_iter().collect())
        }
        "banned" => {
            let by = if because.contains(&format!("is banned by {RULE}")) { RULE } else { "ban" };
            (Some("banned"), vec![by.to_owned()])
        }
        "forbidden" => {
            let is_allow =
                ["allow at the top level", "allow of the route"].iter().any(|by| because.contains(by));
            (Some("forbidden"), vec![if is_allow { "allow" } else { "deny" }.to_owned()])
        }
        "undecided" => (Some("undecided"), Vec::new()),
        "unauthorized" => {
            let is_known = ["has expired", "is revoked"].iter().any(|fault| because.contains(fault));
            (Some(if is_known { "expired" } else { "unauthorized" }), shadow_bans(explained).collect())
        }
        // The policies come after the route and the length, and before a path that lacks a value.
        "refused" if explained["route"]["name"].is_null() => (None, Vec::new()),
        "refused" if explained["status"] == 413 => {
            let bans: Vec<_> = shadow_bans(explained).collect();
            (Some("shadow_denied").filter(|_| !bans.is_empty()), bans)
        }
        "refused" => checked(),
        other => panic!("{other}: {explained:#}"),
    }
}

/// The shadow policies, and the rules in shadow, that would deny the request.
fn shadow_denials(explained: &Value, configuration: &Configuration) -> BTreeSet<String> {
    let checks = explained["checks"].as_array().unwrap().iter();
    let denied = checks.filter(|check| check["mode"] == "shadow" && check["verdict"] == "denied");
    let policies: BTreeSet<_> = denied.map(|check| check["policy"].as_str().unwrap().to_owned()).collect();
    // The policies come after the bans, and the last is named.
    let bans = shadow_bans(explained).filter(|_| configuration.has_trap && policies.is_empty());
    bans.chain(policies.iter().cloned()).collect()
}

/// The rules in shadow whose bans match the request. None of them exempts anybody.
fn shadow_bans(explained: &Value) -> impl Iterator<Item = String> {
    let bans = explained["bans"].as_array().unwrap().iter();
    bans.filter(|ban| ban["mode"] == "shadow").map(|ban| ban["by"].as_str().unwrap().to_owned())
}

/// Whether the request was denied because it lacks a key, so that the store was not asked.
fn is_unidentified(explained: &Value) -> bool {
    explained["because"].as_str().unwrap().contains("has none of the policy's keys")
}

/// Whether `logged` is the address, or in the network, that was explained.
fn is_client(explained: &str, logged: &str) -> bool {
    let address: IpAddr = logged.parse().unwrap();
    match explained.parse::<ipnet::IpNet>() {
        Ok(network) => network.contains(&address),
        Err(_) => explained == logged,
    }
}

impl Exchange<'_> {
    fn failure(&self, nth: usize, differences: &[String]) -> String {
        let Self { sent, explained, reply, line, forwarded, .. } = self;
        let (listener, peer) = (sent.listener, sent.peer);
        let bytes = sent.bytes();
        format!(
            "request {nth}, from {peer} to {listener:?}, explained {}:\n{}\n== {}\nexplained: {explained}\n\
             served: {} {:?} {}\nlogged: {line}\nforwarded: {forwarded:?}",
            if sent.by_url { "by its URL" } else { "by its target" },
            String::from_utf8_lossy(&bytes),
            differences.join("\n== "),
            reply.status,
            reply.headers,
            reply.text(),
        )
    }
}

/// The numbers of a policy: checks, and denials.
type Counts = BTreeMap<String, [u64; 2]>;

/// What `tollgate replay` says of the log and what was served disagree about.
fn replayed(tollgate: &Tollgate, exchanges: &[Exchange<'_>]) -> Option<String> {
    // A log does not tell what was wrong with a key: it is replayed without the requests that lack a credential.
    let is_replayed = |line: &Value| {
        line["verdict"] != "unauthorized" && line["verdict"] != "expired" && line["policy"] != ATTEMPTS
    };
    let log = fs::read_to_string(tollgate.directory().join("access.log")).unwrap();
    let kept = log.lines().filter(|line| is_replayed(&serde_json::from_str(line).unwrap()));
    let log: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(tollgate.directory().join("replayed.log"), &log).unwrap();
    let exchanges: Vec<_> = exchanges.iter().filter(|exchange| is_replayed(&exchange.line)).collect();
    let ended = tollgate_in(tollgate.directory(), &[], &["replay", "--json", "replayed.log"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut differences = Differences::between("served", "replayed");
    let mut served = Counts::new();
    let mut verdicts = BTreeMap::<Option<&str>, u64>::new();
    for Exchange { explained, line, .. } in &exchanges {
        let verdict = line["verdict"].as_str();
        // A request that its policies were not asked about, since it is exempt, was admitted.
        let is_admitted = verdict.is_none() && line["route"].is_string() && line["status"] != 413;
        *verdicts.entry(if is_admitted { Some("allowed") } else { verdict }).or_default() += 1;
        if matches!(verdict, Some("allowed" | "denied" | "shadow_denied")) {
            for check in explained["checks"].as_array().unwrap() {
                let policy = check["policy"].as_str().unwrap();
                let counts = served.entry(policy.to_owned()).or_default();
                counts[0] += u64::from(check["verdict"] == "allowed" || check["verdict"] == "denied");
                counts[1] += u64::from(check["verdict"] == "denied");
            }
        }
    }
    let verdicts = |verdict| verdicts.get(&verdict).copied().unwrap_or(0);
    let reported = |field: &str| report[field].as_u64().unwrap();
    for (field, verdict) in
        [("denied", "denied"), ("shadow_denied", "shadow_denied"), ("forbidden", "forbidden")]
    {
        differences.same(&format!("requests {field}"), verdicts(Some(verdict)), reported(field));
    }
    let (unasked, refused) = (verdicts(None), reported("refused") + reported("unchecked"));
    differences.same("requests refused before the policies", unasked, refused);
    for policy in report["policies"].as_array().unwrap() {
        let name = policy["policy"].as_str().unwrap();
        let counts = served.get(name).copied().unwrap_or_default();
        let replayed = ["checked", "denied"].map(|field| policy[field].as_u64().unwrap());
        differences.same(
            &format!("checks and denials of {name}"),
            &*format!("{counts:?}"),
            &*format!("{replayed:?}"),
        );
        differences.same(
            &format!("requests whose keys of {name} are not in the log"),
            0,
            policy["not_in_log"].as_u64().unwrap(),
        );
    }
    let denials = |policies: &Value, name: &str| -> BTreeMap<String, u64> {
        let denied = |policy: &Value| {
            let in_shadow = policy["shadow_denied"].as_u64().unwrap_or(0);
            (policy[name].as_str().unwrap().to_owned(), policy["denied"].as_u64().unwrap() + in_shadow)
        };
        let policies = policies["policies"].as_array().unwrap().iter();
        policies.map(denied).filter(|(policy, _)| policy != ATTEMPTS).collect()
    };
    let (replayed, mut counted) = (denials(&report, "policy"), BTreeMap::new());
    // They are counted every tenth of a second, on a busy machine later.
    for _ in 0..1000 {
        counted = denials(&tollgate.admin("GET", "/v1/policies").json(), "name");
        if counted == replayed {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    differences.same(
        "denials of each policy, by /v1/policies",
        &*format!("{counted:?}"),
        &*format!("{replayed:?}"),
    );
    (!differences.found.is_empty())
        .then(|| format!("replay:\n== {}\n{report:#}\n{log}", differences.found.join("\n== ")))
}
