//! Services become upstreams, or shares of several upstreams.

use std::collections::BTreeMap;

use super::{Traefik, middlewares::has_template, milliseconds, plain_name, routers::Router, rule::TEMPLATE};
use crate::convert::{
    condition::Condition,
    document::{Fields, Item},
    draft::{duration, resource_name},
    path::encoded,
    site::{Action, Edit, Effect, PathEdit, Rule},
    yaml::{Comment, Map, Node},
};

/// The name of the transport of services that name none.
pub(super) const DEFAULT_TRANSPORT: &str = "default@internal";
/// The deepest nesting of services.
const MAX_DEPTH: usize = 8;
/// The largest weight of a share.
const MAX_WEIGHT: u64 = 1_000_000;
/// The longest time that a setting takes, in milliseconds.
const MAX_TIME: u64 = 366 * 86_400_000;
/// What nobody outside can see: responses are sent on as they arrive.
const NEEDS_NOTHING: [&str; 1] = ["responseForwarding"];
/// Tollgate's cookie is for the whole site, and has these attributes anyway.
const COOKIE_NEEDS_NOTHING: [&str; 3] = ["secure", "httpOnly", "path"];
/// Services speak HTTP/1.1 here.
const TRANSPORT_NEEDS_NOTHING: [&str; 1] = ["disableHTTP2"];

/// What a service does.
#[derive(Debug, Clone, Default)]
pub(super) struct Service {
    /// Upstreams with their weights.
    shares: Vec<(String, u64)>,
    /// What is put before the path.
    prefix: String,
    notes: Vec<Rule>,
}

/// What happens in place of a service that cannot be converted.
type Refusal = Box<Rule>;

fn rule(item: Item<'_>, name: &str, effect: Effect) -> Rule {
    Rule::new(Condition::ALWAYS, effect, &item.place(), format!("services.{name}"))
}

fn close(item: Item<'_>, name: &str, text: impl Into<String>) -> Refusal {
    Box::new(rule(item, name, Effect::Close(text.into())))
}

impl<'d> Traefik<'d> {
    /// The rules of the service of a router.
    pub(super) fn service_rules(&mut self, router: &Router<'d>) -> Vec<Rule> {
        let named = match &router.service {
            Ok(named) => *named,
            Err(text) => return vec![rule(router.item, router.name, Effect::Close(text.clone()))],
        };
        let name = named.text().unwrap_or_default();
        let Service { shares, prefix, mut notes } = match self.service(named, 0) {
            Ok(service) => service,
            Err(refusal) => return vec![*refusal],
        };
        if !prefix.is_empty() {
            notes.push(rule(named, name, Effect::Edit(Edit::Path(PathEdit::Prepend(prefix)))));
        }
        let effect = match shares.as_slice() {
            _ if shares.iter().all(|(_, weight)| *weight == 0) => Effect::Refuse(503),
            [(upstream, _)] => Effect::Act(Action::Upstream(upstream.clone())),
            _ => Effect::Act(Action::Split(shares)),
        };
        notes.push(rule(named, name, effect));
        notes
    }

    /// The middlewares of the service of a router.
    pub(super) fn service_middlewares(&self, router: &Router<'d>) -> Vec<Item<'d>> {
        let name = router.service.as_ref().ok().and_then(|named| named.text()).unwrap_or_default();
        let service = self.services.get(plain_name(name));
        service.map(|item| item.fields().items("middlewares")).unwrap_or_default()
    }

    fn service(&mut self, named: Item<'d>, depth: usize) -> Result<Service, Refusal> {
        let name = named.text().unwrap_or_default();
        if name == "noop@internal" {
            return Err(Box::new(rule(named, name, Effect::Refuse(404))));
        }
        if name.ends_with("@internal") {
            let text = "the admin port of Tollgate is apart from the routes: see `admin`";
            return Err(close(named, name, text));
        }
        let Some((plain, item)) =
            self.services.get_key_value(plain_name(name)).map(|(name, item)| (*name, *item))
        else {
            return Err(close(named, name, "the service is not in this file: write an upstream for it"));
        };
        self.used.insert(format!("service {plain}"));
        if let Some(made) = self.made.get(plain) {
            return Ok(made.clone());
        }
        if depth > MAX_DEPTH {
            return Err(close(item, plain, "the services are nested too deeply"));
        }
        if has_template(item) {
            return Err(close(item, plain, TEMPLATE));
        }
        let fields = item.fields();
        if depth > 0 && fields.take("middlewares").is_some() {
            return Err(close(item, plain, "middlewares of a part of a service have no equal"));
        }
        fields.ignore(&["middlewares"]);
        let kinds = fields.rest();
        let [(kind, inner)] = kinds.as_slice() else {
            return Err(close(
                item,
                plain,
                "the service is not of one kind: Traefik does not make its router",
            ));
        };
        let service = match kind.to_ascii_lowercase().as_str() {
            "loadbalancer" => self.balancer(plain, *inner)?,
            "weighted" | "highestrandomweight" => self.weighted(plain, *inner, depth)?,
            "mirroring" => {
                let text = "requests are not mirrored; they go to the main service";
                self.main_service(plain, *inner, depth, text)?
            }
            "failover" => {
                let main = inner
                    .fields()
                    .fields("errors")
                    .take("status")
                    .is_none()
                    .then(|| {
                        inner.fields().text("service").and_then(|name| self.services.get(plain_name(name)))
                    })
                    .flatten();
                if main.is_some_and(|main| main.fields().fields("loadBalancer").take("healthCheck").is_none())
                {
                    return Err(close(
                        item,
                        plain,
                        "without `healthCheck` of the main service, Traefik does not make its router",
                    ));
                }
                let text = "there is no fallback to another service. Endpoints that fail are left out: see `outlier` and \
                            `health`";
                self.main_service(plain, *inner, depth, text)?
            }
            _ => return Err(close(item, plain, format!("`{kind}` has no equal"))),
        };
        self.made.insert(plain, service.clone());
        Ok(service)
    }

    fn weighted(&mut self, name: &'d str, item: Item<'d>, depth: usize) -> Result<Service, Refusal> {
        let fields = item.fields();
        let mut parts: Vec<(u64, Service)> = Vec::new();
        for share in fields.items("services") {
            let share_fields = share.fields();
            let Some(child) = share_fields.take("name") else { continue };
            let weight = match share_fields.take("weight").map(|item| item.text().unwrap_or_default().parse())
            {
                None => 1,
                Some(Ok(weight)) => weight,
                Some(Err(_)) => return Err(close(share, name, "`weight` is no number that can be read")),
            };
            parts.push((weight, self.service(child, depth + 1)?));
        }
        let prefix = parts.first().map(|(_, part)| part.prefix.clone()).unwrap_or_default();
        if parts.iter().any(|(_, part)| part.prefix != prefix) {
            return Err(close(
                item,
                name,
                "its parts put different texts before the path: write a route for each",
            ));
        }
        let mut service = Service { prefix, ..Service::default() };
        let total = |part: &Service| part.shares.iter().map(|(_, weight)| weight).sum::<u64>().max(1);
        let all = parts.iter().fold(1_u64, |all, (_, part)| all.saturating_mul(total(part)));
        for (weight, part) in parts {
            let factor = weight.saturating_mul(all / total(&part));
            let shares = part.shares.iter();
            service.shares.extend(shares.map(|(name, own)| (name.clone(), own.saturating_mul(factor))));
            service.notes.extend(part.notes);
        }
        let most = service.shares.iter().map(|(_, weight)| *weight).max().unwrap_or(0);
        if most > MAX_WEIGHT {
            let scaled = |weight: u64| {
                u64::try_from(u128::from(weight) * u128::from(MAX_WEIGHT) / u128::from(most)).unwrap_or(1)
            };
            service.shares.iter_mut().for_each(|(_, weight)| *weight = scaled(*weight));
        }
        // Whether parts are healthy is known of their endpoints.
        fields.ignore(&["healthCheck"]);
        for (key, item) in fields.rest() {
            let text = format!(
                "`{key}` has no equal: see `split_by`, which takes a cookie that the service sets, or `ip`"
            );
            service.notes.push(rule(item, name, Effect::Note(text)));
        }
        Ok(service)
    }

    /// The main one of several services.
    fn main_service(
        &mut self,
        name: &'d str,
        item: Item<'d>,
        depth: usize,
        text: &str,
    ) -> Result<Service, Refusal> {
        let fields = item.fields();
        for other in fields.items("mirrors").into_iter().chain(fields.take("fallback")) {
            let other = if other.is_mapping() { other.fields().take("name") } else { Some(other) };
            let other = plain_name(other.and_then(Item::text).unwrap_or_default());
            self.used.insert(format!("service {other}"));
        }
        let Some(main) = fields.take("service") else {
            return Err(close(item, name, "it has no main service"));
        };
        let mut service = self.service(main, depth + 1)?;
        service.notes.push(rule(item, name, Effect::Note(text.to_owned())));
        Ok(service)
    }

    fn balancer(&mut self, name: &'d str, item: Item<'d>) -> Result<Service, Refusal> {
        let fields = item.fields();
        let mut comments = Vec::new();
        let mut map = Map::new();
        let Servers { endpoints, prefix, is_h2 } = servers(name, &fields, item)?;
        if endpoints.is_empty() {
            return Err(Box::new(rule(item, name, Effect::Refuse(503))));
        }
        map.set("endpoints", endpoints);
        if is_h2 {
            map.set("protocol", "h2");
        }
        if fields.take("passHostHeader").is_some_and(|item| item.text() == Some("false")) {
            map.set("host", "rewrite");
        }
        match fields.text("strategy") {
            None => {}
            Some("wrr") => map.set("balance", "round_robin"),
            Some("p2c" | "leasttime") => map.set("balance", "least_request"),
            Some("hrw") => map.set("balance", Map::new().with("hash", "ip")),
            Some(strategy) => comments.push(item.note(format!("`strategy: {strategy}` has no equal"))),
        }
        if let Some(sticky) = fields.take("sticky") {
            map.set("sticky", cookie(&sticky.fields().fields("cookie"), &mut comments));
        }
        if let Some(check) = fields.take("healthCheck") {
            map.extend_some("health", health(check, &mut comments));
        }
        let transport = fields.take("serversTransport");
        let named = plain_name(transport.and_then(Item::text).unwrap_or(DEFAULT_TRANSPORT));
        match (self.transports.get(named).copied(), transport) {
            (Some(found), _) => self.transport(name, found, &mut map, &mut comments)?,
            (None, Some(transport)) => {
                return Err(close(
                    transport,
                    name,
                    format!("the serversTransport `{named}` is not in this file"),
                ));
            }
            (None, None) => {}
        }
        fields.ignore(&NEEDS_NOTHING);
        comments.extend(
            fields.rest().iter().map(|(key, item)| item.note(format!("`{name}.{key}` has no equal"))),
        );
        let upstream = resource_name(name, |name| self.draft.upstreams.has(name));
        self.draft.upstreams.set(&upstream, Node { comments, ..Node::from(map) });
        Ok(Service { shares: vec![(upstream, 1)], prefix, notes: Vec::new() })
    }

    fn transport(
        &self,
        name: &str,
        item: Item<'d>,
        upstream: &mut Map,
        comments: &mut Vec<Comment>,
    ) -> Result<(), Refusal> {
        let fields = item.fields();
        if let Some(key) =
            ["peerCertURI", "peerCertSANs", "spiffe"].iter().find(|key| fields.take(key).is_some())
        {
            return Err(close(item, name, format!("`{key}`: Tollgate compares names of certificates only")));
        }
        let mut tls = Map::new();
        tls.extend_some("server_name", fields.text("serverName"));
        let authorities = fields.texts("rootCAs");
        tls.extend_some("ca", authorities.first().copied());
        if authorities.len() > 1 {
            comments.push(item.note("`rootCAs`: `ca` is one file; join them"));
        }
        if let Some(certificate) = fields.items("certificates").first() {
            let fields = certificate.fields();
            if let Some((cert, key)) = fields.text("certFile").zip(fields.text("keyFile")) {
                tls.set("cert", cert);
                tls.set("key", key);
            }
        }
        if let Some(insecure) = fields.take("insecureSkipVerify").filter(|item| item.is_true()) {
            let text = "Tollgate verifies the certificates of endpoints: name their authority by `tls: { ca: FILE }`";
            comments.push(insecure.note(text));
        }
        if !tls.is_empty() {
            upstream.set("tls", tls);
        }
        let timeouts = fields.fields("forwardingTimeouts");
        let mut written = Map::new();
        for (key, setting) in
            [("dialTimeout", "connect"), ("responseHeaderTimeout", "response"), ("idleConnTimeout", "idle")]
        {
            let time = timeouts.text(key).and_then(milliseconds).filter(|time| *time > 0);
            written.extend_some(setting, time.map(|time| duration(time.min(MAX_TIME))));
        }
        if !written.is_empty() {
            upstream.set("timeouts", written);
        }
        upstream.extend_some(
            "idle_connections",
            fields.number("maxIdleConnsPerHost").map(|number| number.min(1_000_000)),
        );
        fields.ignore(&TRANSPORT_NEEDS_NOTHING);
        let rest = timeouts.rest().into_iter().chain(fields.rest());
        comments.extend(rest.map(|(key, item)| item.note(format!("`{key}` has no equal"))));
        Ok(())
    }
}

struct Servers {
    endpoints: Vec<Node>,
    /// What is put before the path.
    prefix: String,
    is_h2: bool,
}

fn servers(name: &str, fields: &Fields<'_>, balancer: Item<'_>) -> Result<Servers, Refusal> {
    let (mut weights, mut prefixes, mut is_h2) = (BTreeMap::<String, u64>::new(), Vec::new(), false);
    let mut order = Vec::new();
    for server in fields.items("servers") {
        let server_fields = server.fields();
        let url = server_fields.text("url").unwrap_or_default();
        let Some((url, h2, path)) = endpoint(url) else {
            return Err(close(server, name, format!("`{url}` is no URL of an endpoint")));
        };
        let weight =
            match server_fields.take("weight").map(|item| item.text().unwrap_or_default().parse::<u64>()) {
                None => 1,
                Some(Ok(weight)) => weight,
                Some(Err(_)) => return Err(close(server, name, "`weight` is no number that can be read")),
            };
        // Without `preservePath`, Traefik does not send the path of the URL.
        let is_kept = server_fields.is_true("preservePath");
        prefixes.push(if is_kept { encoded(path.trim_end_matches('/')) } else { String::new() });
        if let Some((key, item)) = server_fields.rest().first() {
            return Err(close(*item, name, format!("`{key}` has no equal")));
        }
        is_h2 |= h2;
        if !weights.contains_key(&url) {
            order.push(url.clone());
        }
        *weights.entry(url).or_default() += weight;
    }
    if prefixes.iter().any(|prefix| prefixes.first() != Some(prefix)) {
        return Err(close(balancer, name, "its servers have different paths: write a route for each"));
    }
    let endpoint = |url: String| match weights.get(&url).copied() {
        Some(0) | None => None,
        Some(1) => Some(Node::from(url)),
        Some(weight) => Some(Map::new().with("url", url).with("weight", weight.min(1000)).into()),
    };
    let endpoints = order.into_iter().filter_map(endpoint).collect();
    Ok(Servers { endpoints, prefix: prefixes.into_iter().next().unwrap_or_default(), is_h2 })
}

/// The URL without its path, whether it is HTTP/2 in clear text, and the path.
fn endpoint(url: &str) -> Option<(String, bool, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (scheme, is_h2) = match scheme.to_ascii_lowercase().as_str() {
        "http" => ("http", false),
        "https" => ("https", false),
        "h2c" => ("http", true),
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let url = url::Url::parse(&format!("{scheme}://{authority}")).ok()?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let is_plain = url.host_str().is_some_and(|host| !host.is_empty()) && authority.chars().all(is_host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    is_plain.then(|| (format!("{scheme}://{authority}"), is_h2, path))
}

fn cookie(fields: &Fields<'_>, comments: &mut Vec<Comment>) -> Map {
    let name = fields.text("name").filter(|name| crate::convert::draft::is_field_name(name));
    let mut setting = Map::new().with("cookie", name.unwrap_or("tollgate_endpoint"));
    let age = fields.number("maxAge").filter(|seconds| *seconds > 0);
    setting.extend_some("max_age", age.map(|seconds| duration(seconds.min(31_622_400) * 1000)));
    fields.ignore(&COOKIE_NEEDS_NOTHING);
    comments.extend(
        fields.rest().iter().map(|(key, item)| item.note(format!("`sticky.cookie.{key}` has no equal"))),
    );
    setting
}

/// `health`. A check that cannot be made as Traefik makes it would take endpoints out: it is left out.
fn health(check: Item<'_>, comments: &mut Vec<Comment>) -> Option<Map> {
    let fields = check.fields();
    let mut map = Map::new();
    match fields.text("mode") {
        Some("grpc") => map.set("type", "grpc"),
        _ => map.set("path", fields.text("path").filter(|path| path.starts_with('/')).unwrap_or("/")),
    }
    fields.ignore(&["path"]);
    for (key, default, least) in [("interval", 30_000, 100), ("timeout", 5_000, 1)] {
        let time = fields.text(key).and_then(milliseconds).unwrap_or(default);
        map.set(key, duration(time.clamp(least, MAX_TIME)));
    }
    let status = fields.number("status").filter(|status| (100..=599).contains(status));
    map.extend_some("statuses", status.map(|status| vec![status]));
    map.extend_some("host", fields.text("hostname"));
    map.set("healthy", 1);
    map.set("unhealthy", 1);
    // Redirects are a success in both.
    fields.ignore(&["followRedirects", "unhealthyInterval"]);
    let mut rest = fields.rest();
    rest.retain(|(key, item)| !(*key == "method" && item.text() == Some("GET")));
    comments.extend(rest.iter().map(|(key, item)| {
        item.note(format!(
            "`healthCheck.{key}` has no equal: endpoints are not checked until you write `health`"
        ))
    }));
    rest.is_empty().then_some(map)
}
