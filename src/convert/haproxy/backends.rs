//! `backend`: servers, balancing, health checks and timeouts as upstreams.

use super::{
    Converter, Headers, Rule,
    conditions::{Condition, acls},
    noted,
    syntax::{Line, Section},
};
use crate::convert::{
    draft::resource_name,
    nginx::is_authority,
    route_draft::duration,
    yaml::{Comment, Map, Node},
};

/// A time of HAProxy, in milliseconds: `10s`, `5000` (milliseconds), `1m`, `500us`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "" | "ms" => Some(number),
        "us" => Some(number / 1000),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    }
}

impl<'c> Converter<'c> {
    /// The upstream of a backend, and the rules and headers that hold for its routes. No upstream: Tollgate can forward to
    /// none of its servers.
    pub(super) fn backend(
        &mut self,
        backend: &'c Section,
        frontend: &'c Section,
        within: &[Condition],
        comments: &mut Vec<Comment>,
    ) -> (Option<String>, Vec<Rule<'c>>, Headers) {
        let lines = self.lines(backend);
        let of_backend = acls(lines.iter().copied());
        // The rules of a `listen` are those of its frontend.
        let (rules, headers) = match std::ptr::eq(backend, frontend) {
            true => (Vec::new(), Headers::default()),
            false => self.rules(backend, &of_backend, within, comments),
        };
        if let Some(upstream) = self.backends.get(backend.name()) {
            return (upstream.clone(), rules, headers);
        }
        let upstream = self.upstream(&lines);
        let name = upstream.map(|node| {
            let name = resource_name(backend.name(), |name| self.draft.upstreams.has(name));
            self.draft.upstreams.set(&name, node);
            name
        });
        if name.is_none() {
            comments.push(noted(
                &backend.head,
                "it has no server that Tollgate can forward to: its routes answer 501",
            ));
        }
        self.backends.insert(backend.name(), name.clone());
        (name, rules, headers)
    }

    fn upstream(&mut self, lines: &[&'c Line]) -> Option<Node> {
        let mut comments = Vec::new();
        let mut endpoints: Vec<Node> = Vec::new();
        let (mut tls, mut health, mut timeouts) = (Map::new(), Map::new(), Map::new());
        let mut connections = 0_u64;
        let mut is_checked = false;
        let defaults: Vec<&str> = lines
            .iter()
            .filter(|line| line.word(0) == "default-server")
            .flat_map(|line| line.words.iter().skip(1).map(String::as_str))
            .collect();
        for line in lines.iter().copied() {
            match line.word(0) {
                "server" => {}
                "server-template" => {
                    comments
                        .push(noted(line, "write one endpoint: a name is resolved again as its TTL says"));
                    continue;
                }
                _ => continue,
            }
            let words: Vec<&str> =
                defaults.iter().copied().chain(line.words.iter().skip(3).map(String::as_str)).collect();
            let has = |word: &str| words.contains(&word);
            let value = |name: &str| {
                words.iter().rposition(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
            };
            let address = line.word(2).trim_start_matches("ipv4@");
            if address.starts_with('/') || address.starts_with("unix@") || address.contains(['$', '%']) {
                comments.push(noted(line, "Tollgate forwards to TCP ports only"));
                continue;
            }
            if !is_authority(address) {
                comments.push(noted(line, "this is not a host"));
                continue;
            }
            let scheme = if has("ssl") { "https" } else { "http" };
            let url = format!("{scheme}://{}", address.trim_end_matches(':'));
            let mut endpoint = Map::new().with("url", url.as_str());
            match value("weight").and_then(|weight| weight.parse::<u64>().ok()) {
                Some(0) => endpoint.set("drain", true),
                Some(weight) if weight != 1 => endpoint.set("weight", weight.min(1000)),
                _ => {}
            }
            if has("backup") {
                comments.push(noted(
                    line,
                    "Tollgate has no backup servers: it is drained, so that it takes no requests",
                ));
            }
            if has("backup") || has("disabled") {
                endpoint.set("drain", true);
            }
            if has("send-proxy") || has("send-proxy-v2") {
                comments.push(noted(
                    line,
                    "Tollgate sends no PROXY header to services; they get X-Forwarded-For",
                ));
            }
            connections += value("maxconn").and_then(|most| most.parse::<u64>().ok()).unwrap_or(0);
            if has("check") {
                is_checked = true;
                for (word, setting) in [("inter", "interval"), ("rise", "healthy"), ("fall", "unhealthy")] {
                    match value(word) {
                        Some(text) if word == "inter" => {
                            if let Some(time) = milliseconds(text).filter(|time| *time >= 100) {
                                health.set(setting, duration(time));
                            }
                        }
                        Some(text) => {
                            if let Ok(count) = text.parse::<u64>() {
                                health.set(setting, count.clamp(1, 1000));
                            }
                        }
                        None => {}
                    }
                }
            }
            if has("ssl") {
                match value("verify") {
                    Some("none") | None => {
                        comments.push(noted(line, "Tollgate always verifies the certificate of the service: name its authority in `tls.ca`"));
                    }
                    Some(_) => {}
                }
                for (word, setting) in [("ca-file", "ca"), ("crt", "cert"), ("crt", "key")] {
                    if let Some(file) = value(word).filter(|file| !file.starts_with('@')) {
                        tls.set(setting, self.directory.join(file).display().to_string());
                    }
                }
                if let Some(name) = value("sni").and_then(|sni| sni.strip_prefix("str(")?.strip_suffix(')')) {
                    tls.set("server_name", name);
                }
            }
            let is_known = endpoints.iter().any(|known| *known == Node::from(url.as_str()));
            match endpoint.len() {
                1 if is_known => comments.push(noted(line, "this endpoint is listed twice")),
                1 => endpoints.push(Node::from(url)),
                _ => endpoints.push(Node::from(endpoint)),
            }
        }
        if endpoints.is_empty() {
            self.draft.head.extend(comments);
            return None;
        }
        let mut map = Map::new().with("endpoints", endpoints);
        map.set("balance", "round_robin");
        for line in lines.iter().copied() {
            let time = || milliseconds(line.word(2)).filter(|time| *time > 0);
            match (line.word(0), line.word(1)) {
                ("balance", "roundrobin" | "static-rr") => map.set("balance", "round_robin"),
                ("balance", "leastconn" | "random") => map.set("balance", "least_request"),
                ("balance", "source") => map.set("balance", Map::new().with("hash", "ip")),
                ("balance", "uri") => map.set("balance", Map::new().with("hash", "path")),
                ("balance", "url_param") => {
                    map.set("balance", Map::new().with("hash", format!("query:{}", line.word(2))));
                }
                ("balance", other) => {
                    match other.strip_prefix("hdr(").and_then(|name| name.strip_suffix(')')) {
                        Some(name) => {
                            map.set(
                                "balance",
                                Map::new().with("hash", format!("header:{}", name.to_ascii_lowercase())),
                            );
                        }
                        None => comments
                            .push(noted(line, "choose a `balance` of Tollgate: see docs/upstreams.md")),
                    }
                }
                ("cookie", name) if line.words.iter().any(|word| word == "insert") => {
                    map.set("sticky", Map::new().with("cookie", name));
                }
                ("cookie", _) => comments.push(noted(line, "write `sticky: { cookie: NAME }`")),
                ("timeout", "connect") => {
                    if let Some(time) = time() {
                        timeouts.set("connect", duration(time));
                    }
                }
                ("timeout", "server") => {
                    if let Some(time) = time() {
                        timeouts.set("response", duration(time));
                        timeouts.set("idle", duration(time));
                    }
                }
                ("retries", count) => {
                    if let Ok(count) = count.parse::<u64>() {
                        map.set("retry", Map::new().with("max", count.min(10)));
                    }
                }
                ("option", "httpchk") => {
                    let path = line.words.iter().skip(2).find(|word| word.starts_with('/'));
                    health.set("path", path.map_or("/", String::as_str));
                    if line.word(2) != "GET" && line.words.len() > 3 {
                        comments.push(noted(line, "Tollgate's health checks are GET requests"));
                    }
                }
                ("http-check", "send") => {
                    let uri = line
                        .words
                        .iter()
                        .position(|word| word == "uri")
                        .and_then(|at| line.words.get(at + 1));
                    if let Some(uri) = uri {
                        health.set("path", uri.as_str());
                    }
                }
                ("http-check", "expect")
                    if line.word(2) == "status" && line.word(3).parse::<u64>().is_ok() =>
                {
                    if let Ok(status) = line.word(3).parse::<u64>() {
                        health.set("statuses", vec![status]);
                    }
                }
                ("http-check", _) => comments.push(noted(line, "see `health` in docs/upstreams.md")),
                _ => {}
            }
        }
        if is_checked {
            if !health.has("path") {
                health.set("type", "tcp");
            }
            // `health` is read more easily with these first.
            health.sort_by_key(|key| !matches!(key, "type" | "path"));
            map.set("health", health);
        }
        if connections > 0 {
            map.set("max_connections", connections.min(1_000_000));
        }
        for (key, settings) in [("timeouts", timeouts), ("tls", tls)] {
            if !settings.is_empty() {
                map.set(key, settings);
            }
        }
        Some(Node { comments, ..Node::from(map) })
    }
}
