//! `proxy_pass` and `upstream`: upstreams.

use super::{
    Converter, Scope,
    policies::parameter,
    syntax::Directive,
    unconverted,
    values::{has_variable, is_authority, milliseconds},
};
use crate::convert::{
    draft::resource_name,
    route_draft::duration,
    yaml::{Comment, Map, Node},
};

/// Where `proxy_pass` leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The name of the upstream.
    pub(super) upstream: String,
    /// The path of the URL; `None` if it has none, so that the path of the request is kept.
    pub(super) path: Option<String>,
}

impl<'d> Converter<'d> {
    /// The upstream for a `proxy_pass` or `grpc_pass`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn destination(
        &mut self,
        pass: &'d Directive,
        scope: &Scope<'d>,
    ) -> Result<Destination, String> {
        let is_grpc = pass.name == "grpc_pass";
        let text = scope.expand(pass.argument(0));
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) if !is_grpc => ("http", rest),
            Some(("https", rest)) if !is_grpc => ("https", rest),
            Some(("grpc", rest)) if is_grpc => ("http", rest),
            Some(("grpcs", rest)) if is_grpc => ("https", rest),
            None if is_grpc => ("http", text.as_str()),
            _ => return Err("its URL cannot be read".to_owned()),
        };
        if rest.starts_with("unix:") {
            return Err("Tollgate forwards to TCP ports only, not to Unix sockets".to_owned());
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
            None => (rest, None),
        };
        // `proxy_pass http://backend$request_uri` sends the path as it came, as without one.
        let (authority, path) = match authority.strip_suffix("$request_uri") {
            Some(authority) => (authority, None),
            None => (authority, path.filter(|path| path != "$request_uri")),
        };
        if has_variable(authority) || path.as_deref().is_some_and(has_variable) {
            return Err("it has variables: name the upstream, or write a route for each value".to_owned());
        }
        if !is_authority(authority) {
            return Err(format!("`{authority}` is not a host"));
        }
        let mut comments = Vec::new();
        let mut map = match self.upstreams.get(authority).copied() {
            Some(group) => group_of(group, scheme, &mut comments)?,
            None => Map::new().with("endpoints", vec![format!("{scheme}://{authority}")]),
        };
        if is_grpc {
            map.set("protocol", "h2");
        }
        self.host(scope, authority, is_grpc, pass, &mut map, &mut comments);
        self.upstream_tls(scope, scheme, pass, &mut map, &mut comments);
        let mut timeouts = Map::new();
        let time = |name: &str| {
            let name = if is_grpc { name.replace("proxy", "grpc") } else { name.to_owned() };
            scope.value(&name).and_then(milliseconds).filter(|time| *time > 0)
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
            if let Some(directive) = scope.single(name).filter(|directive| directive.argument(0) != "off") {
                let text = format!("`{}`: set `retry` of the upstream", directive.shown());
                comments.push(unconverted(&directive.place, text));
            } else if scope.single(name).is_some() {
                map.set("retry", Map::new().with("max", 0));
            }
        }
        let upstream = self.named_upstream(authority, map, comments);
        Ok(Destination { upstream, path })
    }

    /// The name of this upstream. Equal ones have one name.
    fn named_upstream(&mut self, authority: &str, map: Map, comments: Vec<Comment>) -> String {
        let node = Node { comments, ..Node::from(map) };
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let base = resource_name(host, |_| false);
        let equal = |(name, known): &(&str, &Node)| name.starts_with(&base) && known.value == node.value;
        if let Some((name, _)) = self.draft.upstreams.iter().find(equal) {
            return name.to_owned();
        }
        let is_taken = |name: &str| self.draft.upstreams.has(name);
        let name = if is_taken(&base) { resource_name(authority, is_taken) } else { base };
        self.draft.upstreams.set(&name, node);
        name
    }

    /// The `Host` that the service gets: by default, nginx sends the one of `proxy_pass`.
    fn host(
        &mut self,
        scope: &Scope<'d>,
        authority: &str,
        is_grpc: bool,
        pass: &'d Directive,
        map: &mut Map,
        comments: &mut Vec<Comment>,
    ) {
        let list = if is_grpc { "grpc_set_header" } else { "proxy_set_header" };
        let set = scope.list(list).iter().rfind(|header| header.argument(0).eq_ignore_ascii_case("host"));
        let value = set.map(|header| scope.expand(header.argument(1)));
        match value.as_deref() {
            Some("$host" | "$http_host" | "$host:$server_port" | "$host:$proxy_port" | "$server_name") => {}
            Some("$proxy_host" | "$proxy_host:$proxy_port") | None => {
                map.set("host", "rewrite");
                if self.upstreams.contains_key(authority) && value.is_none() {
                    comments.push(Comment::Plain(format!(
                        "{}: nginx sends `Host: {authority}`, Tollgate the host of the endpoint.",
                        pass.place
                    )));
                }
            }
            Some(text) if text == authority || authority.split(':').next() == Some(text) => {
                map.set("host", "rewrite");
            }
            Some(text) => {
                map.set("host", "rewrite");
                if let Some(header) = set {
                    let text = format!(
                        "`{} {text}`: Tollgate sends the client's `Host`, or with `host: rewrite` the one of the endpoint",
                        header.argument(0)
                    );
                    comments.push(unconverted(&header.place, text));
                }
            }
        }
    }

    fn upstream_tls(
        &mut self,
        scope: &Scope<'d>,
        scheme: &str,
        pass: &'d Directive,
        map: &mut Map,
        comments: &mut Vec<Comment>,
    ) {
        if scheme != "https" {
            return;
        }
        let mut tls = Map::new();
        let settings = [
            ("trusted_certificate", "ca"),
            ("certificate", "cert"),
            ("certificate_key", "key"),
            ("name", "server_name"),
        ];
        for (directive, setting) in settings {
            let Some(value) = scope.value(&format!("proxy_ssl_{directive}")) else { continue };
            match directive {
                "name" if has_variable(value) => {}
                "name" => tls.set(setting, value),
                _ => tls.set(setting, self.file(value)),
            }
        }
        if scope.value("proxy_ssl_verify") != Some("on") {
            let text = "nginx does not verify the certificate of the service; Tollgate does: name its authority in `tls.ca`";
            comments.push(unconverted(&pass.place, text));
        }
        if !tls.is_empty() {
            map.set("tls", tls);
        }
    }
}

/// The upstream for an `upstream` block.
///
/// # Errors
/// Tollgate can forward to none of its servers.
fn group_of(group: &Directive, scheme: &str, comments: &mut Vec<Comment>) -> Result<Map, String> {
    let (mut map, mut endpoints) = (Map::new(), Vec::new());
    let mut balance = Node::from("round_robin");
    let mut outlier: Option<Map> = None;
    let mut idle = None;
    let mut note = |directive: &Directive, text: &str| {
        comments.push(unconverted(&directive.place, format!("`{}`: {text}", directive.shown())));
    };
    for directive in group.children() {
        match directive.name.as_str() {
            "server" => {
                let address = directive.argument(0);
                if !address.starts_with("unix:") && !is_authority(address) {
                    note(directive, "this is not a host");
                    continue;
                }
                if address.starts_with("unix:") {
                    note(directive, "Tollgate forwards to TCP ports only, not to Unix sockets");
                    continue;
                }
                let mut endpoint = Map::new().with("url", format!("{scheme}://{address}"));
                let weight = parameter(directive, "weight").and_then(|weight| weight.parse::<u64>().ok());
                if let Some(weight) = weight.filter(|weight| *weight != 1) {
                    endpoint.set("weight", weight.clamp(1, 1000));
                }
                let has = |word: &str| directive.arguments.iter().any(|argument| argument == word);
                if has("backup") {
                    note(
                        directive,
                        "Tollgate has no backup servers: it is drained, so that it takes no requests",
                    );
                }
                if has("backup") || has("down") {
                    endpoint.set("drain", true);
                }
                if parameter(directive, "max_conns").is_some() {
                    note(
                        directive,
                        "set `max_connections` of the upstream, for all of its endpoints together",
                    );
                }
                if parameter(directive, "slow_start").is_some() {
                    note(directive, "set `slow_start` of the upstream");
                }
                let failures = parameter(directive, "max_fails").and_then(|text| text.parse::<u64>().ok());
                let eject =
                    parameter(directive, "fail_timeout").and_then(milliseconds).filter(|ms| *ms >= 1000);
                if failures.is_some() || eject.is_some() {
                    let mut settings = Map::new();
                    match failures {
                        Some(0) => {}
                        Some(failures) => settings.set("failures", failures.min(1000)),
                        None => settings.set("failures", 1),
                    }
                    settings.set("eject", duration(eject.unwrap_or(10_000)));
                    match (&outlier, failures) {
                        (_, Some(0)) => {
                            outlier.get_or_insert_default();
                        }
                        (None, _) => outlier = Some(settings),
                        (Some(first), _) if *first != settings => {
                            note(directive, "Tollgate has one `outlier` for all endpoints of an upstream");
                        }
                        _ => {}
                    }
                }
                endpoints.push(match endpoint.len() {
                    1 => Node::from(format!("{scheme}://{address}")),
                    _ => Node::from(endpoint),
                });
            }
            "least_conn" => balance = Node::from("least_request"),
            "ip_hash" => balance = Node::from(Map::new().with("hash", "ip")),
            "hash" => match super::keys::Tables::default().key(directive.argument(0)) {
                Ok(super::keys::Key { key: Some(key), .. }) => {
                    balance = Node::from(Map::new().with("hash", key));
                }
                _ => note(directive, "write `balance: { hash: KEY }`"),
            },
            "random" => balance = Node::from("least_request"),
            "keepalive" => idle = directive.argument(0).parse::<u64>().ok(),
            "sticky" => note(directive, "write `sticky: { cookie: NAME }`"),
            name if super::words::is_irrelevant(name) || name.starts_with("keepalive_") => {}
            name => note(directive, super::words::advice(name)),
        }
    }
    if endpoints.is_empty() {
        return Err(format!("upstream `{}` has no server on a TCP port", group.argument(0)));
    }
    map.set("endpoints", endpoints);
    map.set("balance", balance);
    match outlier {
        Some(settings) if settings.is_empty() => map.set("outlier", "off"),
        Some(settings) => map.set("outlier", settings),
        None => {}
    }
    if let Some(idle) = idle {
        map.set("idle_connections", idle.min(1_000_000));
    }
    Ok(map)
}
