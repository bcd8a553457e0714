//! Directives that inner blocks inherit: who may come in, fields, and sizes.

use super::generator::{Level, Writer};

const NETWORKS: [&str; 7] =
    ["127.0.0.1", "127.0.0.2", "127.0.0.0/24", "127.0.0.0/28", "127.1.0.0/16", "127.0.0.0/8", "10.0.0.0/8"];
/// Fields for services.
const REQUEST_FIELDS: [&str; 21] = [
    "Host $host",
    "Host $host",
    "Host $http_host",
    "Host $proxy_host",
    "X-Real-IP $remote_addr",
    "X-Real-IP $remote_addr",
    "X-Forwarded-For $proxy_add_x_forwarded_for",
    "X-Forwarded-For $remote_addr",
    "X-Forwarded-Proto $scheme",
    "X-Forwarded-Host $host",
    "X-User $remote_user",
    "X-User \"\"",
    "X-User admin",
    "X-Plan $plan",
    "X-Client $ssl_client_s_dn",
    "X-Verified $ssl_client_verify",
    "X-Text \"a {b} $host\"",
    "X-Copy $http_x_key",
    "Cookie \"\"",
    "Upgrade $http_upgrade",
    "Connection $connection_upgrade",
];
/// Fields for clients.
const RESPONSE_FIELDS: [&str; 12] = [
    "Strict-Transport-Security \"max-age=31536000; includeSubDomains\"",
    "Content-Security-Policy \"default-src 'self'\"",
    "X-Frame-Options DENY",
    "X-Content-Type-Options nosniff",
    "Access-Control-Allow-Origin *",
    "Access-Control-Allow-Origin https://a.test",
    "Access-Control-Allow-Origin $http_origin",
    "Set-Cookie \"proxy=1; Path=/\"",
    "Cache-Control no-store",
    "X-Served-By $host",
    "X-Added one",
    "X-Added two",
];
const HIDDEN: [&str; 5] = ["X-Powered-By", "X-Origin-A", "X-Origin-B", "Set-Cookie", "Cache-Control"];

impl Writer<'_> {
    /// Some of these directives, as often as suits the level.
    pub fn inherited(&mut self, level: Level) {
        let chance = |http, server, location| match level {
            Level::Http => http,
            Level::Server => server,
            Level::Location => location,
        };
        if self.dice.chance(chance(3, 9, 16)) {
            self.access();
        }
        if self.dice.chance(chance(0, 0, 2)) {
            self.line("auth_basic off;");
        } else if self.is_odd && self.dice.chance(chance(0, 2, 6)) {
            self.met("auth_basic");
            self.line("auth_basic realm; auth_basic_user_file htpasswd;");
            if let Some(how) = self.dice.maybe(40, &["any", "any", "all"]) {
                self.met("satisfy");
                self.line(format!("satisfy {how};"));
            }
        }
        if self.dice.chance(chance(15, 20, 25)) {
            self.met("proxy_set_header");
            let count = self.dice.number(1..5);
            let mut names = Vec::new();
            if self.dice.chance(chance(0, 0, 5)) {
                self.met("another host for a service");
                names.push("Host");
                self.line("proxy_set_header Host internal.test;");
            }
            for field in self.dice.some(count, &REQUEST_FIELDS) {
                let name = field.split(' ').next().unwrap_or_default();
                if !names.contains(&name) {
                    names.push(name);
                    self.line(format!("proxy_set_header {field};"));
                }
            }
        }
        if self.dice.chance(chance(10, 12, 15)) {
            self.met("add_header");
            let count = self.dice.number(1..4);
            for field in self.dice.some(count, &RESPONSE_FIELDS) {
                let always = if self.dice.chance(60) { " always" } else { "" };
                self.line(format!("add_header {field}{always};"));
            }
        }
        if self.dice.chance(chance(6, 6, 8)) {
            self.met("proxy_hide_header");
            let count = self.dice.number(1..3);
            for name in self.dice.some(count, &HIDDEN) {
                self.line(format!("proxy_hide_header {name};"));
            }
        }
        if let Some(size) = self.dice.maybe(chance(8, 8, 10), &["10", "100", "1k", "0", "1m"]) {
            self.met("client_max_body_size");
            self.line(format!("client_max_body_size {size};"));
        }
        // More than is ever sent.
        if self.dice.chance(chance(3, 8, 8)) {
            self.met("limit_req");
            self.line("limit_req zone=all burst=1000 nodelay;");
        }
        if self.dice.chance(chance(0, 3, 3)) {
            self.error_page();
        }
        if let Some(line) = self.dice.maybe(chance(6, 2, 1), &["gzip on;", "expires 1h;"]) {
            self.met("gzip, expires");
            self.line(line);
        }
    }

    pub fn access(&mut self) {
        self.met("allow, deny");
        for _ in 0..self.dice.number(1..4) {
            let (word, network) = (self.dice.pick(&["allow", "deny"]), self.dice.pick(&NETWORKS));
            self.line(format!("{word} {network};"));
        }
        if let Some(last) = self.dice.maybe(70, &["deny all;", "deny all;", "allow all;"]) {
            self.line(last);
        }
    }

    fn error_page(&mut self) {
        self.met("error_page");
        let name = format!("@named{}", self.named.len());
        let page = self.dice.pick(&[
            "404 /x".to_owned(),
            "403 404 =200 /exact".to_owned(),
            format!("403 = {name}"),
            format!("500 502 {name}"),
            "404 https://new.test/".to_owned(),
        ]);
        if page.contains('@') {
            self.named.push(name);
        }
        self.line(format!("error_page {page};"));
        if self.dice.chance(50) {
            self.line("proxy_intercept_errors on;");
        }
    }
}
