//! `proxy_pass` and `upstream`: upstreams.

use super::{
    NginxReader,
    limits::{parameter, recipe},
    noted,
    scope::BlockScope,
    state::RewriteState,
    syntax::Directive,
    values::{has_variable, milliseconds},
    words::{DirectiveTreatment, class},
};
use crate::offline::convert::{
    draft::{duration, resource_name},
    yaml::{Comment, Map, YamlNode},
};

/// Where `proxy_pass` leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyDestination {
    scheme: &'static str,
    /// A host with its port, or the name of an `upstream`.
    pub(super) authority: String,
}

/// Whether this can be a host with a port.
pub(super) fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, "80"),
    };
    let is_address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    port.parse::<u16>().is_ok_and(|port| port > 0)
        && match is_address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => super::variables::is_host(host),
        }
}

impl<'d> NginxReader<'d> {
    /// Where a `proxy_pass` or `grpc_pass` leads, and the path in its URL: `text` is the URL.
    ///
    /// # Errors
    /// Why that is no upstream.
    pub(super) fn destination(
        &self,
        pass: &Directive,
        text: &str,
    ) -> Result<(ProxyDestination, Option<String>), String> {
        let is_grpc = pass.name == "grpc_pass";
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) if !is_grpc => ("http", rest),
            Some(("https", rest)) if !is_grpc => ("https", rest),
            Some(("grpc", rest)) if is_grpc => ("http", rest),
            Some(("grpcs", rest)) if is_grpc => ("https", rest),
            None if is_grpc => ("http", text),
            _ => return Err("its URL cannot be read".to_owned()),
        };
        if rest.starts_with("unix:") {
            return Err("Tollgate forwards to TCP ports only, not to Unix sockets".to_owned());
        }
        let at = ["/", "${request_uri}", "${uri}"].into_iter().filter_map(|end| rest.find(end));
        let at = at.min().unwrap_or(rest.len());
        let (authority, path) = (&rest[..at], Some(rest[at..].to_owned()).filter(|path| !path.is_empty()));
        if has_variable(authority) {
            return Err("it has variables: name the upstream, or write a route for each value".to_owned());
        }
        if !is_authority(authority) && !self.upstreams.contains_key(authority) {
            return Err(format!("`{authority}` is not a host"));
        }
        Ok((ProxyDestination { scheme, authority: authority.to_owned() }, path))
    }

    /// The name of the upstream for a destination. `is_rewritten`: services get the endpoint's host.
    ///
    /// # Errors
    /// Tollgate can forward to none of its servers.
    pub(super) fn upstream(
        &mut self,
        pass: &'d Directive,
        destination: &ProxyDestination,
        scope: &BlockScope<'d>,
        is_rewritten: bool,
    ) -> Result<String, String> {
        let ProxyDestination { scheme, authority } = destination;
        let is_grpc = pass.name == "grpc_pass";
        let mut comments = Vec::new();
        let mut map = match self.upstreams.get(authority.as_str()).copied() {
            Some(group) => group_of(group, scheme, &mut comments)?,
            None => Map::new().with("endpoints", vec![format!("{scheme}://{authority}")]),
        };
        if is_grpc {
            map.set("protocol", "h2");
        }
        if is_rewritten {
            map.set("host", "rewrite");
        }
        if *scheme == "https" {
            self.upstream_tls(scope, pass, &mut map, &mut comments);
        }
        let mut timeouts = Map::new();
        let time = |name: &str| {
            let name = if is_grpc { name.replace("proxy", "grpc") } else { name.to_owned() };
            milliseconds(scope.value(&name)).filter(|time| (1..=LONGEST).contains(time))
        };
        if let Some(time) = time("proxy_connect_timeout") {
            timeouts.set("connect", duration(time));
        }
        // nginx waits for 60 seconds without being told.
        let read = time("proxy_read_timeout").unwrap_or(60_000);
        timeouts.set("response", duration(read));
        if read != 60_000 {
            timeouts.set("idle", duration(read));
        }
        map.set("timeouts", timeouts);
        for name in ["proxy_next_upstream", "proxy_next_upstream_tries"] {
            match scope.last(name) {
                Some(directive) if directive.argument(0) == "off" => {
                    map.set("retry", Map::new().with("max", 0));
                }
                Some(directive) => comments.push(noted(directive, "set `retry` of the upstream")),
                None => {}
            }
        }
        Ok(self.named_upstream(authority, map, comments))
    }

    /// The name of this upstream. Equal ones have one name.
    fn named_upstream(&mut self, authority: &str, map: Map, comments: Vec<Comment>) -> String {
        let node = YamlNode { comments, ..YamlNode::from(map) };
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let base = resource_name(host, |_| false);
        let equal = |(name, known): &(&str, &YamlNode)| name.starts_with(&base) && known.value == node.value;
        if let Some((name, _)) = self.draft.upstreams.iter().find(equal) {
            return name.to_owned();
        }
        let is_taken = |name: &str| self.draft.upstreams.has(name);
        let name = if is_taken(&base) { resource_name(authority, is_taken) } else { base };
        self.draft.upstreams.set(&name, node);
        name
    }

    fn upstream_tls(
        &self,
        scope: &BlockScope<'d>,
        pass: &'d Directive,
        map: &mut Map,
        comments: &mut Vec<Comment>,
    ) {
        let mut tls = Map::new();
        let settings = [("trusted_certificate", "ca"), ("name", "server_name")];
        for (directive, setting) in settings {
            match (directive, scope.value(&format!("proxy_ssl_{directive}"))) {
                (_, "") => {}
                ("name", value) if !super::variables::is_host(value) => {}
                ("name", value) => tls.set(setting, value),
                (_, value) => tls.set(setting, self.file(value)),
            }
        }
        let (cert, key) = (scope.value("proxy_ssl_certificate"), scope.value("proxy_ssl_certificate_key"));
        if !cert.is_empty() && !key.is_empty() && !has_variable(cert) && !has_variable(key) {
            tls.set("cert", self.file(cert));
            tls.set("key", self.file(key));
        }
        if scope.value("proxy_ssl_verify") != "on" {
            let text = "nginx does not verify the certificate of the service; Tollgate does: name its authority in `tls.ca`";
            comments.push(noted(pass, text));
        }
        if !tls.is_empty() {
            map.set("tls", tls);
        }
    }
}

/// The longest timeout, in milliseconds: 366 days.
const LONGEST: u64 = 366 * 86_400_000;

/// The upstream for an `upstream` block.
///
/// # Errors
/// Tollgate can forward to none of its servers.
fn group_of(group: &Directive, scheme: &str, comments: &mut Vec<Comment>) -> Result<Map, String> {
    let mut endpoints = Vec::new();
    let mut balance = YamlNode::from("round_robin");
    let (mut outlier, mut idle): (Option<Map>, _) = (None, None);
    for directive in group.children() {
        match directive.name.as_str() {
            "server" => {
                endpoints.extend(endpoint(directive, scheme, comments));
                outlier_of(directive, &mut outlier, comments);
            }
            "least_conn" | "random" => balance = YamlNode::from("least_request"),
            "ip_hash" => balance = YamlNode::from(Map::new().with("hash", "ip")),
            "hash" => match recipe(directive.argument(0), &RewriteState::new("", "")) {
                Ok(recipe) if recipe.key != "global" => {
                    balance = YamlNode::from(Map::new().with("hash", recipe.key));
                }
                _ => comments.push(noted(directive, "write `balance: { hash: KEY }`")),
            },
            "keepalive" => idle = directive.argument(0).parse::<u64>().ok(),
            "sticky" => comments.push(noted(directive, "write `sticky: { cookie: NAME }`")),
            "zone" | "keepalive_requests" | "keepalive_time" | "keepalive_timeout" => {}
            _ => match class(directive) {
                DirectiveTreatment::Nothing => {}
                DirectiveTreatment::Noted(text) | DirectiveTreatment::Closes(text) => {
                    comments.push(noted(directive, text));
                }
                DirectiveTreatment::Converted => {
                    comments.push(noted(directive, "Tollgate has no equal of this directive"));
                }
            },
        }
    }
    if endpoints.is_empty() {
        return Err(format!("upstream `{}` has no server on a TCP port", group.argument(0)));
    }
    let mut map = Map::new().with("endpoints", endpoints).with("balance", balance);
    match outlier {
        Some(settings) if settings.is_empty() => map.set("outlier", "off"),
        Some(settings) => map.set("outlier", settings),
        None => {}
    }
    map.extend_some("idle_connections", idle.map(|idle| idle.min(1_000_000)));
    Ok(map)
}

/// The endpoint for a `server`, if it is one.
fn endpoint(server: &Directive, scheme: &str, comments: &mut Vec<Comment>) -> Option<YamlNode> {
    let address = server.argument(0);
    let has = |word: &str| server.arguments.iter().any(|argument| argument == word);
    let missing = match address {
        address if address.starts_with("unix:") => {
            Some("Tollgate forwards to TCP ports only, not to Unix sockets")
        }
        address if !is_authority(address) => Some("this is not a host"),
        _ if has("backup") => Some("Tollgate has no backup servers: it is left out"),
        _ => None,
    };
    if let Some(text) = missing {
        comments.push(noted(server, text));
        return None;
    }
    let mut endpoint = Map::new().with("url", format!("{scheme}://{address}"));
    let weight = parameter(server, "weight").and_then(|weight| weight.parse::<u64>().ok());
    endpoint.extend_some("weight", weight.filter(|weight| *weight != 1).map(|weight| weight.clamp(1, 1000)));
    if has("down") {
        endpoint.set("drain", true);
    }
    if parameter(server, "max_conns").is_some() {
        let text = "set `max_connections` of the upstream, for all of its endpoints together";
        comments.push(noted(server, text));
    }
    if parameter(server, "slow_start").is_some() {
        comments.push(noted(server, "set `slow_start` of the upstream"));
    }
    Some(match endpoint.len() {
        1 => YamlNode::from(format!("{scheme}://{address}")),
        _ => YamlNode::from(endpoint),
    })
}

/// Reads `max_fails` and `fail_timeout` of a `server`. `outlier`: that of the servers before. An empty one is off.
fn outlier_of(server: &Directive, outlier: &mut Option<Map>, comments: &mut Vec<Comment>) {
    let failures = parameter(server, "max_fails").and_then(|text| text.parse::<u64>().ok());
    let eject = parameter(server, "fail_timeout").and_then(milliseconds).filter(|ms| *ms >= 1000);
    if failures.is_none() && eject.is_none() {
        return;
    }
    let settings = Map::new()
        .with("failures", failures.unwrap_or(1).clamp(1, 1000))
        .with("eject", duration(eject.unwrap_or(10_000).min(86_400_000)));
    match outlier {
        _ if failures == Some(0) => {
            outlier.get_or_insert_default();
        }
        None => *outlier = Some(settings),
        Some(first) if *first != settings => {
            comments.push(noted(server, "Tollgate has one `outlier` for all endpoints of an upstream"));
        }
        Some(_) => {}
    }
}
