//! `if`, `rewrite` and `set`: what runs before a location's content is served.

use super::generator::{Level, Writer};

const CONDITIONS: [&str; 24] = [
    "$request_method = POST",
    "$request_method = 'DELETE'",
    "$http_x_key = \"other\"",
    "$host = \"b.test\"",
    "$request_method = OPTIONS",
    "$request_method != GET",
    "$request_method ~ ^(PUT|DELETE)$",
    "$request_method !~ ^(GET|HEAD|POST)$",
    "$host = a.test",
    "$host != a.test",
    "$host = x.a.test",
    "$http_host = a.test",
    "$http_x_key = secret",
    "$http_x_key != secret",
    "$http_origin = https://a.test",
    "$scheme = http",
    "$scheme != https",
    "$https = on",
    "$remote_addr = 127.0.0.2",
    "$inside = 0",
    "$inside",
    "$plan = gold",
    "$ssl_client_verify != SUCCESS",
    "$uri ~ ^/app",
];
/// Those that Tollgate cannot compare, so that they close what they guard.
const ODD_CONDITIONS: [&str; 18] = [
    "$cookie_beta != yes",
    "$cookie_beta = yes",
    "$arg_debug = 1",
    "$request_method ~* ^(get|post)$",
    r"$host ~ ^x\.",
    "$host !~* ^(a|b)",
    "$http_x_key = \"\"",
    "$http_x_key",
    "$http_x_key ~ ^sec",
    "$http_user_agent ~* (bot|crawl)",
    "$arg_debug != 1",
    "$arg_token = \"\"",
    "$args ~ debug",
    "$cookie_session = \"\"",
    "$http_cookie ~ beta",
    r"$remote_addr ~ ^127\.1\.",
    "$plan != gold",
    "$request_uri ~* admin",
];
/// Of a server: expressions, replacements and flags.
const OF_SERVERS: [&str; 9] = [
    "^/old/(.*)$ /app/$1 last",
    "^/old/(.*)$ /api/$1 break",
    "^/go/(.*)$ https://new.test/$1 permanent",
    "^/go/(.*)$ /app/$1 redirect",
    "^/go https://new.test/? redirect",
    "^/user/([a-z]+)$ /app/user?name=$1 last",
    "^/API/(.*) /api/$1",
    "^ https://$host$request_uri? permanent",
    "^/go(.*)$ https://$host$1 permanent",
];
/// Of a location with this prefix, for which `PREFIX` stands.
const OF_LOCATIONS: [&str; 9] = [
    "^PREFIX(.*)$ /$1 break",
    "^PREFIX(.*)$ /base/$1 break",
    "^PREFIXold/(.*)$ PREFIXnew/$1 break",
    "^PREFIX(.*)$ https://new.test/$1 permanent",
    "^PREFIXx$ /exact last",
    "^PREFIXx$ /there redirect",
    r"^(.*)\.php$ $1 break",
    "^(.*)$ /all$1 break",
    "^PREFIX(.*)$ /api/$1 last",
];

impl Writer<'_> {
    pub fn steps(&mut self, level: Level, prefix: &str) {
        if self.dice.chance(if level == Level::Server { 15 } else { 13 }) {
            self.condition(level, prefix);
        }
        if self.dice.chance(9) {
            self.rewrite(level, prefix);
        }
        if self.dice.chance(5) {
            self.condition(level, prefix);
        }
        if level == Level::Location && self.dice.chance(3) {
            self.preflight();
        }
        if self.dice.chance(3) {
            self.flag(level);
        }
    }

    fn test(&mut self, level: Level) -> &'static str {
        match self.is_odd && self.dice.chance(if level == Level::Server { 4 } else { 25 }) {
            true => self.dice.pick(&ODD_CONDITIONS),
            false => self.dice.pick(&CONDITIONS),
        }
    }

    fn condition(&mut self, level: Level, prefix: &str) {
        let condition = self.test(level);
        self.met("if");
        self.block(format!("if ({condition})"), |writer| {
            match writer.dice.weighted(&[(8, "return"), (2, "rewrite"), (1, "pass"), (1, "field")]) {
                "rewrite" => writer.rewrite(level, prefix),
                "pass" if level == Level::Location => {
                    writer.met("proxy_pass in if");
                    let to = writer.service();
                    writer.line(format!("proxy_pass http://{to};"));
                }
                "field" if level == Level::Location => {
                    writer.met("add_header in if");
                    writer.line("add_header X-Added if always;");
                }
                _ => writer.returns(),
            }
        });
    }

    fn rewrite(&mut self, level: Level, prefix: &str) {
        self.met("rewrite");
        let rewrite = match level {
            Level::Location => {
                let prefix = if prefix.is_empty() { "/" } else { prefix };
                self.dice.pick(&OF_LOCATIONS).replace("PREFIX", prefix)
            }
            _ => self.dice.pick(&OF_SERVERS).to_owned(),
        };
        let begin = rewrite.trim_start_matches('^').split(['(', '$', ' ', '\\']).next().unwrap_or_default();
        if begin.starts_with('/') {
            self.targets.paths.push(begin.to_owned());
        }
        self.line(format!("rewrite {rewrite};"));
    }

    /// As pages of others show it for CORS.
    fn preflight(&mut self) {
        self.met("preflight");
        self.block("if ($request_method = OPTIONS)", |writer| {
            writer.line("add_header Access-Control-Allow-Origin *;");
            writer.line("add_header Access-Control-Allow-Methods \"GET, POST\";");
            writer.line("return 204;");
        });
        self.line("add_header Access-Control-Allow-Origin * always;");
    }

    /// A condition in two steps.
    fn flag(&mut self, level: Level) {
        self.met("set");
        let condition = self.test(level);
        let name = if level == Level::Server { "$of_server" } else { "$of_location" };
        self.line(format!("set {name} 0;"));
        self.line(format!("if ({condition}) {{ set {name} 1; }}"));
        self.block(format!("if ({name} = 1)"), Self::returns);
    }
}
