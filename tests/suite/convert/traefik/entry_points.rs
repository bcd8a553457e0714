//! Entry points and the rest of the static configuration, and TLS.

use super::{super::source::Listener, generator::Writer};

/// An entry point.
#[derive(Debug, Clone)]
pub struct EntryPoint {
    pub name: &'static str,
    pub address: &'static str,
    pub port: u16,
    /// Whether all of its routers are for TLS.
    pub is_tls: bool,
    pub is_default: bool,
    /// All requests are redirected, unless a router has a higher priority.
    pub redirects: bool,
}

/// What nobody outside can see.
const NEEDS_NOTHING: [&str; 4] = [
    "global: { checkNewVersion: false, sendAnonymousUsage: false }",
    "log: { level: ERROR }",
    "log: { level: WARN, format: json }",
    "core: { defaultRuleSyntax: v3 }",
];

const FORWARDED_HEADERS: [&str; 2] =
    ["forwardedHeaders: { trustedIPs: [127.0.0.2] }", "forwardedHeaders: { insecure: true }"];

impl Writer<'_> {
    fn choose(&mut self) {
        let port = |nth: usize| self.places.ports[nth];
        let entry_point = |name, address, port, is_tls| EntryPoint {
            name,
            address,
            port,
            is_tls,
            is_default: false,
            redirects: false,
        };
        let tls = self.dice.chance(80);
        let all = [
            entry_point("web", "127.0.0.1", port(0), false),
            entry_point("websecure", "127.0.0.1", port(1), tls),
            entry_point("internal", "127.0.0.2", port(2), false),
            entry_point("public", "0.0.0.0", port(3), false),
        ];
        let count = self.dice.weighted(&[(3, 1), (4, 2), (3, 3)]);
        self.entry_points = self.dice.some(count, &all);
        if self.dice.chance(20) {
            self.met("asDefault");
            let nth = self.dice.number(..count);
            self.entry_points[nth].is_default = true;
        }
    }

    /// The names of the entry points of routers that name none.
    pub fn default_entry_points(&self) -> Vec<&'static str> {
        let any = self.entry_points.iter().any(|entry_point| entry_point.is_default);
        let chosen = self.entry_points.iter().filter(|entry_point| entry_point.is_default || !any);
        chosen.map(|entry_point| entry_point.name).collect()
    }

    pub fn static_file(&mut self) {
        self.choose();
        self.block("entryPoints", |writer| {
            for nth in 0..writer.entry_points.len() {
                let name = writer.entry_points[nth].name;
                writer.block(name, |writer| writer.entry_point(nth));
            }
        });
        self.line("providers: { file: { filename: dynamic.yml } }");
        if let Some(line) = self.dice.maybe(30, &NEEDS_NOTHING) {
            self.line(line);
        }
        self.unknown_of_static();
    }

    fn entry_point(&mut self, nth: usize) {
        let EntryPoint { address, port, is_tls, is_default, .. } = self.entry_points[nth];
        let host = if address == "0.0.0.0" { "" } else { address };
        self.line(format!("address: \"{host}:{port}\""));
        if is_default {
            self.line("asDefault: true");
        }
        if let Some(line) = self.dice.maybe(6, &FORWARDED_HEADERS) {
            self.met("forwardedHeaders");
            if line.contains("trustedIPs") {
                self.trusted = vec!["127.0.0.2".parse().unwrap()];
            }
            self.line(line);
        }
        if self.dice.chance(8) {
            self.met("respondingTimeouts");
            self.line("transport: { respondingTimeouts: { readTimeout: 30s } }");
        }
        let to = self.entry_points.iter().find(|other| other.name == "websecure" && !is_tls).cloned();
        let redirection = to.filter(|_| self.entry_points[nth].name == "web" && self.dice.chance(60));
        let own = match self.dice.chance(12) {
            true => self.some_middlewares(1),
            false => Vec::new(),
        };
        if redirection.is_none() && own.is_empty() && !is_tls {
            return;
        }
        self.block("http", |writer| {
            if is_tls {
                writer.line("tls: {}");
            }
            if !own.is_empty() {
                writer.met("middlewares of an entry point");
                let own: Vec<_> = own.iter().map(|name| format!("{name}@file")).collect();
                writer.line(format!("middlewares: [{}]", own.join(", ")));
            }
            if let Some(to) = redirection {
                writer.redirection(nth, &to);
            }
        });
    }

    fn redirection(&mut self, nth: usize, to: &EntryPoint) {
        self.met("redirections");
        self.entry_points[nth].redirects = true;
        let to = self.dice.weighted(&[
            (6, to.name.to_owned()),
            (1, format!(":{}", to.port)),
            (1, ":443".to_owned()),
        ]);
        let scheme = self.dice.weighted(&[(8, ", scheme: https"), (2, ""), (1, ", scheme: http")]);
        let permanent = self.dice.weighted(&[(6, ""), (2, ", permanent: true"), (2, ", permanent: false")]);
        let priority = self.dice.weighted(&[(6, ""), (1, ", priority: 1"), (1, ", priority: 30")]);
        self.line(format!("redirections: {{ entryPoint: {{ to: \"{to}\"{scheme}{permanent}{priority} }} }}"));
    }

    /// The number of this listener, which is added if it is new.
    pub fn listener(&mut self, entry_point: &str, is_tls: bool) -> Option<usize> {
        let EntryPoint { address, port, .. } =
            *self.entry_points.iter().find(|other| other.name == entry_point)?;
        let address = format!("{address}:{port}").parse().unwrap();
        let is_it = |listener: &Listener| listener.address == address && listener.is_tls == is_tls;
        let found = self.listeners.iter().position(is_it);
        Some(found.unwrap_or_else(|| {
            self.listeners.push(Listener { address, is_tls });
            self.listeners.len() - 1
        }))
    }

    pub fn tls(&mut self) {
        for EntryPoint { name, is_tls, .. } in self.entry_points.clone() {
            self.listener(name, is_tls);
        }
        if !self.listeners.iter().any(|listener| listener.is_tls) {
            return;
        }
        self.met("tls");
        let tls = self.places.tls;
        let files = format!("{{ certFile: {}, keyFile: {} }}", tls.cert, tls.key);
        self.block("tls", |writer| {
            let is_default = writer.dice.chance(50);
            match is_default {
                false => writer.line(format!("certificates: [{files}]")),
                true => writer.line(format!("stores: {{ default: {{ defaultCertificate: {files} }} }}")),
            }
            let kind = "RequireAndVerifyClientCert";
            let given = "VerifyClientCertIfGiven";
            let kinds = [kind, kind, kind, given, given, "RequestClientCert", "RequireAnyClientCert"];
            let asks =
                |kind: &str| format!("{{ clientAuth: {{ caFiles: [{}], clientAuthType: {kind} }} }}", tls.ca);
            let mut options = Vec::new();
            if let Some(kind) = writer.dice.maybe(20, &kinds) {
                writer.met("clientAuth");
                options.push(format!("default: {}", asks(kind)));
            } else if !is_default && writer.dice.chance(10) {
                options.push("default: { minVersion: VersionTLS12, sniStrict: true }".to_owned());
            }
            if writer.has_strict_tls {
                options.push(format!("strict: {}", asks(kind)));
            }
            if !options.is_empty() {
                writer.line(format!("options: {{ {} }}", options.join(", ")));
            }
        });
    }
}
