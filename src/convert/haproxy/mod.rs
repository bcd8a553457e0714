//! Converts haproxy.cfg.
//!
//! `syntax` reads the text, `conditions` ACLs, `backends` servers; this file makes listeners, policies and routes of
//! frontends.

mod backends;
mod conditions;
mod syntax;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use super::{
    ConvertError, Draft, Note, Place, covers,
    draft::{is_field_name, resource_name},
    nginx::is_network,
    route_draft::duration,
    yaml::{Comment, Map, Node, Value},
};

use conditions::{Acls, Condition, RateTest, acls, split};
use syntax::{Line, Section};

/// Lines that tune HAProxy itself, or that Tollgate does without being told.
const IRRELEVANT: &str = "\
    acl mode log option compression http-reuse capture unique-id-format unique-id-header description id \
    log-format log-tag error-log-format maxconn fullconn backlog nbproc nbthread daemon user group chroot pidfile \
    stats timeout balance server default-server bind stick-table retries default_backend use_backend cookie \
    http-check hash-type errorfile monitor-uri enabled declare rate-limit dispatch disabled grace persist \
    email-alert tune.* ssl-* ca-base crt-base hard-stop-after cpu-map master-worker set-dumpable localpeer node \
    lua-load lua-prepend-path insecure-* quiet debug zero-warning spread-checks external-check ulimit-n uid gid \
    strict-limits presetenv setenv";
/// Those of them that do something. They are read elsewhere, or noted.
const OPTIONS: [&str; 3] = ["httpchk", "tcp-check", "forwardfor"];

/// A rule that applies to the routes of a frontend or a backend.
struct Rule<'c> {
    conditions: Vec<Condition>,
    effect: Effect,
    line: &'c Line,
}

enum Effect {
    Policy(String),
    Deny,
    /// Only these networks.
    Allow,
}

/// What is known of a configuration while it is converted.
struct Converter<'c> {
    draft: Draft,
    directory: PathBuf,
    defaults: Vec<&'c Section>,
    sections: &'c [Section],
    /// Names of settings that were left out.
    irrelevant: BTreeSet<&'c str>,
    /// The upstreams of backends that were converted, and what is said of them.
    backends: HashMap<&'c str, Option<String>>,
    /// Whether a route of an earlier frontend takes all requests.
    is_closed: bool,
    /// How many routes the frontends before the present one have.
    earlier_routes: usize,
    /// The condition of each route, in the order of the routes.
    matching: Vec<Condition>,
    /// Whether a route of the present frontend is left out, since an earlier frontend takes its requests.
    is_left_out: bool,
}

/// Converts `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<Draft, ConvertError> {
    let sections = syntax::parse(text, path)?;
    let mut converter = Converter {
        draft: Draft::default(),
        directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        defaults: sections.iter().filter(|section| section.kind() == "defaults").collect(),
        sections: &sections,
        irrelevant: BTreeSet::new(),
        backends: HashMap::new(),
        is_closed: false,
        earlier_routes: 0,
        is_left_out: false,
        matching: Vec::new(),
    };
    converter.run();
    Ok(converter.draft)
}

/// The comment for what has no equal.
fn unconverted(place: &Place, text: impl Into<String>) -> Comment {
    Comment::Unconverted(Note { place: place.clone(), text: text.into() })
}

fn noted(line: &Line, text: impl std::fmt::Display) -> Comment {
    unconverted(&line.place, format!("`{}`: {text}", line.shown()))
}

impl<'c> Converter<'c> {
    fn run(&mut self) {
        for section in self.sections {
            match section.kind() {
                "global" => self.global(section),
                "frontend" | "listen" => self.frontend(section),
                "defaults" => {
                    for line in &section.lines {
                        self.leave_out(line);
                    }
                }
                "backend" => {}
                "peers" => {
                    self.head(&section.head, "instances of Tollgate share limits by `store: { redis: … }`");
                }
                "userlist" => self.head(
                    &section.head,
                    "Tollgate checks no passwords: let the service do it, or use `api_keys`",
                ),
                "cache" => self.head(&section.head, "Tollgate does not cache"),
                "resolvers" | "mailers" | "ring" | "traces" | "program" | "log-forward" => {
                    self.irrelevant.insert(section.kind());
                }
                _ => self.head(&section.head, "Tollgate has no equal of this section"),
            }
        }
        if !self.draft.listeners.is_empty() {
            let exact = Map::new().with("case", "sensitive").with("trailing_slash", "exact");
            self.draft.settings.set("match", exact);
        }
        for section in self.sections.iter().filter(|section| section.kind() == "backend") {
            // A backend that has only a stick table is a table.
            let has_servers = section.lines.iter().any(|line| line.word(0).starts_with("server"));
            if has_servers && !self.backends.contains_key(section.name()) {
                self.head(&section.head, "no route leads to this backend: it is left out");
            }
        }
        if !self.irrelevant.is_empty() {
            let names = self.irrelevant.iter().copied().collect::<Vec<_>>().join(", ");
            let text = format!("Left out, since Tollgate has nothing to set or needs no setting: {names}.");
            self.draft.head.push(Comment::Plain(text));
        }
    }

    fn head(&mut self, line: &Line, text: impl std::fmt::Display) {
        self.draft.head.push(noted(line, text));
    }

    /// Lists the name of a line that nothing depends on, or notes it.
    fn leave_out(&mut self, line: &'c Line) {
        let name = line.word(0);
        let is_known = IRRELEVANT.split_whitespace().any(|known| match known.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == known,
        });
        let is_read = matches!(
            name,
            "acl"
                | "mode"
                | "timeout"
                | "balance"
                | "server"
                | "default-server"
                | "bind"
                | "stick-table"
                | "retries"
                | "default_backend"
                | "use_backend"
                | "cookie"
                | "http-check"
                | "maxconn"
        ) || name == "option" && OPTIONS.contains(&line.word(1));
        match (is_known, is_read) {
            (_, true) => {}
            (true, false) => {
                if let Some(name) = line.words.first() {
                    self.irrelevant.insert(name);
                }
            }
            (false, false) => self.head(line, "Tollgate has no equal of this setting"),
        }
    }

    fn global(&mut self, section: &'c Section) {
        for line in &section.lines {
            match line.word(0) {
                "maxconn" => {
                    if let Ok(most) = line.word(1).parse::<u64>() {
                        self.client_limit("connections", most.clamp(1, 10_000_000));
                    }
                }
                "lua-load" | "lua-load-per-thread" => self.head(line, "Tollgate runs no scripts"),
                _ => {
                    self.leave_out(line);
                }
            }
        }
    }

    fn client_limit(&mut self, name: &str, value: impl Into<Node>) {
        let value = value.into();
        self.draft.settings.change("client_limits", |limits| limits.set(name, value));
    }

    /// The lines of a section behind those of its `defaults`.
    fn lines(&self, section: &'c Section) -> Vec<&'c Line> {
        let from = section.head.words.iter().position(|word| word == "from");
        let named = from.and_then(|at| section.head.words.get(at + 1));
        let defaults = match named {
            Some(name) => self.defaults.iter().find(|defaults| defaults.name() == name),
            // The last before the section.
            None => self.defaults.iter().rfind(|defaults| defaults.head.place.line < section.head.place.line),
        };
        defaults.into_iter().flat_map(|defaults| &defaults.lines).chain(&section.lines).collect()
    }

    fn frontend(&mut self, section: &'c Section) {
        let lines = self.lines(section);
        let mode = lines.iter().rfind(|line| line.word(0) == "mode").map_or("tcp", |line| line.word(1));
        if section
            .lines
            .iter()
            .any(|line| line.word(0) == "stats" && matches!(line.word(1), "enable" | "uri"))
        {
            return self.head(&section.head, "the admin port has metrics and a page: see docs/admin.md");
        }
        if mode != "http" {
            return self.head(&section.head, "Tollgate proxies HTTP only (`mode http`)");
        }
        let acls = acls(lines.iter().copied());
        for line in &lines {
            let time = || backends::milliseconds(line.word(2)).filter(|time| *time > 0).map(duration);
            match (line.word(0), line.word(1)) {
                ("timeout", "http-request") => {
                    if let Some(time) = time() {
                        self.client_limit("header_timeout", time);
                    }
                }
                ("timeout", "client") => {
                    if let Some(time) = time() {
                        self.client_limit("idle_timeout", time);
                    }
                }
                _ => {}
            }
        }
        let redirects = self.redirects_plain(&section.lines, &acls);
        self.earlier_routes = self.draft.routes.len();
        let listeners = self.draft.listeners.len();
        for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
            self.bind(line, redirects);
        }
        let mut head = Vec::new();
        let (mut rules, headers) = self.rules(section, &acls, &[Condition::default()], &mut head);
        if is_local(section) && self.sections.iter().any(|other| is_proxy(other) && !is_local(other)) {
            head.push(noted(
                &section.head,
                "routes hold for all listeners, and this one is for this machine: so its routes `allow` no other clients",
            ));
            let not_from = ["127.0.0.0/8", "::1"].map(str::to_owned).to_vec();
            let conditions = vec![Condition { not_from, ..Condition::default() }];
            rules.push(Rule { conditions, effect: Effect::Allow, line: &section.head });
        }
        self.routes(section, &lines, &acls, &rules, &headers, head, redirects);
        if std::mem::take(&mut self.is_left_out) && self.draft.listeners.len() > listeners {
            // Its requests would take the routes of a frontend before.
            self.draft.listeners.truncate(listeners);
            self.head(
                &section.head,
                "its listeners are left out, since a frontend before takes its requests: run a second Tollgate for it",
            );
        }
    }

    /// Whether requests in clear text are redirected to https.
    fn redirects_plain(&self, lines: &[Line], acls: &Acls<'_>) -> bool {
        lines.iter().any(|line| {
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            let is_redirect = matches!(
                words.as_slice(),
                ["redirect", "scheme", "https", ..] | ["http-request", "redirect", "scheme", "https", ..]
            );
            let (_, conditions) = split(line, acls, &self.directory);
            is_redirect
                && conditions.is_ok_and(|list| {
                    list.iter().any(|one| one.is_for_all_routes() && one.is_tls != Some(true))
                })
        })
    }

    fn bind(&mut self, line: &'c Line, redirects: bool) {
        let has = |word: &str| line.words.iter().any(|known| known == word);
        let value = |name: &str| {
            let at = line.words.iter().position(|word| word == name)?;
            line.words.get(at + 1).map(String::as_str)
        };
        for address in line.word(1).split(',') {
            let mut comments = Vec::new();
            let Some(address) = address_of(address) else {
                self.head(line, "listen on an IP address and a port, or on `unix:/PATH`");
                continue;
            };
            let mut map = Map::new().with("address", address);
            if has("accept-proxy") {
                map.set("proxy_protocol", true);
                comments
                    .push(noted(line, "list the load balancers in `trusted_proxies`: others are refused"));
            }
            if has("ssl") {
                let mut tls = Map::new();
                match value("crt") {
                    Some(file) if !self.directory.join(file).is_dir() && !file.ends_with('/') => {
                        let file = self.directory.join(file).display().to_string();
                        let files = Map::new().with("cert", file.as_str()).with("key", file.as_str());
                        tls.set("certificates", vec![files]);
                    }
                    _ => comments.push(noted(line, "name each certificate in `tls: { certificates: … }`")),
                }
                if let Some(ca) = value("ca-file").filter(|_| !tls.is_empty()) {
                    tls.set("client_ca", self.directory.join(ca).display().to_string());
                    if value("verify") == Some("optional") {
                        tls.set("client_auth", "optional");
                    }
                }
                if matches!(value("verify"), Some("required" | "optional")) && !tls.has("client_ca") {
                    // A listener without them would take clients that HAProxy refuses.
                    self.head(line, "this listener is left out, since it asks clients for certificates: write it with `tls: { certificates: …, client_ca: … }`");
                    continue;
                }
                if has("crl-file") {
                    comments.push(noted(line, "Tollgate reads no list of revoked certificates"));
                }
                if !tls.is_empty() {
                    map.set("tls", tls);
                }
            } else if redirects {
                map.set("redirect", "https");
            }
            self.draft.listeners.push(Node { comments, ..Node::from(map) });
        }
    }

    /// The rules of a section that apply to its routes, and its changes of headers. What stands for itself, such as a
    /// `return`, becomes a route at once, for requests of `within` only.
    fn rules(
        &mut self,
        section: &'c Section,
        acls: &Acls<'_>,
        within: &[Condition],
        comments: &mut Vec<Comment>,
    ) -> (Vec<Rule<'c>>, Headers) {
        let mut rules = Vec::new();
        let mut headers = Headers::default();
        let trackers = self.trackers(section, acls, comments);
        for line in &section.lines {
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            match words.as_slice() {
                [_, "content" | "connection" | "session", action, ..] | [_, action, ..]
                    if action.starts_with("track-sc") => {}
                ["tcp-request", "inspect-delay", ..] | ["tcp-request", "content", "accept", ..] => {
                    self.irrelevant.insert("tcp-request");
                }
                ["http-request" | "tcp-request", rest @ ..]
                    if rest
                        .iter()
                        .take(2)
                        .any(|word| matches!(*word, "deny" | "reject" | "tarpit" | "silent-drop")) =>
                {
                    let refused = self.denial(line, section, acls, &trackers, &mut rules, within, comments);
                    headers.is_refused |= refused;
                }
                ["http-request" | "http-response", "set-header" | "add-header" | "del-header", ..] => {
                    headers.add(line, acls, &self.directory, comments);
                }
                ["http-request", "redirect" | "return", ..] | ["redirect", ..] => {
                    self.answered(line, acls, within, comments);
                }
                ["http-request", "replace-path" | "set-path" | "replace-uri" | "set-uri", ..] => {
                    match stripped(&words) {
                        Some(prefix) if words.len() <= 4 => headers.strip = Some(prefix),
                        _ => comments.push(noted(line, "write `rewrite` into the routes")),
                    }
                }
                ["http-request", "set-var" | "capture" | "set-log-level" | "add-acl", ..] => {
                    comments.push(noted(line, "Tollgate has no variables"));
                }
                ["http-request", "use-service", ..] => {
                    comments.push(noted(line, "the admin port has metrics: see docs/observability.md"));
                }
                ["http-request", "auth", ..] => {
                    headers.is_refused = true;
                    comments.push(noted(line, "Tollgate checks no passwords: let the service do it, or use `api_keys`. Until then, the routes answer 501"));
                }
                [
                    "http-request"
                    | "http-response"
                    | "http-after-response"
                    | "tcp-request"
                    | "filter"
                    | "http-error",
                    ..,
                ] => {
                    comments.push(noted(line, "Tollgate has no equal of this rule"));
                }
                ["option", "forwardfor", ..] | ["option", "httpchk" | "tcp-check", ..] => {}
                ["option" | "timeout" | "stats", ..] | [_, ..] => {
                    self.leave_out(line);
                }
                [] => {}
            }
        }
        (rules, headers)
    }

    /// The `track-sc` rules of a section by their number.
    fn trackers(&self, section: &'c Section, acls: &Acls<'_>, comments: &mut Vec<Comment>) -> Trackers<'c> {
        let mut trackers = Trackers::new();
        for line in &section.lines {
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            let at = words.iter().take(3).position(|word| word.starts_with("track-sc"));
            let Some(at) = at.filter(|_| matches!(line.word(0), "http-request" | "tcp-request")) else {
                continue;
            };
            let action = words[at];
            let index = action.trim_start_matches("track-sc").parse().unwrap_or(0);
            let table =
                words.iter().position(|word| *word == "table").and_then(|at| words.get(at + 1)).copied();
            let key = words.get(at + 1).copied().unwrap_or_default();
            let (_, conditions) = split(line, acls, &self.directory);
            let conditions = match conditions {
                Ok(conditions) => conditions,
                Err(reason) => {
                    comments.push(noted(
                        line,
                        format!("its condition has no equal ({reason}): all requests are tracked"),
                    ));
                    vec![Condition::default()]
                }
            };
            let table = table.map_or(section, |name| self.section(name).unwrap_or(section));
            trackers.entry(index).or_default().push(Tracker { key: key.to_owned(), table, conditions, line });
        }
        trackers
    }

    /// The section with this stick table, or this backend. A frontend may have the name of a backend.
    fn section(&self, name: &str) -> Option<&'c Section> {
        let of = |kinds: &[&str]| {
            self.sections.iter().find(|section| section.name() == name && kinds.contains(&section.kind()))
        };
        of(&["backend", "listen"]).or_else(|| of(&["frontend"]))
    }

    /// `http-request deny` and its like. Whether all routes of the section have to be closed, since it lets only some
    /// requests pass, and Tollgate cannot tell them.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one rule")]
    fn denial(
        &mut self,
        line: &'c Line,
        section: &'c Section,
        acls: &Acls<'_>,
        trackers: &Trackers<'c>,
        rules: &mut Vec<Rule<'c>>,
        within: &[Condition],
        comments: &mut Vec<Comment>,
    ) -> bool {
        let (before, conditions) = split(line, acls, &self.directory);
        let conditions = match conditions {
            Ok(conditions) => conditions,
            Err(reason) => {
                let is_closed = lets_only_some_pass(line, &reason);
                let text = if is_closed {
                    "until you write it, the routes answer 501"
                } else {
                    "nothing is denied here"
                };
                comments.push(noted(line, format!("{reason} has no equal: {text}")));
                return is_closed;
            }
        };
        let at = before.iter().position(|word| matches!(word.as_str(), "deny_status" | "status"));
        let is_tarpit = before.iter().any(|word| word == "tarpit");
        let status = at.and_then(|at| before.get(at + 1)).and_then(|status| status.parse::<u64>().ok());
        let status = status.unwrap_or(if is_tarpit { 500 } else { 403 });
        if is_tarpit {
            comments.push(noted(
                line,
                "Tollgate denies at once and does not hold the connection; see docs/bans.md",
            ));
        }
        for mut condition in conditions {
            if let Some(test) = condition.rate.take() {
                let tracked = self.tracked(&test, trackers);
                if tracked.is_empty() {
                    comments.push(noted(line, "nothing in this section is tracked for it"));
                }
                for tracker in tracked {
                    let condition = condition.clone();
                    match self.policy(&test, line, section, status, condition, tracker, comments) {
                        Ok(Some((policy, conditions))) => {
                            rules.push(Rule { conditions, effect: Effect::Policy(policy), line });
                        }
                        Ok(None) => {}
                        Err(reason) => comments.push(noted(line, reason)),
                    }
                }
                continue;
            }
            let is_by_address = !condition.from.is_empty() || !condition.not_from.is_empty();
            if is_by_address {
                if status != 403 {
                    comments.push(noted(line, "`allow` and `deny` of a route answer 403"));
                }
                if condition.is_tls.take().is_some() {
                    comments.push(noted(line, "Tollgate refuses these clients with TLS and without"));
                }
                let effect = match (condition.from.is_empty(), condition.not_from.is_empty()) {
                    (false, true) => Effect::Deny,
                    (true, false) => Effect::Allow,
                    _ => {
                        // Some of a network are let through: Tollgate refuses all of it.
                        condition.not_from.clear();
                        comments.push(noted(line, "write `allow` and `deny` into the routes: until then, they refuse all of the first network"));
                        Effect::Deny
                    }
                };
                rules.push(Rule { conditions: vec![condition], effect, line });
            } else if condition.is_tls.is_some() {
                comments.push(noted(line, "Tollgate's routes do not depend on TLS: nothing is denied here"));
            } else {
                let reply = Map::new().with("status", status);
                for condition in narrowed(line, &condition, within, comments) {
                    self.add_routes(line, &condition, comments, |map| map.set("reply", reply.clone()));
                }
            }
        }
        false
    }

    /// The `track-sc` rules whose counts a condition compares. `None` stands for all requests.
    fn tracked<'t>(&self, test: &RateTest, trackers: &'t Trackers<'c>) -> Vec<Option<&'t Tracker<'c>>> {
        if let Some(index) = test.tracked {
            return trackers.get(&index).into_iter().flatten().map(Some).collect();
        }
        // `src_…` reads the entry of the address, whoever tracks it.
        let table = test.table.as_deref().and_then(|name| self.section(name));
        let of_address = trackers.values().flatten().filter(|tracker| {
            tracker.key == "src" && table.is_none_or(|table| std::ptr::eq(table, tracker.table))
        });
        let found: Vec<_> = of_address.map(Some).collect();
        if found.is_empty() { vec![None] } else { found }
    }

    /// The policy for a rate, and the conditions under which requests count. `None`: it is another setting.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one rule")]
    fn policy(
        &mut self,
        test: &RateTest,
        line: &'c Line,
        section: &'c Section,
        status: u64,
        mut condition: Condition,
        tracker: Option<&Tracker<'c>>,
        comments: &mut Vec<Comment>,
    ) -> Result<Option<(String, Vec<Condition>)>, String> {
        let table = test.table.as_deref().and_then(|name| self.section(name));
        let table = table.or(tracker.map(|tracker| tracker.table)).unwrap_or(section);
        let (key, note) = key_of(tracker.map_or("src", |tracker| &tracker.key))?;
        if test.counter == "conn_cur" {
            if key != "ip" {
                return Err(
                    "limit connections by address: `client_limits.connections_per_address`".to_owned()
                );
            }
            self.client_limit("connections_per_address", test.most);
            return Ok(None);
        }
        let (statuses, extra) = match test.counter.as_str() {
            "http_req_rate" => (None, 0),
            // An error counts when the response is there, so that one more than the number passes.
            "http_err_rate" => (Some("4xx"), 1),
            "http_fail_rate" => (Some("5xx"), 1),
            "bytes_out_rate" | "bytes_in_rate" => return Err("Tollgate does not limit bandwidth".to_owned()),
            counter if counter.starts_with("gp") || counter.starts_with("get_gp") => {
                return Err("marks of clients are bans here: see docs/bans.md".to_owned());
            }
            "conn_rate" | "sess_rate" => {
                return Err("limit requests in place of connections, by a policy".to_owned());
            }
            counter => return Err(format!("`{counter}` has no window: use a rate")),
        };
        let window = period(table, &test.counter).ok_or_else(|| {
            format!("the stick table of `{}` does not store `{}`", table.name(), test.counter)
        })?;
        let is_counted_first = tracker.is_none_or(|tracker| tracker.line.place.line < line.place.line);
        let most = test.most + if is_counted_first { extra } else { 1 };
        if most == 0 {
            return Err("it denies every request".to_owned());
        }
        let mut map = Map::new()
            .with("algorithm", "sliding_window")
            .with("key", key.as_str())
            .with("limit", format!("{most}/{}", duration(window)));
        match statuses {
            Some(statuses) => map.set("count", Map::new().with("statuses", vec![statuses])),
            None if is_counted_first => map.set("count_denied", true),
            None => {}
        }
        let exempt = std::mem::take(&mut condition.not_from);
        if !exempt.is_empty() {
            map.set("exempt", exempt);
        }
        if !condition.from.is_empty() {
            return Err("it limits only some addresses: write `overrides` into a policy".to_owned());
        }
        if status != 429 {
            map.set("reply", Map::new().with("status", status));
        }
        if condition.is_tls.is_some() {
            comments.push(noted(line, "Tollgate's policies hold with TLS and without"));
        }
        let policy_comments: Vec<Comment> = note.map(|note| noted(line, note)).into_iter().collect();
        let value = Value::Map(map);
        let known =
            self.draft.policies.iter().find(|(_, node)| node.value == value).map(|(name, _)| name.to_owned());
        let name = known.unwrap_or_else(|| {
            let name = resource_name(table.name(), |name| self.draft.policies.has(name));
            self.draft.policies.set(&name, Node { comments: policy_comments, value });
            name
        });
        let tracked =
            tracker.map_or_else(|| vec![Condition::default()], |tracker| tracker.conditions.clone());
        let mut conditions = Vec::new();
        for tracked in tracked {
            let mut tracked = tracked;
            tracked.rate = None;
            conditions.extend(condition.and(&tracked)?);
        }
        Ok(Some((name, conditions)))
    }

    /// `http-request redirect`, `redirect` and `http-request return`.
    fn answered(
        &mut self,
        line: &'c Line,
        acls: &Acls<'_>,
        within: &[Condition],
        comments: &mut Vec<Comment>,
    ) {
        let (before, conditions) = split(line, acls, &self.directory);
        let words: Vec<&str> =
            before.iter().map(String::as_str).filter(|word| *word != "http-request").collect();
        let value = |name: &str| {
            words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
        };
        let conditions = match conditions {
            Ok(conditions) => conditions,
            Err(reason) => return comments.push(noted(line, format!("{reason} has no equal"))),
        };
        let action = match words.as_slice() {
            ["redirect", "scheme", "https", ..] => {
                let mut map = Map::new().with("scheme", "https");
                map.set("status", status(value("code")));
                ("redirect", map)
            }
            ["redirect", kind @ ("location" | "prefix"), url, ..] if !url.contains('%') => {
                let mut map = match (*kind, url.split_once("://")) {
                    ("prefix", Some((scheme, host))) if !host.contains('/') => {
                        Map::new().with("scheme", scheme).with("host", host)
                    }
                    ("location", Some(_)) => {
                        let whole =
                            if url.matches('/').count() < 3 { format!("{url}/") } else { (*url).to_owned() };
                        Map::new().with("to", whole).with("query", "drop")
                    }
                    ("location", None) => Map::new().with("path", *url).with("query", "drop"),
                    _ => return comments.push(noted(line, "write a route with `redirect`")),
                };
                map.set("status", status(value("code")));
                ("redirect", map)
            }
            ["return", ..] => {
                let status = value("status").and_then(|status| status.parse::<u64>().ok()).unwrap_or(200);
                let mut map = Map::new().with("status", status);
                if let Some(content_type) = value("content-type") {
                    map.set("content_type", content_type);
                }
                match value("string").or(value("lf-string")) {
                    Some(text) if value("string").is_some() || !text.contains('%') => map.set("body", text),
                    Some(_) => return comments.push(noted(line, "a reply of Tollgate has no variables")),
                    None if value("file").is_some() => {
                        return comments.push(noted(line, "write `reply: { body: \"${file:PATH}\" }`"));
                    }
                    None => {}
                }
                ("reply", map)
            }
            _ => return comments.push(noted(line, "write a route with `redirect`")),
        };
        for condition in conditions {
            let is_to_https = action.1.get("scheme").is_some() && action.1.get("host").is_none();
            if is_to_https && condition.is_for_all_routes() && condition.is_tls != Some(true) {
                // The listener does this.
                continue;
            }
            if condition.is_tls.is_some() || !condition.from.is_empty() || !condition.not_from.is_empty() {
                comments.push(noted(line, "Tollgate's routes do not depend on TLS or addresses"));
                continue;
            }
            for condition in narrowed(line, &condition, within, comments) {
                self.add_routes(line, &condition, comments, |map| map.set(action.0, action.1.clone()));
            }
        }
    }

    /// Adds a route for each path of a condition.
    fn add_routes(
        &mut self,
        line: &Line,
        condition: &Condition,
        comments: &mut Vec<Comment>,
        action: impl Fn(&mut Map),
    ) {
        let any = ["/*".to_owned()];
        let paths = if condition.paths.is_empty() { &any } else { condition.paths.as_slice() };
        for path in paths {
            let mut map = Map::new();
            if !condition.hosts.is_empty() {
                map.set("hosts", condition.hosts.clone());
            }
            map.set("path", path.as_str());
            if !condition.methods.is_empty() {
                map.set("methods", condition.methods.clone());
            }
            for (kind, name, value) in &condition.values {
                map.change(kind, |values| values.set(name, value.as_str()));
            }
            let matching = map.clone();
            let taken = self.draft.routes.iter().position(|route| match &route.value {
                Value::Map(earlier) => {
                    let same = |key: &str| {
                        earlier.get(key).map(|node| &node.value) == matching.get(key).map(|node| &node.value)
                    };
                    ["hosts", "path", "methods", "headers", "query", "cookie"].into_iter().all(same)
                }
                _ => false,
            });
            action(&mut map);
            if let Some(taken) = taken {
                // Within a frontend the first has them.
                if taken < self.earlier_routes
                    && let Some(Node { value: Value::Map(earlier), .. }) = self.draft.routes.get_mut(taken)
                {
                    let (is_same, text) = tightened(earlier, &map);
                    comments.extend(text.map(|text| noted(line, text)));
                    self.is_left_out |= !is_same;
                }
                continue;
            }
            let one = Condition {
                paths: [path.clone()].into_iter().filter(|path| path != "/*").collect(),
                from: Vec::new(),
                not_from: Vec::new(),
                rate: None,
                is_tls: None,
                ..condition.clone()
            };
            // A route behind one of an earlier frontend that takes all its requests would never match.
            let mut before = self.matching.iter().take(self.earlier_routes);
            let wider =
                before.position(|earlier| one.and(earlier).is_ok_and(|both| both.as_ref() == Some(&one)));
            let at = wider.unwrap_or(self.draft.routes.len());
            if let Some(Node { value: Value::Map(earlier), .. }) = self.draft.routes.get(at) {
                let is_refusal = ["upstream", "redirect"].iter().all(|key| !map.has(key)) && is_error(&map);
                let (is_same, text) = match is_refusal {
                    true => (true, Some(HOLD_BEFORE)),
                    false => tightened(&mut map, earlier),
                };
                comments.extend(text.or(is_same.then_some(HOLD_BEFORE)).map(|text| noted(line, text)));
                if !is_same {
                    self.is_left_out = true;
                    continue;
                }
                self.earlier_routes += 1;
            }
            self.matching.insert(at, one);
            let route = Node { comments: std::mem::take(comments), ..Node::from(map) };
            self.draft.routes.insert(at, route);
        }
    }

    /// The routes of a frontend: of each `use_backend`, and of its `default_backend`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one frontend")]
    fn routes(
        &mut self,
        section: &'c Section,
        lines: &[&'c Line],
        acls: &Acls<'_>,
        rules: &[Rule<'c>],
        headers: &Headers,
        mut comments: Vec<Comment>,
        redirects: bool,
    ) {
        let mut targets: Vec<(&'c Line, &'c str, Vec<Condition>)> = Vec::new();
        for line in lines.iter().filter(|line| line.word(0) == "use_backend") {
            match split(line, acls, &self.directory).1 {
                Ok(conditions) => targets.push((line, line.word(1), conditions)),
                Err(reason) => {
                    let text = format!("{reason} has no equal: its requests take the routes below");
                    comments.push(noted(line, text));
                }
            }
        }
        if let Some(line) = lines.iter().rfind(|line| line.word(0) == "default_backend") {
            targets.push((line, line.word(1), vec![Condition::default()]));
        } else if section.kind() == "listen" && section.lines.iter().any(|line| line.word(0) == "server") {
            targets.push((&section.head, section.name(), vec![Condition::default()]));
        } else if targets.is_empty() && !redirects {
            comments.push(noted(&section.head, "it has no backend"));
        }
        let mut closes = false;
        for (line, name, conditions) in targets {
            if closes {
                // HAProxy does not get there either.
                break;
            }
            let backend = self.section(name).filter(|backend| matches!(backend.kind(), "backend" | "listen"));
            let Some(backend) = backend else {
                comments.push(noted(line, "there is no such backend, or its name has variables"));
                continue;
            };
            let (upstream, own_rules, own_headers) =
                self.backend(backend, section, &conditions, &mut comments);
            let headers = headers.with(&own_headers);
            for condition in conditions {
                if condition.is_tls == Some(false) && redirects {
                    continue;
                }
                if condition.is_more_than_a_route() {
                    comments.push(noted(line, "Tollgate's routes do not depend on TLS, addresses or rates"));
                    continue;
                }
                if self.is_closed && condition != Condition::default() {
                    comments.push(noted(line, "a frontend before takes all requests, since routes hold for all listeners: it is left out"));
                    self.is_left_out = true;
                    continue;
                }
                let all: Vec<&Rule<'_>> = rules.iter().chain(&own_rules).collect();
                self.route(line, &condition, &all, upstream.as_deref(), &headers, &mut comments);
                closes |= condition == Condition::default();
            }
        }
        self.is_closed |= closes;
        self.draft.head.append(&mut comments);
    }

    /// Adds the routes to a backend under a condition: first for the rules that hold for a part of its requests.
    fn route(
        &mut self,
        line: &Line,
        condition: &Condition,
        rules: &[&Rule<'c>],
        upstream: Option<&str>,
        headers: &Headers,
        comments: &mut Vec<Comment>,
    ) {
        // Each condition that is narrower than the route's needs a route of its own.
        let mut narrower: Vec<Condition> = Vec::new();
        for rule in rules {
            for one in &rule.conditions {
                let bare = Condition { from: Vec::new(), not_from: Vec::new(), ..one.clone() };
                match condition.and(&bare) {
                    Ok(Some(both)) if both != *condition && !narrower.contains(&both) => narrower.push(both),
                    Ok(_) => {}
                    Err(reason) => comments.push(noted(rule.line, reason)),
                }
            }
        }
        narrower.sort_by_key(|one| {
            let longest = one.paths.iter().map(String::len).max().unwrap_or(0);
            std::cmp::Reverse((longest, one.methods.len() + one.values.len() + one.hosts.len()))
        });
        narrower.push(condition.clone());
        for one in narrower {
            let (mut policies, mut access) = (Vec::<String>::new(), Access::default());
            for rule in rules {
                for part in &rule.conditions {
                    let bare = Condition { from: Vec::new(), not_from: Vec::new(), ..part.clone() };
                    // The rule holds for all requests of this route.
                    if one.and(&bare).is_ok_and(|both| both.as_ref() == Some(&one)) {
                        match &rule.effect {
                            Effect::Policy(name) if !policies.contains(name) => policies.push(name.clone()),
                            Effect::Policy(_) => {}
                            Effect::Deny => access.deny(&part.from),
                            Effect::Allow => access.allow_only(&part.not_from),
                        }
                    }
                }
            }
            self.add_routes(line, &one, comments, |map| {
                match upstream.filter(|_| !headers.is_refused) {
                    Some(upstream) => map.set("upstream", upstream),
                    None => return map.set("reply", Map::new().with("status", 501)),
                }
                if !policies.is_empty() {
                    map.set("policies", policies.clone());
                }
                access.set(map);
                headers.set(map);
            });
        }
    }
}

/// Whether this section listens for HTTP. Its `mode` may be that of its `defaults`.
fn is_proxy(section: &Section) -> bool {
    matches!(section.kind(), "frontend" | "listen") && section.lines.iter().any(|line| line.word(0) == "bind")
}

/// Whether a section listens to this machine only.
fn is_local(section: &Section) -> bool {
    let mut addresses = section
        .lines
        .iter()
        .filter(|line| line.word(0) == "bind")
        .flat_map(|line| line.word(1).split(','))
        .filter_map(address_of)
        .peekable();
    addresses.peek().is_some()
        && addresses.all(|address| address.starts_with("127.") || address.starts_with("[::1]:"))
}

const HOLD_BEFORE: &str = "these rules hold for the listeners of the frontends before, too, since routes do";

/// Whether a route answers each request with an error.
fn is_error(route: &Map) -> bool {
    let Some(Value::Map(reply)) = route.get("reply").map(|node| &node.value) else { return false };
    let successes = (100..400_u64).map(Node::from);
    reply.get("status").is_some_and(|status| successes.into_iter().all(|known| known.value != status.value))
}

/// Gives the route of an earlier frontend the policies and networks of a later one for the same requests, since routes
/// hold for all listeners. Returns whether both do the same, and the text of a note about it.
fn tightened(earlier: &mut Map, later: &Map) -> (bool, Option<&'static str>) {
    if ["upstream", "reply", "redirect"]
        .iter()
        .any(|key| earlier.get(key).map(|node| &node.value) != later.get(key).map(|node| &node.value))
    {
        return (
            false,
            Some(
                "a route of a frontend before takes these requests, since routes hold for all listeners: it is left out",
            ),
        );
    }
    let before = earlier.clone();
    let policies = |route: &Map| match route.get("policies").map(|node| node.value.clone()) {
        Some(Value::List(list)) => list,
        _ => Vec::new(),
    };
    let mut all = policies(earlier);
    for policy in policies(later) {
        if !all.contains(&policy) {
            all.push(policy);
        }
    }
    if !all.is_empty() {
        earlier.set("policies", all);
    }
    let (mut access, new) = (Access::of(earlier), Access::of(later));
    if !new.allow.is_empty() {
        access.allow_only(&new.allow);
    }
    access.deny(&new.deny);
    access.set(earlier);
    (true, (before != *earlier).then_some(HOLD_BEFORE))
}

/// The conditions under which a rule of a backend holds, if requests get there under one of `within`.
fn narrowed(
    line: &Line,
    condition: &Condition,
    within: &[Condition],
    comments: &mut Vec<Comment>,
) -> Vec<Condition> {
    let mut both = Vec::new();
    for one in within.iter().filter(|one| !one.is_more_than_a_route()) {
        match one.and(condition) {
            Ok(found) => both.extend(found),
            Err(reason) => comments.push(noted(line, format!("{reason}: it is left out"))),
        }
    }
    both
}

/// Whether a denial that cannot be told names those who pass, as `unless { http_auth(users) }` does, or reads a file.
fn lets_only_some_pass(line: &Line, reason: &str) -> bool {
    line.words.iter().any(|word| word == "unless")
        || ["`!", "`-f", "the file"].iter().any(|begin| reason.starts_with(begin))
}

/// The `track-sc` rules of a section by their number, in order.
type Trackers<'c> = BTreeMap<u8, Vec<Tracker<'c>>>;

/// A `track-sc` rule.
struct Tracker<'c> {
    key: String,
    /// The section with the stick table.
    table: &'c Section,
    conditions: Vec<Condition>,
    line: &'c Line,
}

/// The networks whose requests a route takes.
#[derive(Debug, Clone, Default)]
struct Access {
    /// None: all.
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Access {
    /// That of a route that was written.
    fn of(route: &Map) -> Self {
        let list = |key: &str| match route.get(key).map(|node| &node.value) {
            Some(Value::List(nodes)) => nodes
                .iter()
                .filter_map(|node| match &node.value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        Self { allow: list("allow"), deny: list("deny") }
    }

    fn deny(&mut self, networks: &[String]) {
        for network in networks {
            if !self.deny.contains(network) {
                self.deny.push(network.clone());
            }
        }
    }

    /// Refuses clients outside of `networks`, besides those that are refused already.
    fn allow_only(&mut self, networks: &[String]) {
        let mut both: Vec<String> = Vec::new();
        for new in networks {
            let known = if self.allow.is_empty() { std::slice::from_ref(new) } else { self.allow.as_slice() };
            for known in known {
                let narrower = if covers(known, new) {
                    new
                } else if covers(new, known) {
                    known
                } else {
                    continue;
                };
                if !both.contains(narrower) {
                    both.push(narrower.clone());
                }
            }
        }
        if both.is_empty() {
            self.deny(&["0.0.0.0/0", "::/0"].map(str::to_owned));
        } else {
            self.allow = both;
        }
    }

    fn set(&self, route: &mut Map) {
        for (key, networks) in [("allow", &self.allow), ("deny", &self.deny)] {
            if !networks.is_empty() {
                route.set(key, networks.clone());
            }
        }
    }
}

/// Changes of headers and of the path, for all routes of a section.
#[derive(Debug, Clone, Default)]
struct Headers {
    /// For each direction: `set`, `add` and `remove`.
    request: Changes,
    response: Changes,
    /// The prefix to strip.
    strip: Option<String>,
    /// Requests need a password, which Tollgate does not check.
    is_refused: bool,
}

#[derive(Debug, Clone, Default)]
struct Changes {
    set: Vec<(String, String)>,
    add: Vec<(String, String)>,
    remove: Vec<String>,
}

impl Headers {
    /// Adds `set-header`, `add-header` or `del-header`.
    fn add(&mut self, line: &Line, acls: &Acls<'_>, directory: &Path, comments: &mut Vec<Comment>) {
        let (before, conditions) = split(line, acls, directory);
        let name = before.get(2).map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        if matches!(name.as_str(), "x-forwarded-proto" | "x-forwarded-for" | "x-forwarded-host" | "host")
            && line.word(0) == "http-request"
        {
            if name == "host" {
                comments.push(noted(line, "`host: rewrite` of the upstream sends the host of the endpoint"));
            }
            // Tollgate sends the others itself.
            return;
        }
        let is_always = conditions.is_ok_and(|list| {
            list.iter()
                .any(|condition| Condition { is_tls: None, ..condition.clone() } == Condition::default())
        });
        if !is_always {
            return comments.push(noted(
                line,
                "write `request_headers` or `response_headers` into the routes of this condition",
            ));
        }
        if !is_field_name(&name) {
            return comments.push(noted(line, format!("`{name}` is not the name of a header")));
        }
        let changes = if line.word(0) == "http-request" { &mut self.request } else { &mut self.response };
        match (line.word(1), before.get(3).map(|value| header_text(value))) {
            ("del-header", _) => changes.remove.push(name),
            (_, Some(Some(value))) if line.word(1) == "add-header" => changes.add.push((name, value)),
            (_, Some(Some(value))) => changes.set.push((name, value)),
            _ => comments.push(noted(line, "Tollgate has no placeholder for this value")),
        }
    }

    /// These, and those of the backend.
    fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (mine, theirs) in [(&mut both.request, &other.request), (&mut both.response, &other.response)] {
            mine.set.extend(theirs.set.iter().cloned());
            mine.add.extend(theirs.add.iter().cloned());
            mine.remove.extend(theirs.remove.iter().cloned());
        }
        both.strip = both.strip.or(other.strip.clone());
        both.is_refused |= other.is_refused;
        both
    }

    /// Sets them in a route. A prefix is removed only from paths that may have it.
    fn set(&self, route: &mut Map) {
        let may_have = |prefix: &&String| match route.get("path").map(|path| &path.value) {
            Some(Value::Text(path)) => may_begin_with(path, prefix),
            _ => true,
        };
        if let Some(prefix) = self.strip.as_ref().filter(may_have) {
            route.set("rewrite", Map::new().with("strip_prefix", prefix.as_str()));
        }
        for (key, changes) in [("request_headers", &self.request), ("response_headers", &self.response)] {
            let mut map = Map::new();
            for (kind, list) in [("set", &changes.set), ("add", &changes.add)] {
                for (name, value) in list {
                    map.change(kind, |headers| headers.set(name, value.as_str()));
                }
            }
            if !changes.remove.is_empty() {
                map.set("remove", changes.remove.clone());
            }
            if !map.is_empty() {
                route.set(key, map);
            }
        }
    }
}

/// Whether paths of a route with this `path` may begin with the segments of `prefix`.
fn may_begin_with(path: &str, prefix: &str) -> bool {
    if path.starts_with('~') {
        return true;
    }
    let begins =
        |path: &str, with: &str| format!("{path}/").starts_with(&format!("{}/", with.trim_end_matches('/')));
    match path.strip_suffix("/*") {
        Some(start) => begins(start, prefix) || begins(prefix, start),
        None => begins(path, prefix),
    }
}

/// The value of a header with Tollgate's placeholders. `None` if a fetch in it has no equal.
fn header_text(value: &str) -> Option<String> {
    let text = value.replace('{', "{{").replace('}', "}}");
    let text = text.replace("%[src]", "{client_address}").replace("%ci", "{client_address}");
    let text = text
        .replace("%[req.hdr(host)]", "{host}")
        .replace("%[hdr(host)]", "{host}")
        .replace("%[unique-id]", "{request_id}");
    (!text.contains('%')).then_some(text)
}

/// The key of a policy for what is tracked, and what differs.
fn key_of(fetch: &str) -> Result<(String, Option<String>), String> {
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')').split(',').next().unwrap_or_default()),
        None => (fetch, ""),
    };
    let key = match name {
        "src" => "ip".to_owned(),
        "hdr_ip" | "req.hdr_ip" => {
            let note = "any client can write this header. Tollgate counts by the client's address: list the proxies in front in `trusted_proxies`";
            return Ok(("ip".to_owned(), Some(note.to_owned())));
        }
        "req.hdr" | "hdr" | "req.fhdr" | "fhdr" if argument.eq_ignore_ascii_case("host") => "host".to_owned(),
        "req.hdr" | "hdr" | "req.fhdr" | "fhdr" if argument.eq_ignore_ascii_case("x-forwarded-for") => {
            return key_of("hdr_ip()");
        }
        "req.hdr" | "hdr" | "req.fhdr" | "fhdr" if !argument.is_empty() => {
            format!("header:{}", argument.to_ascii_lowercase())
        }
        "req.cook" | "cook" if !argument.is_empty() => format!("cookie:{argument}"),
        "url_param" | "urlp" if !argument.is_empty() => format!("query:{argument}"),
        "path" | "url" | "url32" => "path".to_owned(),
        "base" | "base32" => "host+path".to_owned(),
        "base32+src" | "url32+src" => "ip+host+path".to_owned(),
        "method" => "method".to_owned(),
        "int" | "str" | "fe_id" | "dst_port" | "always_true" => "global".to_owned(),
        _ => return Err(format!("Tollgate has no key for `{fetch}`")),
    };
    let is_optional = ["header:", "cookie:", "query:"].iter().any(|kind| key.starts_with(kind));
    let note = is_optional.then(|| {
        "HAProxy does not track a request without this value; Tollgate limits it by its address".to_owned()
    });
    Ok((key, note))
}

/// The window of a counter in the stick table of a section, in milliseconds.
fn period(section: &Section, counter: &str) -> Option<u64> {
    let tables = section.lines.iter().filter(|line| line.word(0) == "stick-table");
    let stored = tables.flat_map(|line| line.words.iter()).flat_map(|word| word.split(','));
    stored
        .filter_map(|word| word.strip_prefix(counter)?.strip_prefix('(')?.strip_suffix(')'))
        .find_map(backends::milliseconds)
}

/// The status of a redirect; 302 without `code`.
fn status(code: Option<&str>) -> u64 {
    code.and_then(|code| code.parse().ok()).unwrap_or(302)
}

/// The prefix that a `replace-path` or `set-path` strips.
fn stripped(words: &[&str]) -> Option<String> {
    let is_literal = |text: &str| {
        text.starts_with('/') && text.chars().all(|c| c.is_ascii_alphanumeric() || "/-_".contains(c))
    };
    let prefix = match words {
        ["http-request", "replace-path" | "replace-uri", pattern, replacement] => {
            let literal = pattern.trim_start_matches('^').trim_end_matches('$');
            match *replacement {
                r"/\1" => literal.strip_suffix("/(.*)"),
                r"/\2" => literal.strip_suffix("(/)?(.*)").or_else(|| literal.strip_suffix("(/|$)(.*)")),
                r"\1" => literal.strip_suffix("(/.*)"),
                _ => None,
            }
        }
        ["http-request", "set-path", value] => {
            let inner = value.strip_prefix("%[path,regsub(^")?.strip_suffix(")]")?;
            let (pattern, replacement) = inner.split_once(',')?;
            match replacement {
                "/" => pattern.strip_suffix('/'),
                "" => Some(pattern),
                _ => None,
            }
        }
        _ => None,
    };
    prefix.filter(|prefix| is_literal(prefix)).map(str::to_owned)
}

/// An address of a `bind`.
fn address_of(text: &str) -> Option<String> {
    if text.starts_with('/') || text.starts_with("unix@") {
        return Some(format!("unix:{}", text.trim_start_matches("unix@")));
    }
    let text = text.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "*" => "0.0.0.0".to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        host if host.contains(':') && is_network(host) => format!("[{host}]"),
        host if is_network(host) => host.to_owned(),
        _ => return None,
    };
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> String {
        let text = format!("defaults\nmode http\n{text}\nbackend web\nserver a 10.0.0.1:80\n");
        convert(&text, Path::new("haproxy.cfg")).unwrap().finish("").yaml
    }

    #[test]
    fn clients_are_refused_by_each_rule() {
        let yaml = converted(
            "frontend a\nbind :80\nhttp-request deny if !{ src 10.0.0.0/8 }\ndefault_backend web\n\
             http-request deny if !{ src 10.1.0.0/16 11.0.0.0/8 } { path_beg /x/ }",
        );
        assert!(yaml.contains("{ path: /x/*, upstream: web, allow: [10.1.0.0/16] }"), "{yaml}");
        assert!(yaml.contains("{ path: /*, upstream: web, allow: [10.0.0.0/8] }"), "{yaml}");
        let mut access = Access::default();
        access.allow_only(&["10.0.0.0/8".to_owned()]);
        access.allow_only(&["::/0".to_owned()]);
        assert_eq!(access.deny, ["0.0.0.0/0", "::/0"]);
    }

    #[test]
    fn rules_of_a_later_frontend_hold_for_routes_of_an_earlier_one() {
        let web = "use_backend web if { hdr(host),lower a.com }\n";
        let yaml = converted(&format!(
            "frontend a\nbind :80\n{web}frontend b\nbind :81\nhttp-request deny if !{{ src 10.0.0.0/8 }}\n{web}"
        ));
        assert!(
            yaml.contains("- { hosts: [a.com], path: /*, upstream: web, allow: [10.0.0.0/8] }"),
            "{yaml}"
        );
    }

    #[test]
    fn listeners_do_not_open_what_another_closes() {
        let yaml = converted(
            "frontend a\nbind 127.0.0.1:81\ndefault_backend web\nfrontend b\nbind :80\ndefault_backend c\n\
             backend c\nserver a 10.0.0.2:80",
        );
        assert!(yaml.contains("upstream: web, allow: [127.0.0.0/8, \"::1\"] }"), "{yaml}");
        assert!(!yaml.contains("0.0.0.0:80 }"), "{yaml}");
        let yaml = converted(
            "frontend a\nbind :443 ssl crt /no-directory/ ca-file ca.pem verify required\ndefault_backend web",
        );
        assert!(!yaml.contains("listeners:"), "{yaml}");
    }

    #[test]
    fn each_tracker_counts_and_backends_deny_their_own_requests() {
        let yaml = converted(
            "frontend a\nbind :80\nstick-table type ip size 1m expire 1m store http_req_rate(10s)\n\
             http-request track-sc0 src if { path /a }\nhttp-request track-sc0 src if { path /b }\n\
             http-request deny deny_status 429 if { sc_http_req_rate(0) gt 10 }\n\
             use_backend c if { hdr(host) c.com }\ndefault_backend web\n\
             backend c\nserver a 10.0.0.2:80\nhttp-request deny if { path /only-c }",
        );
        for path in ["/a", "/b"] {
            assert!(yaml.contains(&format!("- {{ path: {path}, upstream: web, policies: [a] }}")), "{yaml}");
        }
        assert!(yaml.contains("{ hosts: [c.com], path: /only-c, reply: { status: 403 } }"), "{yaml}");
    }

    #[test]
    fn what_cannot_be_told_is_closed() {
        for condition in ["unless { http_auth(users) }", "if { src -f no-file }"] {
            let yaml = converted(&format!(
                "frontend a\nbind :80\nhttp-request deny {condition}\ndefault_backend web"
            ));
            assert!(yaml.contains("{ path: /*, reply: { status: 501 } }"), "{yaml}");
        }
    }
}
