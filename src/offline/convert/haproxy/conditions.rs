//! ACLs and conditions of lines.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    ops::RangeInclusive,
    slice,
};

use super::{
    source::HaproxyConfig,
    syntax::ConfigLine,
    tests_of_paths::{path_test, url_test},
    words::OWN,
};
use crate::offline::convert::{
    condition::{HostCondition, RequestCondition, Test, ValueKind, is_host},
    draft::is_field_name,
    networks::Networks,
    path::expression,
};

/// A rate of a stick table that a condition compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RateTest {
    /// `http_req_rate`, `conn_cur`, …
    pub(super) counter: String,
    /// The counter that was tracked; `None` for `src_…`, which looks up the address.
    pub(super) tracked: Option<u8>,
    pub(super) table: Option<String>,
    /// The largest number that the condition lets pass. `None`: it is compared otherwise.
    pub(super) most: Option<u64>,
}

/// The names that conditions of a section can use.
pub(super) struct AclScope<'c> {
    pub(super) source: &'c HaproxyConfig<'c>,
    /// Each is a list of alternatives.
    acls: HashMap<&'c str, Vec<&'c [String]>>,
    /// The conditions are on responses: facts of the request cannot be tested.
    pub(super) is_of_response: bool,
}

/// An ACL of a condition, and whether it is negated: alternatives, of which one must hold.
struct Factor<'c> {
    is_not: bool,
    alternatives: Vec<&'c [String]>,
}

/// A test such as `path_beg -i /api /v2`, with its words told apart.
struct Asked<'w> {
    name: &'w str,
    argument: &'w str,
    converters: &'w str,
    /// `str`, `beg`, `reg`, …
    kind: &'w str,
    is_insensitive: bool,
    values: Vec<String>,
}

/// Splits the words of a line at `if` or `unless`: those before, whether it is `unless`, and its condition.
pub(super) fn split(line: &ConfigLine) -> (&[String], bool, &[String]) {
    // A value of a header may be `if`.
    let first = if matches!(line.word(1), "set-header" | "add-header") { 4 } else { 1 };
    let found =
        line.words.iter().enumerate().skip(first).find(|(_, word)| *word == "if" || *word == "unless");
    match found {
        Some((at, word)) => (&line.words[..at], word == "unless", &line.words[at + 1..]),
        None => (&line.words, false, &[]),
    }
}

/// One of these, without a list around a single one.
fn any(mut list: Vec<RequestCondition>) -> RequestCondition {
    if list.len() == 1 { list.remove(0) } else { RequestCondition::Any(list) }
}

fn all(list: impl Iterator<Item = RequestCondition>) -> RequestCondition {
    list.fold(RequestCondition::ALWAYS, RequestCondition::and)
}

impl<'c> AclScope<'c> {
    pub(super) fn new(source: &'c HaproxyConfig<'c>, lines: &[&'c ConfigLine]) -> Self {
        let mut acls: HashMap<&'c str, Vec<&'c [String]>> = HashMap::new();
        for line in lines.iter().filter(|line| line.word(0) == "acl") {
            if let [_, name, test @ ..] = line.words.as_slice() {
                // A test without words is one that cannot be told.
                acls.entry(name).or_default().push(if line.is_in_doubt { &[] } else { test });
            }
        }
        Self { source, acls, is_of_response: false }
    }

    /// The condition of a line. Rates are unknown.
    pub(super) fn condition(&self, line: &'c ConfigLine) -> RequestCondition {
        let (_, is_unless, words) = split(line);
        if line.is_in_doubt {
            return RequestCondition::unknown_place("the environment of HAProxy decides about this line");
        }
        let term = |term: &Vec<Factor<'c>>| all(term.iter().map(|one| self.factor(one)));
        let condition = any(self.terms(words).iter().map(term).collect());
        if is_unless { condition.not() } else { condition }
    }

    /// The condition of a line apart from rates, and each rate with the rest of its condition.
    pub(super) fn limits(
        &self,
        line: &'c ConfigLine,
    ) -> (RequestCondition, Vec<(RequestCondition, RateTest)>) {
        let (_, is_unless, words) = split(line);
        if is_unless || line.is_in_doubt {
            return (self.condition(line), Vec::new());
        }
        let (mut plain, mut rates) = (Vec::new(), Vec::new());
        for term in self.terms(words) {
            let has_rate = |one: &Factor<'c>| {
                !one.is_not && one.alternatives.iter().any(|words| self.rate(words).is_some())
            };
            let at = term.iter().position(has_rate);
            let others = term.iter().enumerate().filter(|(nth, _)| Some(*nth) != at);
            let others = all(others.map(|(_, factor)| self.factor(factor)));
            let Some(at) = at else {
                plain.push(others);
                continue;
            };
            for words in &term[at].alternatives {
                match self.rate(words) {
                    Some(rate) => rates.push((others.clone(), rate)),
                    None => plain.push(self.test(words).and(others.clone())),
                }
            }
        }
        (any(plain), rates)
    }

    /// `a b || c` as alternatives of lists of ACLs. One that no line defines is a test itself, which HAProxy may know.
    fn terms(&self, words: &'c [String]) -> Vec<Vec<Factor<'c>>> {
        let mut terms: Vec<Vec<Factor<'c>>> = vec![Vec::new()];
        let (mut index, mut is_not) = (0, false);
        while let Some(word) = words.get(index) {
            index += 1;
            let mut name = word.as_str();
            if matches!(name, "||" | "or") {
                terms.push(Vec::new());
                continue;
            }
            while let Some(rest) = name.strip_prefix('!') {
                (name, is_not) = (rest, !is_not);
            }
            let alternatives = match name {
                "" => continue,
                "{" => {
                    let rest = &words[index..];
                    let length = rest.iter().position(|word| word == "}").unwrap_or(rest.len());
                    index += length + 1;
                    vec![&rest[..length]]
                }
                name => match self.acls.get(name) {
                    Some(tests) => tests.clone(),
                    None => vec![slice::from_ref(word)],
                },
            };
            if let Some(term) = terms.last_mut() {
                term.push(Factor { is_not: mem::take(&mut is_not), alternatives });
            }
        }
        terms
    }

    fn factor(&self, factor: &Factor<'c>) -> RequestCondition {
        let condition = any(factor.alternatives.iter().map(|words| self.test(words)).collect());
        if factor.is_not { condition.not() } else { condition }
    }

    fn test(&self, words: &[String]) -> RequestCondition {
        let shown = words.join(" ");
        let unknown = || RequestCondition::unknown(format!("Tollgate does not test `{shown}`"));
        if let [name] = words
            && let Some(condition) = built_in(name.trim_start_matches('!'))
        {
            return condition;
        }
        let asked = match self.asked(words) {
            Ok(asked) => asked,
            Err(why) => return RequestCondition::unknown(why),
        };
        let is_of_request =
            !matches!(asked.name, "src" | "ssl_fc" | "dst_port" | "always_true" | "always_false");
        if self.is_of_response && is_of_request {
            return unknown();
        }
        if asked.name.starts_with("base") || matches!(asked.name, "dst" | "ssl_fc_sni" | "capture.req.uri") {
            return RequestCondition::unknown_place(format!("Tollgate does not test `{shown}`"));
        }
        self.tested(&asked, &shown).unwrap_or_else(unknown)
    }

    /// The condition for a test. `None`: Tollgate cannot compare it.
    fn tested(&self, asked: &Asked<'_>, shown: &str) -> Option<RequestCondition> {
        let each = |test: &dyn Fn(&str) -> RequestCondition| {
            Some(any(asked.values.iter().map(|value| test(value)).collect()))
        };
        let (is_plain, is_text) = (asked.converters.is_empty(), asked.kind == "str");
        let is_insensitive = asked.is_insensitive || asked.converters.contains("lower");
        let has_no_upper = asked.values.iter().all(|value| !value.contains(char::is_uppercase));
        match (asked.name, asked.argument.to_ascii_lowercase().as_str()) {
            ("path" | "url", "") | ("hdr" | "fhdr", "host") if asked.kind == "found" => {
                Some(RequestCondition::ALWAYS)
            }
            // In lower case, only a value in lower case is found.
            ("path", "") if is_plain || asked.converters == "lower" && has_no_upper => {
                each(&|value| path_test(asked.kind, value, is_insensitive, shown))
            }
            ("url", "") if is_plain => each(&|value| url_test(asked.kind, value, is_insensitive, shown)),
            // Hosts of routes are in lower case, and without a port.
            ("hdr" | "fhdr", "host")
                if ["", "lower", "field(1,:)", "lower,field(1,:)", "field(1,:),lower", "host_only"]
                    .contains(&asked.converters) =>
            {
                each(&|value| self.host_test(asked.kind, value, is_insensitive, shown))
            }
            ("path" | "url", "") | ("hdr" | "fhdr", "host") => {
                Some(RequestCondition::unknown_place(format!("Tollgate does not test `{shown}`")))
            }
            // A rule before may have set the header: the client's own value is then not the one that HAProxy compares.
            ("hdr" | "fhdr", name) if OWN.contains(&name) && self.source.sets(name) => None,
            ("hdr" | "fhdr" | "cook" | "urlp" | "url_param", _) if is_plain && is_text => {
                each(&|value| value_test(asked, value, shown))
            }
            // HAProxy compares those that it knows itself letter by letter, whatever it is told.
            ("method", "") if is_plain && is_text => {
                Some(RequestCondition::methods(asked.values.iter().map(String::as_str)))
            }
            ("src", "") if is_plain && (is_text || asked.kind == "ip") => {
                Some(addresses(asked.values.iter().map(String::as_str), shown))
            }
            ("ssl_fc", "") if is_plain && is_text && asked.values.iter().all(|value| value == "1") => {
                Some(self.source.at(|bound| bound.is_tls))
            }
            ("dst_port", "") if is_plain && is_text => {
                let ranges = asked.values.iter().map(|value| range(value)).collect::<Option<Vec<_>>>()?;
                Some(self.source.at(|bound| ranges.iter().any(|range| range.contains(&bound.port))))
            }
            ("always_true", "") => Some(RequestCondition::ALWAYS),
            ("always_false", "") => Some(RequestCondition::NEVER),
            _ => None,
        }
    }

    /// Tells the words of a test apart.
    ///
    /// # Errors
    /// Why nobody can.
    fn asked<'w>(&self, words: &'w [String]) -> Result<Asked<'w>, String> {
        let Some((fetch, rest)) = words.split_first() else {
            return Err("the environment of HAProxy decides about this condition".to_owned());
        };
        let (name, argument, converters) = fetched(fetch);
        const KINDS: [&str; 8] = ["beg", "dir", "dom", "end", "len", "reg", "sub", "str"];
        let (name, kind) = match name.rsplit_once('_') {
            Some((name, kind)) if KINDS.contains(&kind) => (name, kind),
            _ => (name, "str"),
        };
        let mut asked = Asked { name, argument, converters, kind, is_insensitive: false, values: Vec::new() };
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-i" => asked.is_insensitive = true,
                "-n" => {}
                "-m" => asked.kind = rest.next().map_or("", String::as_str),
                "-f" => {
                    let values = self.source.values(rest.next().map_or("", String::as_str))?;
                    asked.values.extend(values);
                }
                "--" => break,
                // A kind of comparison that is none.
                flag if flag.starts_with('-') => asked.kind = flag,
                value => {
                    asked.values.push(value.to_owned());
                    break;
                }
            }
        }
        asked.values.extend(rest.cloned());
        Ok(asked)
    }

    /// A host, as `hdr(host)` and its like compare it.
    fn host_test(&self, kind: &str, value: &str, is_insensitive: bool, shown: &str) -> RequestCondition {
        let trimmed = if kind == "dom" { value.trim_matches('.') } else { value };
        let (host, value) = (trimmed.to_ascii_lowercase(), trimmed);
        // Clients send hosts in lower case.
        let is_met = is_insensitive || host == *value;
        let hosts = |hosts: BTreeSet<HostCondition>| RequestCondition::from(Test::Hosts(hosts));
        let exact = |name: &str| HostCondition::Exact(name.to_owned());
        let name = host.split_once(':').map_or(host.as_str(), |(name, _)| name);
        match (kind, host.strip_prefix('.')) {
            ("str", _) if is_host(name) && name == host && is_met => return hosts([exact(name)].into()),
            ("str", _) if is_host(name) => {
                let why = format!("`{shown}` depends on the port or the case of the host");
                return RequestCondition::between_places(
                    RequestCondition::NEVER,
                    hosts([exact(name)].into()),
                    why,
                );
            }
            ("end", Some(name)) if is_host(name) && is_met => {
                return hosts([HostCondition::Below(name.to_owned())].into());
            }
            _ => {}
        }
        let why = format!("Tollgate cannot list the hosts that `{shown}` is for");
        // The hosts that this file names can be told.
        let (mut inner, mut others) = (BTreeSet::new(), BTreeSet::new());
        for known in &self.source.hosts {
            match host_matches(kind, &host, known) {
                Some(true) => inner.insert(exact(known)),
                Some(false) => others.insert(exact(known)),
                None => return RequestCondition::unknown_place(why),
            };
        }
        if is_host(&host) && matches!(kind, "dom" | "end" | "sub") {
            inner.extend([exact(&host), HostCondition::Below(host.clone())]);
        }
        RequestCondition::between_places(
            if is_met { hosts(inner) } else { RequestCondition::NEVER },
            hosts(others).not(),
            why,
        )
    }

    /// A comparison of a rate.
    fn rate(&self, words: &[String]) -> Option<RateTest> {
        let asked = self.asked(words).ok()?;
        let mut arguments = asked.argument.split(',').map(str::trim).filter(|text| !text.is_empty());
        let (counter, tracked) = if let Some(rest) = asked.name.strip_prefix("sc_") {
            (rest, Some(arguments.next()?.parse().ok()?))
        } else if let Some(rest) = asked.name.strip_prefix("sc") {
            let (index, counter) = rest.split_once('_')?;
            (counter, Some(index.parse().ok()?))
        } else {
            (asked.name.strip_prefix("src_")?, None)
        };
        let numbers: Vec<&str> = asked.values.iter().map(String::as_str).collect();
        let below = |number: &str| number.parse::<u64>().ok()?.checked_sub(1);
        let most = match numbers.as_slice() {
            ["gt", number] => number.parse().ok(),
            ["ge", number] => below(number),
            [range] => range.strip_suffix(':').and_then(below),
            // A number by itself holds if it is not zero.
            [] => Some(0),
            _ => None,
        };
        let is_counter = ["_rate", "_cnt", "_cur", "gp"].iter().any(|part| counter.contains(part));
        let table = arguments.next().map(str::to_owned);
        is_counter.then(|| RateTest { counter: counter.to_owned(), tracked, table, most })
    }
}

/// The name of a fetch, its arguments, and the converters behind it.
pub(super) fn fetched(text: &str) -> (&str, &str, &str) {
    let end = text.find(['(', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let name = name.strip_prefix("req.").unwrap_or(name);
    match rest.strip_prefix('(') {
        Some(rest) => {
            let (argument, rest) = rest.split_once(')').unwrap_or((rest, ""));
            (name, argument, rest.trim_start_matches(','))
        }
        None => (name, "", rest.trim_start_matches(',')),
    }
}

/// The ACLs that HAProxy has itself.
fn built_in(name: &str) -> Option<RequestCondition> {
    Some(match name {
        "TRUE" | "HTTP" | "WAIT_END" | "REQ_CONTENT" | "HTTP_URL_SLASH" => RequestCondition::ALWAYS,
        "FALSE" | "HTTP_URL_STAR" => RequestCondition::NEVER,
        "METH_GET" => RequestCondition::methods(["GET", "HEAD"]),
        "METH_CONNECT" | "METH_DELETE" | "METH_HEAD" | "METH_OPTIONS" | "METH_POST" | "METH_PUT"
        | "METH_TRACE" => RequestCondition::method(&name["METH_".len()..]),
        "LOCALHOST" => {
            let why = "it depends on the version of HAProxy whether `::1` is LOCALHOST";
            let [inner, outer] = [&["127.0.0.0/8"][..], &["127.0.0.0/8", "::1"]]
                .map(|all| addresses(all.iter().copied(), name));
            RequestCondition::between(inner, outer, why)
        }
        _ => return None,
    })
}

/// `80` or `8000:8999`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = text.split_once(':').unwrap_or((text, text));
    Some(from.parse().ok()?..=to.parse().ok()?)
}

fn addresses<'v>(values: impl Iterator<Item = &'v str>, shown: &str) -> RequestCondition {
    match Networks::parse(values) {
        Ok(networks) => Test::Addresses(networks).into(),
        // The text may be of a file, which may be any file.
        Err(_) => RequestCondition::unknown(format!(
            "`{shown}` has a value that Tollgate does not read as an address"
        )),
    }
}

/// A value of a header, a cookie or a query parameter.
fn value_test(asked: &Asked<'_>, value: &str, shown: &str) -> RequestCondition {
    let unknown = || RequestCondition::unknown(format!("Tollgate does not test `{shown}`"));
    let (kind, name) = match asked.name {
        "cook" => (ValueKind::Cookie, asked.argument.to_owned()),
        "urlp" | "url_param" => (ValueKind::Query, asked.argument.to_owned()),
        _ => (ValueKind::Header, asked.argument.to_ascii_lowercase()),
    };
    let is_name = is_field_name(&name) || kind == ValueKind::Query && !name.is_empty() && !name.contains(',');
    let is_value = |byte: u8| byte.is_ascii_graphic() || byte == b' ' && kind == ValueKind::Header;
    // HAProxy compares queries as they are sent, and Tollgate decodes them.
    let is_encoded = kind == ValueKind::Query && value.contains(['%', '+', '&', '#']);
    if !is_name || value.is_empty() || value.trim() != value || !value.bytes().all(is_value) || is_encoded {
        return unknown();
    }
    let same = |value: &str| RequestCondition::value(kind, name.as_str(), value);
    let has_case = asked.is_insensitive && value.contains(|c: char| c.is_ascii_alphabetic());
    let (same, how) = match asked.name {
        _ if has_case => {
            let spellings = BTreeSet::from([value.to_owned(), value.to_ascii_lowercase()]);
            (any(spellings.iter().map(|value| same(value)).collect()), "letter by letter")
        }
        "hdr" => (same(value), "as a whole, and not each item"),
        _ => return same(value),
    };
    RequestCondition::between(same, RequestCondition::ALWAYS, format!("Tollgate compares `{shown}` {how}"))
}

/// Whether a host matches, for a kind of comparison that a list of hosts cannot have. `None`: it is unknown.
fn host_matches(kind: &str, value: &str, host: &str) -> Option<bool> {
    Some(match kind {
        "beg" => host.starts_with(value),
        "end" => host.ends_with(value),
        "sub" => host.contains(value),
        "dom" => format!(".{host}.").contains(&format!(".{value}.")),
        "reg" => {
            let pattern = format!("(?i:{})", expression(value).ok()?);
            let regex = regex::bytes::RegexBuilder::new(&pattern).unicode(false).build().ok()?;
            regex.is_match(host.as_bytes())
        }
        _ => return None,
    })
}
