//! Patterns of hosts and paths, which routes match.

use std::net::{IpAddr, Ipv6Addr};

use crate::config::value::{
    Invalid,
    network::is_domain,
    path_regex::{PathRegex, path_regex},
};

/// Reads `/login`, `/files/*`, `/users/{id}/posts` or `~^/v[0-9]+/`.
///
/// A template that ends in `/` has an empty last segment: `/users/{id}/` is not `/users/{id}`.
pub(in crate::config) fn path_pattern(text: &str) -> Result<PathPattern, Invalid> {
    let invalid = |reason: &'static str| {
        Invalid::new(reason).expected("write paths such as /login, /files/* or \"/users/{id}/posts\"")
    };
    if text.starts_with('~') {
        return path_regex(text).map(|regex| PathPattern::Regex(Box::new(regex)));
    }
    if text.starts_with("^/") {
        return Err(invalid("is a regular expression without its ~")
            .suggestion(format!("did you mean `path: '~{text}'`?")));
    }
    if text.starts_with(['^', '=']) {
        return Err(invalid("is a location of nginx, not a path")
            .suggestion(format!("did you mean `path: {}`?", plain_path(text))));
    }
    if let Some(path) = foreign_matcher(text) {
        return Err(invalid("is a rule of another proxy, not a path")
            .suggestion(format!("did you mean `path: {path}`?")));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let path = rest.find('/').map_or("/*", |at| &rest[at..]);
        return Err(invalid("is a URL, not a path").suggestion(format!("did you mean `path: {path}`?")));
    }
    let Some(path) = text.strip_prefix('/') else {
        return Err(invalid("does not begin with /").suggestion(format!("did you mean `/{text}`?")));
    };
    if text.contains(['?', '#']) {
        return Err(invalid("has a query or a fragment, which is not part of a path"));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) || !is_percent_encoded(text) {
        return Err(invalid("has characters that must be percent-encoded in a path, such as %20"));
    }
    if has_dot_segment(path) {
        return Err(invalid("has a . or .. segment, which no normalised request has"));
    }
    let (prefix, wildcard) = match text.strip_suffix("/*") {
        Some(prefix) => (prefix, true),
        None => (text, false),
    };
    if prefix.contains('*') {
        let before = prefix.split('*').next().unwrap_or_default().trim_end_matches(['.', '/']);
        return Err(invalid("has a * that is not the whole of its last segment")
            .suggestion(format!("did you mean `{before}/*`? It matches every path below {before}/")));
    }
    if !text.contains(['{', '}']) {
        return Ok(match wildcard {
            true => PathPattern::Prefix(format!("{prefix}/")),
            false => PathPattern::Exact(text.to_owned()),
        });
    }
    if wildcard {
        return Err(Invalid::new("has both a {parameter} and a *; a path takes only one of them")
            .expected("write a regular expression, such as '~^/files/(?P<name>[^/]+)/(?P<rest>.*)'"));
    }
    path_template(path)
}

/// Reads the segments that `rewrite` strips: `/api`. Without the slash at their end.
pub(in crate::config) fn stripped_prefix(text: &str) -> Result<String, Invalid> {
    let prefix = text.strip_suffix("/*").unwrap_or(text).trim_end_matches('/');
    if prefix.is_empty() {
        return Err(Invalid::new("strips nothing").expected("write the segments to strip, such as /api"));
    }
    match path_pattern(prefix)? {
        PathPattern::Exact(prefix) => Ok(prefix),
        _ => Err(Invalid::new("has a {parameter} in it").expected(
            "strip_prefix takes plain segments; to use what a parameter matched, write `path: \"/new/{id}\"`",
        )),
    }
}

fn path_template(path: &str) -> Result<PathPattern, Invalid> {
    let expected = "a parameter is a whole segment: \"/users/{id}\"; for a part of one, write a regular expression, such as '~^/files/(?P<name>[^/]+)\\.json$'";
    let mut segments = Vec::new();
    for segment in path.split('/') {
        let parameter = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let segment = match parameter {
            None if segment.contains(['{', '}']) => {
                return Err(Invalid::new("has braces that are not around a whole segment").expected(expected));
            }
            None => Segment::Literal(segment.to_owned()),
            Some(name) if is_word(name) => Segment::Parameter(name.to_owned()),
            Some(_) => {
                let invalid =
                    Invalid::new("has a parameter name with characters other than letters, digits and _");
                return Err(invalid.expected(expected));
            }
        };
        if matches!(segment, Segment::Parameter(_)) && segments.contains(&segment) {
            return Err(Invalid::new("has two parameters with the same name"));
        }
        segments.push(segment);
    }
    Ok(PathPattern::Template(segments))
}

/// The path of a matcher of Traefik, as ``PathPrefix(`/api`)``, or of a location of nginx, as `location ~ \.php$`.
fn foreign_matcher(text: &str) -> Option<String> {
    if let Some(location) = text.strip_prefix("location ") {
        let location = location.trim().trim_end_matches(['{', ' ']);
        return Some(match location.strip_prefix('~') {
            Some(regex) if regex.starts_with('*') => format!("'~*{}'", regex[1..].trim()),
            Some(regex) => format!("'~{}'", regex.trim()),
            None => plain_path(location),
        });
    }
    let (name, argument) = text.split_once('(')?;
    let argument = argument.split(')').next()?.trim_matches(['`', '"', '\'', ' ']);
    let path = argument.trim_end_matches('/');
    match name {
        "Path" => Some(argument.to_owned()),
        "PathPrefix" => Some(format!("{path}/*")),
        "PathRegexp" => Some(format!(
            "'~{}'",
            text[name.len() + 1..].trim_end_matches(')').trim_matches(['`', '"', '\''])
        )),
        _ => None,
    }
}

/// The path of a `location` of nginx: `= /a` is this path alone, others are prefixes. For a regular expression, its
/// literal start.
fn plain_path(text: &str) -> String {
    let path = text.trim_start_matches(['^', '~', '*', '=', ' ']);
    if text.starts_with('=') {
        return path.to_owned();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '~' | '%');
    let path = path.trim_end_matches('$');
    match path.find(|c| !is_plain(c)) {
        Some(at) => format!("{}/*", path[..at].rsplit_once('/').map_or("", |(before, _)| before)),
        None => format!("{}/*", path.trim_end_matches('/')),
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether some service reads a dot segment in this path: percent-encoded, behind an encoded slash, or before a `;`.
pub(in crate::config) fn has_dot_segment(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    let mut segments = path.split(['/', '\\']).map(|segment| segment.split(';').next());
    segments.any(|segment| matches!(segment, Some("." | "..")))
}

/// Whether every `%` begins an encoded byte.
pub(in crate::config) fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

/// Reads a name of a certificate: a host, an address, or a wildcard.
pub(in crate::config) fn name_pattern(text: &str) -> Result<String, Invalid> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    host_pattern(text).map(|_| text.trim_end_matches('.').to_ascii_lowercase())
}

/// Reads `api.example.com`, `*.example.org` or an address. Case and a trailing dot don't matter.
pub(in crate::config) fn host_pattern(text: &str) -> Result<HostPattern, Invalid> {
    let invalid = |reason: &'static str| {
        Invalid::new(reason).expected("write hosts such as api.example.com or \"*.example.org\"")
    };
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if let Some(literal) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: Ipv6Addr = literal.parse().map_err(|_| invalid("is not an IPv6 address"))?;
        return Ok(HostPattern::Exact(format!("[{address}]")));
    }
    if !host.is_ascii() {
        return Err(invalid("is not ASCII: write it in Punycode (xn--…)"));
    }
    if host.contains("://") || host.contains('/') {
        let host = host.split_once("://").map_or(host.as_str(), |(_, rest)| rest);
        let host = host.split(['/', ':']).next().unwrap_or_default();
        return Err(invalid("is a URL, not a host").suggestion(format!("did you mean `{host}`?")));
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Err(invalid("is an IPv6 address without brackets")
            .suggestion(format!("did you mean `\"[{host}]\"`?")));
    }
    if host.contains(':') {
        let host = host.split(':').next().unwrap_or_default();
        return Err(invalid("has a port; routes match a host on every port")
            .suggestion(format!("did you mean `{host}`?")));
    }
    match host.strip_prefix('*') {
        // `server_name _` of nginx is not a host, and so the default.
        None if host == "_" => {
            Err(invalid("is not a host").expected("remove `hosts`: the route then matches every host"))
        }
        None if is_domain(&host) => Ok(HostPattern::Exact(host)),
        Some(suffix) if suffix.strip_prefix('.').is_some_and(is_domain) => {
            Ok(HostPattern::Suffix(suffix.to_owned()))
        }
        Some("") => {
            Err(invalid("would match any host").expected("remove `hosts`: the route then matches every host"))
        }
        _ if host.contains('*') => Err(invalid("has a * that is not the whole of its first label")),
        _ => Err(invalid("is not a host")),
    }
}

/// The items of a list of hosts that was written as one text, as URLs, or with ports.
pub(in crate::config) fn suggest_hosts(text: &str) -> String {
    let hosts = text.split([',', ' ']).filter(|host| !host.is_empty()).map(|written| {
        // A dash without a space behind it does not begin an item.
        let host = written.trim_start_matches('-');
        let host = host.split_once("://").map_or(host, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or_default();
        match (host_pattern(host), host.split_once(':')) {
            (Err(_), Some((name, port))) if port.parse::<u16>().is_ok() => name.to_owned(),
            _ if host.starts_with(['*', '[']) => format!("\"{host}\""),
            _ => host.to_owned(),
        }
    });
    hosts.collect::<Vec<_>>().join(", ")
}

/// A host in lower case, without port and trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.org` as `.example.org`: any host that ends with it, and is longer.
    Suffix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// `/prefix/*` as `/prefix/`: any path that begins with it. `/*` is `/`: any path.
    Prefix(String),
    /// `/users/{id}/posts`: the same number of segments, each equal or a parameter.
    Template(Vec<Segment>),
    /// `~^/v[0-9]+/`: any path in which it is found. Boxed, since it is large.
    Regex(Box<PathRegex>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// `{id}`: any segment that is not empty.
    Parameter(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(path_pattern("/login"), Ok(PathPattern::Exact("/login".to_owned())));
        assert_eq!(path_pattern("/"), Ok(PathPattern::Exact("/".to_owned())));
        assert_eq!(path_pattern("/*"), Ok(PathPattern::Prefix("/".to_owned())));
        assert_eq!(path_pattern("/a%2Fb/*"), Ok(PathPattern::Prefix("/a%2Fb/".to_owned())));
        let template = [Segment::Literal("users".to_owned()), Segment::Parameter("id".to_owned())];
        assert_eq!(path_pattern("/users/{id}"), Ok(PathPattern::Template(template.to_vec())));
        let ends = path_pattern("/{id}/").unwrap();
        assert_eq!(
            ends,
            PathPattern::Template(vec![Segment::Parameter("id".to_owned()), Segment::Literal(String::new())])
        );
    }

    #[test]
    fn patterns_that_could_never_match_are_refused() {
        for (text, reason) in [
            ("login", "begin"),
            ("", "begin"),
            ("*", "begin"),
            ("/a*", "*"),
            ("/*/a", "*"),
            ("/**", "*"),
            ("/{id}/*", "both"),
            ("/a{id}", "braces"),
            ("/{id", "braces"),
            ("/{}", "name"),
            ("/{a-b}", "name"),
            ("/{a}/{a}", "same name"),
            ("/a?b", "query"),
            ("/a b", "percent"),
            ("/é", "percent"),
            ("/a%", "percent"),
            ("/a%2", "percent"),
            ("/a%g0", "percent"),
            ("/a/../b", ".."),
            ("/./b", ".."),
            ("/a/%2E%2e/b", ".."),
            ("/a/..%2Fb", ".."),
            ("/a/..;x/b", ".."),
        ] {
            let error = path_pattern(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error:?}");
        }
        assert_eq!(path_pattern("login").unwrap_err().help(false).unwrap(), "did you mean `/login`?");
    }

    #[test]
    fn hosts() {
        let exact = |host: &str| Ok(HostPattern::Exact(host.to_owned()));
        assert_eq!(host_pattern("API.example.com."), exact("api.example.com"));
        assert_eq!(host_pattern("localhost"), exact("localhost"));
        assert_eq!(host_pattern("127.0.0.1"), exact("127.0.0.1"));
        assert_eq!(host_pattern("[0:0::1]"), exact("[::1]"));
        assert_eq!(host_pattern("*.Example.org"), Ok(HostPattern::Suffix(".example.org".to_owned())));
        for text in
            ["", "*", "*.", "a*.b", "*a.b", "*.*.b", "a..b", "a:80", "http://a", "a b", "é.fr", "[x]", "."]
        {
            assert!(host_pattern(text).is_err(), "{text}");
        }
    }
    #[test]
    fn hosts_that_are_suggested_are_right() {
        for (text, hosts) in [
            ("*.example.com", "\"*.example.com\""),
            ("https://example.com:8443/x", "example.com"),
            ("a.example.com, b.example.com:80", "a.example.com, b.example.com"),
            ("-a.example.com", "a.example.com"),
            ("[::1]", "\"[::1]\""),
        ] {
            assert_eq!(suggest_hosts(text), hosts);
        }
    }
}
