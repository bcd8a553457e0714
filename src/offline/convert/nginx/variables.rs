//! Variables: their possible texts, and the conditions of tests on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::{
    NginxReader,
    patterns::{self, ExpressionTexts},
    state::{Groups, RewriteState, between_places},
    syntax::Directive,
    values::{VariablePart, parts},
};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition, Test, ValueKind},
    networks::Networks,
};

/// How many maps may lead to one another, and how many texts a variable may be.
const DEEPEST: usize = 8;
const MOST_CASES: usize = 64;
/// The most entries of a `geo` or a `map` that are told apart.
const MOST_ENTRIES: usize = 1_000;
/// Methods that an expression may mean.
const METHODS: [&str; 18] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "PURGE",
    "REPORT",
];

/// The texts that a variable may be: that of the first case whose condition holds. The last always holds. `None`: it is
/// not known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VariableCases(pub(super) Vec<(RequestCondition, Option<String>)>);

/// The condition of a test on a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextTest<'t> {
    Equals(&'t str),
    Matches {
        pattern: &'t str,
        is_insensitive: bool,
    },
    /// It is neither empty nor `0`.
    IsSet,
}

/// All `map` and `geo`, by the name of their variable.
pub(super) type Tables<'d> = BTreeMap<&'d str, &'d Directive>;

impl VariableCases {
    /// A text for all requests.
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self(vec![(RequestCondition::ALWAYS, Some(text.into()))])
    }

    pub(super) fn unknown() -> Self {
        Self(vec![(RequestCondition::ALWAYS, None)])
    }

    /// These cases where a condition holds, and those of `others` where it does not.
    pub(super) fn under(self, when: &RequestCondition, others: Self) -> Self {
        let own = self.0.into_iter().map(|(case, text)| (when.clone().and(case), text));
        let others = others.0.into_iter().filter(|_| *when != RequestCondition::ALWAYS);
        let cases: Vec<_> = own.chain(others).collect();
        if cases.len() > MOST_CASES { Self::unknown() } else { Self(cases) }
    }

    /// Each text with each of `end` behind it.
    fn joined(self, end: &Self) -> Self {
        if self.0.len() * end.0.len() > MOST_CASES {
            return Self::unknown();
        }
        let join = |(one, begin): (RequestCondition, Option<String>)| {
            let join = move |(other, end): &(RequestCondition, Option<String>)| {
                let text = begin.as_ref().zip(end.as_ref()).map(|(begin, end)| format!("{begin}{end}"));
                (one.clone().and(other.clone()), text)
            };
            end.0.iter().map(join).collect::<Vec<_>>()
        };
        Self(self.0.into_iter().flat_map(join).collect())
    }

    /// Each of the texts, with the condition under which it is the one.
    pub(super) fn apart(&self) -> Vec<(RequestCondition, Option<String>)> {
        let mut texts: Vec<Option<String>> = self.0.iter().map(|(_, text)| text.clone()).collect();
        texts.sort();
        texts.dedup();
        let with_case = |text: Option<String>| (self.meets(&|other| (other == text.as_deref()).into()), text);
        texts.into_iter().map(with_case).collect()
    }

    /// The condition under which one of the texts meets `test`.
    pub(super) fn meets(&self, test: &dyn Fn(Option<&str>) -> RequestCondition) -> RequestCondition {
        self.0.iter().rev().fold(RequestCondition::NEVER, |met, (case, text)| {
            let own = test(text.as_deref());
            if own == met || *case == RequestCondition::ALWAYS {
                return own;
            }
            let (own, others) = (case.clone().and(own), case.clone().not().and(met));
            match (own == RequestCondition::NEVER, others == RequestCondition::NEVER) {
                (true, _) => others,
                (_, true) => own,
                _ => RequestCondition::Any(vec![own, others]),
            }
        })
    }
}

impl TextTest<'_> {
    /// Whether a text meets this. `None`: it cannot be told.
    pub(super) fn is_met_by(self, text: &str) -> Option<bool> {
        Some(match self {
            Self::Equals(other) => text == other,
            Self::IsSet => !text.is_empty() && text != "0",
            Self::Matches { pattern, is_insensitive } => {
                patterns::compiled(pattern, is_insensitive)?.is_match(text.as_bytes())
            }
        })
    }
}

impl<'d> NginxReader<'d> {
    /// The condition under which a text with variables meets a comparison.
    pub(super) fn holds(
        &self,
        text: &str,
        comparison: TextTest<'_>,
        state: &RewriteState<'d>,
    ) -> RequestCondition {
        let unknown = || RequestCondition::unknown(format!("Tollgate does not compare `{text}` so"));
        self.texts(text, state).meets(&|case| {
            let found = case.and_then(|case| match parts(case).as_slice() {
                [VariablePart::Variable(name)] => self.of_request(name, comparison, state),
                [] | [VariablePart::Literal(_)] => comparison.is_met_by(case).map(RequestCondition::from),
                _ => None,
            });
            found.unwrap_or_else(unknown)
        })
    }

    /// The texts that a text with variables may be. Variables of the request stay in them.
    pub(super) fn texts(&self, text: &str, state: &RewriteState<'d>) -> VariableCases {
        let of_part = |part: VariablePart| match part {
            VariablePart::Literal(text) => VariableCases::of(text),
            VariablePart::Variable(name) => {
                self.decision(&name, state).unwrap_or_else(|| VariableCases::of(format!("${{{name}}}")))
            }
        };
        parts(text).into_iter().fold(VariableCases::of(""), |all, part| all.joined(&of_part(part)))
    }

    /// The one text that a text with variables is.
    pub(super) fn text(&self, text: &str, state: &RewriteState<'d>) -> Option<String> {
        match self.texts(text, state).0.as_slice() {
            [(_, text)] => text.clone(),
            _ => None,
        }
    }

    /// The texts of a variable, if it has few.
    fn decision(&self, name: &str, state: &RewriteState<'d>) -> Option<VariableCases> {
        let of_listeners = |names: BTreeSet<String>, text: &str, others: VariableCases| {
            VariableCases::of(text).under(&Test::Listeners(names).into(), others)
        };
        let by_tls = |tls: &str, plain: &str| {
            of_listeners(self.named(|listen| listen.is_tls), tls, VariableCases::of(plain))
        };
        if let Some(known) = state.variables.get(name) {
            return Some(known.clone());
        }
        Some(match (name, state.verify.as_str()) {
            _ if self.tables.contains_key(name) => {
                let depth = self.depth.replace(self.depth.get() + 1);
                let found = self.tables.get(name).filter(|_| depth < DEEPEST).and_then(|table| {
                    if table.name == "geo" { self.geo(table) } else { self.map(table, state) }
                });
                self.depth.set(depth);
                found.unwrap_or_else(VariableCases::unknown)
            }
            ("scheme", _) => by_tls("https", "http"),
            ("https", _) => by_tls("on", ""),
            ("ssl_client_verify", "on") => by_tls("SUCCESS", ""),
            ("ssl_client_verify", "off" | "") => by_tls("NONE", ""),
            ("server_name", _) => VariableCases::of(state.server_name.as_str()),
            ("server_port", _) => self.listens.iter().fold(VariableCases::unknown(), |others, listen| {
                of_listeners([listen.name.clone()].into(), listen.port(), others)
            }),
            _ => return None,
        })
    }

    /// A test of a variable of the request. `None`: Tollgate does not compare it.
    fn of_request(
        &self,
        name: &str,
        comparison: TextTest<'_>,
        state: &RewriteState<'d>,
    ) -> Option<RequestCondition> {
        match (name, comparison) {
            (
                "request_method" | "host" | "remote_addr" | "uri" | "document_uri" | "request_uri",
                TextTest::IsSet,
            ) => Some(RequestCondition::ALWAYS),
            // nginx has it in lower case.
            ("host", TextTest::Equals(host)) if host.contains(char::is_uppercase) => {
                Some(RequestCondition::NEVER)
            }
            ("request_method", _) => method(comparison),
            ("host" | "http_host", _) => self.host(comparison),
            ("remote_addr", _) => self.address(comparison),
            ("uri" | "document_uri", TextTest::Equals(path)) => Some(state.is_path(path)),
            ("uri" | "document_uri", TextTest::Matches { pattern, is_insensitive }) => {
                Some(state.finds(pattern, is_insensitive))
            }
            ("request_uri", _) => request_uri(comparison),
            (_, TextTest::Equals(value)) => {
                let name = name.strip_prefix("http_")?.replace('_', "-");
                let is_text =
                    value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value;
                let is_value = RequestCondition::value(ValueKind::Header, name, value);
                Some(is_value).filter(|_| is_text && !value.is_empty())
            }
            // `$cookie_…` and `$arg_…` are found in any case of their names, and their values are not decoded.
            _ => None,
        }
    }

    fn address(&self, comparison: TextTest<'_>) -> Option<RequestCondition> {
        let texts = match comparison {
            TextTest::Matches { pattern, is_insensitive } => {
                let ExpressionTexts { texts, is_start: true, is_end } =
                    patterns::words(pattern, is_insensitive)?
                else {
                    return None;
                };
                let network = |text: String| {
                    let octets = text.trim_end_matches('.').split('.').count();
                    match is_end {
                        true => Some(text),
                        false if text.ends_with('.') && octets < 4 => {
                            Some(format!("{text}{}/{}", ["0"; 4][octets..].join("."), 8 * octets))
                        }
                        false => None,
                    }
                };
                texts.into_iter().map(network).collect::<Option<Vec<_>>>()?
            }
            TextTest::Equals(address) => vec![address.to_owned()],
            TextTest::IsSet => return None,
        };
        Networks::parse(texts.iter().map(String::as_str)).ok().map(|set| self.is_from(set))
    }

    fn host(&self, comparison: TextTest<'_>) -> Option<RequestCondition> {
        let exact = |hosts: &mut dyn Iterator<Item = String>| {
            let hosts: BTreeSet<_> =
                hosts.map(|host| HostCondition::Exact(host.to_ascii_lowercase())).collect();
            if hosts.is_empty() { RequestCondition::NEVER } else { Test::Hosts(hosts).into() }
        };
        let (pattern, is_insensitive) = match comparison {
            TextTest::Matches { pattern, is_insensitive } => (pattern, is_insensitive),
            TextTest::Equals(host) if is_host(host) => {
                return Some(exact(&mut [host.to_owned()].into_iter()));
            }
            _ => return None,
        };
        let expression = patterns::compiled(pattern, is_insensitive)?;
        if let Some(ExpressionTexts { texts, is_start: true, is_end: true }) =
            patterns::words(pattern, is_insensitive)
            && texts.iter().all(|text| is_host(text))
        {
            return Some(exact(&mut texts.into_iter()));
        }
        // The names of servers are known.
        let (met, unmet): (BTreeSet<_>, BTreeSet<_>) =
            self.hosts.iter().cloned().partition(|host| expression.is_match(host.as_bytes()));
        let below =
            patterns::ending(pattern).and_then(|end| end.strip_prefix('.').map(str::to_ascii_lowercase));
        let outer = match below.filter(|name| is_host(name)) {
            Some(name) => RequestCondition::host(HostCondition::Below(name)),
            None => RequestCondition::ALWAYS,
        };
        let outer = outer.and(exact(&mut unmet.into_iter()).not());
        Some(between_places(exact(&mut met.into_iter()), outer, "Tollgate compares hosts as a whole"))
    }

    /// A `map`, as cases in the order in which nginx looks them up: exact texts, the longest beginnings or ends of hosts,
    /// expressions.
    fn map(&self, table: &'d Directive, state: &RewriteState<'d>) -> Option<VariableCases> {
        let (source, entries) = (table.argument(0), table.children());
        if entries.len() > MOST_ENTRIES || entries.iter().any(|entry| entry.name == "include") {
            return None;
        }
        let is_of_hosts = entries.iter().any(|entry| entry.name == "hostnames");
        let mut default = VariableCases::of("");
        let mut cases: Vec<(usize, RequestCondition, VariableCases)> = Vec::new();
        for entry in entries {
            let value = self.texts(entry.argument(0), state);
            let key = entry.name.as_str();
            let is_part = is_of_hosts && (key.starts_with(['*', '.']) || key.ends_with(".*"));
            let (rank, when) = match (key, key.strip_prefix('~')) {
                ("hostnames" | "volatile", _) => continue,
                ("default", _) => {
                    default = value;
                    continue;
                }
                (_, Some(pattern)) => {
                    let insensitive = pattern.strip_prefix('*');
                    let (pattern, is_insensitive) = (insensitive.unwrap_or(pattern), insensitive.is_some());
                    let comparison = TextTest::Matches { pattern, is_insensitive };
                    (usize::MAX, self.holds(source, comparison, state))
                }
                _ if is_part => (usize::MAX - key.len(), part_of_host(source, key)),
                _ => (0, self.is_key(source, key.strip_prefix('\\').unwrap_or(key), state)),
            };
            cases.push((rank, when, value));
        }
        cases.sort_by_key(|(rank, _, _)| *rank);
        Some(cases.into_iter().rev().fold(default, |others, (_, when, value)| value.under(&when, others)))
    }

    /// Whether a map finds this key, which it compares in any case of its letters.
    fn is_key(&self, source: &str, key: &str, state: &RewriteState<'d>) -> RequestCondition {
        if matches!(source, "$uri" | "$document_uri") {
            return state.finds(&format!("^{}$", regex_syntax::escape(key)), true);
        }
        let holds = self.holds(source, TextTest::Equals(key), state);
        let has_case = key.contains(|c: char| c.is_ascii_alphabetic()) && source != "$http_host";
        match has_case && (source.starts_with("$http_")) {
            true => RequestCondition::between(
                holds,
                RequestCondition::ALWAYS,
                format!("a map compares `{source}` in any case"),
            ),
            false => holds,
        }
    }

    /// A `geo`, as sets of addresses.
    fn geo(&self, table: &'d Directive) -> Option<VariableCases> {
        let source = table.argument(0);
        let entries = table.children();
        if table.arguments.len() > 1 && source != "$remote_addr" || entries.len() > MOST_ENTRIES {
            return None;
        }
        let default = entries.iter().rfind(|entry| entry.name == "default");
        let default = default.map_or("", |entry| entry.argument(0));
        let mut networks: Vec<(IpNet, &str)> = Vec::new();
        for entry in entries.iter().filter(|entry| entry.name != "default") {
            let text = entry.name.as_str();
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            networks.push((network.ok()?, entry.argument(0)));
        }
        // The longest prefix that an address has decides.
        networks.sort_by_key(|(network, _)| network.prefix_len());
        let mut sets: BTreeMap<&str, Networks> = BTreeMap::new();
        for (network, value) in networks {
            let set = Networks::parse([network.to_string().as_str()]).ok()?;
            sets.values_mut().for_each(|known| *known = known.without(&set));
            let known = sets.entry(value).or_default();
            *known = known.or(&set);
        }
        let sets = sets.into_iter().filter(|(value, set)| *value != default && !set.is_empty());
        Some(sets.fold(VariableCases::of(default), |others, (value, set)| {
            VariableCases::of(value).under(&self.is_from(set), others)
        }))
    }
}

/// Whether a map that knows parts of hosts finds `.a.com`, `*.a.com` or `a.*`.
fn part_of_host(source: &str, key: &str) -> RequestCondition {
    let name = key.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
    match is_host(&name) && source == "$host" {
        true => {
            let own = Some(HostCondition::Exact(name.clone())).filter(|_| key.starts_with('.'));
            Test::Hosts(own.into_iter().chain([HostCondition::Below(name)]).collect()).into()
        }
        false => RequestCondition::unknown(format!("`{key}` of a map has no equal")),
    }
}

/// Whether this can be a host without a port.
pub(super) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text != "_" && text.len() <= 253 && text.split('.').all(is_label)
}

fn method(comparison: TextTest<'_>) -> Option<RequestCondition> {
    let any = |methods: &[&str]| {
        RequestCondition::Any(methods.iter().map(|method| RequestCondition::method(method)).collect())
    };
    let TextTest::Matches { pattern, is_insensitive } = comparison else {
        return match comparison {
            TextTest::Equals(method) => Some(RequestCondition::method(method)),
            _ => None,
        };
    };
    let expression = patterns::compiled(pattern, is_insensitive)?;
    let is_met = |method: &&str| expression.is_match(method.as_bytes());
    if let Some(ExpressionTexts { texts, is_start: true, is_end: true }) =
        patterns::words(pattern, is_insensitive)
    {
        // nginx refuses methods in lower case.
        let texts: Vec<String> = texts.into_iter().map(|text| text.to_ascii_uppercase()).collect();
        let methods = texts.iter().map(String::as_str).filter(|text| !text.is_empty() && is_met(text));
        return Some(any(&methods.collect::<Vec<_>>()));
    }
    let (known, others): (Vec<_>, Vec<_>) = METHODS.into_iter().partition(is_met);
    Some(RequestCondition::between(any(&known), any(&others).not(), "it may hold for other methods, too"))
}

/// The path and the query as the client sent them.
fn request_uri(comparison: TextTest<'_>) -> Option<RequestCondition> {
    let pattern = match comparison {
        TextTest::Equals(text) if !text.contains('?') => format!("^{}$", regex_syntax::escape(text)),
        TextTest::Matches { pattern, is_insensitive: false } => pattern.to_owned(),
        _ => return None,
    };
    // A query, which it may have, follows the compared text.
    let is_whole = patterns::beginning(&pattern)?.is_whole;
    let path = patterns::path(&pattern, false);
    let why = "it has the query, and is not decoded";
    Some(if is_whole { between_places(RequestCondition::NEVER, path, why) } else { path })
}

impl RewriteState<'_> {
    /// The text with the groups of the last expression, `$1` and so on, as a path of Tollgate has them.
    ///
    /// # Errors
    /// The variable that has no equal there.
    pub(super) fn path_text(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        for part in parts(text) {
            match part {
                VariablePart::Literal(text) => out += &literal_path(&text),
                VariablePart::Variable(name) => {
                    let nth: Option<usize> = name.parse().ok();
                    let unknown = || format!("Tollgate has no placeholder for `${name}` here");
                    match &self.groups {
                        Groups::Named { names, first } => {
                            let named = || names.iter().position(|known| *known == name).map(|nth| nth + 1);
                            let nth = nth.or_else(named).filter(|nth| (1..=names.len()).contains(nth));
                            let nth = nth.ok_or_else(unknown)?;
                            if nth == 1 {
                                out += &literal_path(first);
                            }
                            out += &format!("{{p{nth}}}");
                        }
                        Groups::Texts(texts) => {
                            out += &literal_path(nth.and_then(|nth| texts.get(nth)).ok_or_else(unknown)?);
                        }
                        Groups::Unknown => return Err(unknown()),
                    }
                }
            }
        }
        Ok(out)
    }
}

/// A path, or a part of one, without placeholders and with characters percent-encoded that must be.
fn literal_path(text: &str) -> String {
    let mut out = String::new();
    for (at, byte) in text.bytes().enumerate() {
        let is_encoded =
            || text.as_bytes().get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        match byte {
            b'{' => out += "{{",
            b'}' => out += "}}",
            b'%' if is_encoded() => out.push('%'),
            b'#' | b'%' | b'\\' => out += &format!("%{byte:02X}"),
            byte if byte.is_ascii_graphic() => out.push(char::from(byte)),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}
