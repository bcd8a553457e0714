//! Services and their upstreams become upstreams.

use super::{Kong, leftovers, reference};
use crate::convert::{
    document::{Fields, Item},
    draft::resource_name,
    route_draft::duration,
    yaml::{Comment, Map, Node},
};

/// Kong's weights go up to 65535.
const MAX_WEIGHT: u64 = 1000;

/// A service, read.
pub(super) struct Service<'d> {
    pub(super) name: String,
    host: &'d str,
    port: Option<u64>,
    protocol: String,
    /// What is put before the paths of requests.
    pub(super) path: String,
    pub(super) is_enabled: bool,
}

impl<'d> Service<'d> {
    pub(super) fn new(fields: &Fields<'d>) -> Self {
        let mut service = Self {
            name: fields.text("name").unwrap_or_default().to_owned(),
            host: fields.text("host").unwrap_or_default(),
            port: fields.number("port"),
            protocol: fields.text("protocol").unwrap_or("http").to_owned(),
            path: fields.text("path").unwrap_or_default().to_owned(),
            is_enabled: fields.take("enabled").is_none_or(|item| item.text() != Some("false")),
        };
        if let Some((protocol, rest)) = fields.text("url").and_then(|url| url.split_once("://")) {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, port) = match authority.rsplit_once(':') {
                Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => (host, port.parse().ok()),
                _ => (authority, None),
            };
            protocol.clone_into(&mut service.protocol);
            path.clone_into(&mut service.path);
            (service.host, service.port) = (host, port);
        }
        if service.name.is_empty() {
            service.host.clone_into(&mut service.name);
        }
        service
    }
}

impl<'d> Kong<'d> {
    /// The upstream of a service. One that preserves the host of requests is apart from one that does not.
    pub(super) fn upstream(&mut self, nth: usize, preserves_host: bool) -> Option<String> {
        if let Some(name) = self.written.get(&(nth, preserves_host)) {
            return Some(name.clone());
        }
        let item = *self.services.get(nth)?;
        let fields = item.fields();
        let service = Service::new(&fields);
        let mut comments = Vec::new();
        let (scheme, is_h2) = match service.protocol.as_str() {
            "http" => ("http", false),
            "https" => ("https", false),
            "grpc" => ("http", true),
            "grpcs" => ("https", true),
            other => {
                comments.push(item.note(format!("`{other}`: Tollgate forwards HTTP and gRPC only")));
                ("http", false)
            }
        };
        let mut map = Map::new();
        let upstream = self.upstreams.get(service.host).copied();
        match upstream {
            Some(upstream) => {
                self.used_upstreams.insert(service.host.to_owned());
                self.balanced(upstream, scheme, &mut map, &mut comments);
            }
            None => {
                let default = if scheme == "https" && service.port.is_none() { Some(443) } else { Some(80) };
                let port = service.port.or(default).unwrap_or(80);
                let url = format!("{scheme}://{}:{port}", service.host);
                map.set("endpoints", vec![endpoint(&url, item, &mut comments)]);
            }
        }
        if is_h2 {
            map.set("protocol", "h2");
        }
        if !preserves_host {
            map.set("host", "rewrite");
        }
        let mut timeouts = Map::new();
        for (key, setting) in [("connect_timeout", "connect"), ("read_timeout", "response")] {
            if let Some(time) = fields.number(key).filter(|time| *time > 0) {
                timeouts.set(setting, duration(time));
            }
        }
        if let Some(time) = fields.number("read_timeout").filter(|time| *time > 0) {
            timeouts.set("idle", duration(time));
        }
        if !timeouts.is_empty() {
            map.set("timeouts", timeouts);
        }
        if let Some(retries) = fields.number("retries").filter(|retries| *retries != 1) {
            map.set("retry", Map::new().with("max", retries.min(10)));
        }
        if fields.take("tls_verify").is_some_and(|item| item.text() == Some("false")) {
            comments.push(item.note(
                "`tls_verify: false`: Tollgate verifies certificates; name their \
                authority by `tls: { ca: FILE }`",
            ));
        }
        fields.ignore(&[
            "name",
            "url",
            "host",
            "port",
            "protocol",
            "path",
            "routes",
            "plugins",
            "enabled",
            "write_timeout",
        ]);
        comments.extend(leftovers(&fields, &service.name));
        let name = resource_name(&service.name, |name| self.draft.upstreams.has(name));
        let mut node = Node::from(map);
        node.comments = comments;
        self.draft.upstreams.set(&name, node);
        self.written.insert((nth, preserves_host), name.clone());
        Some(name)
    }

    /// The endpoints of an upstream, and how it balances.
    fn balanced(&self, item: Item<'d>, scheme: &str, map: &mut Map, comments: &mut Vec<Comment>) {
        let fields = item.fields();
        let name = fields.text("name").unwrap_or_default();
        let apart = self.targets.iter().copied().filter(|target| {
            target
                .fields()
                .take("upstream")
                .and_then(reference)
                .is_some_and(|of| of == name || fields.text("id") == Some(of))
        });
        let targets: Vec<_> = fields.items("targets").into_iter().chain(apart).collect();
        let weight = |target: &Item<'_>| target.fields().number("weight").unwrap_or(100);
        let most = targets.iter().map(weight).max().unwrap_or(1).max(1);
        let common = targets.iter().map(weight).filter(|weight| *weight > 0).fold(0, gcd).max(1);
        let mut endpoints = Vec::new();
        for target in &targets {
            let target_fields = target.fields();
            let Some(address) = target_fields.text("target") else { continue };
            let address = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                address.to_owned()
            } else {
                format!("{address}:8000")
            };
            let url = endpoint(&format!("{scheme}://{address}"), *target, comments);
            let weight = weight(target);
            let scaled = if most / common > MAX_WEIGHT {
                (weight * MAX_WEIGHT / most).max(1)
            } else {
                weight / common
            };
            endpoints.push(match (weight, scaled) {
                (0, _) => Node::from(Map::new().with("url", url).with("drain", true)),
                (_, 1) => Node::from(url),
                (_, scaled) => Node::from(Map::new().with("url", url).with("weight", scaled)),
            });
            target_fields.ignore(&["weight", "upstream"]);
            comments.extend(leftovers(&target_fields, "targets"));
        }
        if endpoints.is_empty() {
            comments.push(item.note(format!(
                "the upstream `{name}` has no targets: write their addresses \
                    here"
            )));
            endpoints.push(Node::from("http://127.0.0.1:9"));
        }
        map.set("endpoints", endpoints);
        match fields.text("algorithm").unwrap_or("round-robin") {
            "round-robin" => map.set("balance", "round_robin"),
            "least-connections" | "latency" => map.set("balance", "least_request"),
            "consistent-hashing" => {
                let key = match fields.text("hash_on").unwrap_or("none") {
                    "ip" | "none" => Some("ip".to_owned()),
                    "consumer" => Some("customer".to_owned()),
                    "header" => fields
                        .text("hash_on_header")
                        .map(|name| format!("header:{}", name.to_ascii_lowercase())),
                    "cookie" => fields.text("hash_on_cookie").map(|name| format!("cookie:{name}")),
                    "query_arg" => fields.text("hash_on_query_arg").map(|name| format!("query:{name}")),
                    "path" => Some("path".to_owned()),
                    _ => None,
                };
                match key {
                    Some(key) => map.set("balance", Map::new().with("hash", key)),
                    None => comments.push(fields.note(
                        "`hash_on` has no equal: requests go to the endpoint with the fewest requests",
                    )),
                }
            }
            other => comments.push(fields.note(format!("`algorithm: {other}` has no equal"))),
        }
        fields.ignore(&[
            "slots",
            "hash_on",
            "hash_fallback",
            "hash_on_header",
            "hash_on_cookie",
            "hash_on_query_arg",
            "hash_on_cookie_path",
            "hash_fallback_header",
            "targets",
            "use_srv_name",
        ]);
        if let Some(checks) = fields.take("healthchecks") {
            health(&checks.fields(), map, comments);
        }
        comments.extend(leftovers(&fields, name));
    }
}

/// The URL, or one that nothing listens on.
fn endpoint(url: &str, item: Item<'_>, comments: &mut Vec<Comment>) -> String {
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if url::Url::parse(url).is_ok() && !authority.is_empty() && authority.chars().all(is_host) {
        return url.to_owned();
    }
    comments.push(item.note(format!("`{authority}` is no address: write it here")));
    "http://127.0.0.1:9".to_owned()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn health(checks: &Fields<'_>, map: &mut Map, comments: &mut Vec<Comment>) {
    let active = checks.fields("active");
    let (healthy, unhealthy) = (active.fields("healthy"), active.fields("unhealthy"));
    // Kong checks only where an interval is set.
    let seconds = |fields: &Fields<'_>| {
        fields.text("interval").and_then(|text| text.parse::<f64>().ok()).filter(|seconds| *seconds > 0.0)
    };
    let interval = [seconds(&healthy), seconds(&unhealthy)].into_iter().flatten().reduce(f64::min);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive")]
    let milliseconds = |seconds: f64| ((seconds * 1000.0) as u64).max(100);
    if let Some(interval) = interval {
        let mut setting = Map::new();
        match active.text("type").unwrap_or("http") {
            "tcp" => setting.set("type", "tcp"),
            "grpc" | "grpcs" => setting.set("type", "grpc"),
            _ => setting.set("path", active.text("http_path").unwrap_or("/")),
        }
        setting.set("interval", duration(milliseconds(interval)));
        let timeout = active.text("timeout").and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
        setting.set("timeout", duration(milliseconds(timeout)));
        setting.set("healthy", healthy.number("successes").filter(|count| *count > 0).unwrap_or(2));
        setting.set("unhealthy", unhealthy.number("http_failures").filter(|count| *count > 0).unwrap_or(3));
        map.set("health", setting);
        for fields in [&healthy, &unhealthy] {
            fields.ignore(&[
                "interval",
                "successes",
                "http_statuses",
                "http_failures",
                "tcp_failures",
                "timeouts",
            ]);
        }
        active.ignore(&["type", "http_path", "timeout", "concurrency", "https_verify_certificate"]);
        comments.extend(leftovers(&active, "healthchecks.active"));
    }
    let passive = checks.fields("passive").fields("unhealthy");
    let failures = ["http_failures", "tcp_failures", "timeouts"]
        .iter()
        .filter_map(|key| passive.number(key))
        .filter(|count| *count > 0)
        .min();
    if let Some(failures) = failures {
        map.set("outlier", Map::new().with("failures", failures.min(1000)));
    }
    checks.ignore(&["threshold"]);
}
