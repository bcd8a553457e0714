//! Rules of routers.

use super::{generator::Writer, requests::Aim};

const HOSTS: [&str; 7] = ["a.test", "a.test", "b.test", "x.a.test", "c.test", "x.b.test", "A.test"];
/// Those that no list of names equals are rare: what has such a rule is closed.
const HOST_EXPRESSIONS: [(u32, &str, &[&str]); 8] = [
    (12, r"^.+\.a\.test$", &["x.a.test", "y.x.a.test", "a.test"]),
    (6, r"^(a|b)\.test$", &["a.test", "b.test", "c.test", "axtest"]),
    (5, "^.+$", &["a.test", "other.test"]),
    (4, r"^(?:x|y)\.b\.test$", &["x.b.test", "y.b.test", "z.b.test"]),
    (1, r"^[a-z]+\.b\.test$", &["x.b.test", "y.x.b.test", "1.b.test"]),
    (1, "^(a|b).test$", &["a.test", "b.test", "c.test", "axtest"]),
    (1, r"a\.test", &["a.test", "x.a.test", "a.test.b.test"]),
    (1, r"^x\.", &["x.a.test", "x.b.test", "xx.a.test"]),
];
const PREFIXES: [&str; 10] =
    ["/", "/app", "/app", "/app/", "/app/admin", "/api", "/api/", "/api/v1", "/x", "/img"];
const PATHS: [&str; 6] = ["/app", "/app/", "/exact", "/", "/api/v1/x", "/app/admin"];
const PATH_EXPRESSIONS: [(&str, &[&str]); 9] = [
    (r"\.php$", &["/x.php", "/app/x.php", "/x.php5"]),
    ("^/api/v[0-9]+/", &["/api/v1/", "/api/v2/x", "/api/vx/"]),
    (r"(?i)\.(png|css)$", &["/x.png", "/app/x.CSS", "/x.pngx"]),
    ("^/user/([a-z]+)$", &["/user/ann", "/user/Ann", "/user/"]),
    ("admin", &["/admin", "/app/admin", "/xadminx"]),
    ("^/(app|api)/x", &["/app/x", "/api/xyz", "/app/y"]),
    ("^/app/[^/]+/edit$", &["/app/1/edit", "/app/1/2/edit", "/app/1/edit/"]),
    ("(?i)^/API/", &["/api/x", "/API/", "/Api/v1/"]),
    ("^/app|^/x", &["/app", "/xy", "/api"]),
];
const METHODS: [&str; 6] = ["GET", "POST", "OPTIONS", "HEAD", "DELETE", "get"];
/// A matcher of a field, and values that are sent. Expressions that no list of values equals are rare.
const FIELDS: [(u32, &str, &str, &[&str]); 6] = [
    (6, "Header(`X-Key`, `secret`)", "x-key", &["secret", "secrets", "Secret"]),
    (6, "Header(`X-Plan`, `gold`)", "x-plan", &["gold", "silver"]),
    (8, "HeaderRegexp(`X-Plan`, `^(gold|silver)$`)", "x-plan", &["gold", "silver", "golden"]),
    (1, "HeaderRegexp(`X-Key`, `^sec`)", "x-key", &["secret", "xsecret", "sec"]),
    (1, "HeaderRegexp(`User-Agent`, `(?i)bot`)", "user-agent", &["GoodBot/1.0", "curl/8"]),
    (1, "HeaderRegexp(`Cookie`, `(^|; )beta=yes`)", "cookie", &["beta=yes", "a=1; beta=yes", "xbeta=yes"]),
];
const QUERIES: [(u32, &str, &[&str]); 6] = [
    (8, "Query(`debug`, `1`)", &["debug=1", "debug=0", "a=1&debug=1", "debug=0&debug=1"]),
    (6, "Query(`token`)", &["token", "token=", "token=t"]),
    (4, "Query(`a`, `b c`)", &["a=b%20c", "a=b+c", "a=b"]),
    (4, "QueryRegexp(`debug`, `^(1|2)$`)", &["debug=1", "debug=2", "debug=12"]),
    (1, "QueryRegexp(`token`, `^t`)", &["token=t", "token=xt", "token=tt"]),
    (1, "QueryRegexp(`debug`, `.*`)", &["debug", "debug=1", "xdebug=1"]),
];
const CLIENTS: [&str; 5] = ["127.0.0.1", "127.0.0.0/30", "127.1.0.0/16", "10.0.0.0/8", "127.0.0.0/8"];

/// Rules in the syntax of Traefik 2, with hosts, paths, fields and queries for requests.
const OLD_RULES: [(&str, &[&str]); 11] = [
    ("Host(`a.test`, `b.test`)", &["a.test", "b.test", "c.test"]),
    ("HostRegexp(`{sub:[a-z]+}.a.test`)", &["x.a.test", "1.a.test", "y.x.a.test"]),
    (
        "HostRegexp(`{any:.+}.b.test`) && PathPrefix(`/app`, `/api`)",
        &["x.b.test", "b.test", "/app", "/api/x"],
    ),
    ("Path(`/user/{id:[0-9]+}`)", &["/user/1", "/user/12/", "/user/ann"]),
    ("PathPrefix(`/{lang:(en|de)}/`)", &["/en/", "/de/x", "/fr/", "/en"]),
    ("Headers(`X-Key`, `secret`)", &["x-key: secret", "x-key: secrets"]),
    ("HeadersRegexp(`X-Plan`, `^(gold|silver)$`)", &["x-plan: gold", "x-plan: golden"]),
    ("Query(`debug=1`)", &["?debug=1", "?debug=0", "?debug"]),
    ("Query(`token=`) && PathPrefix(`/app`)", &["?token=", "?token=t", "?token", "/app"]),
    ("Method(`GET`, `POST`) && Host(`a.test`)", &["a.test"]),
    ("ClientIP(`127.0.0.0/30`, `10.0.0.1`) && !PathPrefix(`/app`)", &["/app", "/x"]),
];

/// How deep `!` and parentheses are nested.
const MAX_DEPTH: usize = 2;

impl Writer<'_> {
    /// The rule of a router.
    pub fn rule(&mut self, aim: &mut Aim) -> String {
        match self.dice.number(..100) {
            0..12 => self.host(aim),
            12..42 => format!("{} && {}", self.host(aim), self.path(aim)),
            42..55 => self.path(aim),
            55..60 => format!("({} || {}) && {}", self.host(aim), self.host(aim), self.path(aim)),
            60..70 => format!("{} && {} && {}", self.host(aim), self.path(aim), self.other(aim)),
            70..76 => format!("{} && !{}", self.host(aim), self.path(aim)),
            76..81 => format!("{} && ({} || {})", self.host(aim), self.path(aim), self.other(aim)),
            81..85 => format!("{} || {}", self.host(aim), self.path(aim)),
            _ => self.any(aim, 0),
        }
    }

    /// A rule in the syntax of Traefik 2.
    pub fn old_rule(&mut self, aim: &mut Aim) -> String {
        self.met("ruleSyntax");
        let (rule, examples) = self.dice.pick(&OLD_RULES);
        for example in examples {
            match (example.split_once(": "), example.strip_prefix('?')) {
                (Some((name, value)), _) => aim.fields.push((name.to_owned(), value.to_owned())),
                (_, Some(query)) => aim.queries.push(query.to_owned()),
                _ if example.starts_with('/') => aim.paths.push((*example).to_owned()),
                _ => aim.hosts.push((*example).to_owned()),
            }
        }
        rule.to_owned()
    }

    fn any(&mut self, aim: &mut Aim, depth: usize) -> String {
        if depth == MAX_DEPTH {
            return self.matcher(aim);
        }
        match self.dice.number(..10) {
            0..4 => format!("({} && {})", self.any(aim, depth + 1), self.any(aim, depth + 1)),
            4..6 => format!("({} || {})", self.any(aim, depth + 1), self.any(aim, depth + 1)),
            6 => format!("!({})", self.any(aim, depth + 1)),
            7 => format!("!{}", self.matcher(aim)),
            _ => self.matcher(aim),
        }
    }

    fn matcher(&mut self, aim: &mut Aim) -> String {
        match self.dice.number(..3) {
            0 => self.host(aim),
            1 => self.path(aim),
            _ => self.other(aim),
        }
    }

    fn host(&mut self, aim: &mut Aim) -> String {
        if self.dice.chance(20) {
            self.met("HostRegexp");
            let expressions =
                HOST_EXPRESSIONS.map(|(weight, expression, examples)| (weight, (expression, examples)));
            let (expression, examples) = self.dice.weighted(&expressions);
            aim.hosts.extend(examples.iter().map(|host| (*host).to_owned()));
            return format!("HostRegexp(`{expression}`)");
        }
        let host = self.dice.pick(&HOSTS);
        aim.hosts.push(host.to_owned());
        format!("Host(`{host}`)")
    }

    fn path(&mut self, aim: &mut Aim) -> String {
        match self.dice.number(..10) {
            0..6 => {
                let prefix = self.dice.pick(&PREFIXES);
                aim.paths.push(prefix.to_owned());
                format!("PathPrefix(`{prefix}`)")
            }
            6 | 7 => {
                self.met("Path");
                let path = self.dice.pick(&PATHS);
                aim.paths.push(path.to_owned());
                format!("Path(`{path}`)")
            }
            _ => {
                self.met("PathRegexp");
                let (expression, examples) = self.dice.pick(&PATH_EXPRESSIONS);
                aim.paths.extend(examples.iter().map(|path| (*path).to_owned()));
                format!("PathRegexp(`{expression}`)")
            }
        }
    }

    fn other(&mut self, aim: &mut Aim) -> String {
        match self.dice.number(..20) {
            0..8 => {
                self.met("Method");
                let method = self.dice.pick(&METHODS);
                aim.methods.push(method.to_ascii_uppercase());
                format!("Method(`{method}`)")
            }
            8..13 => {
                let fields = FIELDS.map(|(weight, matcher, name, values)| (weight, (matcher, name, values)));
                let (matcher, name, values) = self.dice.weighted(&fields);
                self.met(if matcher.starts_with("Header(") { "Header" } else { "HeaderRegexp" });
                aim.fields.extend(values.iter().map(|value| (name.to_owned(), (*value).to_owned())));
                matcher.to_owned()
            }
            13..18 => {
                let queries = QUERIES.map(|(weight, matcher, queries)| (weight, (matcher, queries)));
                let (matcher, queries) = self.dice.weighted(&queries);
                self.met(if matcher.starts_with("Query(") { "Query" } else { "QueryRegexp" });
                aim.queries.extend(queries.iter().map(|query| (*query).to_owned()));
                matcher.to_owned()
            }
            _ => {
                self.met("ClientIP");
                format!("ClientIP(`{}`)", self.dice.pick(&CLIENTS))
            }
        }
    }
}
