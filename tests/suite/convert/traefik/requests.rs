//! Requests at the edges of a configuration.

use super::super::{
    dice::Dice,
    origins::WANT,
    sent::{Body, PEERS, Sent},
    source::Listener,
};

const REQUESTS: usize = 40;

/// What a router asks for: requests have some of it, and nearly.
#[derive(Debug, Clone, Default)]
pub struct Aim {
    pub listeners: Vec<usize>,
    pub hosts: Vec<String>,
    pub paths: Vec<String>,
    pub methods: Vec<String>,
    pub fields: Vec<(String, String)>,
    pub queries: Vec<String>,
}

/// Fields that conditions and middlewares look at, or that claim something. Each value is sent now and then.
const FIELDS: [(&str, &[&str]); 13] = [
    ("x-key", &["secret", "secrets"]),
    ("x-plan", &["gold", "silver"]),
    ("user-agent", &["curl/8", "GoodBot/1.0"]),
    ("cookie", &["beta=yes", "session=1"]),
    ("authorization", &["Basic YW5uOnNlY3JldA==", "Basic YW5uOndyb25n"]),
    ("x-user", &["admin"]),
    ("x_user", &["admin"]),
    ("x-added", &["mine"]),
    ("x-forwarded-for", &["10.0.0.1", "127.0.0.1, 10.0.0.2"]),
    ("x-forwarded-proto", &["https"]),
    ("x-real-ip", &["127.0.0.1"]),
    ("accept-encoding", &["gzip"]),
    (WANT, &["404", "500", "401", "302", "204"]),
];
const ORIGINS: [&str; 4] = ["https://a.test", "https://b.test", "https://evil.test", "null"];
const QUERIES: [&str; 5] = ["a=1", "b=2&a=3", "debug=1", "a=%20b&c=d%2fe", ""];

/// How many of a hundred requests are of these kinds.
pub struct Often {
    /// From a page of another origin.
    pub crosses: u8,
    /// With a body, whatever its router asks for.
    pub has_body: u8,
}

pub fn requests(dice: &mut Dice, aims: &[Aim], listeners: &[Listener], often: &Often) -> Vec<Sent> {
    (0..REQUESTS).map(|_| request(dice, aims, listeners, often)).collect()
}

fn request(dice: &mut Dice, aims: &[Aim], listeners: &[Listener], often: &Often) -> Sent {
    let aim = dice.pick(aims);
    let listener = match aim.listeners.as_slice() {
        own if !own.is_empty() && dice.chance(92) => dice.pick(own),
        _ => dice.number(..listeners.len()),
    };
    let is_everywhere = listeners[listener].address.ip().is_unspecified();
    let mut host = host(dice, &aim.hosts);
    // `redirectScheme` redirects from a port that is not the one of the scheme.
    if listeners[listener].is_tls && host.ends_with(":8080") {
        host.truncate(host.len() - ":8080".len());
    }
    let tls_name = match host.as_str() {
        name @ ("a.test" | "b.test" | "x.a.test" | "x.b.test" | "c.test") if dice.chance(95) => {
            name.to_owned()
        }
        _ => dice.pick(&["a.test", "b.test", "other.test"]).to_owned(),
    };
    let mut target = path(dice, &aim.paths);
    if dice.chance(1) {
        target = format!("http://{host}{target}");
    }
    match aim.queries.as_slice() {
        own if !own.is_empty() && dice.chance(80) => target += &format!("?{}", dice.pick(own)),
        _ if dice.chance(25) => target += &format!("?{}", dice.pick(&QUERIES)),
        _ => {}
    }
    let mut headers = vec![("host".to_owned(), host)];
    if !aim.fields.is_empty() && dice.chance(80) {
        headers.push(dice.pick(&aim.fields));
    }
    for (name, values) in FIELDS {
        if dice.chance(8) && !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), dice.pick(values).to_owned()));
        }
    }
    let mut method = match aim.methods.as_slice() {
        own if !own.is_empty() && dice.chance(60) => dice.pick(own),
        _ => method(dice).to_owned(),
    };
    if dice.chance(often.has_body) {
        dice.pick(&["POST", "PUT"]).clone_into(&mut method);
    }
    if dice.chance(often.crosses) {
        headers.push(("origin".to_owned(), dice.pick(&ORIGINS).to_owned()));
        if dice.chance(60) {
            "OPTIONS".clone_into(&mut method);
            headers.push(("access-control-request-method".to_owned(), dice.pick(&["GET", "PUT"]).to_owned()));
        }
    }
    let body = match method.as_str() {
        "POST" | "PUT" | "PATCH" => {
            let sizes = [Body::None, Body::Length(5), Body::Length(200), Body::Chunked(20), Body::Length(11)];
            dice.pick(&sizes)
        }
        _ => Body::None,
    };
    Sent {
        listener,
        peer: dice.pick(&PEERS).parse().unwrap(),
        to: dice.maybe(30, &["127.0.0.3".parse().unwrap()]).filter(|_| is_everywhere),
        tls_name,
        has_certificate: dice.chance(50),
        method,
        target,
        headers,
        body,
    }
}

fn method(dice: &mut Dice) -> &'static str {
    dice.weighted(&[
        (24, "GET"),
        (7, "POST"),
        (3, "HEAD"),
        (2, "OPTIONS"),
        (2, "DELETE"),
        (2, "PUT"),
        (1, "PATCH"),
        (1, "PURGE"),
        (1, "get"),
    ])
}

/// A host that a router asks for, or nearly.
fn host(dice: &mut Dice, own: &[String]) -> String {
    let host = match own {
        own if !own.is_empty() && dice.chance(85) => dice.pick(own),
        _ => dice.pick(&["other.test", "127.0.0.1", "a.test", "b.test", "x.a.test"]).to_owned(),
    };
    match dice.number(..32) {
        0 => host.to_ascii_uppercase(),
        1 => format!("{host}:8080"),
        2 => format!("x.{host}"),
        3 => format!("not{host}"),
        _ => host.to_ascii_lowercase(),
    }
}

/// A path that a router asks for, or nearly.
fn path(dice: &mut Dice, own: &[String]) -> String {
    let begin = match own {
        own if !own.is_empty() && dice.chance(90) => dice.pick(own),
        _ => dice.pick(&["/", "/app", "/app/x", "/api/v1/x", "/x", "/nothing"]).to_owned(),
    };
    let bare = begin.trim_end_matches('/');
    match dice.number(..18) {
        0..5 => begin,
        5..8 => format!("{bare}/x"),
        8 => format!("{bare}/"),
        9 if !bare.is_empty() => bare.to_owned(),
        10 => format!("{bare}x"),
        11 => format!("{bare}/x.php"),
        12 => format!("{bare}/a/b.png"),
        13 => begin.to_ascii_uppercase(),
        14 => format!("{bare}/admin/x"),
        15 => odd(dice, &begin),
        16 => format!("{bare}lication/v1"),
        _ => dice.pick(&["/", "/nothing", "/app/x", "/app/admin/x", "/api/v1/x"]).to_owned(),
    }
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
