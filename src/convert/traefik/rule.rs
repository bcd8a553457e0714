//! The rules of routers: ``Host(`example.com`) && (PathPrefix(`/api`) || !Method(`GET`))``, in the syntax of Traefik 2
//! and 3.

use regex_syntax::hir::{Hir, HirKind, Look, literal};

use crate::convert::conditions::{Conditions, Host, Path, Term};

/// The most alternatives of a rule.
const MAX_TERMS: usize = 256;
/// The deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 64;
/// The most texts that a regular expression is written out as.
const MAX_TEXTS: usize = 64;

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

/// A rule as alternatives, of which a request must meet one.
#[derive(Debug, Default)]
pub(super) struct Alternatives {
    pub(super) terms: Vec<Term>,
    /// Alternatives that no route can select, by the reason.
    pub(super) lost: Vec<String>,
    /// Where a term matches more than the rule does.
    pub(super) wider: Vec<String>,
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

    /// The rule as a disjunction.
    pub(super) fn alternatives(&self) -> Alternatives {
        let mut wider = Vec::new();
        let mut found = Alternatives::default();
        for alternative in disjunction(self, false, &mut wider) {
            match alternative {
                Ok(term) => found.terms.push(term),
                Err(reason) if !found.lost.contains(&reason) => found.lost.push(reason),
                Err(_) => {}
            }
        }
        wider.dedup();
        Alternatives { wider, ..found }
    }
}

type Alternative = Result<Term, String>;

fn disjunction(rule: &Rule, negated: bool, wider: &mut Vec<String>) -> Vec<Alternative> {
    match rule {
        Rule::Not(inner) => disjunction(inner, !negated, wider),
        Rule::Or(rules) if !negated => any_of(rules, negated, wider),
        Rule::And(rules) if negated => any_of(rules, negated, wider),
        Rule::And(rules) | Rule::Or(rules) => {
            let mut product = vec![Ok(Term::default())];
            for rule in rules {
                let factors = disjunction(rule, negated, wider);
                if product.len() * factors.len() > MAX_TERMS {
                    return vec![Err("the rule has too many alternatives".to_owned())];
                }
                product = product
                    .iter()
                    .flat_map(|one| factors.iter().filter_map(move |other| both(one, other)))
                    .collect();
            }
            product
        }
        Rule::Matcher(matcher) => {
            let conditions = matcher.conditions(wider);
            match (conditions, negated) {
                (Err(reason), _) => vec![Err(reason)],
                (Ok(any), false) => any.into_iter().map(|yes| Ok(Term { yes, no: Vec::new() })).collect(),
                (Ok(any), true) if any.iter().any(|no| no.clients.is_some()) => {
                    vec![Err(format!("`!{}` has no equal", matcher.name))]
                }
                (Ok(no), true) => vec![Ok(Term { yes: Conditions::default(), no })],
            }
        }
    }
}

fn any_of(rules: &[Rule], negated: bool, wider: &mut Vec<String>) -> Vec<Alternative> {
    let all: Vec<_> = rules.iter().flat_map(|rule| disjunction(rule, negated, wider)).collect();
    match all.len() > MAX_TERMS {
        true => vec![Err("the rule has too many alternatives".to_owned())],
        false => all,
    }
}

/// Requests of both; `None` if there are none.
fn both(one: &Alternative, other: &Alternative) -> Option<Alternative> {
    let (one, other) = match (one, other) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(reason), _) | (_, Err(reason)) => return Some(Err(reason.clone())),
    };
    match one.yes.and(&other.yes) {
        Ok(Some(yes)) => {
            let no = one.no.iter().chain(&other.no).cloned().collect();
            Some(Ok(Term { yes, no }))
        }
        Ok(None) => None,
        Err(_) => Some(Err("two conditions on the same thing cannot be joined in one route".to_owned())),
    }
}

impl Matcher {
    /// Conditions of which a request must meet one.
    fn conditions(&self, wider: &mut Vec<String>) -> Result<Vec<Conditions>, String> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let pair = || match arguments.as_slice() {
            [name, value] => Ok((*name, *value)),
            _ => Err(format!("`{}` needs two arguments", self.name)),
        };
        match self.name.to_ascii_lowercase().as_str() {
            _ if arguments.is_empty() => Err(format!("`{}` has no argument", self.name)),
            "host" | "hostheader" => {
                let hosts = arguments.iter().map(|name| Ok(Host::Exact(host_name(name)?)));
                Ok(vec![Conditions {
                    hosts: Some(hosts.collect::<Result<_, String>>()?),
                    ..Conditions::default()
                }])
            }
            "hostregexp" => {
                let mut found = Vec::new();
                for pattern in &arguments {
                    found.push(Conditions { hosts: hosts_of(pattern, wider)?, ..Conditions::default() });
                }
                Ok(found)
            }
            "path" => paths(&arguments, |path| match braced(path, "[^/]+")? {
                Some(pattern) => Ok(Path::Regex(format!("^{pattern}$"))),
                None => Ok(Path::Exact(path.to_owned())),
            }),
            "pathprefix" => paths(&arguments, |path| match braced(path, "[^/]+")? {
                Some(pattern) => Ok(Path::Regex(format!("^{pattern}"))),
                None if path == "/" => Ok(Path::Any),
                None => Ok(Path::Prefix(path.to_owned())),
            }),
            "pathregexp" => paths(&arguments, |pattern| Ok(Path::Regex(pattern.to_owned()))),
            "method" | "methods" => {
                let methods = arguments.iter().map(|method| method.to_ascii_uppercase()).collect();
                Ok(vec![Conditions { methods: Some(methods), ..Conditions::default() }])
            }
            "header" | "headers" => {
                let (name, value) = pair()?;
                Ok(vec![with_header(name, value)?])
            }
            "headerregexp" | "headersregexp" => {
                let (name, pattern) = pair()?;
                let values = texts_of(pattern).ok_or_else(|| unequal(&self.name, pattern))?;
                values.iter().map(|value| with_header(name, value)).collect()
            }
            "query" if arguments.iter().all(|argument| argument.contains('=')) => {
                let pairs = arguments.iter().filter_map(|argument| argument.split_once('='));
                let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                Ok(vec![Conditions { query, ..Conditions::default() }])
            }
            "query" => {
                let (name, value) = if let [name] = arguments.as_slice() { (*name, "") } else { pair()? };
                Ok(vec![with_query(name, value)])
            }
            "queryregexp" => {
                let (name, pattern) = pair()?;
                let values = texts_of(pattern).ok_or_else(|| unequal(&self.name, pattern))?;
                Ok(values.iter().map(|value| with_query(name, value)).collect())
            }
            "clientip" => {
                let networks = arguments.iter().map(|text| {
                    let host = || text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from);
                    text.parse().ok().or_else(host).ok_or_else(|| format!("`{text}` is no network"))
                });
                Ok(vec![Conditions {
                    clients: Some(networks.collect::<Result<_, _>>()?),
                    ..Conditions::default()
                }])
            }
            _ => Err(format!("`{}` has no equal", self.name)),
        }
    }
}

fn unequal(name: &str, pattern: &str) -> String {
    format!("`{name}` with the regular expression `{pattern}` has no equal: routes compare whole values")
}

fn with_header(name: &str, value: &str) -> Result<Conditions, String> {
    let is_name = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
    let is_value = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if !is_name || !is_value {
        return Err(format!("`{name}: {value}` is no header that a route can compare"));
    }
    Ok(Conditions {
        headers: [(name.to_ascii_lowercase(), value.to_owned())].into(),
        ..Conditions::default()
    })
}

fn with_query(name: &str, value: &str) -> Conditions {
    Conditions { query: [(name.to_owned(), value.to_owned())].into(), ..Conditions::default() }
}

fn paths(arguments: &[&str], path: impl Fn(&str) -> Result<Path, String>) -> Result<Vec<Conditions>, String> {
    let conditions = |argument: &&str| {
        let path = path(argument)?;
        path.check()?;
        Ok(Conditions { path, ..Conditions::default() })
    };
    arguments.iter().map(conditions).collect()
}

fn host_name(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    match !name.is_empty() && name.chars().all(is_host) {
        true => Ok(name),
        false => Err(format!("`{text}` is no host")),
    }
}

/// The hosts that match the expression. `None`: every host.
fn hosts_of(
    pattern: &str,
    wider: &mut Vec<String>,
) -> Result<Option<std::collections::BTreeSet<Host>>, String> {
    let regex = match braced(pattern, "[^.]+") {
        Ok(Some(regex)) if !pattern.starts_with('^') => format!("^{regex}$"),
        _ => pattern.to_owned(),
    };
    if let Some(names) = texts_of(&regex) {
        return names
            .iter()
            .map(|name| Ok(Host::Exact(host_name(name)?)))
            .collect::<Result<_, String>>()
            .map(Some);
    }
    let refused = || {
        format!(
            "the hosts of `{pattern}` cannot be listed: write `hosts` with names, or with `*.` and a name"
        )
    };
    let parsed = parse(&regex).ok_or_else(refused)?;
    let parts = flattened(&parsed);
    let is_start = |hir: &Hir| matches!(hir.kind(), HirKind::Look(Look::Start));
    let parts = if parts.first().is_some_and(is_start) { &parts[1..] } else { parts.as_slice() };
    let is_anything =
        |hir: &Hir| ["(?s).+", "(?s).*", ".+", ".*"].iter().any(|any| parse(any).as_ref() == Some(hir));
    let (rest, end) = match parts {
        [rest @ .., last] if matches!(last.kind(), HirKind::Look(Look::End)) => (rest, true),
        rest => (rest, false),
    };
    match rest {
        [any] if is_anything(any) => Ok(None),
        [.., literal] if end && rest.len() > 1 => {
            let HirKind::Literal(literal) = literal.kind() else { return Err(refused()) };
            let suffix = String::from_utf8_lossy(&literal.0).into_owned();
            let suffix = suffix.strip_prefix('.').ok_or_else(refused)?;
            let name = host_name(suffix)?;
            if !matches!(rest, [any, _] if is_anything(any)) {
                wider.push(format!(
                    "`*.{name}` is every name below {name}, and `{pattern}` only some of them"
                ));
            }
            Ok(Some([Host::Below(name)].into()))
        }
        _ => Err(refused()),
    }
}

/// The parts of a concatenation, without groups.
fn flattened(hir: &Hir) -> Vec<Hir> {
    match hir.kind() {
        HirKind::Capture(capture) => flattened(&capture.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(flattened).collect(),
        _ => vec![hir.clone()],
    }
}

fn parse(pattern: &str) -> Option<Hir> {
    regex_syntax::ParserBuilder::new().unicode(false).utf8(false).nest_limit(50).build().parse(pattern).ok()
}

/// The texts that match the expression, if it is anchored on both sides and they are few.
fn texts_of(pattern: &str) -> Option<Vec<String>> {
    let parsed = parse(pattern)?;
    let properties = parsed.properties();
    let looks = properties.look_set();
    let is_anchored = properties.look_set_prefix().contains(Look::Start)
        && properties.look_set_suffix().contains(Look::End)
        && looks.len() == 2;
    if !is_anchored {
        return None;
    }
    let mut extractor = literal::Extractor::new();
    extractor.limit_class(MAX_TEXTS).limit_repeat(4).limit_literal_len(256).limit_total(MAX_TEXTS);
    let found = extractor.extract(&parsed);
    let texts = found.literals().filter(|_| found.is_exact())?;
    texts.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok()).collect()
}

/// `/users/{id:[0-9]+}` of Traefik 2 as a regular expression without anchors; `None` without braces. `default`: of a
/// name alone.
fn braced(text: &str, default: &str) -> Result<Option<String>, String> {
    if !text.contains('{') {
        return Ok(None);
    }
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
    Ok(Some(pattern + &regex_syntax::escape(rest)))
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
