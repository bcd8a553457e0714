//! Conditions: named ACLs, and tests in braces.

use super::generator::{For, Writer};

/// An ACL of the section, and what it may be for.
#[derive(Debug, Clone)]
pub struct Acl {
    name: &'static str,
    purpose: For,
}

const NAMES: [&str; 6] = ["inside", "admin", "is_api", "login", "of_a", "known"];
const PATHS: [&str; 12] = [
    "/",
    "/app",
    "/app/",
    "/app/admin",
    "/api/",
    "/api/v1/",
    "/static/",
    "/x",
    "/exact",
    "/login",
    "/old/",
    "/ap",
];
/// Expressions, and a path that each matches.
const EXPRESSIONS: [(&str, &str); 8] = [
    (r"\.php$", "/x.php"),
    ("^/api/v[0-9]+/", "/api/v2/"),
    (r"\.(png|css)$", "/app/x.css"),
    ("^/(app|api)/x", "/api/xyz"),
    ("admin|login", "/app/login"),
    ("^/user/([a-z]+)$", "/user/ann"),
    ("/app", "/x/app"),
    ("^/static/[^/]*$", "/static/x"),
];
const HOSTS: [&str; 6] = ["a.test", "x.a.test", "b.test", "x.b.test", "c.test", "y.x.a.test"];
const NETWORKS: [&str; 9] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.0.0.0/30",
    "127.0.0.0/28",
    "127.0.0.0/24",
    "127.1.0.0/16",
    "127.0.0.0/8",
    "10.0.0.0/8",
    "::1",
];
/// Tests of fields that Tollgate knows, too.
const PLAIN_FIELDS: [(&str, &str); 2] =
    [("req.fhdr(x-plan) gold", "x-plan: gold"), ("req.cook(beta) yes", "cookie: beta=yes")];
/// Tests of fields, and a field that meets each.
const FIELDS: [(&str, &str); 26] = [
    ("hdr(x-key) secret", "x-key: secret"),
    ("hdr(x-key) secret other", "x-key: other"),
    ("hdr(x-key) -i SECRET", "x-key: secret"),
    ("req.hdr(x-key) -m found", "x-key: 1"),
    ("hdr(x-key) -m beg sec", "x-key: secrets"),
    ("hdr_beg(x-key) sec", "x-key: sec"),
    ("hdr_cnt(x-key) gt 0", "x-key: a"),
    ("hdr_cnt(x-key) eq 0", "x-key: a"),
    ("req.hdr(x-key),lower -m str secret", "x-key: SECRET"),
    ("hdr(x-plan) gold", "x-plan: gold"),
    ("hdr(x-plan) gold silver", "x-plan: silver, gold"),
    ("req.fhdr(x-plan) gold", "x-plan: gold, silver"),
    ("hdr_sub(user-agent) -i bot curl", "user-agent: GoodBot/1.0"),
    ("hdr_reg(user-agent) -i ^curl/[0-9]", "user-agent: CURL/8"),
    ("hdr(user-agent) -m found", "user-agent: curl/8"),
    ("hdr(origin) https://a.test", "origin: https://a.test"),
    ("hdr(authorization) -m found", "authorization: Bearer t"),
    ("hdr_beg(authorization) Bearer", "authorization: Bearer t"),
    ("hdr_dom(referer) a.test", "referer: https://a.test/x"),
    ("hdr_ip(x-forwarded-for) 10.0.0.0/8", "x-forwarded-for: 10.0.0.1"),
    ("req.cook(beta) yes", "cookie: beta=yes"),
    ("cook(beta) -m found", "cookie: session=1; beta=no"),
    ("req.cook(session) -m beg a", "cookie: session=abc"),
    ("cook_sub(session) bc", "cookie: beta=yes; session=abcd"),
    ("req.cook_cnt(beta) gt 0", "cookie: beta=yes"),
    ("hdr_sub(cookie) beta=", "cookie: xbeta=yes"),
];
/// Tests of the query, and one that meets each.
const QUERIES: [(&str, &str); 8] = [
    ("url_param(debug) 1", "debug=1"),
    ("urlp(debug) 1 2", "a=1&debug=2"),
    ("url_param(debug) -m found", "debug=0"),
    ("urlp(token) -m beg t", "token=tx"),
    ("url_param(token) -m str t s", "token=s"),
    ("query -m sub debug", "xdebug=1"),
    ("url_sub debug=1", "xdebug=11"),
    ("url_reg [?&]token=", "token="),
];
/// Those behind the sixth are odd.
const METHODS: [&str; 8] = [
    "method POST",
    "method PUT DELETE PATCH",
    "method GET HEAD",
    "method GET",
    "method OPTIONS",
    "method GET POST",
    "method -i post",
    "method TRACE TRACK",
];
/// Those behind the fourth are odd.
const PREDEFINED: [&str; 7] =
    ["METH_GET", "METH_POST", "METH_OPTIONS", "METH_HEAD", "LOCALHOST", "HTTP_1.1", "HTTP_CONTENT"];

impl Writer<'_> {
    /// Some ACLs of the section.
    pub fn acl_lines(&mut self) {
        let count = self.dice.weighted(&[(2, 0), (3, 1), (4, 2), (3, 3)]);
        for name in self.dice.some(count, &NAMES) {
            let lines = self.dice.weighted(&[(6, 1), (3, 2), (1, 3)]);
            if lines > 1 {
                self.met("an ACL of several lines");
            }
            let purpose = self.dice.pick(&[For::Refusing, For::Choosing, For::Choosing]);
            for _ in 0..lines {
                let test = self.test(purpose);
                self.line(format!("acl {name} {test}"));
            }
            self.acls.push(Acl { name, purpose });
        }
    }

    /// ` if …` or ` unless …`.
    pub fn condition(&mut self, purpose: For) -> String {
        let word = self.dice.weighted(&[(8, "if"), (1, "unless")]);
        let alternatives = self.dice.weighted(&[(8, 1), (2, 2)]);
        let alternatives: Vec<String> = (0..alternatives).map(|_| self.alternative(purpose)).collect();
        if word == "unless" {
            self.met("unless");
        }
        if alternatives.len() > 1 {
            self.met("alternatives");
        }
        let or = self.dice.pick(&[" || ", " or "]);
        format!(" {word} {}", alternatives.join(or))
    }

    fn suits(&self, acl: &Acl, purpose: For) -> bool {
        self.is_odd || purpose == For::Refusing || acl.purpose == purpose
    }

    /// A condition in so many of a hundred, or none.
    pub fn maybe_condition(&mut self, percent: u8, purpose: For) -> String {
        if self.dice.chance(percent) { self.condition(purpose) } else { String::new() }
    }

    fn alternative(&mut self, purpose: For) -> String {
        let terms = self.dice.weighted(&[(6, 1), (4, 2), (1, 3)]);
        (0..terms).map(|_| self.term(purpose)).collect::<Vec<_>>().join(" ")
    }

    fn term(&mut self, purpose: For) -> String {
        let test = match self.dice.weighted(&[(6, "named"), (5, "braces"), (1, "predefined")]) {
            "named" if self.acls.iter().any(|acl| self.suits(acl, purpose)) => {
                self.met("a named ACL");
                let acls: Vec<_> = self.acls.iter().filter(|acl| self.suits(acl, purpose)).cloned().collect();
                self.dice.pick(&acls).name.to_owned()
            }
            "predefined" => {
                self.met("a predefined ACL");
                let predefined = if self.is_odd { &PREDEFINED } else { &PREDEFINED[..4] };
                self.dice.pick(predefined).to_owned()
            }
            _ => format!("{{ {} }}", self.test(purpose)),
        };
        if self.dice.chance(20) {
            self.met("negation");
            let space = if self.dice.chance(20) { " " } else { "" };
            return format!("!{space}{test}");
        }
        test
    }

    /// A test as an ACL has it.
    pub fn test(&mut self, purpose: For) -> String {
        let odd = |weight| if self.is_odd { weight } else { 0 };
        let source = if purpose == For::Refusing { 14 } else { 0 };
        match self.dice.weighted(&[
            (30, "path"),
            (odd(3), "url"),
            (22, "host"),
            (odd(12), "field"),
            (2, "plain field"),
            (odd(5), "query"),
            (9, "method"),
            (source.max(odd(14)), "source"),
            (4, "connection"),
        ]) {
            "plain field" => self.field_test(&PLAIN_FIELDS),
            "path" => self.path_test(),
            "url" => self.url_test(),
            "host" => self.host_test(),
            "field" => self.field_test(&FIELDS),
            "query" => {
                let (test, query) = self.dice.pick(&QUERIES);
                self.targets.queries.push(query.to_owned());
                test.to_owned()
            }
            "method" => {
                let methods = if self.is_odd { &METHODS } else { &METHODS[..6] };
                self.dice.pick(methods).to_owned()
            }
            "source" => self.source_test(),
            _ => self.connection_test(),
        }
    }

    fn field_test(&mut self, tests: &[(&'static str, &'static str)]) -> String {
        let (test, field) = self.dice.pick(tests);
        let (name, value) = field.split_once(": ").unwrap_or((field, ""));
        self.targets.fields.push((name.to_owned(), value.to_owned()));
        test.to_owned()
    }

    fn path_test(&mut self) -> String {
        let many = if self.is_odd { 10 } else { 60 };
        let fetch = self.dice.weighted(&[
            (many, "path_beg"),
            (2, "path_beg -i"),
            (1, "path -m beg"),
            (many / 2, "path"),
            (1, "path -i"),
            (1, "path -m str"),
            (3, "path_end"),
            (1, "path_end -i"),
            (3, "path_sub"),
            (3, "path_dir"),
            (1, "path_dir -i"),
            (4, "path_reg"),
            (1, "path_reg -i"),
            (1, "path -m reg"),
            (1, "path,lower -m beg"),
        ]);
        let kind = ["beg", "end", "sub", "dir", "reg"].into_iter().find(|kind| fetch.contains(kind));
        let count = self.dice.weighted(&[(5, 1), (3, 2), (1, 3)]);
        let values: Vec<(&str, String)> = match kind {
            Some("reg") => {
                let (expression, path) = self.dice.pick(&EXPRESSIONS);
                vec![(expression, path.to_owned())]
            }
            Some("end") => {
                let ends = self.dice.some(count, &[".php", ".png", "/x", "/", "admin"]);
                ends.into_iter().map(|end| (end, format!("/app{end}"))).collect()
            }
            Some("sub") => {
                let parts = self.dice.some(count, &["admin", "/app/", ".", "pi/v"]);
                parts.into_iter().map(|part| (part, format!("/api/v{part}x"))).collect()
            }
            Some("dir") => {
                let names = self.dice.some(count, &["admin", "static", "app", "/api/", "app/admin", "v1"]);
                names.into_iter().map(|name| (name, format!("/app/{}/x", name.trim_matches('/')))).collect()
            }
            _ => self.dice.some(count, &PATHS).into_iter().map(|path| (path, path.to_owned())).collect(),
        };
        self.targets.paths.extend(values.iter().map(|(_, path)| path.clone()));
        let values = values.iter().map(|(value, _)| value.replace('\\', "\\\\")).collect::<Vec<_>>();
        format!("{fetch} {}", values.join(" "))
    }

    fn url_test(&mut self) -> String {
        let (test, path, query) = self.dice.pick(&[
            ("url_beg /api/", "/api/", ""),
            ("url_beg /app?debug", "/app", "debug=1"),
            ("url_end =1", "/x", "debug=1"),
            ("url_end .php", "/x.php", ""),
            ("url_sub admin", "/app/admin", "to=admin"),
            ("url /exact", "/exact", ""),
            ("url_dir admin", "/app/admin", "to=/admin/"),
            ("url_reg ^/old/.*x", "/old/x", "ax"),
        ]);
        self.targets.paths.push(path.to_owned());
        self.targets.queries.push(query.to_owned());
        test.to_owned()
    }

    fn host_test(&mut self) -> String {
        let odd = |weight| if self.is_odd { weight } else { 0 };
        let fetch = self.dice.weighted(&[
            (8, "hdr(host) -i"),
            (4, "hdr(host)"),
            (1, "req.hdr(Host) -i"),
            (1, "hdr(host) -m str -i"),
            (1, "hdr(host),lower"),
            (1, "hdr(host),field(1,:) -i"),
            (odd(3), "hdr_dom(host) -i"),
            (odd(3), "hdr_end(host) -i"),
            (2, "hdr_end(host) -i ."),
            (odd(2), "hdr_beg(host) -i"),
            (odd(1), "hdr_sub(host) -i"),
            (odd(1), "hdr_reg(host) -i"),
            (odd(1), "hdr(host) -m found"),
        ]);
        let count = self.dice.weighted(&[(5, 1), (3, 2)]);
        let hosts = self.dice.some(count, &HOSTS);
        self.targets.hosts.extend(hosts.iter().map(|host| (*host).to_owned()));
        match fetch {
            "hdr_end(host) -i ." => {
                self.targets.hosts.push(format!("x.{}", hosts[0]));
                format!("hdr_end(host) -i .{}", hosts.join(" ."))
            }
            "hdr_dom(host) -i" => {
                self.targets.hosts.extend([format!("x.{}", hosts[0]), format!("{}.evil.test", hosts[0])]);
                format!("{fetch} {}", hosts.join(" "))
            }
            "hdr_beg(host) -i" => {
                format!("{fetch} {}", self.dice.pick(&["x.", "a.", "b.te", "x.a", "a.test"]))
            }
            "hdr_sub(host) -i" => format!("{fetch} {}", self.dice.pick(&["a.", "x.", "test"])),
            "hdr_reg(host) -i" => {
                let expression = self.dice.pick(&[r"^(x\\.)?a\\.test$", "^[ab].test", r"\\.test$", "^x"]);
                format!("{fetch} {expression}")
            }
            "hdr(host) -m found" => fetch.to_owned(),
            fetch => format!("{fetch} {}", hosts.join(" ")),
        }
    }

    fn source_test(&mut self) -> String {
        if self.dice.chance(5) {
            self.met("a file of addresses");
            return "src -f networks.lst".to_owned();
        }
        let count = self.dice.weighted(&[(5, 1), (3, 2), (1, 3)]);
        format!("src {}", self.dice.some(count, &NETWORKS).join(" "))
    }

    fn connection_test(&mut self) -> String {
        let odd = |weight| if self.is_odd { weight } else { 0 };
        let port = self.dice.pick(&self.places.ports[..3]);
        self.dice.weighted(&[
            (5, "ssl_fc".to_owned()),
            (3, format!("dst_port {port}")),
            (odd(2), "ssl_c_used".to_owned()),
            (odd(1), "ssl_fc_sni a.test".to_owned()),
            (odd(1), "dst 127.0.0.2".to_owned()),
            (odd(1), "ssl_c_s_dn(cn) acme".to_owned()),
        ])
    }
}
