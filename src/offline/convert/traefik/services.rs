//! Services become upstreams, or shares of several upstreams.

use super::{Traefik, middlewares::has_template, milliseconds, plain_name, rest, rule::TEMPLATE};
use crate::offline::convert::{
    condition::RequestCondition,
    document::{Fields, Item},
    draft::{duration, is_field_name, resource_name},
    path::encoded,
    site::{Edit, Effect, PathEdit, RuleResponse, SiteRule},
    yaml::{Comment, Map, YamlNode},
};

/// The name of the transport of services that name none.
pub(super) const DEFAULT_TRANSPORT: &str = "default@internal";
/// The largest weight.
const MAX_WEIGHT: u64 = 1_000;
/// The longest time that a setting takes, in milliseconds.
const MAX_TIME: u64 = 366 * 86_400_000;
/// Settings without effect outside: responses are sent on as they arrive.
const NEEDS_NOTHING: [&str; 1] = ["responseForwarding"];
/// Tollgate's cookie is for the whole site, and has these attributes anyway.
const COOKIE_NEEDS_NOTHING: [&str; 3] = ["secure", "httpOnly", "path"];
/// Services speak HTTP/1.1 here.
const TRANSPORT_NEEDS_NOTHING: [&str; 1] = ["disableHTTP2"];

/// The effect of a service.
#[derive(Debug, Clone, Default)]
pub(super) struct TraefikService {
    /// Upstreams with their weights.
    shares: Vec<(String, u64)>,
    /// The prefix that is added to the path.
    prefix: String,
    notes: Vec<SiteRule>,
}

/// The effect in place of a service that cannot be converted.
type Refusal = Box<SiteRule>;

fn rule(item: Item<'_>, name: &str, effect: Effect) -> SiteRule {
    SiteRule::new(RequestCondition::ALWAYS, effect, &item.place(), format!("services.{name}"))
}

fn close(item: Item<'_>, name: &str, text: impl Into<String>) -> Refusal {
    Box::new(rule(item, name, Effect::Close(text.into())))
}

impl<'d> Traefik<'d> {
    /// The rules of the service that a router names.
    pub(super) fn service_rules(&mut self, named: Item<'d>) -> Vec<SiteRule> {
        let name = named.text().unwrap_or_default();
        let TraefikService { shares, prefix, mut notes } = match self.service(named) {
            Ok(service) => service,
            Err(refusal) => return vec![*refusal],
        };
        if !prefix.is_empty() {
            notes.push(rule(named, name, Effect::Edit(Edit::Path(PathEdit::Prepend(prefix)))));
        }
        let effect = match shares.as_slice() {
            _ if shares.iter().all(|(_, weight)| *weight == 0) => Effect::Refuse(503),
            [(upstream, _)] => Effect::Act(RuleResponse::Upstream(upstream.clone())),
            _ => Effect::Act(RuleResponse::Split(shares)),
        };
        notes.push(rule(named, name, effect));
        notes
    }

    fn service(&mut self, named: Item<'d>) -> Result<TraefikService, Refusal> {
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
        self.used.insert(("service", plain));
        if let Some(made) = self.made.get(plain) {
            return Ok(made.clone());
        }
        if has_template(item) {
            return Err(close(item, plain, TEMPLATE));
        }
        let kinds = item.fields().each();
        let [(kind, inner)] = kinds.as_slice() else {
            let text = "the service is not of one kind: Traefik does not make its router";
            return Err(close(item, plain, text));
        };
        let service = match kind.to_ascii_lowercase().as_str() {
            "loadbalancer" => self.balancer(plain, *inner)?,
            "weighted" => self.weighted(plain, *inner)?,
            _ => return Err(close(item, plain, format!("`{kind}` has no equal"))),
        };
        self.made.insert(plain, service.clone());
        Ok(service)
    }

    fn weighted(&mut self, name: &'d str, item: Item<'d>) -> Result<TraefikService, Refusal> {
        let fields = item.fields();
        let mut service = TraefikService::default();
        for share in fields.items("services") {
            let share_fields = share.fields();
            let Some(child) = share_fields.take("name") else { continue };
            let weight = weight(&share_fields).ok_or_else(|| close(share, name, WEIGHT))?;
            let plain = plain_name(child.text().unwrap_or_default());
            let is_nested =
                self.services.get(plain).is_some_and(|item| item.fields().take("loadBalancer").is_none());
            if is_nested {
                return Err(close(
                    share,
                    name,
                    "it has parts that are no `loadBalancer`: write a route for each",
                ));
            }
            let part = self.service(child)?;
            if !part.prefix.is_empty() {
                return Err(close(item, name, "its parts have `preservePath`: write a route for each"));
            }
            service.shares.extend(part.shares.into_iter().map(|(name, _)| (name, weight)));
            service.notes.extend(part.notes);
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

    fn balancer(&mut self, name: &'d str, item: Item<'d>) -> Result<TraefikService, Refusal> {
        let fields = item.fields();
        let mut comments = Vec::new();
        let (endpoints, is_h2, prefix) = servers(name, &fields)?;
        if endpoints.is_empty() {
            return Err(Box::new(rule(item, name, Effect::Refuse(503))));
        }
        let mut map = Map::new().with("endpoints", endpoints);
        map.extend_some("protocol", is_h2.then_some("h2"));
        let has_own_host = fields.text("passHostHeader") == Some("false");
        map.extend_some("host", has_own_host.then_some("rewrite"));
        if let Some(sticky) = fields.take("sticky") {
            map.set("sticky", cookie(&sticky.fields().fields("cookie"), &mut comments));
        }
        if let Some(check) = fields.take("healthCheck") {
            map.extend_some("health", health(check, &mut comments));
        }
        let named = fields.text("serversTransport").map(plain_name);
        match (self.transports.get(named.unwrap_or(DEFAULT_TRANSPORT)), named) {
            (Some(found), _) => {
                let tls = transport(*found, &mut comments);
                map.extend_some("tls", (!tls.is_empty()).then_some(tls));
            }
            (None, Some(named)) => {
                let text = format!("the serversTransport `{named}` is not in this file");
                return Err(close(item, name, text));
            }
            (None, None) => {}
        }
        fields.ignore(&NEEDS_NOTHING);
        comments.extend(rest(&fields, name));
        let upstream = resource_name(name, |name| self.draft.upstreams.has(name));
        self.draft.upstreams.set(&upstream, YamlNode { comments, ..YamlNode::from(map) });
        Ok(TraefikService { shares: vec![(upstream, 1)], prefix, notes: Vec::new() })
    }
}

/// The TLS of connections to endpoints.
fn transport(item: Item<'_>, comments: &mut Vec<Comment>) -> Map {
    let fields = item.fields();
    let mut tls = Map::new();
    tls.extend_some("server_name", fields.text("serverName"));
    tls.extend_some("ca", fields.texts("rootCAs").first().copied());
    fields.ignore(&TRANSPORT_NEEDS_NOTHING);
    comments.extend(rest(&fields, "serversTransport"));
    tls
}

const WEIGHT: &str = "`weight` is no number up to 1000";

/// The `weight` of a server or a service; `None`: it cannot be read.
fn weight(fields: &Fields<'_>) -> Option<u64> {
    let Some(item) = fields.take("weight") else { return Some(1) };
    item.text()?.parse().ok().filter(|weight| *weight <= MAX_WEIGHT)
}

/// The endpoints, whether they speak HTTP/2 in clear text, and the prefix that is added to the path.
fn servers(name: &str, fields: &Fields<'_>) -> Result<(Vec<YamlNode>, bool, String), Refusal> {
    let (mut weights, mut is_h2, mut prefix) = (Vec::<(String, u64)>::new(), false, None);
    for server in fields.items("servers") {
        let fields = server.fields();
        let url = fields.text("url").unwrap_or_default();
        let found =
            endpoint(url).ok_or_else(|| close(server, name, format!("`{url}` is no URL of an endpoint")));
        let (url, h2, path) = found?;
        // Otherwise, Traefik does not send the path of the URL.
        let is_kept = fields.is_true("preservePath");
        let weight = weight(&fields).ok_or_else(|| close(server, name, WEIGHT))?;
        if let Some((key, item)) = fields.rest().first() {
            return Err(close(*item, name, format!("`{key}` has no equal")));
        }
        let own = if is_kept { encoded(path.trim_end_matches('/')) } else { String::new() };
        if *prefix.get_or_insert(own.clone()) != own {
            return Err(close(server, name, "its servers have different paths: write a route for each"));
        }
        is_h2 |= h2;
        match weights.iter_mut().find(|(known, _)| *known == url) {
            Some((_, known)) => *known += weight,
            None => weights.push((url, weight)),
        }
    }
    let endpoint = |(url, weight): (String, u64)| match weight {
        0 => None,
        1 => Some(YamlNode::from(url)),
        weight => Some(Map::new().with("url", url).with("weight", weight.min(MAX_WEIGHT)).into()),
    };
    Ok((weights.into_iter().filter_map(endpoint).collect(), is_h2, prefix.unwrap_or_default()))
}

/// The URL without its path, whether it is HTTP/2 in clear text, and the path.
fn endpoint(url: &str) -> Option<(String, bool, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let plain = format!("{}://{authority}", if scheme == "h2c" { "http" } else { scheme.as_str() });
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let is_fit = matches!(scheme.as_str(), "http" | "https" | "h2c") && authority.chars().all(is_host);
    let has_host =
        url::Url::parse(&plain).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
    (is_fit && has_host).then(|| (plain, scheme == "h2c", path.split(['?', '#']).next().unwrap_or_default()))
}

fn cookie(fields: &Fields<'_>, comments: &mut Vec<Comment>) -> Map {
    let name = fields.text("name").filter(|name| is_field_name(name));
    let mut setting = Map::new().with("cookie", name.unwrap_or("tollgate_endpoint"));
    let age = fields.number("maxAge").filter(|seconds| *seconds > 0);
    setting.extend_some("max_age", age.map(|seconds| duration(seconds.min(31_622_400) * 1000)));
    fields.ignore(&COOKIE_NEEDS_NOTHING);
    comments.extend(rest(fields, "sticky.cookie"));
    setting
}

/// `health`. A check that cannot be made as Traefik makes it would take endpoints out: it is left out.
fn health(check: Item<'_>, comments: &mut Vec<Comment>) -> Option<Map> {
    let fields = check.fields();
    let path = fields.text("path").filter(|path| path.starts_with('/')).unwrap_or("/");
    let mut map = Map::new().with("path", path);
    for (key, default, least) in [("interval", 30_000, 100), ("timeout", 5_000, 1)] {
        let time = fields.text(key).and_then(milliseconds).unwrap_or(default);
        map.set(key, duration(time.clamp(least, MAX_TIME)));
    }
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
