//! Random configurations of nginx. Few names, so that servers, locations and requests meet each other often.

use std::net::IpAddr;

use super::{
    super::{
        dice::Dice,
        outcome::MARK,
        source::{Generated, Listener, Places},
    },
    requests, unknown,
};

/// What requests are aimed at.
#[derive(Default)]
pub struct Targets {
    /// Names of servers.
    pub hosts: Vec<String>,
    /// Patterns of locations, and beginnings of paths that are rewritten.
    pub paths: Vec<String>,
    pub listeners: Vec<Listener>,
}

/// Where a directive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Http,
    Server,
    Location,
}

/// A configuration that is being written.
pub struct Writer<'a> {
    pub dice: Dice,
    pub places: &'a Places<'a>,
    text: String,
    depth: usize,
    pub targets: Targets,
    words: Vec<&'static str>,
    texts: usize,
    /// Whether there are tests and checks that Tollgate does not know: passwords, cookies, expressions that look around.
    pub is_odd: bool,
    /// A line that the converter does not know, and where it is to be written.
    pub unknown: Option<(Level, &'static str)>,
    /// Named locations that the current server needs.
    pub named: Vec<String>,
    trusted: Vec<IpAddr>,
    /// A file with the servers, which the first includes.
    included: Option<String>,
}

pub fn generate(seed: u64, places: &Places<'_>) -> Generated {
    let mut dice = Dice::new(seed);
    let unknown = (seed % 10 == 9).then(|| unknown::line(&mut dice));
    let mut writer = Writer {
        dice,
        places,
        text: String::new(),
        depth: 0,
        targets: Targets::default(),
        words: Vec::new(),
        texts: 0,
        is_odd: !seed.is_multiple_of(2),
        unknown,
        named: Vec::new(),
        trusted: Vec::new(),
        included: None,
    };
    writer.main();
    assert_eq!(writer.unknown, None, "the unknown word has no place");
    let requests = requests::requests(&mut writer.dice, &writer.targets);
    let mut files = vec![("nginx.conf".to_owned(), writer.text)];
    if files[0].1.contains("htpasswd") {
        // In plain text, nobody's but a test's.
        files.push(("htpasswd".to_owned(), "ann:{PLAIN}secret\n".to_owned()));
    }
    if let Some(servers) = writer.included {
        files.push(("servers.conf".to_owned(), servers));
    }
    Generated {
        files,
        is_odd: writer.is_odd,
        listeners: writer.targets.listeners,
        requests,
        trusted: writer.trusted,
        unknown: unknown.map(|(_, line)| line.split([' ', ';']).next().unwrap_or_default().to_owned()),
        words: writer.words,
        ..Generated::default()
    }
}

impl Writer<'_> {
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.text += &format!("{}{}\n", "  ".repeat(self.depth), text.as_ref());
    }

    pub fn block(&mut self, head: impl AsRef<str>, body: impl FnOnce(&mut Self)) {
        self.line(format!("{} {{", head.as_ref()));
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// The configuration has this word.
    pub fn met(&mut self, word: &'static str) {
        self.words.push(word);
    }

    /// A text that no other response has.
    pub fn text(&mut self) -> String {
        self.texts += 1;
        format!("{MARK}{}", self.texts)
    }

    /// One of the services, as `proxy_pass` names it.
    pub fn service(&mut self) -> String {
        match self.dice.weighted(&[(3, 0), (3, 1), (3, 2), (2, 3), (1, 4)]) {
            3 => "pool".to_owned(),
            4 => "spared".to_owned(),
            nth => self.places.origins[nth].to_string(),
        }
    }

    /// Writes the unknown line, if it belongs here.
    pub fn unknown(&mut self, level: Level) {
        if let Some((_, line)) = self.unknown.take_if(|(wanted, _)| *wanted == level) {
            self.line(line);
        }
    }

    fn main(&mut self) {
        self.line("events { }");
        self.block("http", |writer| {
            writer.line("access_log off; client_body_temp_path body; proxy_temp_path proxy;");
            writer.line("fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;");
            writer.upstreams();
            writer.tables();
            writer.tuning();
            writer.inherited(Level::Http);
            writer.unknown(Level::Http);
            if writer.dice.chance(10) {
                writer.met("include");
                writer.line("include servers.conf;");
                let (outer, depth) = (std::mem::take(&mut writer.text), std::mem::take(&mut writer.depth));
                writer.servers();
                writer.included = Some(std::mem::replace(&mut writer.text, outer));
                writer.depth = depth;
            } else {
                writer.servers();
            }
        });
    }

    fn upstreams(&mut self) {
        let origins = self.places.origins;
        let balance = self.dice.maybe(30, &["least_conn; ", "ip_hash; ", "random; "]).unwrap_or_default();
        let (one, other) = (origins[3], origins[4]);
        let weight = self.dice.maybe(30, &[" weight=3", " max_fails=3 fail_timeout=5s"]).unwrap_or_default();
        let keepalive = self.dice.maybe(30, &[" keepalive 8;"]).unwrap_or_default();
        self.line(format!("upstream pool {{ {balance}server {one}{weight}; server {other};{keepalive} }}"));
        // The second gets nothing as long as the first is there.
        let how = self.dice.pick(&["backup", "down"]);
        self.line(format!("upstream spared {{ server {}; server {} {how}; }}", origins[0], origins[1]));
    }

    /// Tables whose variables conditions and fields may have.
    fn tables(&mut self) {
        self.line("geo $inside { default 0; 127.0.0.0/28 1; 127.1.0.1 1; }");
        self.line("map $http_x_plan $plan { default free; gold gold; ~^si silver; }");
        self.line("map $http_upgrade $connection_upgrade { default upgrade; '' close; }");
        self.line("limit_req_zone $binary_remote_addr zone=all:1m rate=1000r/s;");
        if let Some(kind) = self.dice.maybe(30, &["text/plain", "application/json"]) {
            self.line(format!("default_type {kind};"));
        }
        if self.dice.chance(8) {
            self.met("real_ip");
            self.trusted = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
            let header = self.dice.pick(&["X-Forwarded-For", "X-Forwarded-For", "X-Real-IP"]);
            let recursive = self.dice.pick(&["on", "on", "off"]);
            self.line(format!(
                "set_real_ip_from 127.0.0.1; set_real_ip_from 127.0.0.2; real_ip_header {header}; \
                 real_ip_recursive {recursive};"
            ));
        }
    }

    /// Words that most files have and few clients notice.
    fn tuning(&mut self) {
        const LINES: [&str; 11] = [
            "sendfile on; tcp_nopush on; keepalive_timeout 65; types_hash_max_size 2048;",
            "server_tokens off;",
            "proxy_buffering off;",
            "proxy_request_buffering off;",
            "proxy_connect_timeout 5s; proxy_read_timeout 90s; proxy_send_timeout 90s;",
            "merge_slashes off;",
            "absolute_redirect off;",
            "port_in_redirect off;",
            "underscores_in_headers on;",
            "proxy_redirect off;",
            "proxy_next_upstream off;",
        ];
        let count = self.dice.weighted(&[(4, 0), (4, 1), (2, 3)]);
        for line in self.dice.some(count, &LINES) {
            self.line(line);
        }
    }
}
