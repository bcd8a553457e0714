//! Origins of web pages.

use std::fmt;

use crate::config::value::{Invalid, host_pattern, patterns::HostPattern};

const EXPECTED: &str = "write an origin as a browser sends it: https://app.example.com, http://localhost:3000, or \
                        \"https://*.example.com\" for all hosts below";

/// Reads the origin of pages: `https://app.example.com`, `https://*.example.com`, or `null`.
pub(in crate::config) fn origin(text: &str) -> Result<OriginPattern, Invalid> {
    let invalid = |reason: &'static str| Invalid::new(reason).expected(EXPECTED);
    let did_you_mean = |reason: &'static str, meant: String| match origin(&meant) {
        Ok(_) => invalid(reason).suggestion(format!("did you mean `{meant}`?")),
        Err(_) => invalid(reason),
    };
    if text == "null" {
        return Ok(OriginPattern::Exact(text.to_owned()));
    }
    if text.starts_with(['/', '^', '(']) || text.contains(['\\', '$']) {
        return Err(invalid("is a regular expression, not an origin"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(did_you_mean("has no scheme", format!("https://{text}")));
    };
    let is_scheme = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    if scheme.bytes().any(|byte| byte.is_ascii_uppercase())
        || rest.bytes().any(|byte| byte.is_ascii_uppercase())
    {
        return Err(did_you_mean(
            "has letters in upper case, which no origin has",
            text.to_ascii_lowercase(),
        ));
    }
    if !scheme.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase()) || !scheme.bytes().all(is_scheme)
    {
        return Err(invalid("does not begin with a scheme such as https://"));
    }
    if let Some(at) = rest.find(['/', '?', '#']) {
        return Err(did_you_mean(
            "has a path, which is no part of an origin",
            format!("{scheme}://{}", &rest[..at]),
        ));
    }
    let (host, port) = split_port(rest);
    let default_port = match scheme {
        "https" => Some("443"),
        "http" => Some("80"),
        _ => None,
    };
    if port.is_some() && port == default_port {
        let meant = format!("{scheme}://{host}");
        return Err(did_you_mean("has the port that browsers leave out", meant));
    }
    if port.is_some_and(|port| port.starts_with('0') || port.parse::<u16>().is_err()) {
        return Err(invalid("has a port that is no number from 1 to 65535"));
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    match host_pattern(host) {
        Ok(HostPattern::Suffix(suffix)) => Ok(OriginPattern::Subdomains {
            scheme: format!("{scheme}://"),
            suffix: format!("{suffix}{port}"),
        }),
        Ok(HostPattern::Exact(host)) => Ok(OriginPattern::Exact(format!("{scheme}://{host}{port}"))),
        // The origin of a browser extension or an app, in any form.
        Err(_)
            if default_port.is_none()
                && !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(OriginPattern::Exact(text.to_owned()))
        }
        Err(_) => Err(invalid("names no host that an origin could have")),
    }
}

/// The host, and the port behind it.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let end_of_address = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[end_of_address..].rfind(':') {
        Some(at) => (&authority[..end_of_address + at], Some(&authority[end_of_address + at + 1..])),
        None => (authority, None),
    }
}

/// An origin as browsers write it (RFC 6454, 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginPattern {
    /// `https://app.example.com`, or `null`.
    Exact(String),
    /// `https://*.example.com:8443`: any host below, as `hosts` of a route has it.
    Subdomains {
        /// `https://`
        scheme: String,
        /// `.example.com:8443`
        suffix: String,
    },
}

impl OriginPattern {
    /// Whether this is the origin, as a browser sends it.
    pub fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Exact(exact) => origin == exact,
            Self::Subdomains { scheme, suffix } => origin
                .strip_prefix(scheme.as_str())
                .and_then(|host| host.strip_suffix(suffix.as_str()))
                .is_some_and(|below| {
                    !below.is_empty()
                        && below.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                }),
        }
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(origin) => f.write_str(origin),
            Self::Subdomains { scheme, suffix } => write!(f, "{scheme}*{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for text in [
            "https://app.example.com",
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://[::1]:8080",
            "https://*.example.com",
            "https://*.example.com:8443",
            "null",
            "capacitor://localhost",
            "chrome-extension://abcdefghijklmnop",
        ] {
            assert_eq!(origin(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn origins_that_no_browser_sends_are_refused() {
        let help = |text| origin(text).unwrap_err().help(false).unwrap();
        for (text, meant) in [
            ("app.example.com", "https://app.example.com"),
            ("https://app.example.com/", "https://app.example.com"),
            ("https://app.example.com/path?q", "https://app.example.com"),
            ("https://app.example.com:443", "https://app.example.com"),
            ("http://app.example.com:80", "http://app.example.com"),
            ("https://App.Example.com", "https://app.example.com"),
        ] {
            assert_eq!(help(text), format!("did you mean `{meant}`?"), "{text}");
        }
        for text in [
            "",
            "https://",
            "https://*",
            "https://a b",
            "https://*.*.b",
            "https://a:0",
            "^https://.*$",
            "https://a@b",
        ] {
            assert_eq!(help(text), EXPECTED, "{text}");
        }
    }
}
