//! Servers, balancing, health checks and timeouts of a backend: upstreams.

use super::{
    limits::key_of,
    source::HaproxyConfig,
    syntax::{ConfigLine, milliseconds},
    words::{self, WordMeaning},
};
use crate::offline::convert::{
    condition::is_host,
    draft::{duration, is_field_name},
    yaml::{Comment, Map, YamlNode},
};

/// A `timeout` and its line, if it is a time that Tollgate takes.
pub(super) fn timeout<'l>(lines: &[&'l ConfigLine], name: &str) -> Option<(&'l ConfigLine, u64)> {
    let line = lines.iter().rfind(|line| line.word(0) == "timeout" && line.word(1) == name)?;
    let time = milliseconds(line.word(2)).filter(|time| (1..=86_400_000 * 365).contains(time));
    Some((line, time?))
}

/// A server with the words of `default-server` before its own.
struct HaproxyServer<'l> {
    line: &'l ConfigLine,
    words: Vec<&'l str>,
}

impl<'l> HaproxyServer<'l> {
    fn has(&self, word: &str) -> bool {
        let no = format!("no-{word}");
        let last = self.words.iter().rfind(|known| **known == word || **known == no);
        last == Some(&word)
    }

    fn value(&self, name: &str) -> Option<&'l str> {
        let at = self.words.iter().rposition(|word| *word == name)?;
        self.words.get(at + 1).copied()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }

    /// Whether it gets no requests.
    fn is_drained(&self) -> bool {
        super::is_off(self.words.iter().copied()) || self.number("weight") == Some(0)
    }

    /// The address with its scheme. Without a port, HAProxy connects to the one that the client has connected to.
    fn url(&self) -> Option<String> {
        let (host, port) = self.line.word(2).trim_start_matches("ipv4@").rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let is_host =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c));
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let scheme = if self.has("ssl") { "https" } else { "http" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        (is_host && is_port && !self.line.is_in_doubt).then(|| format!("{scheme}://{host}:{port}"))
    }

    /// Features of this server that Tollgate lacks.
    fn notes(&self) -> Vec<&'static str> {
        let said = |(_, _, class)| match class {
            WordMeaning::Noted(text) => Some(text),
            WordMeaning::Unknown => Some("it has an option that Tollgate has no equal of"),
            _ => None,
        };
        let mut notes: Vec<_> = words::options("server", &self.words).into_iter().filter_map(said).collect();
        if self.has("ssl") && matches!(self.value("verify"), Some("none") | None) {
            let text =
                "Tollgate always verifies the certificate of the service: name its authority in `tls.ca`";
            notes.push(text);
        }
        if self.value("sni").is_some_and(|sni| !sni.starts_with("str(")) {
            notes.push("name the server in `tls.server_name`: it is the same for all requests");
        }
        notes.dedup();
        notes
    }
}

/// The upstream of a backend, and the notes on it. No upstream: Tollgate can forward to none of its servers.
pub(super) fn upstream(source: &HaproxyConfig<'_>, lines: &[&ConfigLine]) -> (Option<Map>, Vec<Comment>) {
    let mut comments = Vec::new();
    let servers = servers(lines);
    // Without others, backup servers get all requests.
    let is_main = |server: &HaproxyServer<'_>| !server.has("backup") && !server.is_drained();
    let has_main = servers.iter().any(is_main);
    let (backup, used): (Vec<_>, Vec<_>) =
        servers.iter().partition(|server| has_main && server.has("backup"));
    for server in &backup {
        let text = "Tollgate has no backup servers: it is left out, and gets nothing when the others fail";
        comments.push(server.line.note(text));
    }
    let endpoints = endpoints(&used, &mut comments);
    if endpoints.is_empty() {
        return (None, comments);
    }
    let mut map = Map::new().with("endpoints", endpoints).with("balance", balance(lines, &mut comments));
    if used.iter().all(|server| [server.value("proto"), server.value("alpn")].contains(&Some("h2"))) {
        map.set("protocol", "h2");
    }
    match HaproxyConfig::last(lines, "cookie") {
        Some(line) if line.has("insert") && is_field_name(line.word(1)) => {
            map.set("sticky", Map::new().with("cookie", line.word(1)));
        }
        Some(line) => comments.push(line.note("write `sticky: { cookie: NAME }`")),
        None => {}
    }
    let slow = used.iter().find_map(|server| milliseconds(server.value("slowstart")?));
    map.extend_some("slow_start", slow.filter(|time| *time > 0).map(duration));
    map.extend_some("health", health(lines, &used, &mut comments));
    let most: u64 = used.iter().filter_map(|server| server.number("maxconn")).fold(0, u64::saturating_add);
    map.extend_some("max_connections", Some(most.min(1_000_000)).filter(|most| *most > 0));
    let retries = HaproxyConfig::last(lines, "retries").and_then(|line| line.word(1).parse::<u64>().ok());
    map.extend_some("retry", retries.map(|retries| Map::new().with("max", retries.min(10))));
    for (key, settings) in [("timeouts", timeouts(lines, &mut comments)), ("tls", tls(source, &used))] {
        map.extend_some(key, Some(settings).filter(|settings| !settings.is_empty()));
    }
    (Some(map), comments)
}

fn servers<'l>(lines: &[&'l ConfigLine]) -> Vec<HaproxyServer<'l>> {
    let mut defaults = Vec::new();
    let mut servers = Vec::new();
    for line in lines {
        let words = |from: usize| line.words.iter().skip(from).map(String::as_str);
        match line.word(0) {
            "default-server" => defaults.extend(words(1)),
            "server" => {
                servers
                    .push(HaproxyServer { line, words: defaults.iter().copied().chain(words(3)).collect() });
            }
            _ => {}
        }
    }
    servers
}

fn endpoints(servers: &[&HaproxyServer<'_>], comments: &mut Vec<Comment>) -> Vec<YamlNode> {
    let (mut endpoints, mut known) = (Vec::new(), Vec::new());
    for server in servers {
        comments.extend(server.notes().into_iter().map(|text| server.line.note(text)));
        let Some(url) = server.url().filter(|url| !known.contains(url)) else {
            comments.push(server.line.note("it is left out: an endpoint is a host with a port, listed once"));
            continue;
        };
        let mut endpoint = Map::new().with("url", url.as_str());
        match server.number("weight").unwrap_or(1) {
            _ if server.is_drained() => endpoint.set("drain", true),
            1 => {}
            weight => endpoint.set("weight", weight.min(1000)),
        }
        endpoints.push(if endpoint.len() == 1 {
            YamlNode::from(url.as_str())
        } else {
            YamlNode::from(endpoint)
        });
        known.push(url);
    }
    endpoints
}

fn balance(lines: &[&ConfigLine], comments: &mut Vec<Comment>) -> YamlNode {
    let Some(line) = HaproxyConfig::last(lines, "balance") else { return YamlNode::from("round_robin") };
    let fetch = match line.word(1) {
        "roundrobin" | "static-rr" | "first" => return YamlNode::from("round_robin"),
        "leastconn" | "random" => return YamlNode::from("least_request"),
        "source" => "src".to_owned(),
        "uri" => "path".to_owned(),
        "hash" => line.word(2).to_owned(),
        "url_param" => format!("url_param({})", line.word(2)),
        kind => kind.to_owned(),
    };
    match key_of(&fetch) {
        Ok((key, _)) => Map::new().with("hash", key).into(),
        Err(_) => {
            comments.push(line.note("choose a `balance` of Tollgate: see docs/upstreams.md"));
            YamlNode::from("round_robin")
        }
    }
}

fn timeouts(lines: &[&ConfigLine], comments: &mut Vec<Comment>) -> Map {
    let time = |name: &str| timeout(lines, name).map(|(_, time)| time);
    let (mut timeouts, longest) = (Map::new(), time("server").max(time("tunnel")));
    for (key, time) in [("connect", time("connect")), ("response", time("server")), ("idle", longest)] {
        timeouts.extend_some(key, time.map(duration));
    }
    if let Some((line, tunnel)) = timeout(lines, "tunnel")
        && Some(tunnel) != time("server")
    {
        let text = "`timeouts.idle` holds for WebSockets and for responses: it has the longer time";
        comments.push(line.note(text));
    }
    timeouts
}

fn tls(source: &HaproxyConfig<'_>, servers: &[&HaproxyServer<'_>]) -> Map {
    let mut tls = Map::new();
    for server in servers.iter().filter(|server| server.has("ssl")) {
        for (word, base, settings) in
            [("ca-file", "ca-base", &["ca"][..]), ("crt", "crt-base", &["cert", "key"])]
        {
            if let Some(file) = server.value(word).filter(|file| !file.starts_with('@')) {
                let file = source.file(file, Some(base)).display().to_string();
                settings.iter().for_each(|setting| tls.set(setting, file.as_str()));
            }
        }
        let named = server.value("sni").and_then(|sni| sni.strip_prefix("str(")?.strip_suffix(')'));
        let named = named.or(server.value("verifyhost")).filter(|name| is_host(name));
        tls.extend_some("server_name", named);
    }
    tls
}

/// Checks of health, if any server has them.
fn health(lines: &[&ConfigLine], servers: &[&HaproxyServer<'_>], comments: &mut Vec<Comment>) -> Option<Map> {
    let first = servers.iter().find(|server| server.has("check"))?;
    let chosen = lines.iter().rfind(|line| line.word(0) == "option" && line.word(1) == "httpchk");
    let mut health = chosen.map_or_else(|| Map::new().with("type", "tcp"), |line| asked(line));
    let mut is_get = chosen.is_none_or(|line| line.word(2) == "GET");
    for line in lines.iter().filter(|line| matches!(line.word(0), "http-check" | "tcp-check")) {
        let said = match line.word(1) {
            "send" if chosen.is_some() => {
                is_get |= line.after("meth") == Some("GET");
                health.extend_some("path", line.after("uri").filter(|uri| uri.starts_with('/')));
                let name = line.after("hdr");
                let host = name.filter(|name| name.eq_ignore_ascii_case("host"));
                health.extend_some("host", host.and_then(|name| line.after(name)).filter(is_authority));
                (name != host || line.has("body"))
                    .then_some("Tollgate's checks have no other headers and no body")
            }
            "expect" if line.word(2) == "status" && chosen.is_some() => {
                let statuses = statuses(line.word(3));
                let is_known = statuses.is_some();
                health.extend_some("statuses", statuses);
                (!is_known).then_some("list `statuses` in `health`: see docs/upstreams.md")
            }
            _ => Some("see `health` in docs/upstreams.md"),
        };
        comments.extend(said.map(|text| line.note(text)));
    }
    if let Some(line) = chosen.filter(|_| !is_get) {
        comments.push(line.note("Tollgate's checks are GET requests"));
    }
    let time = |name: &str| milliseconds(first.value(name)?).filter(|time| *time >= 100);
    health.extend_some("interval", time("inter").map(duration));
    health.extend_some("timeout", timeout(lines, "check").map(|(_, time)| duration(time)));
    for (word, setting) in [("rise", "healthy"), ("fall", "unhealthy")] {
        health.extend_some(setting, first.number(word).map(|count| count.clamp(1, 1000)));
    }
    Some(health)
}

/// `option httpchk GET /health HTTP/1.1\r\nHost: a.example.com`.
fn asked(line: &ConfigLine) -> Map {
    let path = line.words.iter().find(|word| word.starts_with('/'));
    let text = line.words.join(" ").to_ascii_lowercase();
    let host = text.split("\r\n").find_map(|field| field.strip_prefix("host:"));
    let mut health = Map::new().with("path", path.map_or("/", String::as_str));
    health.extend_some("host", host.map(str::trim).filter(is_authority));
    health
}

/// A host, perhaps with a port.
fn is_authority(text: &&str) -> bool {
    is_host(text.split(':').next().unwrap_or_default())
}

/// `200,204` or `200-299`.
fn statuses(text: &str) -> Option<Vec<String>> {
    let is_status =
        |text: &str| text.len() == 3 && text.parse::<u16>().is_ok_and(|status| (100..600).contains(&status));
    let list: Vec<String> = text.split(',').map(str::to_owned).collect();
    let is_known = |range: &String| range.split('-').all(is_status) && range.len() <= 7;
    list.iter().all(is_known).then_some(list)
}
