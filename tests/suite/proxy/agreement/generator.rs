//! Random configurations, each of them valid, and random requests for them. Few names, addresses and paths, so that
//! requests meet the conditions and the limits of the configurations often.

use std::{collections::BTreeMap, net::SocketAddr};

use fastrand::Rng;

use super::keys::{self, Material, SentKeys};

/// Long enough that no window ends within a test, wherever it begins.
pub const WINDOW: &str = "30d";

/// The route, the policy and the client that the rule for bans is made for.
pub const TRAP: &str = "/trap";
pub const TRAPPED: &str = "203.0.113.3";

/// The names of the upstreams, by the number of their origins.
const UPSTREAMS: [(&str, usize); 3] = [("one", 1), ("two", 1), ("pool", 2)];
/// The number of origins of a configuration.
pub const ORIGINS: usize = 4;

/// The address of the listener that redirects, and of the one with TLS. Explanations name them like this.
pub const REDIRECTING: &str = "127.0.0.2:0";
pub const TLS: &str = "127.0.0.3:0";

/// What kind of configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Any,
    /// All that matters to a decision is in the access log.
    Replayable,
    /// Its store is never available.
    WithoutStore,
}

/// The files of a listener with TLS.
pub struct TlsFiles {
    pub cert: String,
    pub key: String,
    pub ca: String,
}

/// A configuration, and what has to be known about it.
pub struct Configuration {
    pub yaml: String,
    pub kind: Kind,
    /// The keys that an operator bans before the requests.
    pub bans: Vec<&'static str>,
    /// Whether a rule bans the client that runs into the trap.
    pub has_trap: bool,
    pub has_tls: bool,
    /// Policies whose units come back in the course of the test.
    pub inexact: Vec<String>,
    /// Whether and how it has API keys.
    pub keys: Option<keys::Settings>,
    /// Whether users are read from tokens in `Authorization`.
    reads_tokens: bool,
    /// The endpoints of each upstream.
    pub upstreams: Vec<(String, Vec<SocketAddr>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    Plain,
    Redirecting,
    Tls { has_certificate: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Length(usize),
    Chunked(usize),
}

/// A request, to be explained and to be sent.
#[derive(Debug)]
pub struct Sent {
    pub listener: Listener,
    pub peer: &'static str,
    pub method: &'static str,
    pub target: String,
    /// Whether it is explained by its URL, rather than by its target and its host.
    pub by_url: bool,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
    pub keys: SentKeys,
}

pub struct Dice(pub Rng);

impl Dice {
    pub fn chance(&mut self, percent: u8) -> bool {
        self.0.u8(..100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    /// One of these, for so many of a hundred.
    pub fn maybe<T: Copy>(&mut self, percent: u8, from: &[T]) -> Option<T> {
        self.chance(percent).then(|| self.pick(from))
    }

    /// Up to `most` of these names, rather more than fewer, each once.
    fn some(&mut self, most: usize, from: &[String]) -> Vec<String> {
        let mut names = from.to_vec();
        self.0.shuffle(&mut names);
        let count = self.0.usize(..=most).max(self.0.usize(..=most));
        names.truncate(count);
        names
    }
}

fn mapping(settings: &[String]) -> String {
    format!("{{ {} }}", settings.join(", "))
}

/// A configuration before these origins.
pub fn configuration(
    seed: u64,
    kind: Kind,
    origins: &[SocketAddr],
    tls: &TlsFiles,
    material: &Material,
) -> Configuration {
    let dice = &mut Dice(Rng::with_seed(seed));
    let (has_tls, has_trap) = (dice.chance(40), kind == Kind::Any && dice.chance(85));
    let mut yaml = String::from("workers: 1\naccess_log: { format: json, to: access.log }\n");
    yaml += &listeners(dice, has_tls.then_some(tls));
    yaml += "trusted_proxies: [127.0.0.1]\n";
    if kind == Kind::WithoutStore {
        yaml += "store: { redis: { url: \"redis://127.0.0.1:1\", breaker: { failures: 1000 } } }\n";
    }
    yaml += &access(dice, "", "\n", [25, 12]);
    if let Some(paths) = dice.maybe(15, &["refuse", "pass"]) {
        yaml += &format!("paths: {paths}\n");
    }
    if let Some(header) = dice.maybe(8, &["forwarded", "x-real-ip"]).filter(|_| kind == Kind::Any) {
        yaml += &format!("client_address: {{ header: {header} }}\n");
    }
    if dice.chance(15) {
        yaml += "client_limits: { max_body: 15 }\n";
    }
    let has_keys = dice.chance(60);
    let users = match has_keys {
        true => keyed_user_sources(dice, material),
        false => user_sources(dice, kind, has_tls).to_owned(),
    };
    yaml += &users;
    let keys = has_keys.then(|| keys::settings(dice, kind, &material.keys()));
    yaml.extend(keys.as_ref().map(|(_, text)| text.as_str()));
    let keys = keys.map(|(settings, _)| settings);
    let of_keys = has_keys && keys::are_replayed(kind);
    // From a hash, nobody can tell whether a condition names the user.
    if dice.chance(15) && (kind != Kind::Replayable || users != VERIFIED) {
        yaml += "abuse: { users: hashed, secret: 0123456789abcdef0123456789abcdef }\n";
    }
    let names: Vec<String> = (0..dice.0.usize(2..7)).map(|nth| format!("limit-{nth}")).collect();
    let mut inexact = Vec::new();
    yaml += "policies:\n";
    for name in &names {
        let (settings, is_inexact) = policy(dice, kind, &users, of_keys);
        yaml += &format!("  {name}: {}\n", mapping(&settings));
        inexact.extend(is_inexact.then(|| name.clone()));
    }
    if has_trap {
        yaml += &format!("  trap: {{ algorithm: fixed_window, key: ip, limit: 1/{WINDOW} }}\n");
        yaml += &ban_rule(dice, &users);
    }
    if keys.is_some_and(|keys| keys.has_plans) {
        yaml += &keys::plans(dice, &names, &inexact);
    }
    let mut left = origins.iter().copied();
    let upstreams: Vec<(String, Vec<SocketAddr>)> = UPSTREAMS
        .iter()
        .map(|(name, count)| ((*name).to_owned(), left.by_ref().take(*count).collect()))
        .collect();
    yaml += "upstreams:\n";
    for (name, endpoints) in &upstreams {
        yaml += &format!("  {name}: {}\n", mapping(&upstream(dice, endpoints, &names)));
    }
    yaml += "routes:\n";
    if has_trap {
        yaml += &format!(
            "  - {{ name: trap, path: {TRAP}, reply: {{ status: 204 }}, policies: [trap], require: none }}\n"
        );
    }
    if has_keys && dice.chance(50) && kind != Kind::WithoutStore {
        yaml += "  - { name: usage, path: /usage, usage: true }\n";
    }
    for nth in 0..dice.0.usize(4..10) {
        yaml += &format!("  - {}\n", mapping(&route(dice, kind, nth, &names, &users, has_keys)));
    }
    if dice.chance(80) {
        let policies = dice.some(2, &names).join(", ");
        yaml += &format!("  - {{ name: rest, path: /*, policies: [{policies}], {} }}\n", action(dice, "/*"));
    }
    let bans = ["ip:203.0.113.2", "ip:198.51.100.0/24", "user:bob", "ip:2001:db8:1::/64"];
    let mut banned = Vec::new();
    if kind == Kind::Any {
        banned.extend(bans.into_iter().filter(|_| dice.chance(12)));
    }
    let reads_tokens = users.contains("jwt");
    let mut yaml = with_prices(&mut Dice(Rng::with_seed(!seed)), &yaml, &names);
    // No log has the listener.
    if kind != Kind::Replayable {
        // With these numbers, the rare outcomes happen as often as without listeners.
        yaml = with_listeners(&mut Dice(Rng::with_seed(seed.rotate_left(32) ^ 10)), &yaml, has_tls);
    }
    Configuration { yaml, kind, bans: banned, has_trap, has_tls, inexact, keys, reads_tokens, upstreams }
}

/// The configuration with prices for some of the policies that routes and upstreams name.
fn with_prices(dice: &mut Dice, yaml: &str, policies: &[String]) -> String {
    let most: BTreeMap<&str, u64> =
        policies.iter().filter_map(|policy| Some((policy.as_str(), most_units(yaml, policy)?))).collect();
    let mut priced = String::new();
    for line in yaml.split_inclusive('\n') {
        let Some((before, rest)) = line.split_once("policies: [") else {
            priced += line;
            continue;
        };
        let (names, after) = rest.split_once(']').unwrap();
        let mut named = |name: &str| match most.get(name) {
            Some(&most) if dice.chance(35) => format!("{{ name: {name}, cost: {} }}", dice.0.u64(1..=most)),
            _ => name.to_owned(),
        };
        let names: Vec<String> = names.split(", ").map(&mut named).collect();
        priced += &format!("{before}policies: [{}]{after}", names.join(", "));
    }
    priced
}

/// The configuration with some of the routes for some of the listeners.
fn with_listeners(dice: &mut Dice, yaml: &str, has_tls: bool) -> String {
    let lists = ["plain", "plain, redirecting", "redirecting", "plain, secure", "secure"];
    let lists = if has_tls { &lists[..] } else { &lists[..3] };
    let line = |line: &str| match line.strip_prefix("  - { name: r") {
        Some(rest) if dice.chance(15) => {
            format!("  - {{ listeners: [{}], name: r{rest}\n", dice.pick(lists))
        }
        _ => format!("{line}\n"),
    };
    yaml.lines().map(line).collect()
}

/// The most that a request may cost. `None`: each costs one unit.
fn most_units(yaml: &str, policy: &str) -> Option<u64> {
    let settings = yaml.lines().find(|line| line.starts_with(&format!("  {policy}: ")))?;
    if settings.contains("algorithm: distinct") || settings.contains("algorithm: concurrency") {
        return None;
    }
    let plans = yaml.lines().filter_map(|line| line.split_once(&format!(" {policy}: "))?.1.split(',').next());
    let limits = [settings].into_iter().chain(plans).flat_map(|text| {
        let mut parts: Vec<&str> = text.split(&format!("/{WINDOW}")).collect();
        parts.pop();
        parts
    });
    let limit = |text: &str| {
        let digits = text.rfind(|c: char| !c.is_ascii_digit()).map_or(text, |last| &text[last + 1..]);
        digits.parse::<u64>().unwrap()
    };
    let burst = settings.split_once("burst: ").map(|(_, rest)| rest[..1].parse().unwrap());
    limits.map(limit).chain(burst).min()
}

fn listeners(dice: &mut Dice, tls: Option<&TlsFiles>) -> String {
    let redirect = dice.pick(&["https", "{ to: https, port: 8443 }", "{ to: https, hsts: 1d }"]);
    let mut yaml = format!(
        "listeners:\n  - {{ address: \"127.0.0.1:0\", name: plain }}\n  - {{ address: \"{REDIRECTING}\", name: redirecting, redirect: {redirect} }}\n"
    );
    if let Some(TlsFiles { cert, key, ca }) = tls {
        let auth = dice.pick(&["required", "{ required: 401 }", "optional"]);
        yaml += &format!(
            "  - {{ address: \"{TLS}\", name: secure, tls: {{ certificates: [{{ cert: {cert}, key: {key} }}], client_ca: {ca}, client_auth: {auth} }} }}\n"
        );
    }
    yaml
}

/// `deny` and `allow`, for so many of a hundred. The client of the trap may always send requests.
fn access(dice: &mut Dice, before: &str, after: &str, [deny, allow]: [u8; 2]) -> String {
    let mut text = String::new();
    let denied = ["192.0.2.0/24", "203.0.113.4", "\"2001:db8:1::/48\"", "198.51.100.0/24, 203.0.113.1"];
    if let Some(denied) = dice.maybe(deny, &denied) {
        text += &format!("{before}deny: [{denied}]{after}");
    }
    let allowed = [
        "203.0.113.0/24, 127.0.0.0/8, \"2001:db8::/32\"",
        "203.0.113.0/30, 192.0.2.0/24, 198.51.100.0/24",
        "203.0.113.0/29, 127.0.0.1",
    ];
    if let Some(allowed) = dice.maybe(allow, &allowed) {
        text += &format!("{before}allow: [{allowed}]{after}");
    }
    text
}

const VERIFIED: &str = "user: [{ header: x-user-id }]\n";

fn user_sources(dice: &mut Dice, kind: Kind, has_tls: bool) -> &'static str {
    let all = [
        VERIFIED,
        VERIFIED,
        "user: [{ header: x-user-id, from: anyone }]\n",
        "user: [{ header: x-user-id }, { cookie: session }]\n",
        "user: [{ cookie: session }, basic]\n",
        "user: [basic, { header: x-user-id, from: anyone }]\n",
        "user: [{ tls: subject }, { header: x-user-id }]\n",
    ];
    dice.pick(if has_tls && kind == Kind::Any { &all } else { &all[..all.len() - 1] })
}

/// Where users come from beside API keys.
fn keyed_user_sources(dice: &mut Dice, material: &Material) -> String {
    let token = format!("jwt: {{ key: {{ file: \"{}\" }}, algorithm: ES256 }}", material.issuer.display());
    let sources = dice.pick(&[
        "",
        "user: [{ api_key: customer }]\n",
        "user: [{ header: x-user-id }, { api_key: customer }]\n",
        "user: [{ api_key: api_key }, { cookie: session }]\n",
        "user: [{ TOKEN }, { api_key: customer }]\n",
        "user: [{ TOKEN }]\n",
        "user: [{ TOKEN }]\n",
        VERIFIED,
    ]);
    sources.replace("TOKEN", &token)
}

/// Whether one of the sources verifies users.
fn has_verified(users: &str) -> bool {
    users.contains("header: x-user-id }")
}

/// The settings of a policy, and whether its units come back in the course of the test. `of_keys`: whether it may be for
/// API keys.
fn policy(dice: &mut Dice, kind: Kind, users: &str, of_keys: bool) -> (Vec<String>, bool) {
    let can_replay = kind == Kind::Replayable;
    let algorithms = [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "sliding_counter",
        "single_counter",
        "metadata_list",
        "gcra",
        "gcra",
        "distinct",
        "concurrency",
    ];
    let mut algorithm = dice.pick(&algorithms);
    if can_replay && algorithm == "concurrency" {
        algorithm = "fixed_window";
    }
    let in_log = ["ip", "ip", "user", "ip+path", "[ip, user]", "[user, path]", "path", "host", "route"];
    let others = ["\"header:x-version\"", "[\"cookie:session\", user]", "method", "\"query:key\"", "global"];
    let is_other = !can_replay && dice.chance(30);
    let mut key = dice.pick(if is_other { &others[..] } else { &in_log });
    if algorithm == "distinct" {
        key = dice.pick(&["ip", "host", "route", "[ip, route]"]);
    }
    if of_keys && dice.chance(50) {
        key = dice.pick(&["customer", "customer", "api_key", "plan", "[customer, ip]", "customer+path"]);
    }
    let mut settings = vec![format!("algorithm: {algorithm}"), format!("key: {key}")];
    let limit = dice.pick(&[1, 1, 2, 2, 3]);
    let (is_distinct, is_concurrency) = (algorithm == "distinct", algorithm == "concurrency");
    let mut is_inexact = is_concurrency;
    if algorithm == "gcra" && !can_replay && dice.chance(35) {
        // It delays for a moment, also where one request comes long after the other, and never denies.
        settings.push("limit: 2/1s, burst: 1, delay: 30s".to_owned());
        is_inexact = true;
    } else if is_concurrency {
        // More than there ever are: a lease ends a moment after its response.
        settings.push("limit: 5".to_owned());
    } else if matches!(algorithm, "fixed_window" | "sliding_window") && dice.chance(30) {
        settings.push(format!("limits: [{limit}/{WINDOW}, {}/60d]", limit + 1));
    } else {
        settings.push(format!("limit: {limit}/{WINDOW}"));
        if algorithm == "gcra" {
            settings.extend(dice.maybe(30, &["burst: 1", "burst: 2", "delay: 1s"]).map(str::to_owned));
        }
    }
    if is_distinct {
        settings.push(format!("value: {}", dice.pick(&["user", "user", "path"])));
    }
    settings.extend(
        dice.maybe(50, &["missing: deny", "missing: deny", "missing: skip", "missing: ip"])
            .map(str::to_owned),
    );
    let is_shadow = dice.chance(25);
    if is_shadow {
        settings.push("mode: shadow".to_owned());
    }
    settings.extend(dice.maybe(20, &["reply: { status: 503 }", "reply: { status: 403 }"]).map(str::to_owned));
    if !is_distinct && !is_concurrency {
        let is_admitted_at_all =
            limit > 1 && !is_inexact && !settings.iter().any(|setting| setting.starts_with("burst: 1"));
        let cost = match can_replay || dice.chance(50) {
            true => Some("cost: 2").filter(|_| is_admitted_at_all),
            false => Some("cost: { header: x-cost, default: 1, max: 3 }"),
        };
        settings.extend(cost.filter(|_| dice.chance(25)).map(str::to_owned));
        if !is_inexact && dice.chance(15) {
            settings.push("count_denied: true".to_owned());
        } else if !is_inexact && !can_replay && !is_shadow && dice.chance(15) {
            // In shadow, units come back a moment after the response.
            settings.push("count: { statuses: [401] }".to_owned());
            is_inexact = true;
        }
    }
    if !can_replay {
        settings.extend(dice.maybe(15, &["preflight: true"]).map(str::to_owned));
    }
    // No log has the headers; it has the users, but not who vouches for them if there are several sources.
    let by_address = ["203.0.113.2", "\"2001:db8:1::/48\"", "\"user:ann\"", "\"header:x-vip=1\""];
    let known = match (can_replay, users) {
        (false, users) if has_verified(users) => 4,
        (true, VERIFIED) => 3,
        _ => 2,
    };
    if of_keys && dice.chance(25) {
        settings.push(format!("exempt: [{}]", dice.pick(&["\"customer:umbrella\"", "\"api_key:acme2\""])));
    } else if let Some(exempt) = dice.maybe(25, &by_address[..known]) {
        settings.push(format!("exempt: [{exempt}]"));
    }
    let overrides = ["ip: 203.0.113.0/30", "user: acme", "\"header:x-plan\": gold"];
    let of_customers = ["customer: globex", "plan: pro", "api_key: umbrella1"];
    let of_keys = if of_keys { &of_customers[..] } else { &[] };
    let overrides = [&overrides[..known - 1], of_keys].concat();
    if !is_inexact && let Some(of) = dice.maybe(30, &overrides) {
        settings.push(format!("overrides: [{{ {of}, limit: {}/{WINDOW} }}]", limit + 2));
    }
    if kind == Kind::WithoutStore {
        settings
            .extend(dice.maybe(60, &["on_store_error: deny", "on_store_error: allow"]).map(str::to_owned));
    }
    (settings, is_inexact)
}

/// A rule that bans who runs into the trap.
fn ban_rule(dice: &mut Dice, users: &str) -> String {
    let mut rule = vec!["key: ip, policies: [trap], after: 1/1h, for: 1h, jitter: 0%".to_owned()];
    let exempt = ["\"header:x-vip=1\"", "\"user:ann\""];
    match dice.maybe(40, &exempt[..if has_verified(users) { 2 } else { 1 }]) {
        Some(exempt) => rule.push(format!("exempt: [{exempt}]")),
        None => rule.extend(dice.maybe(50, &["mode: shadow"]).map(str::to_owned)),
    }
    rule.extend(dice.maybe(30, &["reply: { status: 429 }"]).map(str::to_owned));
    format!("bans:\n  trapped: {}\n", mapping(&rule))
}

fn upstream(dice: &mut Dice, endpoints: &[SocketAddr], policies: &[String]) -> Vec<String> {
    let endpoints: Vec<_> = endpoints.iter().map(|address| format!("\"http://{address}\"")).collect();
    let mut settings = vec![format!("endpoints: [{}]", endpoints.join(", "))];
    if endpoints.len() > 1 {
        settings.push(format!("balance: {{ hash: {} }}", dice.pick(&["ip", "user", "path"])));
    }
    if dice.chance(25) {
        settings.push(format!("policies: [{}]", dice.some(1, policies).join(", ")));
    }
    settings
}

fn route(
    dice: &mut Dice,
    kind: Kind,
    nth: usize,
    policies: &[String],
    users: &str,
    has_keys: bool,
) -> Vec<String> {
    let can_replay = kind == Kind::Replayable;
    let paths = ["/a", "/a/*", "\"/b/{id}\"", "\"~^/c/[0-9]+$\"", "/d/*", "/e", "\"/b/{id}/x\"", "/*"];
    let path = dice.pick(&paths);
    let mut settings = vec![format!("name: r{nth}"), format!("path: {path}")];
    let mut add = |setting: Option<&str>| settings.extend(setting.map(str::to_owned));
    add(dice.maybe(25, &["hosts: [api.example.com]", "hosts: [\"*.example.org\"]"]));
    add(dice.maybe(20, &["methods: [GET]", "methods: [POST, PUT]", "methods: [GET, OPTIONS, TRACE]"]));
    add(dice.maybe(10, &["query: { v: \"1\" }"]));
    add(dice.maybe(15, &["max_body: 10", "max_body: 5", "max_body: 0"]));
    add(dice.maybe(15, &["paths: refuse", "paths: pass", "paths: normalise"]));
    add(dice.maybe(12, &["match: { case: sensitive }", "match: { trailing_slash: exact }"]));
    if !can_replay {
        add(dice.maybe(10, &["headers: { x-version: \"2\" }"]));
        add(dice.maybe(8, &["cookie: { beta: \"1\" }"]));
        add(dice.maybe(
            35,
            &[
                "cors: { origins: [\"https://app.example.com\"], methods: [GET, PUT] }",
                "cors: { origins: \"*\" }",
                "cors: { origins: [\"https://*.example.com\"], methods: \"*\", max_age: 10m }",
            ],
        ));
    }
    let has_users = has_verified(users) || users.contains("jwt") || has_keys && users.is_empty();
    match (has_keys, has_users) {
        (true, true) => add(dice.maybe(
            60,
            &["require: none", "require: api_key", "require: user", "require: any", "require: any"],
        )),
        (true, false) => add(dice.maybe(40, &["require: none", "require: none", "require: api_key"])),
        (false, true) => add(dice.maybe(10, &["require: user"])),
        (false, false) => {}
    }
    let access = access(dice, ", ", "", [15, 10]);
    settings.extend(access.strip_prefix(", ").map(str::to_owned));
    settings.push(format!("policies: [{}]", dice.some(2, policies).join(", ")));
    let action = action(dice, path);
    if action.starts_with("upstream") {
        let edits =
            "request_headers: { set: { x-by: \"{client_address}\", x-of: \"{user}\" }, remove: [x-plan] }";
        settings.extend(dice.maybe(20, &[edits]).map(str::to_owned));
    }
    let edits = match has_keys {
        true => "response_headers: { set: { x-to: \"{customer}\", x-for: \"{plan}/{api_key}\" } }",
        false => "response_headers: { set: { x-to: \"{host}\", x-for: \"{user}\" } }",
    };
    settings.extend(dice.maybe(20, &[edits]).map(str::to_owned));
    settings.push(action);
    settings
}

/// What a route with this path does.
fn action(dice: &mut Dice, path: &str) -> String {
    let captured = if path.contains("{id}") {
        "{id}"
    } else if path.ends_with("/*") {
        "{rest}"
    } else {
        "{host}"
    };
    match dice.0.u8(..100) {
        0..12 => {
            let reply = dice.pick(&[
                "{ status: 200, body: own }",
                "{ status: 204 }",
                "{ status: 410, body: gone }",
                "{ status: 503, body: closed }",
            ]);
            format!("reply: {reply}")
        }
        12..30 => {
            let redirect = dice.pick(&[
                "{ path: \"/users/{user}\" }",
                "{ path: \"/users/{user}\", status: 302 }",
                "{ scheme: https }",
                "{ host: new.example.com, status: 307, query: drop }",
                "{ path: \"/new/CAPTURED\", status: 303 }",
                "{ to: \"https://new.example.com/CAPTURED\", status: 301 }",
            ]);
            format!("redirect: {}", redirect.replace("CAPTURED", captured))
        }
        30..45 => {
            let upstreams = dice.pick(&[
                "upstreams: [{ name: one, weight: 1 }, { name: two, weight: 0 }]",
                "upstreams: [{ name: one, weight: 0 }, { name: two, weight: 1 }]",
                "upstreams: [{ name: pool }, { name: two }], split_by: ip",
                "upstreams: [{ name: one }, { name: two }], split_by: user",
                "upstreams: [{ name: one, weight: 3 }, { name: pool }], split_by: path",
            ]);
            upstreams.to_owned() + &rewrite(dice, path, captured)
        }
        _ => format!("upstream: {}", dice.pick(&["one", "two", "pool"])) + &rewrite(dice, path, captured),
    }
}

fn rewrite(dice: &mut Dice, path: &str, captured: &str) -> String {
    let rewrites = [
        "path: \"/users/{user}\"",
        "path: \"/users/{user}/CAPTURED\"",
        "path: \"/from/{client_address}\"",
        "path: \"/v2/CAPTURED\"",
        "path: \"/CAPTURED\"",
        "strip_prefix: /a",
    ];
    let begins = if path.starts_with("/a") { rewrites.len() } else { rewrites.len() - 1 };
    let rewrite = dice.maybe(40, &rewrites[..begins]);
    rewrite
        .map_or_else(String::new, |path| format!(", rewrite: {{ {} }}", path.replace("CAPTURED", captured)))
}

/// Requests for a configuration.
pub fn requests(seed: u64, configuration: &Configuration, material: &Material, count: usize) -> Vec<Sent> {
    // Other numbers than the configuration has been made from.
    let dice = &mut Dice(Rng::with_seed(!seed));
    (0..count).map(|_| request(dice, configuration, material)).collect()
}

fn request(dice: &mut Dice, configuration: &Configuration, material: &Material) -> Sent {
    let can_replay = configuration.kind == Kind::Replayable;
    let listener = match dice.0.u8(..100) {
        0..12 => Listener::Redirecting,
        12..24 if configuration.has_tls => Listener::Tls { has_certificate: !can_replay && dice.chance(60) },
        _ => Listener::Plain,
    };
    let peer = dice.pick(&["127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.7", "127.0.0.8"]);
    let methods = ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"];
    let is_preflight = !can_replay && dice.chance(11);
    let method = match is_preflight {
        true => "OPTIONS",
        false => dice.maybe(12, &["OPTIONS", "TRACE"]).unwrap_or_else(|| dice.pick(&methods)),
    };
    let mut headers: Vec<(&'static str, String)> = Vec::new();
    let hosts =
        ["api.example.com", "api.example.com", "www.example.org", "other.example", "API.example.com:80"];
    headers.push(("host", dice.pick(&hosts).to_owned()));
    if !can_replay && dice.chance(3) {
        match dice.pick(&["two", "b/d", ""]) {
            "two" => headers.push(("host", "other.example".to_owned())),
            malformed => headers[0].1 = malformed.to_owned(),
        }
    }
    if is_preflight {
        headers.push(("access-control-request-method", dice.pick(&["GET", "PUT", "PATCH"]).to_owned()));
    }
    if is_preflight || !can_replay && dice.chance(10) {
        let origin = dice.pick(&["https://app.example.com", "https://evil.test"]);
        headers.push(("origin", origin.to_owned()));
    }
    if matches!(method, "OPTIONS" | "TRACE")
        && let Some(left) = dice.maybe(60, &["0", "0", "0", "1", "none"])
    {
        headers.push(("max-forwards", left.to_owned()));
    }
    let has_line = |percent, name, values: &[&str], dice: &mut Dice| {
        dice.maybe(percent, values).map(|value| (name, value.to_owned()))
    };
    for (percent, name, values) in [
        (45, "x-user-id", &["ann", "bob", "acme"][..]),
        (20, "cookie", &["session=ann", "session=acme; beta=1", "beta=1"]),
        (15, "authorization", &["Basic YW5uOnA=", "Basic Ym9iOnA=", "Basic !"]),
        (30, "x-api-key", &["k1", "k2"]),
        (25, "x-version", &["2", "1"]),
        (10, "x-vip", &["1"]),
        (15, "x-plan", &["gold"]),
        (15, "x-cost", &["2", "9", "x"]),
        (10, "x-want", &["401"]),
        (10, "x-forwarded-proto", &["https"]),
    ] {
        headers.extend(has_line(percent, name, values, dice));
    }
    let addresses = [
        "203.0.113.1",
        "203.0.113.2",
        TRAPPED,
        "203.0.113.4",
        "203.0.113.5",
        "198.51.100.9",
        "192.0.2.7",
        "2001:db8:1::1",
        "2001:db8:1::2",
        "2001:db8:2::1",
    ];
    if dice.chance(85) {
        let client = dice.pick(&addresses);
        let fields = ["CLIENT", "CLIENT", "CLIENT", "192.0.2.1, CLIENT", "CLIENT, 127.0.0.1"];
        let malformed = ["CLIENT, nonsense", "nonsense", "CLIENT, unknown, 127.0.0.1"];
        let field = match !can_replay && dice.chance(12) {
            true => dice.pick(&malformed),
            false => dice.pick(&fields),
        };
        headers.push(("x-forwarded-for", field.replace("CLIENT", client)));
        if !can_replay && dice.chance(3) {
            headers.push(("x-forwarded-for", dice.pick(&addresses).to_owned()));
        }
        headers.push(("x-real-ip", client.to_owned()));
        let node = if client.contains(':') { format!("[{client}]") } else { client.to_owned() };
        headers.push(("forwarded", format!("for=\"{node}\"")));
    }
    let mut body = match method {
        "POST" | "PUT" => Body::Length(dice.pick(&[0, 3, 6, 11, 16])),
        "GET" | "DELETE" | "OPTIONS" => dice.maybe(4, &[3, 12]).map_or(Body::None, Body::Length),
        _ => Body::None,
    };
    if method == "POST" && dice.chance(12) {
        body = Body::Chunked(4);
    }
    if !can_replay {
        headers.extend(has_line(3, "expect", &["x", "100-continue, x"], dice));
        if method == "POST" && dice.chance(5) {
            body = Body::Chunked(4);
            headers.push(("transfer-encoding", "gzip, chunked".to_owned()));
        }
    }
    match body {
        Body::Length(length) => headers.push(("content-length", length.to_string())),
        Body::Chunked(_) if !headers.iter().any(|(name, _)| *name == "transfer-encoding") => {
            headers.push(("transfer-encoding", "chunked".to_owned()));
        }
        _ => {}
    }
    let mut target = target(dice, method);
    let keys = configuration.keys.map(|settings| {
        if dice.chance(4) {
            target = "/usage".to_owned();
        }
        keys::add(dice, settings, material, configuration.reads_tokens, &mut headers, &mut target)
    });
    let has_one_host = headers.iter().filter(|(name, value)| *name == "host" && value.contains('.')).count()
        == 1
        && headers.iter().filter(|(name, _)| *name == "host").count() == 1;
    let by_url = dice.chance(30) && target.starts_with('/') && has_one_host;
    Sent { listener, peer, method, target, by_url, headers, body, keys: keys.unwrap_or_default() }
}

fn target(dice: &mut Dice, method: &str) -> String {
    if method == "OPTIONS" && dice.chance(4) {
        return "*".to_owned();
    }
    let paths = [
        "/a", "/a", "/a/x", "/a/y", "/A/x", "/b/7", "/b/8", "/b/7/x", "/b/", "/c/12", "/c/x", "/d/1/2",
        "/d/", "/e", "/e/", "/nowhere",
    ];
    let odd = [
        "/a/../b/7",
        "/a/./x",
        "/a/%2e%2e/e",
        "/a/..%2fx",
        "/a/%zz",
        "/b/%",
        "//a",
        "/a%2Fx",
        "/b/a;v=1",
        "/c/é",
        "/d/..",
        "/b/%2e%2e%2fx",
    ];
    let path = if dice.chance(10) { dice.pick(&odd) } else { dice.pick(&paths) };
    let query = dice.maybe(25, &["?v=1", "?key=k1", "?v=1&key=k2", "?", "?x=../y"]).unwrap_or_default();
    path.to_owned() + query
}
