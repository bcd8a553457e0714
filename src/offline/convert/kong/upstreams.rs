//! Services and their upstreams become upstreams.

use std::collections::BTreeSet;

use super::{
    Kong,
    transformers::is_header,
    values::{all_read, flag, given, ignore, is_named, milliseconds, number, numbers, reference},
};
use crate::offline::convert::{
    document::{Fields, Item},
    draft::{duration, resource_name},
    yaml::{Comment, Map, YamlNode},
};

/// Kong's weights go up to 65535.
const MAX_WEIGHT: u64 = 1000;

/// The longest duration, in milliseconds: 366 days.
const LONGEST: u64 = 366 * 86_400_000;

/// Keys of services that are read elsewhere, or that change nothing outside: the time between two writes to the service.
const SERVICE_KEYS: &str = "name url host port protocol path routes plugins enabled write_timeout";

/// Keys of upstreams that are read elsewhere, or that tune how Kong itself spreads requests.
const UPSTREAM_KEYS: &str = "name algorithm slots hash_on hash_fallback hash_on_header hash_on_cookie hash_on_cookie_path \
                             hash_on_query_arg hash_fallback_header targets";

/// A service, read.
pub(super) struct KongService {
    name: String,
    protocol: String,
    host: String,
    port: Option<u64>,
    /// What is put before the paths of requests.
    pub(super) path: String,
}

impl KongService {
    /// # Errors
    /// Something cannot be read.
    pub(super) fn new(fields: &Fields<'_>) -> Result<Self, String> {
        flag(fields, "enabled", true)?;
        let text = |key: &str| fields.text(key).unwrap_or_default().to_owned();
        let (mut protocol, mut host, mut path) = (text("protocol"), text("host"), text("path"));
        let mut port = number(fields, "port")?;
        if let Some((scheme, rest)) = fields.text("url").and_then(|url| url.split_once("://")) {
            let (authority, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (name, given) = authority.rsplit_once(':').unwrap_or((authority, ""));
            port = given.parse().ok();
            let name = if port.is_some() { name } else { authority };
            (protocol, host, path) = (scheme.to_owned(), name.to_owned(), rest.to_owned());
        }
        let name = fields.text("name").unwrap_or(&host).to_owned();
        let protocol = if protocol.is_empty() { "http".to_owned() } else { protocol };
        Ok(Self { name, protocol, host, port, path })
    }
}

impl<'d> Kong<'d> {
    /// The upstream of a service. One that preserves the host of requests is apart from one that does not.
    ///
    /// # Errors
    /// Tollgate cannot forward to it.
    pub(super) fn upstream(&mut self, nth: usize, preserves_host: bool) -> Result<String, String> {
        if let Some(name) = self.written.get(&(nth, preserves_host)) {
            return Ok(name.clone());
        }
        let item = *self.services.get(nth).ok_or("there is no such service")?;
        let fields = item.fields();
        let service = KongService::new(&fields)?;
        let (scheme, default_port, is_h2) = match service.protocol.as_str() {
            "http" => ("http", 80, false),
            "https" => ("https", 443, false),
            "grpc" => ("http", 80, true),
            "grpcs" => ("https", 443, true),
            other => return Err(format!("`{other}`: Tollgate forwards HTTP and gRPC only")),
        };
        let (mut map, mut comments) = (Map::new(), Vec::new());
        map.extend_some("protocol", is_h2.then_some("h2"));
        match self.upstreams.get(service.host.as_str()).copied() {
            Some(upstream) => self.balanced(upstream, scheme, &mut map, &mut comments)?,
            None => {
                let port = service.port.unwrap_or(default_port);
                map.set("endpoints", vec![endpoint(&format!("{scheme}://{}:{port}", service.host))?]);
            }
        }
        map.extend_some("host", (!preserves_host).then_some("rewrite"));
        let mut timeouts = Map::new();
        for (key, setting) in
            [("connect_timeout", "connect"), ("read_timeout", "response"), ("read_timeout", "idle")]
        {
            let time = number(&fields, key)?.filter(|time| *time > 0);
            timeouts.extend_some(setting, time.map(|time| duration(time.min(LONGEST))));
        }
        if !timeouts.is_empty() {
            map.set("timeouts", timeouts);
        }
        let retries = number(&fields, "retries")?.filter(|retries| *retries != 1);
        map.extend_some("retry", retries.map(|retries| Map::new().with("max", retries.min(10))));
        if fields.text("tls_verify") == Some("false") {
            comments.push(item.note("`tls_verify`: Tollgate verifies certificates; set `tls: { ca: FILE }`"));
        }
        for key in ["client_certificate", "ca_certificates", "tls_verify_depth"] {
            let given = given(&fields, key);
            comments.extend(
                given.map(|item| item.note(format!("`{key}`: set `tls: {{ ca: …, cert: …, key: … }}`"))),
            );
        }
        ignore(&fields, SERVICE_KEYS);
        fields.ignore(&["tls_verify"]);
        all_read(&fields)?;
        let name = resource_name(&service.name, |name| self.draft.upstreams.has(name));
        self.draft.upstreams.set(&name, YamlNode { comments, ..YamlNode::from(map) });
        self.written.insert((nth, preserves_host), name.clone());
        Ok(name)
    }

    /// The endpoints of an upstream, and how it balances.
    fn balanced(
        &self,
        item: Item<'d>,
        scheme: &str,
        map: &mut Map,
        comments: &mut Vec<Comment>,
    ) -> Result<(), String> {
        let fields = item.fields();
        let is_own = |target: &Item<'d>| {
            target.fields().take("upstream").and_then(reference).is_some_and(|of| is_named(item, of))
        };
        let apart = self.targets.iter().copied().filter(is_own);
        let mut targets = Vec::new();
        for target in fields.items("targets").into_iter().chain(apart) {
            let fields = target.fields();
            let address = fields.text("target").unwrap_or_default();
            let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let port = if has_port { "" } else { ":8000" };
            let weight = number(&fields, "weight")?.unwrap_or(100);
            targets.push((endpoint(&format!("{scheme}://{address}{port}"))?, weight));
        }
        if targets.is_empty() {
            return Err("its upstream has no targets".to_owned());
        }
        map.set("endpoints", endpoints(&targets));
        balance(&fields, !self.key_plugins().is_empty(), map, comments);
        health(&fields.fields("healthchecks"), map, comments);
        ignore(&fields, UPSTREAM_KEYS);
        all_read(&fields).map_err(|text| format!("its upstream: {text}"))
    }
}

/// Addresses with weights; those that are listed twice count once.
fn endpoints(targets: &[(String, u64)]) -> Vec<YamlNode> {
    let mut weights = targets.iter().map(|(_, weight)| *weight).filter(|weight| *weight > 0);
    let most = weights.clone().max().unwrap_or(1);
    let are_same = weights.all(|weight| weight == most);
    let mut urls = BTreeSet::new();
    let node = |(url, weight): &(String, u64)| {
        let map = Map::new().with("url", url.as_str());
        match weight {
            0 => map.with("drain", true).into(),
            _ if are_same => YamlNode::from(url.as_str()),
            _ => map.with("weight", weight.div_ceil(most.div_ceil(MAX_WEIGHT))).into(),
        }
    };
    targets.iter().filter(|(url, _)| urls.insert(url)).map(node).collect()
}

/// # Errors
/// This is no address.
fn endpoint(url: &str) -> Result<String, String> {
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let is_label = |label: &str| (1..=63).contains(&label.len());
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let is_name = host.starts_with('[') || host.split('.').all(is_label);
    match url::Url::parse(url).is_ok() && is_name && authority.chars().all(is_host) {
        true => Ok(url.to_owned()),
        false => Err(format!("`{authority}` is no address")),
    }
}

/// `hash_on` implies `consistent-hashing` (kong/db/schema/entities/upstreams.lua).
fn balance(fields: &Fields<'_>, has_keys: bool, map: &mut Map, comments: &mut Vec<Comment>) {
    let name = |key: &str| fields.text(key).unwrap_or_default();
    let hash_on = fields.text("hash_on").unwrap_or("none");
    let key = match (hash_on, fields.text("algorithm").unwrap_or("round-robin")) {
        ("none", "least-connections" | "latency") => return map.set("balance", "least_request"),
        ("none", "round-robin" | "consistent-hashing") => return map.set("balance", "round_robin"),
        ("ip" | "path", _) => hash_on.to_owned(),
        ("consumer", _) if has_keys => "customer".to_owned(),
        ("header", _) if is_header(name("hash_on_header")) => {
            format!("header:{}", name("hash_on_header").to_ascii_lowercase())
        }
        ("query_arg", _) if is_header(name("hash_on_query_arg")) => {
            format!("query:{}", name("hash_on_query_arg"))
        }
        _ => {
            return comments
                .push(fields.note("Tollgate does not balance in this way; see `balance` and `sticky`"));
        }
    };
    if !matches!(fields.text("hash_fallback"), None | Some("none" | "ip")) {
        comments.push(fields.note("`hash_fallback`: requests without the key go by address"));
    }
    map.set("balance", Map::new().with("hash", key));
}

fn health(checks: &Fields<'_>, map: &mut Map, comments: &mut Vec<Comment>) {
    let active = checks.fields("active");
    let (healthy, unhealthy) = (active.fields("healthy"), active.fields("unhealthy"));
    let count = |fields: &Fields<'_>, key: &str| {
        number(fields, key).ok().flatten().filter(|count| *count > 0).map(|count| count.min(1000))
    };
    // Kong checks only where an interval is set.
    let intervals = [milliseconds(&healthy, "interval"), milliseconds(&unhealthy, "interval")];
    if let Some(interval) = intervals.into_iter().flatten().min() {
        let mut setting = Map::new();
        match active.text("type").unwrap_or("http") {
            "tcp" => setting.set("type", "tcp"),
            "grpc" | "grpcs" if map.has("protocol") => setting.set("type", "grpc"),
            _ => {
                let path = active.text("http_path").filter(|path| path.starts_with('/') && path.is_ascii());
                setting.set("path", path.unwrap_or("/"));
                let mut statuses = numbers(&healthy, "http_statuses").unwrap_or_default();
                statuses.retain(|status| (200..600).contains(status));
                setting.extend_some("statuses", (!statuses.is_empty()).then_some(statuses));
                let host = active.fields("headers").texts("host").first().copied();
                setting.extend_some("host", host.filter(|host| host.is_ascii()));
            }
        }
        setting.set("interval", duration(interval.clamp(100, LONGEST)));
        setting.set("timeout", duration(milliseconds(&active, "timeout").unwrap_or(1000).min(LONGEST)));
        setting.set("healthy", count(&healthy, "successes").unwrap_or(2));
        setting.set("unhealthy", count(&unhealthy, "http_failures").unwrap_or(3));
        map.set("health", setting);
        ignore(&active, "type http_path timeout concurrency https_verify_certificate headers");
        comments.extend(all_read(&active).err().map(|text| checks.note(format!("healthchecks: {text}"))));
    }
    let passive = checks.fields("passive").fields("unhealthy");
    let failures =
        ["http_failures", "tcp_failures", "timeouts"].iter().filter_map(|key| count(&passive, key)).min();
    map.extend_some("outlier", failures.map(|failures| Map::new().with("failures", failures)));
}
