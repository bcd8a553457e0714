//! Requests at the edges of a configuration.

use super::{
    super::{
        dice::Dice,
        origins::WANT,
        sent::{Body, PEERS, Sent},
    },
    generator::Targets,
};

const REQUESTS: usize = 40;

pub fn requests(dice: &mut Dice, targets: &Targets) -> Vec<Sent> {
    (0..REQUESTS).map(|_| request(dice, targets)).collect()
}

/// Fields that conditions ask for, or that claim something. Each value is sent now and then.
const FIELDS: [(&str, &[&str]); 12] = [
    ("x-key", &["secret", "secret", "secrets", "SECRET", "other"]),
    ("x-plan", &["gold", "silver", "golden"]),
    ("user-agent", &["curl/8", "GoodBot/1.0"]),
    (
        "cookie",
        &["beta=yes", "beta=no; session=1", "session=1; beta=yes", "xbeta=yes", "BETA=yes", "beta=\"yes\""],
    ),
    ("origin", &["https://a.test", "https://evil.test"]),
    ("authorization", &["Basic YW5uOnNlY3JldA==", "Basic YW5uOndyb25n"]),
    ("x-user", &["admin"]),
    ("x-forwarded-for", &["10.0.0.1", "127.0.0.9, 10.0.0.2", "10.0.0.1, 127.0.0.1", "127.1.0.1"]),
    ("x-forwarded-proto", &["https"]),
    ("x-real-ip", &["127.0.0.1", "10.0.0.1"]),
    ("x-client", &["CN=acme"]),
    (WANT, &["404", "500", "401", "302", "301", "204"]),
];
const QUERIES: [&str; 13] = [
    "?a=1",
    "?debug=1",
    "?debug=1&token=t",
    "?token=t&debug=0",
    "?token=",
    "?xdebug=1",
    "?debug",
    "?debug=2&debug=1",
    "?DEBUG=1",
    "?debug=%31",
    "?a=1&%64ebug=1",
    "?a=%20b&c=d%2fe",
    "?",
];

fn request(dice: &mut Dice, targets: &Targets) -> Sent {
    let listener = dice.number(..targets.listeners.len());
    let is_everywhere = targets.listeners[listener].address.ip().is_unspecified();
    let host = host(dice, &targets.hosts);
    let tls_name = match host.as_str() {
        name @ ("a.test" | "b.test" | "x.a.test" | "x.b.test" | "c.test") if dice.chance(90) => {
            name.to_owned()
        }
        _ => dice.pick(&["a.test", "b.test", "other.test"]).to_owned(),
    };
    let mut path = path(dice, &targets.paths);
    if dice.chance(2) {
        let host = if dice.chance(50) { host.as_str() } else { "b.test" };
        path = format!("http://{host}{path}");
    }
    let mut headers = vec![("host".to_owned(), host)];
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
    for (name, values) in FIELDS {
        if dice.chance(10) {
            headers.push((name.to_owned(), dice.pick(values).to_owned()));
        }
    }
    if headers.iter().any(|(name, _)| name == "x-user") && dice.chance(50) {
        headers.push(("x_user".to_owned(), "admin".to_owned()));
    }
    let body = match method {
        "POST" | "PUT" | "PATCH" | "DELETE" => dice.pick(&[
            Body::None,
            Body::Length(5),
            Body::Length(10),
            Body::Length(11),
            Body::Length(200),
            Body::Chunked(20),
            Body::Length(2000),
        ]),
        _ => Body::None,
    };
    let query = dice.maybe(35, &QUERIES).unwrap_or_default();
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

/// A host that a server has, or nearly.
fn host(dice: &mut Dice, names: &[String]) -> String {
    let name = match names {
        names if !names.is_empty() && dice.chance(75) => dice.pick(names),
        _ => return dice.pick(&["other.test", "127.0.0.1", "a.test", "b.test", "x.a.test"]).to_owned(),
    };
    let name = match name.as_str() {
        r"~^(www\.)?c\.test$" => dice.pick(&["www.c.test", "wwww.c.test"]).to_owned(),
        "b.*" => dice.pick(&["b.example", "b.a.test"]).to_owned(),
        "\"\"" => String::new(),
        _ => name,
    };
    let bare = name.trim_start_matches("*.").trim_start_matches('.').to_owned();
    let is_wildcard = bare != name;
    let made = match is_wildcard {
        true => dice.pick(&[format!("x.{bare}"), format!("y.x.{bare}"), bare.clone(), format!("not{bare}")]),
        false => dice.weighted(&[(8, bare.clone()), (1, format!("x.{bare}")), (1, format!("not{bare}"))]),
    };
    match dice.number(..20) {
        0 => made.to_ascii_uppercase(),
        1 => format!("{made}:8080"),
        2 if dice.chance(50) => format!("{made}."),
        _ => made,
    }
}

/// A path that a location has, or nearly.
fn path(dice: &mut Dice, patterns: &[String]) -> String {
    let pattern = dice.pick(patterns);
    let (kind, path) = pattern.split_once(' ').unwrap_or(("", pattern.as_str()));
    let begin = match kind {
        "~" | "~*" => example(dice, path),
        _ => path.to_owned(),
    };
    let bare = begin.trim_end_matches('/');
    match dice.number(..16) {
        0..4 => begin,
        4..7 => format!("{bare}/x"),
        7 => format!("{bare}/"),
        8 if !bare.is_empty() => bare.to_owned(),
        9 if !bare.is_empty() => format!("{bare}x"),
        10 => format!("{bare}/x.php"),
        11 => format!("{bare}/a/b.png"),
        12 => begin.to_ascii_uppercase(),
        13 => format!("{bare}/admin/x"),
        14 => odd(dice, &begin),
        _ => dice
            .pick(&["/", "/nothing", "/app/x.txt", "/api/v1/x", "/go/there", "/old/one", "/user/ann"])
            .to_owned(),
    }
}

/// A spelling of a path that programs read in different ways.
fn odd(dice: &mut Dice, path: &str) -> String {
    let inner = path.trim_end_matches('/').rfind('/').unwrap_or_default();
    match dice.number(..9) {
        0 => format!("/.{path}"),
        1 => format!("/static/..{path}"),
        2 => format!("/static/%2e%2e{path}"),
        3 => format!("/{path}"),
        4 => path.replacen('a', "%61", 1),
        5 => format!("{path}%2fx"),
        6 => format!("{}%2f{}", &path[..inner], path[inner..].trim_start_matches('/')),
        7 => format!("{path};x"),
        _ => format!("{path}/%252e%252e/x"),
    }
}

/// A path that this expression matches.
fn example(dice: &mut Dice, expression: &str) -> String {
    let examples: &[&str] = match expression {
        r"\.php$" => &["/x.php", "/app/x.php", "/x.php5"],
        "^/api/v[0-9]+/" => &["/api/v1/", "/api/v2/x", "/api/vx/"],
        r"\.(png|css)$" => &["/x.png", "/app/x.CSS", "/x.pngx"],
        r"/\.ht" => &["/.htaccess", "/app/.ht", "/x.ht"],
        "^/user/([a-z]+)$" => &["/user/ann", "/user/Ann", "/user/"],
        "admin" => &["/admin", "/app/admin", "/xadminx"],
        "^/(app|api)/x" => &["/app/x", "/api/xyz", "/app/y"],
        r"^/app/(.*)\.txt$" => &["/app/a.txt", "/app/a/b.txt", "/app/a.txtx"],
        r"^/(?<section>[a-z]+)/v(\d+)$" => &["/api/v1", "/app/v22", "/App/v1"],
        "^/API/" => &["/api/x", "/API/", "/Api/v1/"],
        _ => &["/x"],
    };
    dice.pick(examples).to_owned()
}
