//! The static configuration, but for its entry points.

use super::{Traefik, rule::Syntax};
use crate::convert::{
    condition::Condition,
    document::{Fields, Item},
    path,
    site::{Action, Effect, Rule},
    yaml::Map,
};

/// What nobody outside can see: Traefik's own logs, metrics and threads, and where it sends statistics. The files of
/// `providers.file` are read apart.
const NEEDS_NOTHING: [&str; 8] = [
    "log",
    "accessLog",
    "global",
    "pilot",
    "providersThrottleDuration",
    "ocsp",
    "tcpServersTransport",
    "file",
];

/// Sections that have no equal, and what takes their place.
const NOTED: [(&str, &str); 7] = [
    ("api", "the admin port takes the place of the dashboard: see `admin`"),
    ("metrics", "/metrics of the admin port is for Prometheus"),
    ("tracing", "see `tracing`"),
    ("experimental", "Tollgate has no plugins"),
    ("hub", "it has no equal"),
    ("spiffe", "it has no equal"),
    ("hostResolver", "Tollgate compares the host as the client sends it"),
];

impl<'d> Traefik<'d> {
    /// Reads the sections of a static configuration.
    pub(super) fn static_part(&mut self, root: &Fields<'d>) {
        if let Some(syntax) = root.fields("core").text("defaultRuleSyntax") {
            self.syntax = Some(Syntax::named(syntax));
        }
        let entry_points = root.fields("entryPoints").each();
        for (name, item) in &entry_points {
            self.addresses.extend(item.fields().text("address").map(|address| (*name, address)));
        }
        entry_points.into_iter().for_each(|(name, item)| self.entry_point(name, item));
        root.ignore(&NEEDS_NOTHING);
        for (name, item) in root.fields("providers").each() {
            if !NEEDS_NOTHING.contains(&name) {
                let text = "the routers that it finds are not in this file: write their routes and upstreams by hand";
                self.draft.head.push(item.note(format!("`providers.{name}`: {text}")));
            }
        }
        for (name, item) in root.fields("certificatesResolvers").each() {
            let text = "Tollgate fetches no certificates. Let certbot or lego write them; they are read again when they \
                        change";
            self.draft.head.push(item.note(format!("`{name}`: {text}")));
            if let Some(entry_point) = item.fields().fields("acme").fields("httpChallenge").text("entryPoint")
            {
                let text = "Tollgate fetches no certificates: forward this path to the program that does";
                self.first(entry_point, item, "/.well-known/acme-challenge/", Effect::Close(text.to_owned()));
            }
        }
        if let Some(transport) = root.take("serversTransport") {
            self.transports.insert(super::services::DEFAULT_TRANSPORT, transport);
        }
        if let Some(ping) = root.take("ping") {
            self.ping(ping);
        }
        if let Some(entry_point) = root.fields("metrics").fields("prometheus").text("entryPoint") {
            let item = root.take("metrics");
            let text = "/metrics of the admin port is for Prometheus".to_owned();
            item.into_iter()
                .for_each(|item| self.first(entry_point, item, "/metrics", Effect::Close(text.clone())));
        }
        for (key, hint) in NOTED {
            if let Some(item) = root.take(key).filter(|item| !item.is_null()) {
                self.draft.head.push(item.note(format!("`{key}`: {hint}")));
            }
        }
    }

    fn ping(&mut self, ping: Item<'d>) {
        let fields = ping.fields();
        match fields.text("entryPoint").filter(|_| !fields.is_true("manualRouting")) {
            Some(entry_point) => {
                let reply = Map::new().with("body", "OK");
                self.first(entry_point, ping, "/ping", Effect::Act(Action::Reply(reply)));
            }
            None => {
                let text = "`ping`: /healthz and /readyz of the admin port take its place";
                self.draft.head.push(ping.note(text));
            }
        }
    }

    /// Adds a rule that precedes the routers of an entry point.
    fn first(&mut self, entry_point: &str, item: Item<'_>, prefix: &str, effect: Effect) {
        let when = path::Path::prefix(prefix).map_or(Condition::NEVER, Condition::path);
        if let Some(found) = self.entry_points.iter_mut().find(|known| known.name == entry_point) {
            found.first.push(Rule::new(when, effect, &item.place(), prefix));
        }
    }
}
