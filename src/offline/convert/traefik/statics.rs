//! The static configuration, but for its entry points.

use super::{Traefik, rule::Syntax, services::DEFAULT_TRANSPORT};
use crate::offline::convert::{
    condition::RequestCondition,
    document::{Fields, Item},
    path::Path,
    site::{Effect, SiteRule},
};

/// Settings without effect outside: Traefik's own logs, metrics and threads, and where it sends statistics. The files of
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

/// Sections that have no equal, and their replacement.
const NOTED: [(&str, &str); 6] = [
    ("api", "the admin port takes the place of the dashboard: see `admin`"),
    ("ping", "/healthz and /readyz of the admin port take its place"),
    ("metrics", "/metrics of the admin port is for Prometheus"),
    ("tracing", "see `tracing`"),
    ("experimental", "Tollgate has no plugins"),
    ("hostResolver", "Tollgate compares the host as the client sends it"),
];

impl<'d> Traefik<'d> {
    /// Reads the sections of a static configuration.
    pub(super) fn static_part(&mut self, root: &Fields<'d>) {
        if let Some(syntax) = root.fields("core").text("defaultRuleSyntax") {
            self.syntax = Some(Syntax::named(syntax));
        }
        let entry_points = root.fields("entryPoints").each();
        entry_points.iter().for_each(|(name, item)| self.entry_point(name, *item, &entry_points));
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
            let entry_point = item.fields().fields("acme").fields("httpChallenge").text("entryPoint");
            let text = "Tollgate fetches no certificates: forward this path to the program that does";
            self.first(entry_point, item, "/.well-known/acme-challenge/", text);
        }
        if let Some(transport) = root.take("serversTransport") {
            self.transports.insert(DEFAULT_TRANSPORT, transport);
        }
        for key in ["tcp", "udp"] {
            let Some(item) = root.take(key) else { continue };
            let text = "Tollgate forwards HTTP only. Leave this to nginx (`stream`) or HAProxy";
            self.draft.head.push(item.note(format!("`{key}`: {text}")));
            for (_, router) in item.fields().fields("routers").each() {
                let fields = router.fields();
                let is_for_all = fields.text("rule") == Some("HostSNI(`*`)");
                for name in fields.texts("entryPoints").into_iter().filter(|_| is_for_all) {
                    self.first(Some(name), router, "/", text);
                }
            }
        }
        for (key, hint) in NOTED {
            if let Some(item) = root.take(key).filter(|item| !item.is_null()) {
                self.draft.head.push(item.note(format!("`{key}`: {hint}")));
                let fields = item.fields();
                let entry_point =
                    fields.text("entryPoint").or(fields.fields("prometheus").text("entryPoint"));
                let path = if key == "ping" { "/ping" } else { "/metrics" };
                self.first(entry_point, item, path, hint);
            }
        }
    }

    /// Closes the paths that Traefik itself answers on an entry point, before its routers.
    fn first(&mut self, entry_point: Option<&str>, item: Item<'_>, prefix: &str, text: &str) {
        let when = Path::prefix(prefix).map_or(RequestCondition::NEVER, RequestCondition::path);
        let mut all = self.entry_points.iter_mut();
        if let Some(found) = all.find(|known| Some(known.name) == entry_point) {
            let effect = Effect::Close(text.to_owned());
            found.first.push(SiteRule::new(when, effect, &item.place(), prefix));
        }
    }
}
