//! `http-request` and `http-response`: what is done with requests and responses.

use super::generator::{For, Kind, Writer};

/// Edits of paths, and a path that each changes. Those behind the fifth are odd.
const EDITS: [(&str, &str); 9] = [
    ("replace-path ^/api/(.*) /\\\\1", "/api/x"),
    ("replace-path ^/app/?(.*)$ /\\\\1", "/app/x"),
    ("replace-path ^/user/([a-z]+)$ /people/\\\\1", "/user/ann"),
    ("set-path /base%[path]", "/x"),
    ("set-path /exact", "/x"),
    ("replace-path /old(/.*)? /new\\\\1", "/old/x"),
    ("replace-path (.*) /base\\\\1", "/x"),
    ("set-path %[path,regsub(^/api/,/)]", "/api/x"),
    ("replace-uri ^/api/(.*) /\\\\1", "/api/x"),
];

impl Writer<'_> {
    /// A rule of a section.
    pub fn rule(&mut self, kind: Kind) {
        match self.dice.weighted(&[
            (15, "deny"),
            (7, "return"),
            (9, "redirect"),
            (15, "set-header"),
            (3, "add-header"),
            (6, "del-header"),
            (if self.is_odd { 7 } else { 2 }, "path"),
            (1, "allow"),
            (1, "reject"),
            (1, "tarpit"),
            (2, "auth"),
            (14, "response"),
        ]) {
            "deny" => self.deny(),
            "return" => self.returns(),
            "redirect" => self.redirect(),
            "set-header" => self.set_header(),
            "add-header" => self.add_header(),
            "del-header" => self.del_header(),
            "path" => self.path_edit(),
            "response" => self.response(),
            "auth" => self.auth(),
            "allow" => self.simple("allow", 100),
            "reject" => self.simple("reject", 100),
            _ if kind == Kind::Defaults => {}
            _ => self.simple("tarpit", 100),
        }
    }

    /// Rules of a `defaults`, which has no ACLs of its own here.
    pub fn unconditional_rules(&mut self) {
        for _ in 0..self.dice.number(1..3) {
            match self.dice.pick(&["set-header", "response", "deny"]) {
                "set-header" => self.set_header(),
                "response" => self.response(),
                _ => self.deny(),
            }
        }
    }

    fn simple(&mut self, action: &'static str, percent: u8) {
        self.met(action);
        let condition =
            self.maybe_condition(percent, if action == "allow" { For::Choosing } else { For::Refusing });
        self.line(format!("http-request {action}{condition}"));
    }

    fn deny(&mut self) {
        self.met("deny");
        let text = self.text();
        let how = self.dice.weighted(&[
            (12, String::new()),
            (3, " deny_status 404".to_owned()),
            (1, " deny_status 401".to_owned()),
            (1, " deny_status 503".to_owned()),
            (1, " status 410".to_owned()),
            (1, format!(" status 403 content-type text/plain string {text}")),
            (1, format!(" status 429 content-type text/plain lf-string \"{text} for %[src]\"")),
        ]);
        let condition = self.condition(For::Refusing);
        self.line(format!("http-request deny{how}{condition}"));
    }

    pub fn auth(&mut self) {
        if !self.has_users {
            return self.deny();
        }
        self.met("auth");
        let line = self.dice.pick(&[
            "http-request auth realm people unless { http_auth(people) }",
            "http-request auth if { path_beg /app } !{ http_auth(people) }",
            "http-request deny unless { http_auth(people) } || { src 127.0.0.1 }",
        ]);
        self.line(line);
    }

    fn returns(&mut self) {
        self.met("return");
        let text = self.text();
        let odd = u32::from(self.is_odd);
        let what = self.dice.weighted(&[
            (5, format!("status 200 content-type text/plain string {text}")),
            (1, format!("status 200 content-type \"text/plain\" string \"{text} and more\"")),
            (1, format!("content-type application/json string '{{\"{text}\":1}}'")),
            (1, format!("status 200 content-type text/plain lf-string {text}")),
            (odd, format!("status 200 content-type text/plain lf-string \"{text} for %[req.hdr(host)]\"")),
            (1, format!("status 200 content-type text/plain string {text} hdr X-Added one")),
            (1, "status 204".to_owned()),
            (1, "status 200".to_owned()),
            (2, format!("status 404 content-type text/plain string {text}")),
            (1, format!("status 503 content-type text/plain string {text}")),
            (1, "status 403".to_owned()),
        ]);
        let condition = self.maybe_condition(if self.is_front { 100 } else { 70 }, For::Choosing);
        self.line(format!("http-request return {what}{condition}"));
    }

    fn redirect(&mut self) {
        self.met("redirect");
        let odd = u32::from(self.is_odd);
        let what = self.dice.weighted(&[
            (3, "scheme https"),
            (2, "scheme https code 301"),
            (1, "scheme https code 308"),
            (2, "location /there"),
            (2, "location https://new.test/there"),
            (1, "location https://new.test/there code 307"),
            (1, "location https://new.test"),
            (odd, "location /there?a=1"),
            (2, "prefix https://new.test"),
            (2, "prefix https://new.test code 301 drop-query"),
            (odd, "prefix https://new.test/base"),
            (odd, "prefix /base"),
            (odd, "location https://new.test%[path]"),
            (odd, "location https://%[req.hdr(host)]%[url]"),
            (odd, "location https://www.%[req.hdr(host)]%[capture.req.uri] code 301"),
            (odd, "location /there code 303 set-cookie seen=1"),
        ]);
        let condition = match what.starts_with("scheme") {
            true => self.dice.weighted(&[
                (4, " unless { ssl_fc }".to_owned()),
                (2, " if !{ ssl_fc }".to_owned()),
                (1, " if { hdr(host) -i a.test } !{ ssl_fc }".to_owned()),
                (1, " if { path_beg /app } !{ ssl_fc }".to_owned()),
            ]),
            false => self.maybe_condition(if self.is_front { 100 } else { 80 }, For::Choosing),
        };
        let rule = if self.dice.chance(25) { "redirect" } else { "http-request redirect" };
        self.line(format!("{rule} {what}{condition}"));
    }

    fn path_edit(&mut self) {
        self.met("path edit");
        let (edit, path) = self.dice.pick(if self.is_odd { &EDITS } else { &EDITS[..5] });
        self.targets.paths.push(path.to_owned());
        let condition = self.maybe_condition(40, For::Choosing);
        self.line(format!("http-request {edit}{condition}"));
    }
}
