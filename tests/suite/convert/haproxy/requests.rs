//! Requests at the edges of a configuration.

use super::{
    super::{
        dice::Dice,
        origins::WANT,
        sent::{Body, PEERS, Sent},
    },
    frontends::Port,
    generator::Targets,
};

const REQUESTS: usize = 40;
/// What `monitor-uri` is for.
pub const MONITORED: &str = "/alive";

pub fn requests(dice: &mut Dice, targets: &Targets) -> Vec<Sent> {
    let open: Vec<Port> = targets.ports.iter().filter(|port| port.is_open).copied().collect();
    (0..REQUESTS).map(|_| request(dice, targets, &open)).collect()
}

/// Fields that claim something, or that some rule names. Each value is sent now and then.
const FIELDS: [(&str, &[&str]); 16] = [
    ("x-key", &["secret", "secrets", "Secret", "other"]),
    ("x-plan", &["gold", "silver", "gold, silver", "silver,gold", "golden"]),
    ("user-agent", &["curl/8", "GoodBot/1.0"]),
    ("cookie", &["beta=yes", "beta=no; session=1", "session=abc; beta=yes", "xbeta=yes"]),
    ("origin", &["https://a.test", "https://evil.test"]),
    ("referer", &["https://x.a.test/", "https://evil.test/?a.test"]),
    ("authorization", &["Basic YW5uOnNlY3JldA==", "Basic YW5uOndyb25n", "Bearer t"]),
    ("accept-encoding", &["gzip"]),
    ("x-user", &["root"]),
    ("x-forwarded-for", &["10.0.0.1", "127.0.0.1, 10.0.0.2"]),
    ("x-forwarded-proto", &["https"]),
    ("x-forwarded-port", &["443"]),
    ("x-real-ip", &["127.0.0.1"]),
    ("x-client-ip", &["127.0.0.1"]),
    ("x-client", &["acme"]),
    (WANT, &["404", "500", "401", "302", "204"]),
];
const QUERIES: [&str; 9] = [
    "a=1",
    "debug=1",
    "debug=1&token=t",
    "token=t&debug=0",
    "token=",
    "xdebug=1",
    "debug",
    "debug=2&debug=1",
    "a=%20b&c=d%2fe",
];

fn request(dice: &mut Dice, targets: &Targets, open: &[Port]) -> Sent {
    let listener = dice.number(..open.len());
    let is_everywhere = open[listener].listener.address.ip().is_unspecified();
    let host = host(dice, &targets.hosts);
    let tls_name = match host.as_str() {
        name @ ("a.test" | "b.test" | "x.a.test" | "x.b.test" | "c.test") if dice.chance(90) => {
            name.to_owned()
        }
        _ => dice.pick(&["a.test", "b.test", "other.test"]).to_owned(),
    };
    let path = path(dice, &targets.paths);
    // HAProxy's `monitor-uri` has none; Tollgate answers with any.
    let query = if path.replace("%61", "a").ends_with(MONITORED) {
        String::new()
    } else {
        query(dice, &targets.queries)
    };
    let mut headers = vec![("host".to_owned(), host)];
    for (name, value) in &targets.fields {
        if dice.chance(25) && !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.clone(), value.clone()));
        }
    }
    for (name, values) in FIELDS {
        if dice.chance(8) && !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), dice.pick(values).to_owned()));
        }
    }
    let method = dice.weighted(&[
        (24, "GET"),
        (6, "POST"),
        (3, "HEAD"),
        (3, "OPTIONS"),
        (2, "DELETE"),
        (2, "PUT"),
        (1, "PATCH"),
        (1, "PURGE"),
        (1, "TRACE"),
        (1, "get"),
    ]);
    let body = match method {
        "POST" | "PUT" | "PATCH" | "DELETE" => {
            dice.pick(&[Body::None, Body::Length(5), Body::Length(200), Body::Chunked(20)])
        }
        _ => Body::None,
    };
    Sent {
        listener,
        peer: dice.pick(&PEERS).parse().unwrap(),
        to: dice
            .maybe(40, &["127.0.0.3", "127.0.0.2"])
            .filter(|_| is_everywhere)
            .map(|to| to.parse().unwrap()),
        tls_name,
        has_certificate: dice.chance(60),
        method: method.to_owned(),
        target: format!("{path}{query}"),
        headers,
        body,
    }
}

fn query(dice: &mut Dice, queries: &[String]) -> String {
    let query = match dice.number(..10) {
        0..4 if !queries.is_empty() => dice.pick(queries),
        4..6 => dice.pick(&QUERIES).to_owned(),
        _ => String::new(),
    };
    if query.is_empty() { query } else { format!("?{query}") }
}

/// A host that a condition has, or nearly.
fn host(dice: &mut Dice, names: &[String]) -> String {
    let name = match names {
        names if !names.is_empty() && dice.chance(75) => dice.pick(names),
        _ => dice.pick(&["other.test", "127.0.0.1", "a.test", "b.test", "x.a.test"]).to_owned(),
    };
    let made = match dice.weighted(&[(8, ""), (1, "below"), (1, "longer"), (1, "above"), (1, "behind")]) {
        "below" => format!("x.{name}"),
        "longer" => format!("not{name}"),
        "above" => name.split_once('.').map_or(name.as_str(), |(_, above)| above).to_owned(),
        "behind" => format!("{name}.evil.test"),
        _ => name,
    };
    match dice.number(..20) {
        0 => made.to_ascii_uppercase(),
        1 => format!("{made}:80"),
        _ => made,
    }
}

/// A path that a condition has, or nearly.
fn path(dice: &mut Dice, paths: &[String]) -> String {
    let begin = match paths {
        paths if !paths.is_empty() && dice.chance(80) => dice.pick(paths),
        _ => dice
            .pick(&["/", "/nothing", "/app/x.php", "/api/v1/x", "/app/admin", "/old/one", "/login"])
            .to_owned(),
    };
    let bare = begin.trim_end_matches('/');
    let path = match dice.number(..16) {
        0..5 => begin,
        5..7 => format!("{bare}/x"),
        7 => format!("{bare}/"),
        8 if !bare.is_empty() => bare.to_owned(),
        9 => format!("{bare}x"),
        10 => format!("{bare}/x.php"),
        11 => begin.to_ascii_uppercase(),
        12 => format!("{bare}/admin/x"),
        13 => format!("/api/v1{bare}"),
        14 => odd(dice, &begin),
        _ => dice.pick(&["/", "/nothing", "/app/x.png", "/api/v1/x", "/static/x", "/login"]).to_owned(),
    };
    if path.starts_with('/') { path } else { format!("/{path}") }
}

/// A spelling of a path that programs read in different ways.
fn odd(dice: &mut Dice, path: &str) -> String {
    match dice.number(..5) {
        0 => format!("/.{path}"),
        1 => format!("/a/..{path}"),
        2 => format!("/{path}"),
        3 => path.replacen('a', "%61", 1),
        _ => format!("{path}%2fx"),
    }
}
