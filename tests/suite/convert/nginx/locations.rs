//! Locations and their content.

use super::generator::{Level, Writer};

const PREFIXES: [&str; 13] = [
    "/",
    "/app/",
    "/app",
    "/app/admin/",
    "/app/admin",
    "/api/",
    "/api/v1/",
    "/static/",
    "/x",
    "/exact",
    "/ap",
    "/img/",
    "/old/",
];
const EXPRESSIONS: [&str; 10] = [
    r"~ \.php$",
    r"~ ^/api/v[0-9]+/",
    r"~* \.(png|css)$",
    r"~ /\.ht",
    r"~ ^/user/([a-z]+)$",
    "~ admin",
    "~ ^/(app|api)/x",
    r"~ ^/app/(.*)\.txt$",
    "~* ^/API/",
    r"~ ^/(?<section>[a-z]+)/v(\d+)$",
];

impl Writer<'_> {
    pub fn locations(&mut self) {
        let count = self.dice.number(1..6);
        let mut has_root = false;
        for prefix in self.dice.some(count, &PREFIXES) {
            has_root |= prefix == "/";
            let kind = self.dice.weighted(&[(7, ""), (1, "^~ "), (2, "= ")]);
            self.location(&format!("{kind}{prefix}"), prefix, 0);
        }
        if !has_root && self.dice.chance(92) {
            self.location("/", "/", 0);
        }
        let count = self.dice.weighted(&[(4, 0), (3, 1), (2, 2)]);
        for expression in self.dice.some(count, &EXPRESSIONS) {
            self.location(expression, "", 0);
        }
        if self.is_odd && self.dice.chance(6) {
            self.met("an expression that looks around");
            self.line(r"location ~ /\.(?!well-known) { deny all; }");
        }
        if self.dice.chance(10) {
            self.met("an icon");
            self.targets.paths.push("= /favicon.ico".to_owned());
            self.line("location = /favicon.ico { log_not_found off; access_log off; return 204; }");
        }
        if self.dice.chance(8) {
            self.met("error_page");
            self.targets.paths.push("= /50x.html".to_owned());
            self.line("error_page 500 502 503 504 /50x.html;");
            self.line("location = /50x.html { root html; }");
        }
    }

    /// `prefix` is empty for an expression.
    fn location(&mut self, pattern: &str, prefix: &str, depth: usize) {
        self.targets.paths.push(pattern.to_owned());
        let is_nestable = !prefix.is_empty() && !pattern.starts_with('=') && depth < 2;
        self.block(format!("location {pattern}"), |writer| {
            writer.inherited(Level::Location);
            writer.unknown(Level::Location);
            if writer.dice.chance(4) {
                writer.met("internal");
                writer.line("internal;");
            }
            writer.steps(Level::Location, prefix);
            writer.content(prefix);
            if is_nestable && writer.dice.chance(15) {
                writer.nested(prefix, depth);
            }
        });
    }

    /// Locations within the one of this prefix.
    fn nested(&mut self, prefix: &str, depth: usize) {
        self.met("nested location");
        if self.dice.chance(60) {
            let inner = match self.dice.some(1, &below(prefix)).pop() {
                Some(inner) => inner.to_owned(),
                None => format!("{prefix}sub/"),
            };
            let kind = self.dice.weighted(&[(6, ""), (1, "^~ "), (1, "= ")]);
            self.location(&format!("{kind}{inner}"), &inner, depth + 1);
        }
        if self.dice.chance(50) {
            let expression = self.dice.pick(&EXPRESSIONS[..6]);
            self.location(expression, "", depth + 1);
        }
    }

    pub fn named_location(&mut self, name: &str) {
        self.block(format!("location {name}"), |writer| {
            if writer.dice.chance(25) {
                writer.access();
            }
            match writer.dice.chance(70) {
                true => writer.pass(""),
                false => writer.returns(),
            }
        });
    }

    fn content(&mut self, prefix: &str) {
        match self.dice.weighted(&[
            (140, "pass"),
            (26, "return"),
            (2, "files"),
            (4, "named"),
            (1, "variable"),
        ]) {
            "pass" => {
                self.pass(prefix);
                if self.dice.chance(6) {
                    self.limit_except();
                }
            }
            "return" => self.returns(),
            "variable" => {
                self.met("proxy_pass with a variable");
                let to = self.places.origins[self.dice.number(..3)];
                self.line(format!("set $service {to};"));
                self.line("proxy_pass http://$service;");
            }
            "named" => {
                self.met("try_files");
                let name = format!("@named{}", self.named.len());
                self.line(format!("try_files /no-such-file {name};"));
                self.named.push(name);
            }
            // No file is there.
            _ => {
                self.met("files");
                self.line("root files;");
            }
        }
    }

    /// `proxy_pass`, which may have a path if the location has a prefix.
    fn pass(&mut self, prefix: &str) {
        let to = self.service();
        let uri = match prefix.is_empty() {
            true => "",
            false => self.dice.weighted(&[
                (30, ""),
                (12, "/"),
                (6, "/base/"),
                (3, "/base"),
                (3, prefix),
                (u32::from(self.is_odd) * 2, "/base/?fixed=1"),
            ]),
        };
        if !uri.is_empty() {
            self.met("proxy_pass with a path");
        }
        self.line(format!("proxy_pass http://{to}{uri};"));
        if let Some(version) = self.dice.maybe(30, &["1.1", "1.0"]) {
            self.line(format!("proxy_http_version {version};"));
        }
    }

    fn limit_except(&mut self) {
        self.met("limit_except");
        let methods = self.dice.pick(&["GET", "GET POST", "POST", "OPTIONS GET"]);
        self.block(format!("limit_except {methods}"), |writer| match writer.dice.chance(60) {
            true => writer.line("deny all;"),
            false => writer.access(),
        });
    }

    pub fn returns(&mut self) {
        let text = self.text();
        let what = self.dice.weighted(&[
            (8, format!("200 {text}")),
            (1, format!("200 \"{text} of $host\"")),
            (4, "204".to_owned()),
            (1, "200".to_owned()),
            (6, "301 https://$host$request_uri".to_owned()),
            (1, "301 $scheme://new.test$request_uri".to_owned()),
            (1, "301 https://a.test$request_uri".to_owned()),
            (1, "301 https://$server_name$request_uri".to_owned()),
            (4, "302 https://new.test/there".to_owned()),
            (1, "302 /there".to_owned()),
            (1, "307 https://new.test$uri".to_owned()),
            (1, "308 /there$is_args$args".to_owned()),
            (1, "https://new.test/".to_owned()),
            (8, "403".to_owned()),
            (1, format!("403 {text}")),
            (2, format!("404 {text}")),
            (1, "410".to_owned()),
            (1, "401".to_owned()),
            (1, "405".to_owned()),
            (1, "503".to_owned()),
            (2, "444".to_owned()),
        ]);
        self.met("return");
        self.line(format!("return {what};"));
    }
}

/// Prefixes of locations within this one.
fn below(prefix: &str) -> Vec<&'static str> {
    PREFIXES.into_iter().filter(|one| one.len() > prefix.len() && one.starts_with(prefix)).collect()
}
