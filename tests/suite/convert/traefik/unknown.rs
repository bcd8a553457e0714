//! What Traefik knows and the converter does not, or what is missing: what it does is unknown, so that it closes, or has
//! no equal.

use super::{super::dice::Dice, generator::Writer, middlewares::Middleware};

/// Each with the word that a note has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// A line of the static file.
    Static(&'static str, &'static str),
    /// A middleware of one router.
    Middleware(&'static str, &'static str),
    /// A service of one router.
    Service(&'static str, &'static str),
    /// A part of the rule of one router.
    Rule(&'static str, &'static str),
    /// A name in one router of what is not there: of a middleware, a service or an entry point.
    Absent(&'static str, &'static str),
    /// A section of the dynamic file.
    Section(&'static str, &'static str),
}

use Unknown::{Absent, Middleware as Of, Rule, Section, Service, Static};

const ALL: [Unknown; 20] = [
    Static("ping", "ping: { entryPoint: ENTRY }"),
    Of("plugin", "plugin: { jwt: { secret: s } }"),
    Of("plugin", "plugin: { oidc: { provider: p } }"),
    Of("forwardAuth", "forwardAuth: { address: \"http://ORIGIN/auth\" }"),
    Of("forwardAuth", "forwardAuth: { address: \"http://ORIGIN/auth\", authResponseHeaders: [X-User] }"),
    Of("digestAuth", "digestAuth: { users: [\"ann:realm:a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4\"] }"),
    Of("circuitBreaker", "circuitBreaker: { expression: \"NetworkErrorRatio() > 0.5\" }"),
    Of("errors", "errors: { status: [\"404\"], service: one, query: /error }"),
    Of("passTLSClientCert", "passTLSClientCert: { pem: true }"),
    Of("grpcWeb", "grpcWeb: { allowOrigins: [\"*\"] }"),
    Of("ipStrategy", "ipAllowList: { sourceRange: [127.0.0.0/8], ipStrategy: { excludedIPs: [127.0.0.1] } }"),
    Service("services.unknown", "mirroring: { service: one, mirrors: [{ name: two, percent: 0 }] }"),
    Service("services.unknown", "failover: { service: one, fallback: two }"),
    Service(
        "serversTransport",
        "loadBalancer: { serversTransport: absent, servers: [{ url: \"http://ORIGIN\" }] }",
    ),
    Rule("Nonsense", "Nonsense(`x`)"),
    Absent("absent", "service"),
    Absent("absent", "middleware"),
    Absent("absent@docker", "middleware"),
    Absent("absent", "entry point"),
    Section(
        "tcp",
        "tcp: { routers: { t: { rule: \"HostSNI(`*`)\", service: t, entryPoints: [ENTRY] } }, \
         services: { t: { loadBalancer: { servers: [{ address: \"ORIGIN\" }] } } } }",
    ),
];

impl Unknown {
    pub fn word(self) -> &'static str {
        let (Static(word, _)
        | Of(word, _)
        | Service(word, _)
        | Rule(word, _)
        | Absent(word, _)
        | Section(word, _)) = self;
        word
    }
}

pub fn choose(dice: &mut Dice) -> Unknown {
    dice.pick(&ALL)
}

impl Writer<'_> {
    /// The text with the names of this configuration.
    fn filled(&self, text: &str) -> String {
        let entry_point = self.entry_points.first().map_or("", |one| one.name);
        text.replace("ENTRY", entry_point).replace("ORIGIN", &self.places.origins[0].to_string())
    }

    pub fn unknown_of_static(&mut self) {
        if let Some(Static(_, line)) = self.unknown.take_if(|unknown| matches!(unknown, Static(..))) {
            let line = self.filled(line);
            self.line(line);
        }
    }

    pub fn unknown_section(&mut self) {
        if let Some(Section(_, line)) = self.unknown.take_if(|unknown| matches!(unknown, Section(..))) {
            let line = self.filled(line);
            self.line(line);
        }
    }

    /// What is unknown of this router is in one of these.
    pub fn unknown_of_router(
        &mut self,
        rule: &mut String,
        middlewares: &mut Vec<String>,
        service: &mut String,
        entry_points: &mut Option<Vec<&'static str>>,
    ) {
        let is_of_router = |unknown: &mut Unknown| !matches!(unknown, Static(..) | Section(..));
        let Some(unknown) = self.unknown.take_if(is_of_router) else { return };
        match unknown {
            Of(_, text) => {
                let text = self.filled(text);
                self.middlewares.push(Middleware { name: "unknown".to_owned(), text });
                self.need_service("one");
                middlewares.push("unknown".to_owned());
            }
            Service(_, text) => {
                self.other_service = Some(self.filled(text));
                self.need_service("one");
                self.need_service("two");
                "unknown".clone_into(service);
            }
            Rule(_, matcher) => *rule = format!("{rule} && {matcher}"),
            Absent(name, "middleware") => middlewares.push(name.to_owned()),
            Absent(name, "service") => name.clone_into(service),
            Absent(name, _) => *entry_points = Some(vec![name]),
            Static(..) | Section(..) => unreachable!("taken elsewhere"),
        }
    }
}
