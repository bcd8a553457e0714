//! Entry points.

use std::net::SocketAddr;

use super::{Traefik, redirects::Redirection, routers::Router, tls::Domains};
use crate::convert::{
    Note, Place,
    condition::Condition,
    document::{Fields, Item},
    networks::Networks,
    path::Path,
    site::{Effect, Rule},
    yaml::Comment,
};

/// The priority of a redirection of an entry point: before all routers.
const FIRST: i64 = i64::MAX - 1;

/// What nobody outside can see: how the process binds its socket and ends, and what it logs. Paths are normalised
/// anyway. Listeners tell `http`, `transport` and the like apart by their own keys.
const NEEDS_NOTHING: [&str; 4] = ["reusePort", "observability", "udp", "allowACMEByPass"];
const HTTP_NEEDS_NOTHING: [&str; 3] = ["encodeQuerySemicolons", "sanitizePath", "redirections"];

/// An address on which Traefik listens.
pub(super) struct EntryPoint<'d> {
    pub(super) name: String,
    pub(super) address: String,
    /// Whether routers that name no entry point are on it.
    pub(super) is_default: bool,
    /// Whether each of its routers has TLS.
    pub(super) has_tls: bool,
    pub(super) tls_options: Option<&'d str>,
    pub(super) domains: Domains,
    pub(super) middlewares: Vec<Item<'d>>,
    pub(super) redirect: Option<Router<'d>>,
    pub(super) proxy_protocol: bool,
    /// What precedes its routers.
    pub(super) first: Vec<Rule>,
    pub(super) comments: Vec<Comment>,
    pub(super) is_guess: bool,
    pub(super) place: Place,
    /// The proxies whose `X-Forwarded-For` counts.
    trusted: Networks,
    /// Every client may say that it is such a proxy.
    pub(super) is_insecure: bool,
    /// Whether Traefik makes routers of its own for it: they count by themselves.
    pub(super) has_own: bool,
}

impl<'d> EntryPoint<'d> {
    fn new(name: &str, address: String, place: Place) -> Self {
        Self {
            name: name.to_owned(),
            address,
            is_default: false,
            has_tls: false,
            tls_options: None,
            domains: Domains::default(),
            middlewares: Vec::new(),
            redirect: None,
            proxy_protocol: false,
            first: Vec::new(),
            comments: Vec::new(),
            is_guess: false,
            place,
            trusted: Networks::default(),
            is_insecure: false,
            has_own: false,
        }
    }

    /// Whether a router is on it.
    pub(super) fn has(&self, router: &Router<'d>) -> bool {
        match router.entry_points.is_empty() {
            true => self.is_default,
            false => router.entry_points.contains(&self.name.as_str()),
        }
    }

    /// Whether its listener speaks TLS. Traefik tells TLS from plain HTTP by the first byte of a connection; a listener
    /// is for one of them.
    pub(super) fn is_tls(&self, routers: &[Router<'d>]) -> bool {
        let count = |has_tls: bool, is_named: bool| {
            let of_kind = |router: &&Router<'d>| {
                router.has_tls == has_tls
                    && (!is_named || !router.entry_points.is_empty())
                    && self.has(router)
            };
            routers.iter().filter(of_kind).count()
        };
        if self.has_tls || self.redirect.is_some() {
            return self.has_tls;
        }
        match (count(true, true), count(false, true)) {
            (0, 0) if self.address.ends_with("443") => count(true, false) > 0,
            (0, 0) => count(false, false) == 0 && count(true, false) > 0,
            (tls, plain) => tls > 0 && (plain == 0 || self.address.ends_with("443")),
        }
    }
}

impl<'d> Traefik<'d> {
    pub(super) fn entry_point(&mut self, name: &str, item: Item<'d>) {
        let fields = item.fields();
        let address = fields.text("address").unwrap_or(":80");
        let (address, protocol) = address.split_once('/').unwrap_or((address, "tcp"));
        if protocol != "tcp" {
            self.draft.head.push(item.note(format!("`{name}`: Tollgate does not listen on {protocol}")));
            return;
        }
        let mut entry_point = EntryPoint::new(name, String::new(), item.place());
        entry_point.address = match socket(address) {
            Some(address) => address,
            None => {
                let port = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or(80);
                entry_point.comments.push(item.note(format!("`{address}` is no address: write it here")));
                format!("127.0.0.1:{port}")
            }
        };
        entry_point.is_default = fields.is_true("asDefault");
        self.read_http(&fields, &mut entry_point);
        self.read_trust(&fields, &mut entry_point);
        entry_point.has_own = self.syntax.is_some()
            || entry_point.has_tls
            || !entry_point.middlewares.is_empty()
            || fields.take("observability").is_some()
            || fields.fields("http").take("encodedCharacters").is_some();
        fields.ignore(&NEEDS_NOTHING);
        let transport = fields.fields("transport");
        // How the process ends.
        transport.ignore(&["lifeCycle"]);
        for fields in [&transport, &fields] {
            for (key, item) in fields.rest() {
                let hint = "see `client_limits` and the settings of listeners";
                entry_point.comments.push(item.note(format!("`{name}.{key}` has no equal: {hint}")));
            }
        }
        self.entry_points.push(entry_point);
    }

    fn read_http(&mut self, fields: &Fields<'d>, entry_point: &mut EntryPoint<'d>) {
        let http = fields.fields("http");
        if let Some(tls) = http.take("tls").filter(|item| item.text() != Some("false")) {
            let fields = tls.fields();
            entry_point.has_tls = true;
            entry_point.tls_options = fields.text("options");
            entry_point.domains = Domains::read(&fields);
        }
        entry_point.middlewares = http.items("middlewares");
        if let Some(to) = http.fields("redirections").take("entryPoint") {
            match self.redirection(to, fields.is_true("allowACMEByPass")) {
                Ok(mut router) => {
                    router.has_tls = entry_point.has_tls;
                    entry_point.redirect = Some(router);
                }
                Err(text) => entry_point.comments.push(to.note(text)),
            }
        }
        for rule in encoded_characters(&http.fields("encodedCharacters")) {
            entry_point.first.push(rule);
        }
        http.ignore(&HTTP_NEEDS_NOTHING);
        for (key, item) in http.rest() {
            let text = format!("`{}.http.{key}` has no equal", entry_point.name);
            entry_point.comments.push(item.note(text));
        }
    }

    /// The router of `redirections.entryPoint`.
    fn redirection(&self, item: Item<'d>, is_bypassed: bool) -> Result<Router<'d>, String> {
        let fields = item.fields();
        let to = fields.text("to").unwrap_or_default();
        let is_permanent = fields.take("permanent").is_none_or(Item::is_true);
        let priority = match fields.take("priority").map(|item| item.text().unwrap_or_default().parse()) {
            None => FIRST,
            Some(priority) => priority.map_err(|_| "`priority` cannot be read: not converted".to_owned())?,
        };
        let port = match to.strip_prefix(':') {
            Some(port) => port.to_owned(),
            None => {
                self.port_of(to).ok_or_else(|| format!("no entry point `{to}`: nothing is redirected"))?
            }
        };
        let redirection = Redirection {
            scheme: fields.text("scheme").unwrap_or("https").to_owned(),
            port,
            status: if is_permanent { 308 } else { 307 },
        };
        let challenge = Path::prefix("/.well-known/acme-challenge/").map(Condition::path)?;
        let condition = if is_bypassed { challenge.not() } else { Condition::ALWAYS };
        Ok(Router::redirecting(item, condition, priority, redirection))
    }

    /// The port of an entry point, which may be listed later.
    fn port_of(&self, name: &str) -> Option<String> {
        let address = self.addresses.get(name)?.split('/').next()?;
        address.rsplit(':').next().map(str::to_owned)
    }

    fn read_trust(&mut self, fields: &Fields<'d>, entry_point: &mut EntryPoint<'d>) {
        let name = entry_point.name.clone();
        let proxy = fields.take("proxyProtocol");
        entry_point.proxy_protocol = proxy.is_some();
        let forwarded = fields.fields("forwardedHeaders");
        for (fields, is_forwarded) in
            [(&forwarded, true), (&proxy.map_or_else(|| forwarded.fields("-"), Item::fields), false)]
        {
            for item in fields.items("trustedIPs") {
                let text = item.text().unwrap_or_default();
                match Networks::parse([text]) {
                    Ok(networks) => {
                        if !is_forwarded {
                            self.proxies = self.proxies.or(&networks);
                        }
                        if is_forwarded {
                            entry_point.trusted = entry_point.trusted.or(&networks);
                        }
                    }
                    Err(text) => entry_point.comments.push(item.note(format!("`{text}` is no network"))),
                }
            }
            if let Some(insecure) = fields.take("insecure").filter(|item| item.is_true()) {
                let text = "`insecure` trusts every client. Nobody's `X-Forwarded-For`, `X-Forwarded-Proto`, \
                            `X-Forwarded-Host` and `X-Real-Ip` count here: list the proxies in `trusted_proxies`";
                entry_point.comments.push(insecure.note(text));
                entry_point.is_insecure = true;
            }
            for (key, item) in fields.rest() {
                entry_point.comments.push(item.note(format!("`{name}.{key}` has no equal")));
            }
        }
        if let Some(item) = proxy {
            let text = "connections of others than `trusted_proxies` are closed here; Traefik reads them without a PROXY \
                        header";
            entry_point.comments.push(item.note(text));
        }
    }

    /// Trusts the proxies that all entry points trust, but for those that only redirect: a listener has no proxies of
    /// its own.
    pub(super) fn trust(&mut self) {
        let all: Vec<_> =
            self.entry_points.iter().filter(|entry_point| entry_point.redirect.is_none()).collect();
        self.trusted = all
            .iter()
            .map(|entry_point| entry_point.trusted.clone())
            .reduce(|one, other| one.and(&other))
            .unwrap_or_default();
        if let Some(other) = all.iter().find(|entry_point| entry_point.trusted != self.trusted) {
            let text = "`trustedIPs`: listeners have the same `trusted_proxies`: those that all entry points trust. The \
                        `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Real-Ip` of others do not count";
            self.draft
                .head
                .push(Comment::Unconverted(Note { place: other.place.clone(), text: text.to_owned() }));
        } else if let Some(one) = all.first().filter(|_| !self.trusted.is_empty()) {
            let text =
                "`X-Real-Ip` is the client's address here, which Traefik takes from the proxy in front";
            self.draft
                .head
                .push(Comment::Unconverted(Note { place: one.place.clone(), text: text.to_owned() }));
        }
        let proxies = self.trusted.or(&self.proxies).written();
        if !proxies.is_empty() {
            self.draft.settings.set("trusted_proxies", proxies);
        }
    }

    /// Adds entry points that only the static configuration would tell, with the ports that they have in Traefik's
    /// documentation; and finds out which are the default ones.
    pub(super) fn guess_entry_points(&mut self, routers: &[Router<'d>]) {
        if self.entry_points.is_empty() {
            let mut names: Vec<&str> = Vec::new();
            for name in routers.iter().flat_map(|router| &router.entry_points) {
                if !names.contains(name) {
                    names.push(name);
                }
            }
            if names.is_empty() {
                let needs = |has_tls: bool| routers.iter().any(|router| router.has_tls == has_tls);
                names.extend(
                    [("websecure", true), ("web", false)]
                        .iter()
                        .filter(|(_, tls)| needs(*tls))
                        .map(|(name, _)| *name),
                );
            }
            let mut next = 8080_u16;
            let place = routers
                .first()
                .map_or_else(|| Place { file: String::new(), line: 0 }, |router| router.item.place());
            for name in names {
                let is_secure = ["secure", "https", "tls"].iter().any(|word| name.contains(word));
                let port = match (name, is_secure) {
                    ("web" | "http", _) => 80,
                    ("websecure" | "https" | "web-secure", _) => 443,
                    _ => {
                        next += 1;
                        next - 1
                    }
                };
                let has_tls = is_secure;
                self.entry_points.push(EntryPoint {
                    has_tls,
                    is_guess: true,
                    ..EntryPoint::new(name, format!("0.0.0.0:{port}"), place.clone())
                });
            }
        }
        if !self.entry_points.iter().any(|entry_point| entry_point.is_default) {
            self.entry_points
                .iter_mut()
                .for_each(|entry_point| entry_point.is_default = entry_point.name != "traefik");
        }
    }
}

/// Refusals of percent-encoded characters that are not allowed.
pub(super) fn encoded_characters(fields: &Fields<'_>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (key, encoded) in [
        ("allowEncodedSlash", "%2F"),
        ("allowEncodedBackSlash", "%5C"),
        ("allowEncodedNullCharacter", "%00"),
        ("allowEncodedSemicolon", "%3B"),
        ("allowEncodedPercent", "%25"),
        ("allowEncodedQuestionMark", "%3F"),
        ("allowEncodedHash", "%23"),
    ] {
        let Some(item) = fields.take(key).filter(|item| !item.is_true()) else { continue };
        let when = Path::regex(encoded, true).map_or_else(Condition::unknown_place, Condition::path);
        rules.push(Rule::new(when, Effect::Refuse(400), &item.place(), key));
    }
    rules
}

/// `:80` and the like as the address of a listener.
fn socket(address: &str) -> Option<String> {
    let address = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.replace("localhost:", "127.0.0.1:"),
    };
    address.parse::<SocketAddr>().ok().map(|_| address)
}
