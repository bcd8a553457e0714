//! Entry points.

use std::net::SocketAddr;

use super::{
    Traefik, rest,
    routers::{RouterEnd, TraefikRouter},
    tls::TlsOptions,
};
use crate::offline::convert::{
    Note, SourceLine,
    condition::RequestCondition,
    document::{Fields, Item},
    networks::Networks,
    path::Path,
    site::{Effect, SiteRule},
    yaml::Comment,
};

/// The requests that a redirect to another scheme is for, where a proxy in front may say that a request came by HTTPS.
pub(super) const PROTO: &str = "routes do not compare the `X-Forwarded-Proto` of proxies in front";

/// A redirect of all requests.
pub(super) struct Redirection {
    pub(super) scheme: String,
    pub(super) port: String,
    pub(super) status: u64,
}

/// The priority of a redirection of an entry point: before all routers.
const FIRST: i64 = i64::MAX - 1;

/// Settings without effect outside: how the process binds its socket and ends, and its log. Paths are normalised
/// anyway. Listeners tell `http`, `transport` and the like apart by their own keys.
const NEEDS_NOTHING: [&str; 3] = ["reusePort", "observability", "udp"];
const HTTP_NEEDS_NOTHING: [&str; 3] = ["encodeQuerySemicolons", "sanitizePath", "redirections"];

/// An address on which Traefik listens.
#[derive(Default)]
pub(super) struct EntryPoint<'d> {
    pub(super) name: &'d str,
    pub(super) address: String,
    /// Whether routers that name no entry point are on it.
    is_default: bool,
    /// Of its routers.
    pub(super) tls: Option<TlsOptions<'d>>,
    pub(super) middlewares: Vec<Item<'d>>,
    pub(super) redirect: Option<TraefikRouter<'d>>,
    pub(super) proxy_protocol: bool,
    /// The rules before its routers.
    pub(super) first: Vec<SiteRule>,
    pub(super) comments: Vec<Comment>,
    pub(super) place: SourceLine,
    /// The proxies whose `X-Forwarded-For` counts.
    trusted: Networks,
    /// Every client may say that it is such a proxy.
    pub(super) is_insecure: bool,
    /// Whether Traefik makes routers of its own for it: they count by themselves.
    pub(super) has_own: bool,
}

impl<'d> EntryPoint<'d> {
    /// Whether a router is on it.
    pub(super) fn has(&self, router: &TraefikRouter<'d>) -> bool {
        match router.entry_points.is_empty() {
            true => self.is_default,
            false => router.entry_points.contains(&self.name),
        }
    }

    /// Whether its listener speaks TLS. Traefik tells TLS from plain HTTP by the first byte of a connection; a listener
    /// is for one of them.
    pub(super) fn is_tls(&self, routers: &[TraefikRouter<'d>]) -> bool {
        if self.tls.is_some() || self.redirect.is_some() {
            return self.tls.is_some();
        }
        // A router that names its entry points tells more than one that is on all of them.
        let count = |has_tls: bool, is_named: bool| {
            let is_one = |router: &&TraefikRouter<'d>| {
                router.tls.is_some() == has_tls && router.entry_points.is_empty() != is_named
            };
            routers.iter().filter(|router| self.has(router)).filter(is_one).count()
        };
        let is_named = count(true, true) + count(false, true) > 0;
        let (tls, plain) = (count(true, is_named), count(false, is_named));
        tls > 0 && (plain == 0 || self.address.ends_with("443"))
    }
}

impl<'d> Traefik<'d> {
    pub(super) fn entry_point(&mut self, name: &'d str, item: Item<'d>, all: &[(&'d str, Item<'d>)]) {
        let fields = item.fields();
        let address = fields.text("address").unwrap_or(":80");
        let (address, protocol) = address.split_once('/').unwrap_or((address, "tcp"));
        if protocol != "tcp" {
            self.draft.head.push(item.note(format!("`{name}`: Tollgate does not listen on {protocol}")));
            return;
        }
        let mut comments = Vec::new();
        let address = socket(address).unwrap_or_else(|| {
            comments.push(item.note(format!("`{address}` is no address: write it here")));
            format!("127.0.0.1:{}", port(address).unwrap_or("80"))
        });
        let is_default = fields.is_true("asDefault");
        let mut entry_point =
            EntryPoint { name, address, is_default, comments, place: item.place(), ..EntryPoint::default() };
        let http = fields.fields("http");
        if let Some(tls) = http.take("tls").filter(|item| item.text() != Some("false")) {
            entry_point.tls = Some(TlsOptions::read(&tls.fields()));
        }
        entry_point.middlewares = http.items("middlewares");
        if let Some(to) = http.fields("redirections").take("entryPoint") {
            match redirection(to, all) {
                Ok(router) => entry_point.redirect = Some(router),
                Err(text) => entry_point.comments.push(to.note(text)),
            }
        }
        entry_point.has_own = self.syntax.is_some()
            || entry_point.tls.is_some()
            || !entry_point.middlewares.is_empty()
            || fields.take("observability").is_some();
        if let Some(item) = http.take("encodedCharacters") {
            entry_point.has_own = true;
            entry_point.first.push(encoded_characters(item));
        }
        self.read_trust(&fields, &mut entry_point);
        http.ignore(&HTTP_NEEDS_NOTHING);
        fields.ignore(&NEEDS_NOTHING);
        let transport = fields.fields("transport");
        // How the process ends.
        transport.ignore(&["lifeCycle"]);
        entry_point.comments.extend(rest(&http, &format!("{name}.http")));
        for (key, item) in transport.rest().into_iter().chain(fields.rest()) {
            let hint = "see `client_limits` and the settings of listeners";
            entry_point.comments.push(item.note(format!("`{name}.{key}` has no equal: {hint}")));
        }
        self.entry_points.push(entry_point);
    }

    fn read_trust(&mut self, fields: &Fields<'d>, entry_point: &mut EntryPoint<'d>) {
        let proxy = fields.take("proxyProtocol");
        entry_point.proxy_protocol = proxy.is_some();
        let forwarded = fields.fields("forwardedHeaders");
        let comments = &mut entry_point.comments;
        let mut networks = |fields: &Fields<'d>| match Networks::parse(fields.texts("trustedIPs")) {
            Ok(networks) => networks,
            Err(text) => {
                comments.push(fields.note(format!("`trustedIPs`: `{text}` is no network: none is trusted")));
                Networks::default()
            }
        };
        entry_point.trusted = networks(&forwarded);
        if let Some(item) = proxy {
            self.proxies = self.proxies.or(&networks(&item.fields()));
            let text = "connections of others than `trusted_proxies` are closed here; Traefik reads them without a PROXY \
                        header";
            comments.push(item.note(text));
        }
        if forwarded.is_true("insecure") {
            let text = "`forwardedHeaders.insecure` trusts every client. Nobody's `X-Forwarded-For`, `X-Forwarded-Proto`, \
                        `X-Forwarded-Host` and `X-Real-Ip` count here: list the proxies in `trusted_proxies`";
            comments.push(forwarded.note(text));
            entry_point.is_insecure = true;
        }
        forwarded.ignore(&["trustedIPs"]);
        comments.extend(rest(&forwarded, &format!("{}.forwardedHeaders", entry_point.name)));
    }

    /// Trusts the proxies that all entry points trust, but for those that only redirect: a listener has no proxies of
    /// its own.
    pub(super) fn trust(&mut self) {
        let all: Vec<_> =
            self.entry_points.iter().filter(|entry_point| entry_point.redirect.is_none()).collect();
        let trusted = all.iter().map(|entry_point| entry_point.trusted.clone());
        self.trusted = trusted.reduce(|one, other| one.and(&other)).unwrap_or_default();
        if let Some(one) = all.iter().find(|entry_point| !entry_point.trusted.is_empty()) {
            let text = "`forwardedHeaders.trustedIPs`: listeners have the same `trusted_proxies`, those that all entry points trust. The \
                        `X-Forwarded-For` and `X-Forwarded-Proto` of others do not count, and nobody's `X-Real-Ip`";
            let note = Note { place: one.place.clone(), text: text.to_owned() };
            self.draft.head.push(Comment::Unconverted(note));
        }
        let proxies = self.trusted.or(&self.proxies).written();
        if !proxies.is_empty() {
            self.draft.settings.set("trusted_proxies", proxies);
        }
    }

    /// Adds entry points that only the static configuration would tell, with the ports that they have in Traefik's
    /// documentation; and finds out which are the default ones.
    pub(super) fn guess_entry_points(&mut self, routers: &[TraefikRouter<'d>]) {
        if let (true, Some(first)) = (self.entry_points.is_empty(), routers.first()) {
            let mut names: Vec<&str> = Vec::new();
            for name in routers.iter().flat_map(|router| &router.entry_points) {
                if !names.contains(name) {
                    names.push(name);
                }
            }
            if names.is_empty() {
                let is_one =
                    |name: &&str| routers.iter().any(|router| router.tls.is_some() == (*name == "websecure"));
                names.extend(["websecure", "web"].iter().filter(|name| is_one(name)));
            }
            let mut ports = 8080_u16..;
            for name in names {
                let is_secure = ["secure", "https", "tls"].iter().any(|word| name.contains(word));
                let port = match name {
                    "web" | "http" => 80,
                    "websecure" | "https" | "web-secure" => 443,
                    _ => ports.next().unwrap_or(80),
                };
                let text =
                    format!("The entry point `{name}`. Its address is in Traefik's static configuration.");
                self.entry_points.push(EntryPoint {
                    name,
                    address: format!("0.0.0.0:{port}"),
                    tls: is_secure.then(TlsOptions::default),
                    comments: vec![Comment::Plain(text)],
                    place: first.item.place(),
                    ..EntryPoint::default()
                });
            }
        }
        if !self.entry_points.iter().any(|entry_point| entry_point.is_default) {
            let all = self.entry_points.iter_mut();
            all.for_each(|entry_point| entry_point.is_default = entry_point.name != "traefik");
        }
    }
}

/// The router of `redirections.entryPoint`. `all`: the entry points, of which one may be listed later.
///
/// # Errors
/// Why it is not converted.
fn redirection<'d>(item: Item<'d>, all: &[(&'d str, Item<'d>)]) -> Result<TraefikRouter<'d>, String> {
    let fields = item.fields();
    let to = fields.text("to").unwrap_or_default();
    let is_permanent = fields.take("permanent").is_none_or(Item::is_true);
    let priority = match fields.take("priority").map(|item| item.text().unwrap_or_default().parse()) {
        None => FIRST,
        Some(priority) => priority.map_err(|_| "`priority` cannot be read: not converted")?,
    };
    let of_name =
        || all.iter().find(|(name, _)| *name == to).and_then(|(_, item)| item.fields().text("address"));
    let port = to.strip_prefix(':').or_else(|| port(of_name()?.split('/').next()?));
    let redirection = Redirection {
        scheme: fields.text("scheme").unwrap_or("https").to_owned(),
        port: port.ok_or_else(|| format!("no entry point `{to}`: nothing is redirected"))?.to_owned(),
        status: if is_permanent { 308 } else { 307 },
    };
    Ok(TraefikRouter {
        name: "redirections",
        item,
        condition: RequestCondition::ALWAYS,
        hosts: Vec::new(),
        priority,
        tls: None,
        entry_points: Vec::new(),
        middlewares: Vec::new(),
        end: RouterEnd::Redirect(redirection),
        unknown: Vec::new(),
    })
}

/// Refuses percent-encoded characters of which some are not allowed.
fn encoded_characters(item: Item<'_>) -> SiteRule {
    let path = Path::regex("%(2f|5c|00|3b|25|3f|23)", true);
    let when = path.map_or_else(RequestCondition::unknown_place, RequestCondition::path);
    let mut rule = SiteRule::new(when, Effect::Refuse(400), &item.place(), "encodedCharacters");
    rule.comments.push(rule.note("none of these characters is allowed"));
    rule
}

fn port(address: &str) -> Option<&str> {
    address.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok())
}

/// `:80` and the like as the address of a listener.
fn socket(address: &str) -> Option<String> {
    let address = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.replace("localhost:", "127.0.0.1:"),
    };
    address.parse::<SocketAddr>().ok().map(|_| address)
}
