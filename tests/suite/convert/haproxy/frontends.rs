//! Frontends and listens: where they listen, and where requests go.

use std::net::Ipv4Addr;

use super::{
    super::source::Listener,
    generator::{For, Kind, Writer},
    requests::MONITORED,
};

/// A socket of a frontend.
#[derive(Debug, Clone, Copy)]
pub struct Port {
    pub listener: Listener,
    /// Whether it listens: the section is not disabled.
    pub is_open: bool,
}

const NAMES: [&str; 5] = ["public", "internal", "web", "api", "admin"];

impl Writer<'_> {
    pub fn frontends(&mut self, from: &str, listen_from: &str) {
        let count = self.dice.weighted(&[(4, 1), (4, 2), (2, 3)]);
        let names = self.dice.some(count, &NAMES);
        for (nth, name) in names.into_iter().enumerate() {
            // A listen shares its names with backends.
            let needs_frontend = self.unknown.is_some() && nth == 0;
            let is_listen = self.dice.chance(20) && !self.backends.contains(&name) && !needs_frontend;
            let is_off = nth > 0 && self.dice.chance(15);
            let kind = if is_listen { Kind::Listen } else { Kind::Frontend };
            let word = if is_listen { "listen" } else { "frontend" };
            let from = if is_listen { listen_from } else { from };
            self.is_off = is_off;
            self.section(format!("{word} {name}{from}"), |writer| {
                if is_off {
                    writer.met("disabled");
                    writer.line("disabled");
                }
                writer.binds(!is_off);
                writer.frontend(kind);
            });
        }
    }

    fn binds(&mut self, is_open: bool) {
        let count = self.dice.weighted(&[(6, 1), (3, 2)]);
        for _ in 0..count {
            let Some(&port) = self.places.ports.get(self.targets.ports.len()) else { return };
            let (address, ip) = self.dice.weighted(&[
                (8, ("127.0.0.1:", Ipv4Addr::LOCALHOST)),
                (4, ("*:", Ipv4Addr::UNSPECIFIED)),
                (2, (":", Ipv4Addr::UNSPECIFIED)),
                (1, ("0.0.0.0:", Ipv4Addr::UNSPECIFIED)),
                (1, ("127.0.0.2:", Ipv4Addr::new(127, 0, 0, 2))),
                (1, ("ipv4@127.0.0.1:", Ipv4Addr::LOCALHOST)),
            ]);
            let is_tls = self.dice.chance(30);
            let mut words =
                self.dice.maybe(10, &[" name door", " maxconn 100", " backlog 50"]).unwrap_or("").to_owned();
            if is_tls {
                self.met("ssl");
                words += &format!(" ssl crt {}", self.places.tls.both);
                if let Some(verify) = self.dice.maybe(35, &["required", "required", "optional"]) {
                    self.met(if verify == "required" { "verify required" } else { "verify optional" });
                    words += &format!(" ca-file {} verify {verify}", self.places.tls.ca);
                }
                words += self
                    .dice
                    .maybe(30, &[" alpn h2,http/1.1", " alpn http/1.1", " ssl-min-ver TLSv1.2"])
                    .unwrap_or("");
            }
            let listener =
                |ip: Ipv4Addr| Port { listener: Listener { address: (ip, port).into(), is_tls }, is_open };
            if address == "127.0.0.1:" && self.dice.chance(10) {
                self.met("a bind with two addresses");
                self.line(format!("bind 127.0.0.1:{port},127.0.0.3:{port}{words}"));
                // One of the two is enough: they share the port.
                self.targets.ports.push(listener(ip));
                continue;
            }
            self.line(format!("bind {address}{port}{words}"));
            self.targets.ports.push(listener(ip));
        }
    }

    fn frontend(&mut self, kind: Kind) {
        if self.dice.chance(20) {
            self.forwardfor();
        }
        self.odds(kind);
        self.acl_lines();
        // Before the rules that may leave it nothing to do.
        self.unknown(kind);
        if self.has_users && self.dice.chance(60) {
            self.auth();
        }
        // Nor may they keep requests from an unknown word of a backend.
        let needs_backend =
            self.unknown.is_some_and(|(wanted, _)| wanted == Kind::Backend) && self.used.is_empty();
        if !needs_backend {
            let count = self.dice.weighted(&[(1, 0), (3, 1), (3, 2), (2, 3), (1, 5)]);
            for _ in 0..count {
                self.rule(kind);
            }
        }
        if kind == Kind::Listen {
            self.servers();
            return;
        }
        let count = if needs_backend { 0 } else { self.dice.weighted(&[(3, 0), (4, 1), (3, 2), (1, 3)]) };
        for _ in 0..count {
            self.met("use_backend");
            let (name, condition) = (self.backend_name(), self.condition(For::Choosing));
            self.line(format!("use_backend {name}{condition}"));
        }
        // What is unknown of responses needs one, too.
        if self.dice.chance(90) || self.has_unknown {
            let name = self.backend_name();
            self.line(format!("default_backend {name}"));
        }
    }

    fn backend_name(&mut self) -> &'static str {
        let name = self.dice.pick(&self.backends.clone());
        self.named.push(name);
        if !self.is_off {
            self.used.push(name);
        }
        name
    }

    /// Words that have an effect of their own, each now and then.
    pub fn odds(&mut self, kind: Kind) {
        let is_front = kind != Kind::Backend;
        if is_front && self.dice.chance(5) {
            self.met("monitor-uri");
            self.line(format!("monitor-uri {MONITORED}"));
            self.targets.paths.push(MONITORED.to_owned());
        }
        if self.dice.chance(4) {
            self.noted("stats");
            self.line("stats enable");
            self.line("stats uri /stats");
            self.targets.paths.push("/stats".to_owned());
        }
        if self.dice.chance(3) {
            self.errorfile();
        }
        if self.dice.chance(3) {
            self.compression();
        }
        if is_front && self.dice.chance(3) {
            self.met("maxconn");
            self.line("maxconn 100");
        }
        if is_front && self.dice.chance(2) {
            self.noted("rate-limit");
            self.line("rate-limit sessions 1000");
        }
        if self.dice.chance(3) {
            self.met("timeout tunnel");
            self.line("timeout tunnel 30s");
        }
    }
}
