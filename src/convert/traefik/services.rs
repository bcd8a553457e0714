//! Services become upstreams, or shares of several upstreams.

use super::{Traefik, leftovers, milliseconds, plain_name};
use crate::convert::{
    document::{Fields, Item},
    draft::resource_name,
    route_draft::{Action, RouteDraft, duration},
    yaml::{Comment, Map, Node},
};

impl<'d> Traefik<'d> {
    /// What happens to the requests of a router with this service.
    ///
    /// # Errors
    /// Why it is not converted.
    pub(super) fn action(&mut self, named: Item<'d>, route: &mut RouteDraft) -> Result<Action, Comment> {
        let name = named.text().unwrap_or_default();
        if name.ends_with("@internal") {
            return Err(named.note(format!(
                "`{name}` has no equal: the admin port of Tollgate is apart from the routes (`admin`)"
            )));
        }
        let plain = plain_name(name);
        self.used.borrow_mut().insert(plain.clone());
        let Some((_, item)) = self.services.get(&plain).copied() else {
            return Ok(Action::Upstream(self.unknown_upstream(name, named)));
        };
        let fields = item.fields();
        if let Some(weighted) = fields.take("weighted") {
            let weighted = weighted.fields();
            let mut shares = Vec::new();
            for service in weighted.items("services") {
                let share = service.fields();
                let Some(child) = share.take("name") else { continue };
                let weight = share.number("weight").unwrap_or(1);
                match self.action(child, route) {
                    Ok(Action::Upstream(upstream)) => shares.push((upstream, weight)),
                    Ok(Action::Split(inner)) => {
                        route.comments.push(child.note("shares of shares: set these weights by hand"));
                        shares.extend(inner);
                    }
                    Ok(_) => {}
                    Err(comment) => route.comments.push(comment),
                }
            }
            if let Some(sticky) = weighted.take("sticky") {
                route.comments.push(sticky.note(
                    "`sticky` of shares: see `split_by`, which takes a cookie that the service sets, or \
                        `ip`",
                ));
            }
            weighted.ignore(&["healthCheck"]);
            route.comments.extend(leftovers(&weighted, name));
            return match shares.is_empty() {
                true => Err(item.note(format!("`{name}` has no services: not converted"))),
                false => Ok(Action::Split(shares)),
            };
        }
        for (kind, hint) in [
            ("mirroring", "requests are not mirrored; they go to the main service"),
            (
                "failover",
                "there is no fallback to another service. Endpoints that fail are left out (`outlier`, \
                    `health`)",
            ),
        ] {
            if let Some(inner) = fields.take(kind) {
                let inner = inner.fields();
                let Some(main) = inner.take("service") else { continue };
                for other in inner.items("mirrors").into_iter().chain(inner.take("fallback")) {
                    let other = if other.is_mapping() { other.fields().take("name") } else { Some(other) };
                    if let Some(name) = other.and_then(Item::text) {
                        self.used.borrow_mut().insert(plain_name(name));
                    }
                }
                route.comments.push(item.note(format!("`{kind}`: {hint}")));
                return self.action(main, route);
            }
        }
        if let Some(upstream) = self.upstreams.get(&plain) {
            return Ok(Action::Upstream(upstream.clone()));
        }
        let upstream =
            resource_name(name.split('@').next().unwrap_or(name), |name| self.draft.upstreams.has(name));
        let Some(balancer) = fields.take("loadBalancer") else {
            return Err(
                item.note(format!("the service `{name}` is of no kind that Tollgate has: not converted"))
            );
        };
        let node = self.upstream(name, balancer, &fields);
        self.draft.upstreams.set(&upstream, node);
        self.upstreams.insert(plain, upstream.clone());
        Ok(Action::Upstream(upstream))
    }

    /// An upstream for a service of another file or provider.
    fn unknown_upstream(&mut self, name: &str, named: Item<'d>) -> String {
        let plain = plain_name(name);
        if let Some(upstream) = self.upstreams.get(&plain) {
            return upstream.clone();
        }
        let upstream =
            resource_name(name.split('@').next().unwrap_or(name), |name| self.draft.upstreams.has(name));
        let host: String =
            upstream.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let node =
            Node::from(Map::new().with("endpoints", vec![format!("http://{}:80", host.trim_matches('-'))]));
        let note = named.note(format!("the service `{name}` is not in this file: write its address here"));
        self.draft.upstreams.set(&upstream, node.commented(note));
        self.upstreams.insert(plain, upstream.clone());
        upstream
    }

    fn upstream(&mut self, name: &str, balancer: Item<'d>, service: &Fields<'d>) -> Node {
        let fields = balancer.fields();
        let mut comments = Vec::new();
        let mut map = Map::new();
        let mut endpoints = Vec::new();
        let mut is_h2 = false;
        for server in fields.items("servers") {
            let server_fields = server.fields();
            let Some(url) = server_fields.text("url") else {
                comments.push(server.note("a server without `url`: not converted"));
                continue;
            };
            match endpoint(url) {
                Some((url, h2, path)) => {
                    is_h2 |= h2;
                    if let Some(path) = path {
                        comments.push(server.note(format!(
                            "the path {path} of the URL is not sent to \
                            the service, as in Traefik; write `rewrite` at the routes if it should be"
                        )));
                    }
                    endpoints.push(match server_fields.number("weight") {
                        Some(weight) if weight > 1 => {
                            Node::from(Map::new().with("url", url).with("weight", weight))
                        }
                        _ => Node::from(url),
                    });
                }
                None => comments.push(server.note(format!(
                    "`{url}` is no URL of an endpoint: write it by \
                        hand"
                ))),
            }
            comments.extend(leftovers(&server_fields, "servers"));
        }
        if endpoints.is_empty() {
            comments.push(
                balancer.note(format!("the service `{name}` has no servers: write their addresses here")),
            );
            endpoints.push(Node::from("http://127.0.0.1:9"));
        }
        map.set("endpoints", endpoints);
        if is_h2 {
            map.set("protocol", "h2");
        }
        if fields.take("passHostHeader").is_some_and(|item| item.text() == Some("false")) {
            map.set("host", "rewrite");
        }
        if let Some(strategy) = fields.text("strategy") {
            match strategy {
                "wrr" => map.set("balance", "round_robin"),
                "p2c" | "leasttime" => map.set("balance", "least_request"),
                "hrw" => map.set("balance", Map::new().with("hash", "ip")),
                _ => comments.push(fields.note(format!("`strategy: {strategy}` has no equal"))),
            }
        }
        if let Some(sticky) = fields.take("sticky") {
            let cookie = sticky.fields().take("cookie");
            let cookie_fields = cookie.map(Item::fields);
            let cookie_name =
                cookie_fields.as_ref().and_then(|fields| fields.text("name")).unwrap_or("tollgate_endpoint");
            let mut setting = Map::new().with("cookie", cookie_name);
            if let Some(fields) = &cookie_fields {
                if let Some(seconds) = fields.number("maxAge").filter(|seconds| *seconds > 0) {
                    setting.set("max_age", duration(seconds * 1000));
                }
                fields.ignore(&["secure", "httpOnly", "sameSite", "path", "domain"]);
                comments.extend(leftovers(fields, "sticky.cookie"));
            }
            map.set("sticky", setting);
        }
        if let Some(check) = fields.take("healthCheck") {
            map.set("health", health(&check.fields(), &mut comments));
        }
        if let Some(transport) = fields.take("serversTransport") {
            self.transport(transport, &mut map, &mut comments);
        }
        // Responses are sent on as they arrive.
        fields.ignore(&["responseForwarding"]);
        comments.extend(leftovers(&fields, name));
        comments.extend(leftovers(service, name));
        let mut node = Node::from(map);
        node.comments = comments;
        node
    }

    fn transport(&mut self, named: Item<'d>, upstream: &mut Map, comments: &mut Vec<Comment>) {
        let name = named.text().unwrap_or_default();
        let Some(item) = self.transports.get(&plain_name(name)) else {
            comments.push(named.note(format!("the serversTransport `{name}` is not in this file")));
            return;
        };
        let fields = item.fields();
        let mut tls = Map::new();
        if let Some(server_name) = fields.text("serverName") {
            tls.set("server_name", server_name);
        }
        let authorities = fields.texts("rootCAs");
        if let Some(file) = authorities.first() {
            tls.set("ca", *file);
        }
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
            comments.push(insecure.note(
                "Tollgate verifies the certificates of endpoints: name their \
                authority by `tls: { ca: FILE }`",
            ));
        }
        if !tls.is_empty() {
            upstream.set("tls", tls);
        }
        let timeouts = fields.fields("forwardingTimeouts");
        let mut written = Map::new();
        for (key, setting) in
            [("dialTimeout", "connect"), ("responseHeaderTimeout", "response"), ("idleConnTimeout", "idle")]
        {
            if let Some(time) = timeouts.text(key).and_then(milliseconds).filter(|time| *time > 0) {
                written.set(setting, duration(time));
            }
        }
        comments.extend(leftovers(&timeouts, "forwardingTimeouts"));
        if !written.is_empty() {
            upstream.set("timeouts", written);
        }
        if let Some(idle) = fields.number("maxIdleConnsPerHost") {
            upstream.set("idle_connections", idle);
        }
        // HTTP/1.1 is the default here.
        fields.ignore(&["disableHTTP2"]);
        comments.extend(leftovers(&fields, name));
    }
}

/// The URL without its path, whether it is HTTP/2 in clear text, and the path.
pub(in crate::convert) fn endpoint(url: &str) -> Option<(String, bool, Option<String>)> {
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
    let path = (!matches!(path, "" | "/")).then(|| path.to_owned());
    is_plain.then(|| (format!("{scheme}://{authority}"), is_h2, path))
}

fn health(fields: &Fields<'_>, comments: &mut Vec<Comment>) -> Map {
    let mut map = Map::new();
    match fields.text("mode") {
        Some("grpc") => map.set("type", "grpc"),
        _ => map.set("path", fields.text("path").filter(|path| path.starts_with('/')).unwrap_or("/")),
    }
    for (key, default) in [("interval", 30_000), ("timeout", 5_000)] {
        let time = fields.text(key).and_then(milliseconds).unwrap_or(default);
        map.set(key, duration(time));
    }
    if let Some(status) = fields.number("status").filter(|status| *status > 0) {
        map.set("statuses", vec![status]);
    }
    if let Some(host) = fields.text("hostname") {
        map.set("host", host);
    }
    map.set("healthy", 1);
    map.set("unhealthy", 1);
    fields.ignore(&["followRedirects"]);
    for (key, item) in fields.rest() {
        comments.push(item.note(format!("`healthCheck.{key}` has no equal")));
    }
    map
}
