//! The rules of routers: ``Host(`example.com`) && (PathPrefix(`/api`) || !Method(`GET`))``, in the syntax of Traefik 2
//! and 3, as conditions.

use regex::Regex;
use regex_syntax::hir::{
    Hir, HirKind, Look,
    literal::{ExtractKind, Extractor},
};

use crate::offline::convert::{
    condition::{Doubt, HostCondition, RequestCondition, Test, ValueKind},
    networks::Networks,
    path::{Path, parse},
};

/// The deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 64;
/// The most texts that a regular expression is written out as.
const MAX_TEXTS: usize = 64;
/// Fields that Traefik changes before it compares them.
const CHANGED_FIELDS: [&str; 4] = ["x-real-ip", "x-scheme", "connection", "forwarded"];

/// Why something that Traefik fills in is not converted.
pub(super) const TEMPLATE: &str = "Traefik fills in what is in `{{ … }}`: write the value, and convert again";

const EXPRESSION: &str = "routes compare whole values, with no expression";
const BRACES: &str = "what is in braces is an expression in Traefik 2 and a text in Traefik 3: write it in the syntax of \
                      Traefik 3, as `PathRegexp` or `HostRegexp`";

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

/// A rule that has been read.
pub(super) struct ParsedRule {
    pub(super) condition: RequestCondition,
    /// The hosts that it names, also those of a `Host` that is negated.
    pub(super) hosts: Vec<HostCondition>,
    /// A matcher that has no equal.
    pub(super) unknown: Option<String>,
}

impl ParsedRule {
    /// Reads a rule.
    ///
    /// # Errors
    /// Why Traefik makes no router of it.
    pub(super) fn read(text: &str, syntax: Syntax) -> Result<Self, String> {
        let mut reader = RuleReader { rest: text, depth: 0, syntax, hosts: Vec::new(), unknown: None };
        let condition = reader.alternatives()?;
        match reader.rest.trim_start().chars().next() {
            None => Ok(Self { condition, hosts: reader.hosts, unknown: reader.unknown }),
            Some(c) => Err(format!("its rule cannot be read, `{c}` is not expected there")),
        }
    }
}

struct RuleReader<'t> {
    rest: &'t str,
    depth: usize,
    syntax: Syntax,
    hosts: Vec<HostCondition>,
    unknown: Option<String>,
}

impl RuleReader<'_> {
    /// Takes `token`, if it is next.
    fn takes(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        let next: String = self.rest.chars().take(20).collect();
        let error = || format!("its rule cannot be read, `{token}` is missing before `{next}`");
        self.takes(token).then_some(()).ok_or_else(error)
    }

    fn alternatives(&mut self) -> Result<RequestCondition, String> {
        let mut any = vec![self.conjunction()?];
        while self.takes("||") {
            any.push(self.conjunction()?);
        }
        Ok(any_of(any))
    }

    fn conjunction(&mut self) -> Result<RequestCondition, String> {
        let mut all = self.factor()?;
        while self.takes("&&") {
            all = all.and(self.factor()?);
        }
        Ok(all)
    }

    fn factor(&mut self) -> Result<RequestCondition, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("its rule is nested too deeply".to_owned());
        }
        let condition = if self.takes("!") {
            self.factor()?.not()
        } else if self.takes("(") {
            let inner = self.alternatives()?;
            self.expect(")")?;
            inner
        } else {
            self.matcher()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    /// ``Name(`argument`, …)``
    fn matcher(&mut self) -> Result<RequestCondition, String> {
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.argument()?);
        }
        let matcher = name.to_ascii_lowercase();
        if matcher.starts_with("host") {
            self.hosts.extend(arguments.iter().filter_map(|text| hosts_of(text)).flatten());
        }
        match condition(&matcher, &arguments, self.syntax)? {
            Some(condition) => Ok(condition),
            None => {
                self.unknown = Some(name.to_owned());
                Ok(RequestCondition::unknown_place(format!("`{name}` has no equal")))
            }
        }
    }

    fn argument(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\''));
        let quote = quote.ok_or("its rule cannot be read, an argument in backticks is missing")?;
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
        Err(format!("its rule cannot be read, {quote} is not closed"))
    }
}

/// The condition of a matcher; `None`: it has no equal.
///
/// # Errors
/// Traefik does not take it.
fn condition(name: &str, arguments: &[String], syntax: Syntax) -> Result<Option<RequestCondition>, String> {
    let is_v2 = syntax == Syntax::V2;
    let counts = match name {
        _ if is_v2 => 1..=usize::MAX,
        "header" | "headerregexp" => 2..=2,
        "query" | "queryregexp" => 1..=2,
        "hostheader" | "headers" | "headersregexp" | "methods" => 0..=0,
        "host" | "hostregexp" | "path" | "pathprefix" | "pathregexp" | "method" | "clientip" => 1..=1,
        _ => 1..=usize::MAX,
    };
    if !counts.contains(&arguments.len()) || !is_v2 && arguments.iter().any(String::is_empty) {
        return Err(format!("Traefik does not take `{name}` with these arguments"));
    }
    if arguments.iter().any(|argument| argument.contains("{{")) {
        return Ok(Some(RequestCondition::unknown_place(TEMPLATE)));
    }
    let is_named = |text: &String| {
        text.split('{').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    if !is_v2 && matches!(name, "path" | "pathprefix") && arguments.iter().any(is_named) {
        return Ok(Some(RequestCondition::unknown_place(BRACES)));
    }
    let each = |one: &dyn Fn(&str) -> Result<RequestCondition, String>| {
        let all: Result<Vec<_>, String> = arguments.iter().map(|argument| one(argument)).collect();
        all.map(any_of)
    };
    Ok(Some(match name {
        "host" | "hostheader" => each(&|host| Ok(host_condition(host)))?,
        "hostregexp" => each(&|pattern| host_regexp(pattern, is_v2))?,
        "path" => each(&|path| path_condition(path, is_v2.then_some("$"), Path::exact))?,
        "pathprefix" => each(&|path| path_condition(path, is_v2.then_some(""), Path::prefix))?,
        "pathregexp" => each(&path_regexp)?,
        "method" | "methods" => each(&|method| Ok(RequestCondition::method(&method.to_ascii_uppercase())))?,
        "clientip" => match Networks::parse(arguments.iter().map(String::as_str)) {
            Ok(networks) => Test::Addresses(networks).into(),
            Err(text) => return Err(format!("`{text}` is no network")),
        },
        "header" | "headers" | "headerregexp" | "headersregexp" => {
            let [field, value] = arguments else { return Ok(None) };
            let is_regexp = name.ends_with("regexp");
            field_condition(field, if is_regexp { texts_of(value) } else { Some(vec![value.clone()]) })
        }
        "query" if !is_v2 => {
            let value = arguments.get(1).cloned().unwrap_or_default();
            RequestCondition::value(ValueKind::Query, &arguments[0], value)
        }
        "queryregexp" if arguments.len() == 2 => {
            one_of(ValueKind::Query, &arguments[0], texts_of(&arguments[1]))
        }
        "query" | "queryregexp" => RequestCondition::unknown(EXPRESSION),
        _ => return Ok(None),
    }))
}

fn any_of(mut conditions: Vec<RequestCondition>) -> RequestCondition {
    if conditions.len() == 1 { conditions.remove(0) } else { RequestCondition::Any(conditions) }
}

/// A condition that is met where `inner` is, and nowhere else than `outer`.
pub(super) fn place_between(
    inner: RequestCondition,
    outer: RequestCondition,
    text: impl Into<String>,
) -> RequestCondition {
    let why = Doubt { text: text.into(), is_of_place: true };
    RequestCondition::Between { inner: Box::new(inner), outer: Box::new(outer), why }
}

/// The hosts of an argument: a name, `*.` and a name, or an expression for a few names.
fn hosts_of(text: &str) -> Option<Vec<HostCondition>> {
    let below = || text.strip_prefix("*.").and_then(host_name).map(HostCondition::Below);
    match host_name(text).map(HostCondition::Exact).or_else(below) {
        Some(host) => Some(vec![host]),
        None => Some(
            texts_of(text)?.iter().filter_map(|name| host_name(name)).map(HostCondition::Exact).collect(),
        ),
    }
}

fn host_condition(text: &str) -> RequestCondition {
    match hosts_of(text).as_deref() {
        _ if text == "*" => RequestCondition::ALWAYS,
        Some([below @ HostCondition::Below(name)]) => {
            let why =
                format!("`*.{name}` is one label before {name} in Traefik, and every name below it here");
            place_between(RequestCondition::NEVER, RequestCondition::host(below.clone()), why)
        }
        Some([exact]) => RequestCondition::host(exact.clone()),
        // No request has such a host.
        _ => RequestCondition::NEVER,
    }
}

fn host_name(text: &str) -> Option<String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    (!name.is_empty() && name.chars().all(is_host)).then_some(name)
}

fn host_regexp(pattern: &str, is_v2: bool) -> Result<RequestCondition, String> {
    let regex = match is_v2 {
        true => format!("^{}$", braced(pattern, "[^.]+")?),
        false => pattern.to_owned(),
    };
    let regex = regex.as_str();
    let parsed = parse(regex).ok_or_else(|| format!("`{regex}` is no expression"))?;
    let hosts = |names: Vec<String>| -> RequestCondition {
        Test::Hosts(names.iter().filter_map(|name| host_name(name)).map(HostCondition::Exact).collect())
            .into()
    };
    if let Some(names) = texts_of(regex) {
        return Ok(hosts(names));
    }
    let anything = ["^.+", "^.*", "^(.+)", "^(.*)", "^(?:.+)", "^(?:.*)"];
    if anything.iter().any(|any| regex == *any || regex.strip_suffix('$') == Some(any)) {
        return Ok(RequestCondition::ALWAYS);
    }
    // The common end of such hosts.
    let is_ended = parsed.properties().look_set_suffix().contains(Look::End);
    let suffixes = Extractor::new().kind(ExtractKind::Suffix).extract(&parsed);
    let suffix = match suffixes.literals().filter(|_| is_ended) {
        Some([one]) => String::from_utf8_lossy(one.as_bytes()).into_owned(),
        _ => String::new(),
    };
    let why =
        format!("the hosts of `{regex}` cannot be listed: write `hosts` with names, or with `*.` and a name");
    // Any character stands where a dot is meant.
    let plain =
        Regex::new(r"([^\\])\.([A-Za-z0-9(-])").map(|dot| dot.replace_all(regex, r"${1}\.${2}").into_owned());
    let plain = plain.unwrap_or_default();
    let certain = match (texts_of(&plain), parse(&plain).map(Hir::into_kind)) {
        (Some(names), _) => hosts(names),
        // It is found wherever it is the end of a name.
        (None, Some(HirKind::Literal(text))) => match host_name(&String::from_utf8_lossy(&text.0)) {
            Some(name) if !name.starts_with('.') => {
                Test::Hosts([HostCondition::Exact(name.clone()), HostCondition::Below(name)].into()).into()
            }
            _ => RequestCondition::NEVER,
        },
        _ => RequestCondition::NEVER,
    };
    let name = suffix.split_once('.').and_then(|(_, name)| host_name(name));
    let ending = name.as_ref().map(|name| format!(r"\.{}$", regex_syntax::escape(name)));
    let begin = ending.and_then(|ending| regex.strip_suffix(&ending));
    let below =
        name.map_or(RequestCondition::ALWAYS, |name| RequestCondition::host(HostCondition::Below(name)));
    match begin.is_some_and(|begin| anything.contains(&begin)) {
        true => Ok(below),
        false => Ok(place_between(certain, below, why)),
    }
}

/// The texts that match the expression, if it is anchored on both sides and they are few.
fn texts_of(pattern: &str) -> Option<Vec<String>> {
    let parsed = parse(pattern)?;
    let properties = parsed.properties();
    let is_anchored = properties.look_set_prefix().contains(Look::Start)
        && properties.look_set_suffix().contains(Look::End)
        && properties.look_set().len() == 2;
    if !is_anchored {
        return None;
    }
    let mut extractor = Extractor::new();
    extractor.limit_class(MAX_TEXTS).limit_repeat(4).limit_literal_len(256).limit_total(MAX_TEXTS);
    let found = extractor.extract(&parsed);
    let texts = found.literals().filter(|_| found.is_exact())?;
    texts.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok()).collect()
}

/// The condition on a path or a prefix. `end`: the end of an expression for it, where braces stand for expressions.
fn path_condition(
    text: &str,
    end: Option<&str>,
    path: fn(&str) -> Result<Path, String>,
) -> Result<RequestCondition, String> {
    if let Some(end) = end.filter(|_| text.contains('{')) {
        return path_regexp(&format!("^{}{end}", braced(text, "[^/]+")?));
    }
    if text.contains('%') {
        return Ok(RequestCondition::unknown_place("it compares a path that is percent-encoded"));
    }
    Ok(match path(text)? {
        Path::Any => RequestCondition::ALWAYS,
        path => RequestCondition::path(path),
    })
}

fn path_regexp(pattern: &str) -> Result<RequestCondition, String> {
    if parse(pattern).is_none() {
        return Err(format!("`{pattern}` is no expression"));
    }
    Ok(Path::regex(pattern, false).map_or_else(RequestCondition::unknown_place, RequestCondition::path))
}

/// The condition that a field has one of these values. `None`: they cannot be listed.
fn field_condition(name: &str, values: Option<Vec<String>>) -> RequestCondition {
    let name = name.to_ascii_lowercase();
    let is_value =
        |value: &String| !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let is_name = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
    match values {
        // Go keeps it apart from the other fields.
        _ if name == "host" => RequestCondition::NEVER,
        _ if name.starts_with("x-forwarded-") || CHANGED_FIELDS.contains(&name.as_str()) => {
            RequestCondition::unknown(format!("Traefik and Tollgate set `{name}` by themselves"))
        }
        Some(values) if !is_name || !values.iter().all(is_value) => RequestCondition::unknown(EXPRESSION),
        values => one_of(ValueKind::Header, &name, values),
    }
}

/// The condition that a value is one of these. `None`: they cannot be listed.
fn one_of(kind: ValueKind, name: &str, values: Option<Vec<String>>) -> RequestCondition {
    match values {
        Some(values) => {
            any_of(values.iter().map(|value| RequestCondition::value(kind, name, value)).collect())
        }
        None => RequestCondition::unknown(EXPRESSION),
    }
}

/// `/users/{id:[0-9]+}` of Traefik 2 as a regular expression without anchors. `default`: of a name alone.
fn braced(text: &str, default: &str) -> Result<String, String> {
    let (mut pattern, mut rest) = (String::new(), text);
    while let Some((before, braces)) = rest.split_once('{') {
        let mut depth = 1_usize;
        let end = braces.find(|c| {
            depth = if c == '{' { depth + 1 } else { depth - usize::from(c == '}') };
            depth == 0
        });
        let (inner, after) = braces.split_at(end.ok_or_else(|| format!("`{text}`: a brace is not closed"))?);
        let inner = inner.split_once(':').map_or(default, |(_, pattern)| pattern);
        pattern += &format!("{}(?:{inner})", regex_syntax::escape(before));
        rest = &after[1..];
    }
    Ok(pattern + &regex_syntax::escape(rest))
}
