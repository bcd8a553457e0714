//! ACLs and conditions: what they ask of a request, as conditions of a route.

use std::{collections::HashMap, path::Path};

use super::syntax::Line;
use crate::convert::{
    draft::is_field_name,
    nginx::{encoded, escaped, expression, is_network},
    read,
};

/// How many alternatives a condition may have.
const MOST_ALTERNATIVES: usize = 64;

/// A rate of a stick table that a condition compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RateTest {
    /// `http_req_rate`, `conn_cur`, …
    pub(super) counter: String,
    /// The counter that was tracked; `None` for `src_…`, which looks up the address.
    pub(super) tracked: Option<u8>,
    pub(super) table: Option<String>,
    /// The largest number that the condition lets pass.
    pub(super) most: u64,
}

/// What a condition asks of a request; all of it must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) hosts: Vec<String>,
    /// Paths of routes, of which one must match; none for any path.
    pub(super) paths: Vec<String>,
    pub(super) methods: Vec<String>,
    /// `headers`, `query` or `cookie`, the name, and the value.
    pub(super) values: Vec<(&'static str, String, String)>,
    /// Networks of the client.
    pub(super) from: Vec<String>,
    /// Networks that the client must not be in.
    pub(super) not_from: Vec<String>,
    pub(super) rate: Option<RateTest>,
    /// Whether TLS is asked for, or asked not to be there.
    pub(super) is_tls: Option<bool>,
}

impl Condition {
    /// Whether it asks nothing of hosts, paths, methods and values.
    pub(super) fn is_for_all_routes(&self) -> bool {
        self.hosts.is_empty() && self.paths.is_empty() && self.methods.is_empty() && self.values.is_empty()
    }

    /// Whether it has a condition that a route cannot have: TLS, addresses or rates.
    pub(super) fn is_more_than_a_route(&self) -> bool {
        self.is_tls.is_some() || !self.from.is_empty() || !self.not_from.is_empty() || self.rate.is_some()
    }

    /// The condition that both hold. `None`: they never do.
    ///
    /// # Errors
    /// It cannot be told.
    pub(super) fn and(&self, other: &Self) -> Result<Option<Self>, String> {
        let both = |one: &[String], other: &[String]| match (one, other) {
            ([], list) | (list, []) => Some(list.to_vec()),
            (one, other) => {
                let list: Vec<String> = one.iter().filter(|item| other.contains(item)).cloned().collect();
                (!list.is_empty()).then_some(list)
            }
        };
        let (Some(hosts), Some(methods)) =
            (both(&self.hosts, &other.hosts), both(&self.methods, &other.methods))
        else {
            return Ok(None);
        };
        let mut paths = Vec::new();
        for one in &self.paths {
            for other in &other.paths {
                paths.extend(narrower(one, other)?);
            }
        }
        if self.paths.is_empty() || other.paths.is_empty() {
            paths = [self.paths.clone(), other.paths.clone()].concat();
        } else if paths.is_empty() {
            return Ok(None);
        }
        let mut values = self.values.clone();
        for value in &other.values {
            match values.iter().find(|(kind, name, _)| *kind == value.0 && *name == value.1) {
                Some((_, _, known)) if *known != value.2 => return Ok(None),
                Some(_) => {}
                None => values.push(value.clone()),
            }
        }
        Ok(Some(Self {
            hosts,
            paths,
            methods,
            values,
            from: [self.from.clone(), other.from.clone()].concat(),
            not_from: [self.not_from.clone(), other.not_from.clone()].concat(),
            rate: self.rate.clone().or(other.rate.clone()),
            is_tls: self.is_tls.or(other.is_tls),
        }))
    }
}

/// The narrower of two paths of routes. `None`: they have nothing in common.
fn narrower(one: &str, other: &str) -> Result<Option<String>, String> {
    if one == other {
        return Ok(Some(one.to_owned()));
    }
    let literal = |path: &str| match path.strip_prefix("~^") {
        // The prefix of `path_beg`, without what is escaped.
        Some(regex) if regex.chars().all(|c| c.is_ascii_alphanumeric() || "/_-".contains(c)) => {
            Some((regex.to_owned(), true))
        }
        None if !path.starts_with('~') => Some(match path.strip_suffix('*') {
            Some(prefix) => (prefix.to_owned(), true),
            None => (path.to_owned(), false),
        }),
        _ => None,
    };
    let (Some((one_text, one_begins)), Some((other_text, other_begins))) = (literal(one), literal(other))
    else {
        // A single path either matches an expression, or not.
        let is_path = |path: &str| !path.starts_with('~') && !path.ends_with('*');
        let (path, regex) = if is_path(one) { (one, other) } else { (other, one) };
        let text = regex.strip_prefix("~*").or_else(|| regex.strip_prefix('~')).unwrap_or(regex);
        let is_insensitive = regex.starts_with("~*");
        let built =
            regex::bytes::RegexBuilder::new(text).unicode(false).case_insensitive(is_insensitive).build();
        return match built {
            Ok(built) if is_path(path) => Ok(built.is_match(path.as_bytes()).then(|| path.to_owned())),
            _ => Err("Tollgate cannot combine the two conditions on paths".to_owned()),
        };
    };
    Ok(if other_begins && one_text.starts_with(&other_text) {
        Some(one.to_owned())
    } else if one_begins && other_text.starts_with(&one_text) {
        Some(other.to_owned())
    } else {
        None
    })
}

/// Whether an ACL is negated, and its alternatives.
type Test<'w> = (bool, Vec<&'w [String]>);

/// The ACLs of a section: each a list of alternatives.
pub(super) type Acls<'c> = HashMap<&'c str, Vec<&'c [String]>>;

/// The ACLs among these lines.
pub(super) fn acls<'c>(lines: impl IntoIterator<Item = &'c Line>) -> Acls<'c> {
    let mut acls = Acls::new();
    for line in lines.into_iter().filter(|line| line.word(0) == "acl") {
        if let [_, name, test @ ..] = line.words.as_slice() {
            acls.entry(name).or_default().push(test);
        }
    }
    acls
}

/// Splits a line into its words before `if` or `unless`, and its condition: alternatives, of which one must hold.
///
/// # Errors
/// The part of the condition that has no equal.
pub(super) fn split(
    line: &Line,
    acls: &Acls<'_>,
    directory: &Path,
) -> (Vec<String>, Result<Vec<Condition>, String>) {
    let at = line.words.iter().position(|word| word == "if" || word == "unless");
    let Some(at) = at else { return (line.words.clone(), Ok(vec![Condition::default()])) };
    let (before, condition) = line.words.split_at(at);
    let is_unless = condition.first().is_some_and(|word| word == "unless");
    let result = alternatives(condition.get(1..).unwrap_or_default(), acls, directory, is_unless);
    (before.to_vec(), result)
}

/// `a b || c` as alternatives.
fn alternatives(
    words: &[String],
    acls: &Acls<'_>,
    directory: &Path,
    is_negated: bool,
) -> Result<Vec<Condition>, String> {
    let mut terms: Vec<Vec<Test<'_>>> = vec![Vec::new()];
    let mut index = 0;
    let mut negated = false;
    while let Some(word) = words.get(index) {
        index += 1;
        match word.as_str() {
            "||" | "or" => terms.push(Vec::new()),
            "!" => negated = !negated,
            "{" | "!{" => {
                negated ^= word == "!{";
                let length = words.iter().skip(index).position(|word| word == "}");
                let length = length.ok_or("its `{` is not closed")?;
                if let Some(term) = terms.last_mut() {
                    term.push((std::mem::take(&mut negated), vec![&words[index..index + length]]));
                }
                index += length + 1;
            }
            name => {
                let (name, is_not) = match name.strip_prefix('!') {
                    Some(name) => (name, !negated),
                    None => (name, negated),
                };
                negated = false;
                let tests = match (name, acls.get(name)) {
                    (_, Some(tests)) => tests.clone(),
                    ("TRUE", _) => continue,
                    (
                        "METH_GET" | "METH_POST" | "METH_PUT" | "METH_DELETE" | "METH_OPTIONS" | "METH_HEAD",
                        _,
                    ) => {
                        vec![words.get(index - 1..index).unwrap_or_default()]
                    }
                    _ => return Err(format!("no ACL `{name}`")),
                };
                if let Some(term) = terms.last_mut() {
                    term.push((is_not, tests));
                }
            }
        }
    }
    // `unless a` is `if !a`.
    if is_negated {
        let [term] = terms.as_mut_slice() else {
            return Err("`unless` with several alternatives".to_owned());
        };
        let [(negated, _)] = term.as_mut_slice() else { return Err("`unless` with several ACLs".to_owned()) };
        *negated = !*negated;
    }
    let mut found = Vec::new();
    for term in terms {
        let mut conditions = vec![Condition::default()];
        for (is_not, tests) in term {
            let mut of_acl: Vec<Condition> = Vec::new();
            for test in tests {
                merge(&mut of_acl, test_of(test, is_not, directory)?);
            }
            let mut next = Vec::new();
            for condition in &conditions {
                for test in &of_acl {
                    next.extend(condition.and(test)?);
                }
            }
            conditions = next;
        }
        found.extend(conditions);
        if found.len() > MOST_ALTERNATIVES {
            return Err("it has too many alternatives".to_owned());
        }
    }
    Ok(found)
}

/// Adds an alternative. Those that ask only for hosts, or only for paths, are one.
fn merge(alternatives: &mut Vec<Condition>, new: Condition) {
    let shape = |condition: &Condition| {
        let Condition { hosts, paths, methods, from, not_from, .. } = condition;
        [hosts, paths, methods, from, not_from].map(Vec::is_empty)
    };
    let is_plain = |condition: &Condition| {
        condition.values.is_empty()
            && condition.rate.is_none()
            && condition.is_tls.is_none()
            && shape(condition).iter().filter(|is_empty| !**is_empty).count() == 1
    };
    match alternatives.last_mut() {
        Some(last) if is_plain(last) && is_plain(&new) && shape(last) == shape(&new) => {
            last.hosts.extend(new.hosts);
            last.paths.extend(new.paths);
            last.methods.extend(new.methods);
            last.from.extend(new.from);
            last.not_from.extend(new.not_from);
        }
        _ => alternatives.push(new),
    }
}

/// A test such as `path_beg -i /api /v2`.
fn test_of(words: &[String], is_not: bool, directory: &Path) -> Result<Condition, String> {
    let shown = || words.join(" ");
    let (fetch, rest) = words.split_first().ok_or("an empty test")?;
    let mut flags = Vec::new();
    let mut matcher = None;
    let mut values: Vec<String> = Vec::new();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" | "-n" | "-u" | "--" => flags.push(word.as_str()),
            "-m" => matcher = rest.next().map(String::as_str),
            "-f" => values.extend(listed(rest.next().map_or("", String::as_str), directory)?),
            _ => values.push(word.clone()),
        }
    }
    let is_insensitive = flags.contains(&"-i");
    let mut condition = Condition::default();
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => {
            let (argument, converters) = rest.split_once(')').unwrap_or((rest, ""));
            let of_host = argument.to_ascii_lowercase();
            match converters {
                "" => {}
                // Hosts of routes are in lower case, and without a port.
                ",lower" | ",field(1,:)" | ",lower,field(1,:)" | ",field(1,:),lower"
                    if of_host.split(',').next() == Some("host") => {}
                _ => return Err(format!("`{fetch}`")),
            }
            (name, argument)
        }
        None => (fetch.as_str(), ""),
    };
    let name = name.strip_prefix("req.").or_else(|| name.strip_prefix("req_")).unwrap_or(name);
    if let Some(rate) = rate_test(name, argument, &values)? {
        if is_not {
            return Err(format!("`!{}`", shown()));
        }
        condition.rate = Some(rate);
        return Ok(condition);
    }
    if matches!(name, "src") {
        if let Some(value) = values.iter().find(|value| !is_network(value)) {
            // The message does not repeat a value of a file, which may be any file.
            return Err(match words.iter().any(|word| word == "-f") {
                true => "the file has a value that is no address".to_owned(),
                false => format!("`{value}` is no address"),
            });
        }
        let list = if is_not { &mut condition.not_from } else { &mut condition.from };
        *list = values;
        return Ok(condition);
    }
    if matches!(name, "ssl_fc") {
        condition.is_tls = Some(!is_not);
        return Ok(condition);
    }
    if is_not {
        return Err(format!(
            "`!{}`: Tollgate's routes have no negated conditions; order them instead",
            shown()
        ));
    }
    match name {
        "path" | "path_beg" | "path_end" | "path_reg" | "path_dir" | "path_sub" | "url" | "url_beg"
        | "url_end" | "url_reg" | "url_sub" | "url_dir" => {
            let kind = matcher.or_else(|| name.split_once('_').map(|(_, kind)| kind)).unwrap_or("str");
            for value in &values {
                let path = path_of(kind, value, is_insensitive);
                condition.paths.push(match words.iter().any(|word| word == "-f") {
                    true => path.map_err(|_| "the file has a value that is no path".to_owned())?,
                    false => path?,
                });
            }
        }
        "hdr" | "hdr_dom" | "hdr_end" | "hdr_beg" | "hdr_reg" | "hdr_sub" | "hdr_str" | "fhdr"
            if argument.eq_ignore_ascii_case("host")
                || argument.to_ascii_lowercase().starts_with("host,") =>
        {
            let kind = matcher.or_else(|| name.split_once('_').map(|(_, kind)| kind)).unwrap_or("str");
            for value in &values {
                let host = value.to_ascii_lowercase();
                let host = host.split(':').next().unwrap_or_default();
                let is_name = host
                    .trim_start_matches('.')
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
                match kind {
                    "str" if is_name => condition.hosts.push(host.to_owned()),
                    "end" if is_name && host.starts_with('.') => condition.hosts.push(format!("*{host}")),
                    "dom" if is_name => condition.hosts.extend([host.to_owned(), format!("*.{host}")]),
                    _ => return Err(format!("`{}`: list the hosts", shown())),
                }
            }
        }
        "hdr" | "fhdr" | "cook" | "url_param" | "urlp"
            if matches!(matcher, None | Some("str")) && !argument.is_empty() =>
        {
            let kind = match name {
                "cook" => "cookie",
                "url_param" | "urlp" => "query",
                _ => "headers",
            };
            let [value] = values.as_slice() else {
                return Err(format!("`{}`: one value for each route", shown()));
            };
            if kind == "headers" && !is_field_name(argument) {
                return Err(format!("`{argument}` is not the name of a header"));
            }
            let name = if kind == "headers" { argument.to_ascii_lowercase() } else { argument.to_owned() };
            condition.values.push((kind, name, value.clone()));
        }
        "method" => condition.methods = values.iter().map(|method| method.to_ascii_uppercase()).collect(),
        name if name.starts_with("METH_") => {
            condition.methods = vec![name.trim_start_matches("METH_").to_owned()];
        }
        _ => return Err(format!("`{}`", shown())),
    }
    Ok(condition)
}

/// The values in a file of an ACL.
fn listed(name: &str, directory: &Path) -> Result<Vec<String>, String> {
    let text = read(&directory.join(name)).map_err(|error| format!("`-f {name}`: {error}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The path of a route for a value of `path`, `path_beg`, ….
fn path_of(kind: &str, value: &str, is_insensitive: bool) -> Result<String, String> {
    let flag = if is_insensitive { "*" } else { "" };
    if matches!(kind, "str" | "beg") && !value.starts_with('/') {
        return Err(format!("`{value}`: every path begins with `/`"));
    }
    Ok(match kind {
        "str" if !is_insensitive && value.starts_with('/') && !value.contains(['{', '}', '*']) => {
            encoded(value)
        }
        "str" => format!("~{flag}^{}$", escaped(value)),
        "beg"
            if !is_insensitive
                && value.ends_with('/')
                && value.starts_with('/')
                && !value.contains(['{', '}', '*']) =>
        {
            format!("{}*", encoded(value))
        }
        "beg" => format!("~{flag}^{}", escaped(value)),
        "end" => format!("~{flag}{}$", escaped(value)),
        "sub" => format!("~{flag}{}", escaped(value)),
        "dir" => format!("~{flag}/{}(?:/|$)", escaped(value.trim_matches('/'))),
        "reg" => expression(value, is_insensitive)?,
        _ => return Err(format!("`path -m {kind}`")),
    })
}

/// A comparison of a rate.
fn rate_test(name: &str, argument: &str, values: &[String]) -> Result<Option<RateTest>, String> {
    const COUNTERS: [&str; 14] = [
        "http_req_rate",
        "http_err_rate",
        "http_fail_rate",
        "conn_cur",
        "conn_rate",
        "conn_cnt",
        "http_req_cnt",
        "http_err_cnt",
        "bytes_in_rate",
        "bytes_out_rate",
        "sess_rate",
        "sess_cnt",
        "gpc0_rate",
        "gpc1_rate",
    ];
    let is_counter =
        |text: &str| COUNTERS.contains(&text) || text.starts_with("get_gp") || text.starts_with("gp");
    let arguments: Vec<&str> = argument.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    let (counter, tracked, table) =
        if let Some(counter) = name.strip_prefix("src_").filter(|text| is_counter(text)) {
            (counter, None, arguments.first())
        } else if let Some(counter) = name.strip_prefix("sc_").filter(|text| is_counter(text)) {
            let index = arguments.first().and_then(|index| index.parse().ok()).unwrap_or(0);
            (counter, Some(index), arguments.get(1))
        } else {
            let Some(rest) = name.strip_prefix("sc") else { return Ok(None) };
            let Some((index, counter)) = rest.split_once('_') else { return Ok(None) };
            let Ok(index) = index.parse() else { return Ok(None) };
            if !is_counter(counter) {
                return Ok(None);
            }
            (counter, Some(index), arguments.first())
        };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
    let most = match values {
        [operator, value] if operator == "gt" => number(value)?,
        [operator, value] if operator == "ge" => number(value)?.saturating_sub(1),
        [] => 0,
        _ => return Err(format!("`{name} {}`: compare with gt or ge", values.join(" "))),
    };
    Ok(Some(RateTest {
        counter: counter.to_owned(),
        tracked,
        table: table.map(|table| (*table).to_owned()),
        most,
    }))
}

#[cfg(test)]
mod tests {
    use super::{super::syntax, *};

    fn of(text: &str) -> Result<Vec<Condition>, String> {
        let sections = syntax::parse(&format!("frontend a\n{text}"), Path::new("haproxy.cfg")).unwrap();
        let lines = &sections[0].lines;
        split(lines.last().unwrap(), &acls(lines), Path::new("")).1
    }

    #[test]
    fn acls_are_conditions_of_routes() {
        let one = |text: &str| of(text).unwrap().remove(0);
        assert_eq!(one("use_backend b if { path_beg /api/ }").paths, ["/api/*"]);
        assert_eq!(one("use_backend b if { path_beg -i /api }").paths, ["~*^/api"]);
        assert_eq!(one("use_backend b if { path -m end .php }").paths, [r"~\.php$"]);
        assert_eq!(
            one("acl a hdr(host) -i A.example.com b.example.com:80\nuse_backend b if a").hosts,
            ["a.example.com", "b.example.com"]
        );
        assert_eq!(
            one("acl a path /x\nacl a path_beg /y/\nuse_backend b if a METH_POST").paths,
            ["/x", "/y/*"]
        );
        assert_eq!(of("acl a path /x\nacl c method PUT\nuse_backend b if a or c").unwrap().len(), 2);
        let denied = one("http-request deny if { sc_http_req_rate(0) gt 20 } !{ src 10.0.0.0/8 }");
        assert_eq!(denied.rate.unwrap().most, 20);
        assert_eq!(denied.not_from, ["10.0.0.0/8"]);
        let rate = one("http-request deny if { sc1_http_req_rate(table) ge 5 }").rate.unwrap();
        assert_eq!((rate.tracked, rate.table.as_deref(), rate.most), (Some(1), Some("table"), 4));
        assert_eq!(one("redirect scheme https unless { ssl_fc }").is_tls, Some(false));
        assert!(of("use_backend b if { nbsrv(a) lt 1 }").is_err());
        assert!(of("use_backend b if !{ path /x }").is_err());
        assert!(of("use_backend b if none").is_err());
    }

    #[test]
    fn conditions_combine() {
        assert_eq!(narrower("/api/*", "/api/v1/*"), Ok(Some("/api/v1/*".to_owned())));
        assert_eq!(narrower("/api/login", "~^/api"), Ok(Some("/api/login".to_owned())));
        assert_eq!(narrower("/a", "/b/*"), Ok(None));
        assert_eq!((narrower("~a$", "/b"), narrower("/a", "~*A$")), (Ok(None), Ok(Some("/a".to_owned()))));
        assert!(narrower("~a$", "/b/*").is_err());
    }
}
