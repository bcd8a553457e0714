//! Hosts that a route is for.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Invalid;
use crate::config::model::HostPattern;

/// Reads `api.example.com`, `*.example.org` or an address. Case and a trailing dot don't matter.
pub(in crate::config) fn host_pattern(text: &str) -> Result<HostPattern, Invalid> {
    let invalid = |what: &'static str| {
        Invalid::new(what).form("hosts are written api.example.com or \"*.example.org\"")
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
        return Err(invalid("is a URL, not a host"));
    }
    if host.contains(':') {
        return Err(invalid("has a port; a route is for a host on every port"));
    }
    match host.strip_prefix('*') {
        None if is_domain(&host) => Ok(HostPattern::Exact(host)),
        Some(suffix) if suffix.strip_prefix('.').is_some_and(is_domain) => {
            Ok(HostPattern::Suffix(suffix.to_owned()))
        }
        Some("") => Err(invalid("is any host").form("leave `hosts` out: the route is then for every host")),
        _ if host.contains('*') => Err(invalid("has a * that is not its whole first part")),
        _ => Err(invalid("is not a host")),
    }
}

/// Whether `text` is the host of a URL: a name, or an address, IPv6 in brackets.
pub(super) fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
        // A name of digits and dots only is an address, or a mistake in one.
        None if text.chars().all(|c| c.is_ascii_digit() || c == '.') => text.parse::<Ipv4Addr>().is_ok(),
        None => is_domain(text),
    }
}

/// Labels of letters, digits, `-` and `_`, parted by dots. The underscore is no part of RFC 1123, but
/// of many names that are really in use.
pub(super) fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
