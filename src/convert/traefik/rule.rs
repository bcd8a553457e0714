//! The rules of routers: ``Host(`example.com`) && (PathPrefix(`/api`) || !Method(`GET`))``, in the syntax of Traefik 2
//! and 3, as conditions.

use regex_syntax::hir::{Hir, HirKind, Look, literal};

use crate::convert::{
    condition::{Condition, Doubt, Host, Test, ValueKind},
    networks::Networks,
    path::{Path, parse},
};

/// The deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 64;
/// The most texts that a regular expression is written out as.
const MAX_TEXTS: usize = 64;
const MATCHERS: [&str; 15] = [
    "Host",
    "HostHeader",
    "HostRegexp",
    "Path",
    "PathPrefix",
    "PathRegexp",
    "Method",
    "Methods",
    "ClientIP",
    "Header",
    "Headers",
    "HeaderRegexp",
    "HeadersRegexp",
    "Query",
    "QueryRegexp",
];
/// Methods that a route can name.
const METHODS: [&str; 18] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "PURGE",
];
/// Fields that Traefik changes before it compares them.
const CHANGED_FIELDS: [&str; 4] = ["x-real-ip", "x-scheme", "connection", "forwarded"];

/// Why something that Traefik fills in is not converted.
pub(super) const TEMPLATE: &str = "Traefik fills in what is in `{{ … }}`: write the value, and convert again";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    V2,
    V3,
}

impl Syntax {
    /// The syntax that `ruleSyntax` and `defaultRuleSyntax` name.
    pub(super) fn named(name: &str) -> Self {
        if name == "v2" { Self::V2 } else { Self::V3 }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Matcher(Matcher),
    And(Vec<Rule>),
    Or(Vec<Rule>),
    Not(Box<Rule>),
}

/// ``Name(`argument`, …)``
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let rule = parser.alternatives()?;
        parser.skip_space();
        match parser.rest.chars().next() {
            None => Ok(rule),
            Some(c) => Err(format!("`{c}` is not expected there")),
        }
    }

    /// The condition that the rule is in this syntax.
    ///
    /// # Errors
    /// Why Traefik makes no router of it.
    pub(super) fn condition(&self, syntax: Syntax) -> Result<Condition, String> {
        let all = |rules: &[Self]| -> Result<Vec<Condition>, String> {
            rules.iter().map(|rule| rule.condition(syntax)).collect()
        };
        Ok(match self {
            Self::Not(rule) => rule.condition(syntax)?.not(),
            Self::And(rules) => Condition::All(all(rules)?),
            Self::Or(rules) => Condition::Any(all(rules)?),
            Self::Matcher(matcher) => matcher.condition(syntax)?,
        })
    }

    /// Whether the two syntaxes read it in different ways: the braces of Traefik 2 are plain text in Traefik 3.
    pub(super) fn has_braces(&self) -> bool {
        match self {
            Self::Not(rule) => rule.has_braces(),
            Self::And(rules) | Self::Or(rules) => rules.iter().any(Self::has_braces),
            Self::Matcher(Matcher { name, arguments }) => {
                let name = name.to_ascii_lowercase();
                let has_name = |argument: &String| {
                    let names = argument.split('{').skip(1).filter(|rest| rest.contains('}'));
                    names.clone().any(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
                };
                matches!(name.as_str(), "host" | "hostregexp" | "path" | "pathprefix")
                    && arguments.iter().any(has_name)
            }
        }
    }

    /// The hosts that it names.
    pub(super) fn hosts(&self) -> Vec<String> {
        match self {
            Self::Not(_) => Vec::new(),
            Self::And(rules) | Self::Or(rules) => rules.iter().flat_map(Self::hosts).collect(),
            Self::Matcher(matcher) if matcher.name.to_ascii_lowercase().starts_with("host") => {
                let exact = |text: &String| texts_of(text).or_else(|| Some(vec![host_name(text)?]));
                let hosts = matcher.arguments.iter().filter_map(exact).flatten();
                hosts.filter_map(|host| host_name(&host)).collect()
            }
            Self::Matcher(_) => Vec::new(),
        }
    }

    /// A matcher that has no equal.
    pub(super) fn unknown(&self) -> Option<&str> {
        match self {
            Self::Not(rule) => rule.unknown(),
            Self::And(rules) | Self::Or(rules) => rules.iter().find_map(Self::unknown),
            Self::Matcher(Matcher { name, .. }) => {
                let is_known = MATCHERS.iter().any(|known| known.eq_ignore_ascii_case(name));
                (!is_known).then_some(name.as_str())
            }
        }
    }

    /// The hosts for which the TLS options of its router count: those of each `Host`, also of one that is negated.
    pub(super) fn sni(&self) -> Vec<Host> {
        match self {
            Self::Not(rule) => rule.sni(),
            Self::And(rules) | Self::Or(rules) => rules.iter().flat_map(Self::sni).collect(),
            Self::Matcher(matcher) if matcher.name.eq_ignore_ascii_case("host") => {
                let exact = |text: &String| host_name(text).map(Host::Exact);
                let below = |text: &String| text.strip_prefix("*.").and_then(host_name).map(Host::Below);
                matcher.arguments.iter().filter_map(|text| exact(text).or_else(|| below(text))).collect()
            }
            Self::Matcher(_) => Vec::new(),
        }
    }
}

impl Matcher {
    fn condition(&self, syntax: Syntax) -> Result<Condition, String> {
        let name = self.name.to_ascii_lowercase();
        if self.arguments.iter().any(String::is_empty) && syntax == Syntax::V3 || self.arguments.is_empty() {
            return Err(format!("`{}` has an empty argument", self.name));
        }
        if self.arguments.iter().any(|argument| argument.contains("{{")) {
            return Ok(Condition::unknown_place(TEMPLATE));
        }
        let counts: &[usize] = match (syntax, name.as_str()) {
            (Syntax::V3, "header" | "headerregexp") => &[2],
            (Syntax::V3, "query" | "queryregexp") => &[1, 2],
            (Syntax::V3, "hostheader" | "headers" | "headersregexp" | "methods") => &[],
            (
                Syntax::V3,
                "host" | "hostregexp" | "path" | "pathprefix" | "pathregexp" | "method" | "clientip",
            ) => &[1],
            _ => &[self.arguments.len()],
        };
        if !counts.contains(&self.arguments.len()) {
            return Err(format!("Traefik 3 does not take `{}` with these arguments", self.name));
        }
        let each = |one: &dyn Fn(&str) -> Result<Condition, String>| {
            let all: Result<Vec<_>, String> = self.arguments.iter().map(|argument| one(argument)).collect();
            Ok(any_of(all?))
        };
        match name.as_str() {
            "host" | "hostheader" => each(&|host| Ok(host_condition(host))),
            "hostregexp" => each(&|pattern| host_regexp(pattern, syntax)),
            "path" => each(&|path| path_condition(path, syntax, "$", Path::exact)),
            "pathprefix" => each(&|path| path_condition(path, syntax, "", Path::prefix)),
            "pathregexp" => each(&|pattern| regex_condition(pattern)),
            "method" | "methods" => each(&|method| Ok(method_condition(method))),
            "clientip" => Networks::parse(self.arguments.iter().map(String::as_str))
                .map(|networks| Test::Addresses(networks).into())
                .map_err(|text| format!("`{text}` is no network")),
            "header" | "headers" => self.pairs(&|name, value| header(name, &[value.to_owned()])),
            "headerregexp" | "headersregexp" => self.pairs(&|name, pattern| match texts_of(pattern) {
                Some(values) => header(name, &values),
                None => Condition::unknown("routes compare whole values of headers, with no expression"),
            }),
            "query" if syntax == Syntax::V2 => {
                Ok(Condition::All(self.arguments.iter().map(|pair| query_v2(pair)).collect()))
            }
            "query" => Ok(query(&self.arguments[0], &[self.arguments.get(1).cloned().unwrap_or_default()])),
            "queryregexp" => Ok(match self.arguments.get(1).map(|pattern| texts_of(pattern)) {
                None => query(&self.arguments[0], &[String::new()]),
                Some(Some(values)) => query(&self.arguments[0], &values),
                Some(None) => {
                    Condition::unknown("routes compare whole values of the query, with no expression")
                }
            }),
            _ => Ok(Condition::unknown_place(format!("`{}` has no equal", self.name))),
        }
    }

    /// The condition on each name and its value.
    fn pairs(&self, condition: &dyn Fn(&str, &str) -> Condition) -> Result<Condition, String> {
        let all = self.arguments.chunks(2).map(|pair| match pair {
            [name, value] => Ok(condition(name, value)),
            _ => Err(format!("`{}` needs a value for each name", self.name)),
        });
        Ok(Condition::All(all.collect::<Result<_, _>>()?))
    }
}

fn any_of(mut conditions: Vec<Condition>) -> Condition {
    if conditions.len() == 1 { conditions.remove(0) } else { Condition::Any(conditions) }
}

/// A condition that is met in these cases, as far as Tollgate can tell.
fn place_between(inner: Condition, outer: Condition, text: String) -> Condition {
    let why = Doubt { text, is_of_place: true };
    Condition::Between { inner: Box::new(inner), outer: Box::new(outer), why }
}

fn host_condition(text: &str) -> Condition {
    if text == "*" {
        return Condition::ALWAYS;
    }
    match (host_name(text), text.strip_prefix("*.").and_then(host_name)) {
        (Some(name), _) => Condition::host(Host::Exact(name)),
        (None, Some(name)) => {
            let why =
                format!("`*.{name}` is one label before {name} in Traefik, and every name below it here");
            place_between(Condition::NEVER, Condition::host(Host::Below(name)), why)
        }
        // No request has such a host.
        (None, None) => Condition::NEVER,
    }
}

fn host_name(text: &str) -> Option<String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    (!name.is_empty() && name.chars().all(is_host)).then_some(name)
}

fn host_regexp(pattern: &str, syntax: Syntax) -> Result<Condition, String> {
    let regex = match syntax {
        Syntax::V2 => format!("^{}$", braced(pattern, "[^.]+")?),
        Syntax::V3 => pattern.to_owned(),
    };
    let parsed = parse(&regex).ok_or_else(|| format!("`{pattern}` is no expression"))?;
    let why = format!(
        "the hosts of `{pattern}` cannot be listed: write `hosts` with names, or with `*.` and a name"
    );
    let hosts = |hosts: Vec<Host>| match hosts.is_empty() {
        true => Condition::NEVER,
        false => Test::Hosts(hosts.into_iter().collect()).into(),
    };
    let alternatives = alternatives(&parsed);
    let any = alternatives.iter().map(|parts| match hosts_of(parts) {
        Hosts::Some(some) => hosts(some),
        Hosts::All => Condition::ALWAYS,
        Hosts::SomeBelow(name) => {
            place_between(hosts(certain_hosts(parts)), Condition::host(Host::Below(name)), why.clone())
        }
        Hosts::Unknown => place_between(hosts(certain_hosts(parts)), Condition::ALWAYS, why.clone()),
    });
    Ok(any_of(any.collect()))
}

/// Hosts in which this concatenation is found for sure: an expression may have a dot where it means one.
fn certain_hosts(parts: &[Hir]) -> Vec<Host> {
    let is_dot = |hir: &Hir| parse(".").as_ref() == Some(hir);
    let plain = parts.iter().map(|hir| if is_dot(hir) { Hir::literal(*b".") } else { hir.clone() });
    let mut parts: Vec<Hir> = plain.collect();
    if let Hosts::Some(hosts) = hosts_of(&parts) {
        return hosts;
    }
    // Every name below one in which it is found at the end has it there, too.
    parts.pop_if(|last| *last.kind() == HirKind::Look(Look::End));
    match Hir::concat(parts).kind() {
        HirKind::Literal(text) => match host_name(&String::from_utf8_lossy(&text.0)) {
            Some(name) if !name.starts_with('.') => vec![Host::Exact(name.clone()), Host::Below(name)],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

enum Hosts {
    All,
    Some(Vec<Host>),
    /// Some of the names below this one.
    SomeBelow(String),
    Unknown,
}

/// The alternatives of an expression, each as a concatenation without groups. `(…)?` is an alternative, too.
fn alternatives(hir: &Hir) -> Vec<Vec<Hir>> {
    match hir.kind() {
        HirKind::Empty => vec![Vec::new()],
        HirKind::Capture(group) => alternatives(&group.sub),
        HirKind::Alternation(parts) => parts.iter().flat_map(alternatives).collect(),
        HirKind::Repetition(optional) if (optional.min, optional.max) == (0, Some(1)) => {
            let mut all = alternatives(&optional.sub);
            all.push(Vec::new());
            all
        }
        HirKind::Concat(parts) => {
            let mut all: Vec<Vec<Hir>> = vec![Vec::new()];
            for part in parts {
                let ends = alternatives(part);
                if all.len() * ends.len() > MAX_TEXTS {
                    return vec![vec![hir.clone()]];
                }
                all = all
                    .iter()
                    .flat_map(|begin| ends.iter().map(move |end| [begin.as_slice(), end.as_slice()].concat()))
                    .collect();
            }
            all
        }
        _ => vec![vec![hir.clone()]],
    }
}

/// The hosts in which this concatenation is found.
fn hosts_of(parts: &[Hir]) -> Hosts {
    let is = |hir: &Hir, look| *hir.kind() == HirKind::Look(look);
    let is_any =
        |hir: &Hir| ["(?s).+", "(?s).*", ".+", ".*"].iter().any(|any| parse(any).as_ref() == Some(hir));
    let (is_begun, parts) = match parts {
        [first, rest @ ..] if is(first, Look::Start) => (true, rest),
        parts => (false, parts),
    };
    let (is_ended, parts) = match parts {
        [rest @ .., last] if is(last, Look::End) => (true, rest),
        parts => (false, parts),
    };
    let anything = |hirs: &[Hir]| hirs.iter().all(is_any);
    if anything(parts) && !(parts.is_empty() && is_begun && is_ended) {
        return Hosts::All;
    }
    let whole = Hir::concat([&[Hir::look(Look::Start)], parts, &[Hir::look(Look::End)]].concat());
    if is_begun
        && is_ended
        && let Some(texts) = texts(&whole)
    {
        return Hosts::Some(texts.iter().filter_map(|name| host_name(name)).map(Host::Exact).collect());
    }
    let merged = Hir::concat(parts.to_vec());
    let parts = if let HirKind::Concat(parts) = merged.kind() { parts.as_slice() } else { &[merged][..] };
    let Some((last, begin)) = parts.split_last().filter(|_| is_ended) else { return Hosts::Unknown };
    let HirKind::Literal(suffix) = last.kind() else { return Hosts::Unknown };
    let suffix = String::from_utf8_lossy(&suffix.0).into_owned();
    match suffix.split_once('.').map(|(label, name)| (label, host_name(name))) {
        Some(("", Some(name))) if anything(begin) => Hosts::Some(vec![Host::Below(name)]),
        Some((_, Some(name))) => Hosts::SomeBelow(name),
        _ => Hosts::Unknown,
    }
}

/// The texts that match the expression, if it is anchored on both sides and they are few.
fn texts_of(pattern: &str) -> Option<Vec<String>> {
    texts(&parse(pattern)?)
}

fn texts(parsed: &Hir) -> Option<Vec<String>> {
    let properties = parsed.properties();
    let is_anchored = properties.look_set_prefix().contains(Look::Start)
        && properties.look_set_suffix().contains(Look::End)
        && properties.look_set().len() == 2;
    if !is_anchored {
        return None;
    }
    let mut extractor = literal::Extractor::new();
    extractor.limit_class(MAX_TEXTS).limit_repeat(4).limit_literal_len(256).limit_total(MAX_TEXTS);
    let found = extractor.extract(parsed);
    let texts = found.literals().filter(|_| found.is_exact())?;
    texts.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok()).collect()
}

/// The condition on a path or a prefix. `end`: the end of an expression for it.
fn path_condition(
    text: &str,
    syntax: Syntax,
    end: &str,
    path: fn(&str) -> Result<Path, String>,
) -> Result<Condition, String> {
    if syntax == Syntax::V2 && text.contains('{') {
        return regex_condition(&format!("^{}{end}", braced(text, "[^/]+")?));
    }
    if text.contains('%') {
        return Ok(Condition::unknown_place("it compares a path that is percent-encoded"));
    }
    Ok(match path(text)? {
        Path::Any => Condition::ALWAYS,
        path => Condition::path(path),
    })
}

fn regex_condition(pattern: &str) -> Result<Condition, String> {
    if parse(pattern).is_none() {
        return Err(format!("`{pattern}` is no expression"));
    }
    Ok(match Path::regex(pattern, false) {
        Ok(path) => Condition::path(path),
        Err(why) => Condition::unknown_place(why),
    })
}

fn method_condition(method: &str) -> Condition {
    let method = method.to_ascii_uppercase();
    match METHODS.contains(&method.as_str()) {
        true => Condition::method(&method),
        false => Condition::unknown(format!("routes do not take the method `{method}`")),
    }
}

/// The condition that a header has one of these values.
fn header(name: &str, values: &[String]) -> Condition {
    let name = name.to_ascii_lowercase();
    let is_value =
        |value: &String| !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let is_name = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
    match name.as_str() {
        // Go keeps it apart from the other fields.
        "host" => Condition::NEVER,
        _ if name.starts_with("x-forwarded-") || CHANGED_FIELDS.contains(&name.as_str()) => {
            Condition::unknown(format!("Traefik and Tollgate set `{name}` by themselves"))
        }
        _ if !is_name || !values.iter().all(is_value) => {
            Condition::unknown(format!("routes cannot compare this value of `{name}`"))
        }
        _ => Condition::Any(
            values.iter().map(|value| Condition::value(ValueKind::Header, &name, value)).collect(),
        ),
    }
}

fn query(name: &str, values: &[String]) -> Condition {
    Condition::Any(values.iter().map(|value| Condition::value(ValueKind::Query, name, value)).collect())
}

/// `name=value`, where braces stand for an expression, and an empty value for any.
fn query_v2(pair: &str) -> Condition {
    match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && !value.contains('{') => query(name, &[value.to_owned()]),
        _ => Condition::unknown("routes compare whole values of the query"),
    }
}

/// `/users/{id:[0-9]+}` of Traefik 2 as a regular expression without anchors. `default`: of a name alone.
fn braced(text: &str, default: &str) -> Result<String, String> {
    let (mut pattern, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find('{') {
        pattern += &regex_syntax::escape(&rest[..begin]);
        let mut depth = 0_usize;
        let end = rest[begin..].char_indices().find(|(_, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let (length, _) = end.ok_or_else(|| format!("`{text}` has a brace that is not closed"))?;
        let inner = &rest[begin + 1..begin + length];
        let inner = inner.split_once(':').map_or(default, |(_, pattern)| pattern);
        pattern += &format!("(?:{inner})");
        rest = &rest[begin + length + 1..];
    }
    Ok(pattern + &regex_syntax::escape(rest))
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `token`, if it is next.
    fn takes(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn alternatives(&mut self) -> Result<Rule, String> {
        let mut rules = vec![self.conjunction()?];
        while self.takes("||") {
            rules.push(self.conjunction()?);
        }
        Ok(single(rules, Rule::Or))
    }

    fn conjunction(&mut self) -> Result<Rule, String> {
        let mut rules = vec![self.factor()?];
        while self.takes("&&") {
            rules.push(self.factor()?);
        }
        Ok(single(rules, Rule::And))
    }

    fn factor(&mut self) -> Result<Rule, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it is nested too deeply".to_owned());
        }
        let rule = if self.takes("!") {
            Rule::Not(Box::new(self.factor()?))
        } else if self.takes("(") {
            let rule = self.alternatives()?;
            self.expect(")")?;
            rule
        } else {
            Rule::Matcher(self.matcher()?)
        };
        self.depth -= 1;
        Ok(rule)
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(format!(
                "`{token}` is missing before `{}`",
                self.rest.chars().take(20).collect::<String>()
            )),
        }
    }

    fn matcher(&mut self) -> Result<Matcher, String> {
        self.skip_space();
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        if name.is_empty() {
            return Err("a matcher such as Host is missing".to_owned());
        }
        self.rest = rest;
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.argument()?);
        }
        Ok(Matcher { name: name.to_owned(), arguments })
    }

    fn argument(&mut self) -> Result<String, String> {
        self.skip_space();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\''));
        let quote = quote.ok_or("an argument in backticks is missing")?;
        let inner = &self.rest[1..];
        let mut value = String::new();
        let mut characters = inner.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                _ if c == quote => {
                    self.rest = &inner[at + 1..];
                    return Ok(value);
                }
                '\\' if quote != '`' => value.extend(characters.next().map(|(_, c)| c)),
                c => value.push(c),
            }
        }
        Err(format!("{quote} is not closed"))
    }
}

/// The rule alone, or several joined.
fn single(mut rules: Vec<Rule>, join: fn(Vec<Rule>) -> Rule) -> Rule {
    match rules.len() {
        1 => rules.remove(0),
        _ => join(rules),
    }
}
