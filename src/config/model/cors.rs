//! Which pages of other origins may read what a route answers.

use std::{fmt, time::Duration};

use http::{HeaderName, Method};
use serde::{Serialize, Serializer};

use super::serialize;

/// What browsers are told about pages of other origins (Fetch, 3.2).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cors {
    pub origins: AllowedOrigins,
    pub methods: AllowedNames<Method>,
    pub headers: AllowedNames<HeaderName>,
    /// Whether requests may have cookies and other credentials.
    pub credentials: bool,
    /// How long a browser may remember the answer to a preflight. `None`: as long as it does of its own accord.
    #[serde(serialize_with = "serialize::optional_duration")]
    pub max_age: Option<Duration>,
    /// Fields of answers that pages may read, beside those that they always may.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub expose: Vec<HeaderName>,
}

/// The origins of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// `"*"`; never with credentials.
    Any,
    /// Never empty.
    Listed(Vec<OriginPattern>),
}

impl AllowedOrigins {
    /// As `proxy.yaml` writes them.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Any => vec!["*".to_owned()],
            Self::Listed(origins) => origins.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Methods or fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedNames<T> {
    /// `"*"`
    Any,
    Listed(Vec<T>),
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

impl Serialize for AllowedOrigins {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.names())
    }
}

impl<T: fmt::Display> Serialize for AllowedNames<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => to.collect_seq(["*"]),
            Self::Listed(names) => serialize::displayed_each(names, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_exactly_or_below_a_host() {
        let exact = OriginPattern::Exact("https://app.example.com".to_owned());
        assert!(exact.matches("https://app.example.com") && !exact.matches("https://app.example.com:443"));
        assert!(!exact.matches("http://app.example.com") && !exact.matches("null"));
        let below =
            OriginPattern::Subdomains { scheme: "https://".to_owned(), suffix: ".example.com".to_owned() };
        assert_eq!(below.to_string(), "https://*.example.com");
        for origin in ["https://a.example.com", "https://a.b.example.com", "https://a-1.example.com"] {
            assert!(below.matches(origin), "{origin}");
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "https://evilexample.com",
            "https://evil.com/.example.com",
            "https://evil.com#.example.com",
            "https://user@a.example.com",
            "https://evil.com:1.example.com",
            "https://a.example.com:8443",
            "https://a.example.com.evil.com",
            "http://a.example.com",
            "null",
            "",
        ] {
            assert!(!below.matches(origin), "{origin}");
        }
    }
}
