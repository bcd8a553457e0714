//! The rules of a section, in the order in which HAProxy runs them.

use super::{
    Output, answers,
    conditions::{AclScope, split},
    headers,
    limits::{self, Tracker},
    rewrites,
    syntax::{ConfigLine, Section},
    words::{self, WordMeaning},
};
use crate::offline::convert::{
    condition::RequestCondition,
    path::Path,
    site::{Edit, Effect, PathEdit, RuleResponse, SiteRule},
    yaml::Map,
};

/// The rules of a section while they are collected.
pub(super) struct RuleCollector<'c> {
    pub(super) section: &'c Section,
    pub(super) scope: AclScope<'c>,
    pub(super) rules: Vec<SiteRule>,
    /// The rule that closes a request. It comes after the rules that only refuse and limit, so that a closed route keeps them.
    pub(super) closes: Vec<SiteRule>,
    /// Those of the section, and of the frontend that leads to it.
    pub(super) trackers: Vec<Tracker<'c>>,
    /// The requests that an `accept` or `allow` leads past the rest of a list.
    passed: RequestCondition,
}

impl<'c> RuleCollector<'c> {
    /// `frontend`: the rules that lead to this backend.
    pub(super) fn new(section: &'c Section, scope: AclScope<'c>, frontend: Option<&Self>) -> Self {
        let (closes, mut trackers) =
            frontend.map_or_else(Default::default, |run| (run.closes.clone(), run.trackers.clone()));
        for tracker in &mut trackers {
            tracker.is_of_frontend = true;
        }
        Self { section, scope, rules: Vec::new(), closes, trackers, passed: RequestCondition::NEVER }
    }

    pub(super) fn push(&mut self, line: &ConfigLine, when: RequestCondition, effect: Effect) {
        self.insert(None, line, when, effect);
    }

    /// Adds a rule before the rule `at`, or behind the last one.
    pub(super) fn insert(
        &mut self,
        at: Option<usize>,
        line: &ConfigLine,
        when: RequestCondition,
        effect: Effect,
    ) {
        let when = when.and(self.passed.clone().not());
        let rule = SiteRule::new(when, effect, &line.place, line.shown());
        match (&rule.effect, at) {
            (Effect::Close(_), _) => self.closes.push(rule),
            // The rules so far compared the path before this change: they have to run before it.
            (Effect::Edit(Edit::Path(_)), None) => {
                self.rules.append(&mut self.closes);
                self.rules.push(rule);
                if self.passed != RequestCondition::NEVER {
                    self.passed =
                        RequestCondition::unknown_place("a rule behind an `allow` changes the path");
                }
            }
            (_, None) => self.rules.push(rule),
            (_, Some(at)) => {
                // A policy that denies only a part of the requests that it counts may close them: it comes after the others.
                let is_whole = |rule: &SiteRule| matches!(&rule.effect, Effect::Limit { counted, .. } if *counted == rule.when);
                let is_limit = |rule: &&SiteRule| matches!(rule.effect, Effect::Limit { .. });
                let before = |one: &&SiteRule| is_limit(one) && (is_whole(one) || !is_whole(&rule));
                let limits = self.rules[at..].iter().take_while(before).count();
                self.rules.insert(at + limits, rule);
                let later = self.trackers.iter_mut().filter_map(|tracker| tracker.at.as_mut());
                later.filter(|known| **known > at).for_each(|known| *known += 1);
            }
        }
    }

    /// The rule that ends a request, or would. Rules that have closed it by then come before.
    pub(super) fn end(&mut self, line: &ConfigLine, when: RequestCondition, effect: Effect) {
        let closes = std::mem::take(&mut self.closes);
        self.push(line, when, effect);
        if let Some(rule) = self.closes.pop().or_else(|| self.rules.pop()) {
            let here = |close: &SiteRule| SiteRule {
                when: close.when.clone().and(rule.when.clone()),
                ..close.clone()
            };
            self.rules.extend(closes.iter().map(here));
            self.rules.push(rule);
        }
        self.closes = closes;
    }

    pub(super) fn note(&mut self, line: &ConfigLine, when: RequestCondition, text: &str) {
        self.push(line, when, Effect::Note(text.to_owned()));
    }

    pub(super) fn close(&mut self, line: &ConfigLine, when: RequestCondition, text: &str) {
        self.push(line, when, Effect::Close(text.to_owned()));
    }

    /// The note on a word. `None`: it needs nothing.
    fn class(&mut self, line: &ConfigLine, when: RequestCondition, class: WordMeaning) {
        match class {
            WordMeaning::Converted | WordMeaning::NeedsNothing => {}
            WordMeaning::Noted(text) => self.note(line, when, text),
            WordMeaning::Closed(text) => self.close(line, when, text),
            WordMeaning::Unknown => self.close(line, when, "Tollgate has no equal of this"),
        }
    }

    /// The rules on requests.
    pub(super) fn requests(&mut self, out: &mut Output, lines: &[&'c ConfigLine]) {
        let ordered = ordered(lines);
        for line in &ordered {
            let tracker = Tracker::of(line, self.section, &self.scope, &self.trackers);
            self.trackers.extend(tracker);
        }
        let mut list = None;
        for line in ordered {
            if list != Some(list_of(line)) {
                list = Some(list_of(line));
                self.passed = RequestCondition::NEVER;
            }
            self.rule(out, line);
        }
        self.passed = RequestCondition::NEVER;
    }

    fn rule(&mut self, out: &mut Output, line: &'c ConfigLine) {
        let (before, ..) = split(line);
        let words: Vec<&str> = before.iter().map(String::as_str).collect();
        let when = || self.scope.condition(line);
        match words.as_slice() {
            ["monitor-uri", uri, ..] => self.monitor(line, uri),
            ["monitor", ..] => {}
            ["stats", ..] => self.statistics(line),
            ["redirect", ..] => self.end(line, when(), answers::redirected(&words)),
            ["tcp-request", "connection" | "session" | "content", "accept", ..] => self.pass(line),
            ["tcp-request", "connection" | "session" | "content", rest @ ..] => self.action(out, line, rest),
            [_, rest @ ..] => self.action(out, line, rest),
            [] => {}
        }
    }

    /// Leads requests past the rest of this list.
    fn pass(&mut self, line: &'c ConfigLine) {
        let passed = std::mem::replace(&mut self.passed, RequestCondition::NEVER);
        self.passed = RequestCondition::Any(vec![passed, self.scope.condition(line)]);
    }

    /// An action of `http-request` or `tcp-request`, with its arguments.
    fn action(&mut self, out: &mut Output, line: &'c ConfigLine, words: &[&str]) {
        let when = self.scope.condition(line);
        let name = words.first().copied().unwrap_or_default();
        match name {
            "deny" | "reject" | "tarpit" | "silent-drop" => self.denial(out, line, words),
            "allow" => self.pass(line),
            "return" => self.end(line, when, answers::returned(words)),
            "redirect" => self.end(line, when, answers::redirected(words)),
            "use-service" => self.end(line, when, Effect::Close("Tollgate has no such service".to_owned())),
            "set-header" | "add-header" | "del-header" => headers::change(self, line, words, when),
            _ if name.starts_with("track-sc") => {
                let at = self.rules.len();
                let here = self.trackers.iter_mut().filter(|tracker| std::ptr::eq(tracker.line, line));
                here.for_each(|tracker| tracker.at = Some(at));
            }
            _ => match rewrites::rewrite(words) {
                Some((of, effect)) => self.push(line, when.and(of), effect),
                None => {
                    let class = words::action("http-request", name);
                    if matches!(class, WordMeaning::Unknown | WordMeaning::Closed(_)) {
                        self.changed(line, when.clone(), name);
                    }
                    self.class(line, when, class);
                }
            },
        }
    }

    /// Notes that an unknown action may have changed the path or a header, which the rules behind it compare.
    fn changed(&mut self, line: &'c ConfigLine, when: RequestCondition, name: &str) {
        if name.contains("uri") || name.contains("path") {
            let unknown = Edit::Path(PathEdit::Template(String::new()));
            self.push(line, when, Effect::Edit(unknown));
        } else if name.starts_with("set-") || name.starts_with("replace-") {
            self.note(line, when, "the rules behind it compare what it has changed");
        }
    }

    fn denial(&mut self, out: &mut Output, line: &'c ConfigLine, words: &[&str]) {
        let (effect, text) = answers::denial(words);
        if let Some(text) = text {
            self.note(line, self.scope.condition(line), text);
        }
        let (when, rates) = self.scope.limits(line);
        for (when, rate) in rates {
            limits::limit(self, out, line, &when, &rate, &effect);
        }
        match effect {
            _ if when == RequestCondition::NEVER => {}
            Effect::Refuse(_) => self.push(line, when, effect),
            _ => self.end(line, when, effect),
        }
    }

    /// `monitor-uri`: HAProxy itself answers load balancers.
    fn monitor(&mut self, line: &'c ConfigLine, uri: &str) {
        let path = Path::exact(uri.split('?').next().unwrap_or_default());
        let path = path.map_or_else(RequestCondition::unknown_place, RequestCondition::path);
        let when = path.and(self.scope.condition(line));
        let lines = self.scope.source.lines(self.section);
        for fail in lines.iter().filter(|line| line.word(0) == "monitor") {
            self.push(fail, when.clone().and(self.scope.condition(fail)), Effect::Refuse(503));
        }
        let reply = Map::new()
            .with("status", 200)
            .with("content_type", "text/html")
            .with("body", "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n");
        self.note(line, when.clone(), "Tollgate answers this path with any query");
        self.end(line, when, Effect::Act(RuleResponse::Reply(reply)));
    }

    /// `stats uri`: a page of HAProxy.
    fn statistics(&mut self, line: &'c ConfigLine) {
        let uri = if line.word(1) == "uri" { line.word(2) } else { "/haproxy?stats" };
        let path = match uri.split_once('?') {
            Some((path, _)) => Path::exact(path),
            None => Path::prefix(uri),
        };
        let when = path.map_or_else(RequestCondition::unknown_place, RequestCondition::path);
        let text = "the admin port has metrics and a page: see docs/admin.md";
        self.end(line, when, Effect::Close(text.to_owned()));
    }

    /// The rules on responses, `http-response` or `http-after-response`.
    pub(super) fn responses(&mut self, lines: &[&'c ConfigLine], kind: &str) {
        self.scope.is_of_response = true;
        for line in lines.iter().filter(|line| line.word(0) == kind) {
            let (before, ..) = split(line);
            let words: Vec<&str> = before.iter().skip(1).map(String::as_str).collect();
            let when = self.scope.condition(line);
            match words.first().copied().unwrap_or_default() {
                "set-header" | "add-header" | "del-header" => headers::change(self, line, &words, when),
                "allow" => self.pass(line),
                action => self.class(line, when, words::action("http-response", action)),
            }
        }
    }

    /// The effect of lines that are not rules.
    pub(super) fn settings(&mut self, lines: &[&'c ConfigLine]) {
        let is_backend = self.section.kind() == "backend";
        for line in lines.iter().copied() {
            // A frontend has them.
            if !is_backend || !matches!(line.word(0), "maxconn" | "rate-limit") {
                self.class(line, RequestCondition::ALWAYS, words::line(line));
            }
        }
    }

    /// The headers that HAProxy adds behind all rules of a backend and a frontend, of which these are the lines.
    pub(super) fn own_headers(&mut self, sections: &[&[&'c ConfigLine]]) {
        let frontend = sections.last().copied().unwrap_or_default();
        for line in frontend.iter().filter(|line| line.word(0) == "unique-id-header") {
            headers::change(
                self,
                line,
                &["set-header", line.word(1), "%[unique-id]"],
                RequestCondition::ALWAYS,
            );
        }
        let is_it = |line: &&&'c ConfigLine| line.word(0) == "option" && line.word(1) == "forwardfor";
        let options: Vec<&ConfigLine> =
            sections.iter().filter_map(|lines| lines.iter().rfind(is_it).copied()).collect();
        let Some(line) = options.first() else { return };
        let name = line.after("header").filter(|name| !name.eq_ignore_ascii_case("x-forwarded-for"));
        let Some(name) = name else { return };
        let when = match options.iter().any(|line| line.has("except")) {
            true => RequestCondition::unknown("routes do not choose by address"),
            false => RequestCondition::ALWAYS,
        };
        headers::change(self, line, &["set-header", name, "%[src]"], when);
    }
}

const LISTS: usize = 7;

/// The place of a line among the lists of rules, which HAProxy runs one after the other.
fn list_of(line: &ConfigLine) -> usize {
    match (line.word(0), line.word(1)) {
        ("tcp-request", "connection") => 0,
        ("tcp-request", "session") => 1,
        ("tcp-request", _) => 2,
        ("monitor-uri", _) => 3,
        ("http-request", _) => 4,
        ("stats", "enable" | "uri") => 5,
        ("redirect", _) => 6,
        _ => LISTS,
    }
}

/// The rules on requests among these lines, in the order in which they are run.
pub(super) fn ordered<'c>(lines: &[&'c ConfigLine]) -> Vec<&'c ConfigLine> {
    let has_uri = lines.iter().any(|line| line.word(0) == "stats" && line.word(1) == "uri");
    let is_needed = |line: &&ConfigLine| {
        list_of(line) < LISTS && !(has_uri && list_of(line) == 5 && line.word(1) == "enable")
    };
    let mut rules: Vec<&ConfigLine> = lines.iter().copied().filter(is_needed).collect();
    rules.sort_by_key(|line| list_of(line));
    rules
}
