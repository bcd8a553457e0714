//! Converts haproxy.cfg.
//!
//! `syntax` reads the text, and `source` finds what lines refer to. `listeners` opens what `bind` says. `rules` puts the
//! rules of a section in order: `conditions` reads ACLs, `limits` stick tables, `answers`, `headers` and `rewrites` what
//! rules do. `upstreams` reads servers. `words` lists words without effect outside. This file goes through frontends to backends.

mod answers;
mod conditions;
mod headers;
mod limits;
mod listeners;
mod rewrites;
mod rules;
mod source;
mod syntax;
#[cfg(test)]
mod tests;
mod tests_of_paths;
mod upstreams;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use super::{
    ConvertError, SourceLine,
    condition::RequestCondition,
    draft::{ConfigDraft, duration, resource_name},
    site::{Effect, RuleResponse, Site, SiteRule},
    yaml::{Comment, Map, YamlNode},
};

use conditions::AclScope;
use rules::RuleCollector;
use source::HaproxyConfig;
use syntax::{ConfigLine, Section};
use words::WordMeaning;

/// Converts `text`, the file at `path`.
pub(super) fn convert(text: &str, path: &Path) -> Result<ConfigDraft, ConvertError> {
    let sections = syntax::parse(text, path)?;
    let mut draft = ConfigDraft::default();
    let mut source = HaproxyConfig::new(&sections, path);
    listeners::open(&mut source, &mut draft);
    let out = Output { draft, policies: Vec::new(), client_limits: BTreeMap::new() };
    let mut converter = Converter { source: &source, out, backends: HashMap::new() };
    converter.run();
    let Output { mut draft, client_limits, .. } = converter.out;
    for (name, least) in client_limits {
        let node = if name.ends_with("_timeout") { duration(least).into() } else { YamlNode::from(least) };
        draft.settings.change("client_limits", |limits| limits.set(name, node));
    }
    Ok(draft)
}

/// The rules on all responses, also on those of HAProxy itself. They are there from the beginning, and once more behind
/// those on responses of services.
const AFTER: &str = "http-after-response";

/// The output.
struct Output {
    draft: ConfigDraft,
    /// The policies for stick tables: the place of the table, the policy, the status of its reply, and its name.
    policies: Vec<(SourceLine, Map, u16, String)>,
    /// Numbers, and times in milliseconds.
    client_limits: BTreeMap<&'static str, u64>,
}

impl Output {
    /// A limit that holds for all listeners.
    fn client_limit(&mut self, line: &ConfigLine, name: &'static str, value: u64) {
        let least = self.client_limits.entry(name).or_insert(value);
        if *least != value {
            *least = value.min(*least);
            let text = "`client_limits` holds for all listeners together: it has the least";
            self.draft.head.push(line.note(text));
        }
    }
}

/// The state of a conversion.
struct Converter<'c> {
    source: &'c HaproxyConfig<'c>,
    out: Output,
    /// The upstreams of backends that requests get to; none if Tollgate can forward to no server.
    backends: HashMap<&'c str, Option<String>>,
}

/// Whether the last of these words that says so says that a section or a server is off.
fn is_off<'w>(mut words: impl DoubleEndedIterator<Item = &'w str>) -> bool {
    words.rfind(|word| matches!(*word, "disabled" | "enabled")) == Some("disabled")
}

fn is_disabled(lines: &[&ConfigLine]) -> bool {
    is_off(lines.iter().map(|line| line.word(0)))
}

/// Whether a section is a proxy of HTTP that is opened.
///
/// # Errors
/// Why not; nothing for other sections.
fn is_served(section: &Section, lines: &[&ConfigLine]) -> Result<(), &'static str> {
    if !matches!(section.kind(), "frontend" | "listen") {
        return Err("");
    }
    if is_disabled(lines) {
        return Err("it is disabled: its listeners are not opened");
    }
    if HaproxyConfig::last(lines, "mode").map_or("tcp", |line| line.word(1)) != "http" {
        return Err("Tollgate proxies HTTP only (`mode http`): its listeners are not opened");
    }
    let forwards = |line: &&ConfigLine| {
        line.word(0).starts_with("server")
            || matches!(line.word(0), "use_backend" | "default_backend" | "dispatch")
    };
    if section.lines.iter().any(|line| line.word(0) == "stats") && !lines.iter().any(forwards) {
        return Err("the admin port has metrics and a page: see docs/admin.md");
    }
    Ok(())
}

impl<'c> Converter<'c> {
    fn run(&mut self) {
        for section in self.source.sections {
            match section.kind() {
                "global" => self.global(section),
                "frontend" | "listen" => self.frontend(section),
                // Others are read where they are used, or change HAProxy's own log and lookups.
                kind => {
                    if let WordMeaning::Noted(text) = words::of("kind", kind) {
                        self.head(&section.head, text);
                    }
                }
            }
        }
        for section in self.source.sections.iter().filter(|section| section.kind() == "backend") {
            // A backend that has only a stick table is a table.
            let has_servers = section.lines.iter().any(|line| line.word(0).starts_with("server"));
            if has_servers && !self.backends.contains_key(section.name()) {
                self.head(&section.head, "no route leads to this backend: it is left out");
            }
        }
        let lines = self.source.sections.iter().flat_map(|section| &section.lines);
        let needless =
            lines.filter(|line| words::line(line) == WordMeaning::NeedsNothing).map(|line| line.word(0));
        let names = needless.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            let text = format!("Left out, since Tollgate has nothing to set or needs no setting: {names}.");
            self.out.draft.head.push(Comment::Plain(text));
        }
    }

    fn head(&mut self, line: &ConfigLine, text: &str) {
        self.out.draft.head.push(line.note(text));
    }

    fn global(&mut self, section: &'c Section) {
        for line in &section.lines {
            match (line.word(0), words::of("global", line.word(0)), words::line(line)) {
                ("maxconn", ..) => {
                    let most = line.word(1).parse().unwrap_or(0_u64).clamp(1, 10_000_000);
                    self.out.client_limit(line, "connections", most);
                }
                (_, WordMeaning::Noted(text), _) => self.head(line, text),
                (_, WordMeaning::Unknown, WordMeaning::Unknown) => {
                    self.head(line, "Tollgate has no equal of this setting");
                }
                _ => {}
            }
        }
    }

    fn frontend(&mut self, section: &'c Section) {
        let lines = self.source.lines(section);
        if let Err(text) = is_served(section, &lines) {
            return self.head(&section.head, text);
        }
        let own = self.source.listeners.iter().filter(|bound| std::ptr::eq(bound.section, section));
        let listeners: BTreeSet<String> = own.map(|bound| bound.name.clone()).collect();
        if listeners.is_empty() {
            return self.head(&section.head, "none of its listeners is opened: its rules are left out");
        }
        self.client_timeouts(&lines);
        let mut run = RuleCollector::new(section, AclScope::new(self.source, &lines), None);
        self.responses(&mut run, &[&lines], AFTER);
        run.settings(&lines);
        run.requests(&mut self.out, &lines);
        for line in lines.iter().copied().filter(|line| line.word(0) == "use_backend") {
            self.enter(&mut run, &lines, line, line.word(1));
        }
        if let Some(line) = HaproxyConfig::last(&lines, "default_backend") {
            self.enter(&mut run, &lines, line, line.word(1));
        } else if section.kind() == "listen" {
            let mut own = RuleCollector::new(section, AclScope::new(self.source, &lines), Some(&run));
            self.forward(&mut own, &[&lines]);
            run.rules.append(&mut own.rules);
        } else {
            run.rules.append(&mut run.closes);
            run.push(&section.head, RequestCondition::ALWAYS, Effect::Refuse(503));
        }
        self.out.draft.sites.push(Site { listeners, rules: run.rules });
    }

    fn client_timeouts(&mut self, lines: &[&'c ConfigLine]) {
        let client = upstreams::timeout(lines, "client").map(|(_, time)| time);
        for (name, setting) in [("http-request", "header_timeout"), ("client", "idle_timeout")] {
            if let Some((line, time)) = upstreams::timeout(lines, name) {
                self.out.client_limit(line, setting, time);
            }
        }
        if let Some((line, kept)) = upstreams::timeout(lines, "http-keep-alive")
            && Some(kept) != client
        {
            self.head(
                line,
                "`client_limits.idle_timeout` holds between requests, and while a client sends one",
            );
        }
    }

    /// Leads the requests of `use_backend` or `default_backend` to a backend.
    fn enter(
        &mut self,
        run: &mut RuleCollector<'c>,
        lines: &[&'c ConfigLine],
        line: &'c ConfigLine,
        name: &str,
    ) {
        let when = run.scope.condition(line);
        let backend =
            self.source.section(name).filter(|backend| matches!(backend.kind(), "backend" | "listen"));
        let Some(backend) = backend else {
            let text = "there is no such backend, or its name has variables";
            let close = SiteRule::new(when, Effect::Close(text.to_owned()), &line.place, line.shown());
            return run.rules.push(close);
        };
        let of_backend = self.source.lines(backend);
        let mut own = RuleCollector::new(backend, AclScope::new(self.source, &of_backend), Some(run));
        if std::ptr::eq(backend, run.section) {
            self.forward(&mut own, &[lines]);
        } else {
            self.responses(&mut own, &[&of_backend, lines], AFTER);
            own.settings(&of_backend);
            own.requests(&mut self.out, &of_backend);
            self.forward(&mut own, &[&of_backend, lines]);
        }
        run.push(line, when, Effect::Enter(own.rules));
    }

    /// Adds the rules on responses of these sections.
    fn responses(&self, run: &mut RuleCollector<'c>, sections: &[&[&'c ConfigLine]], kind: &str) {
        for lines in sections {
            let mut own = RuleCollector::new(run.section, AclScope::new(self.source, lines), None);
            own.responses(lines, kind);
            run.rules.append(&mut own.rules);
            run.closes.append(&mut own.closes);
        }
    }

    /// The end of a backend: its responses pass the rules of the frontend, too. `sections`: the lines of both.
    fn forward(&mut self, own: &mut RuleCollector<'c>, sections: &[&[&'c ConfigLine]]) {
        own.own_headers(sections);
        self.responses(own, sections, "http-response");
        self.responses(own, sections, AFTER);
        let (backend, of_backend) = (own.section, sections[0]);
        let upstream = if is_disabled(of_backend) { None } else { self.upstream(backend, of_backend) };
        match upstream {
            Some(name) => {
                own.end(&backend.head, RequestCondition::ALWAYS, Effect::Act(RuleResponse::Upstream(name)));
            }
            None => {
                own.rules.append(&mut own.closes);
                own.note(
                    &backend.head,
                    RequestCondition::ALWAYS,
                    "it has no server that Tollgate can forward to: it answers 503",
                );
                own.push(&backend.head, RequestCondition::ALWAYS, Effect::Refuse(503));
            }
        }
    }

    /// The name of the upstream of a backend.
    fn upstream(&mut self, backend: &'c Section, lines: &[&'c ConfigLine]) -> Option<String> {
        if let Some(known) = self.backends.get(backend.name()) {
            return known.clone();
        }
        let (upstream, comments) = upstreams::upstream(self.source, lines);
        let draft = &mut self.out.draft;
        let name = match upstream {
            Some(map) => {
                let name = resource_name(backend.name(), |name| draft.upstreams.has(name));
                draft.upstreams.set(&name, YamlNode { comments, ..YamlNode::from(map) });
                Some(name)
            }
            None => {
                draft.head.extend(comments);
                None
            }
        };
        self.backends.insert(backend.name(), name.clone());
        name
    }
}
