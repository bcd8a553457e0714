//! Which pages of other origins may read the responses of a route.

use std::{fmt, time::Duration};

use http::{HeaderName, Method};
use serde::{Serialize, Serializer};
use tollgate_derive::Settings;

use crate::config::{
    reader::{Cursor, MappingCursor},
    settings::Read,
    value::{Invalid, field_name, method, origin, origin::OriginPattern},
    written::serialize,
};

/// Cross-origin resource sharing. Tollgate answers preflights itself.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(page = "cors.md", foreign = "routes[].cors", sample = "origins: [\"https://app.example.com\"]")]
#[settings(such_as = "cors: { origins: [\"https://app.example.com\"] }", check = check_credentials)]
pub struct Cors {
    /// The origins whose pages may read responses, or `*` for all.
    #[setting(either(text = ANY_NAME, list(either(text = ORIGIN, text = ANY_NAME), SomeUnique)))]
    #[setting(example = "[\"https://app.example.com\", \"https://*.example.org\"]")]
    #[setting(read = AllowedOrigins::read, missing = "such as `origins: [\"https://app.example.com\"]`")]
    pub origins: AllowedOrigins,
    /// The methods that pages may use, or `*`.
    #[setting(either(text = ANY_NAME, list(either(text = METHOD, text = ANY_NAME), Unique)), read = methods)]
    #[setting(unset = "the route's, or GET, HEAD and POST", example = "[GET, PUT]")]
    pub methods: AllowedNames<Method>,
    /// The request headers that pages may set, or `*`.
    #[setting(either(text = ANY_NAME, list(text = FIELD, Unique)), read = fields, unset = "none")]
    #[setting(example = "[authorization, content-type]")]
    pub headers: AllowedNames<HeaderName>,
    /// Whether pages may send cookies and other credentials. Not with `origins: "*"`.
    #[setting(default = "false", example = "true")]
    pub credentials: bool,
    /// How long browsers remember the answer to a preflight.
    #[setting(duration = "0..=366d", unset = "the browser's own default", example = "10m")]
    pub max_age: Option<Duration>,
    /// The response headers that pages may read.
    #[setting(list(text = FIELD, Unique), parse = exposed_field, unset = "those that browsers always expose")]
    #[setting(example = "[x-total-count]", shown = serialize::displayed_each)]
    pub expose: Vec<HeaderName>,
}

impl Cors {
    /// Reads `cors` of a route that is for these methods. Empty: for all.
    pub(in crate::config) fn of_route(value: Cursor<'_>, route_methods: &[Method]) -> Option<Self> {
        let mut cors = Self::read(value)?;
        if value.entry("methods").is_none() {
            cors.methods = AllowedNames::Listed(match route_methods {
                [] => vec![Method::GET, Method::HEAD, Method::POST],
                methods => methods.to_vec(),
            });
        }
        Some(cors)
    }
}

fn check_credentials(mapping: &MappingCursor<'_>, cors: Option<&Cors>) {
    if let Some(Cors { origins: AllowedOrigins::Any, credentials: true, .. }) = cors
        && let Some(value) = mapping.peek("credentials")
    {
        let help =
            "name the origins: browsers refuse credentials for \"*\", and any page could act in the name of \
                    its visitors"
                .to_owned();
        value.report("`credentials` can't be allowed to every origin", help);
    }
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
    fn read(list: Cursor<'_>) -> Option<Self> {
        if is_any(list) {
            return Some(Self::Any);
        }
        let items = list.list()?;
        if items.is_empty() {
            let help = "remove `cors`, or name the origins of your pages";
            list.report("an empty list allows no origin", help.to_owned());
            return None;
        }
        if items.iter().any(|item| is_any(*item)) {
            if let Some(other) = items.iter().find(|item| !is_any(**item)) {
                other.report("`*` allows every origin, so the others say nothing", "keep either".to_owned());
            }
            return Some(Self::Any);
        }
        let count = items.len();
        let all = list.unique_items(|item| item.parse(origin));
        (all.len() == count).then_some(Self::Listed(all))
    }

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

impl<T> Default for AllowedNames<T> {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl<T: PartialEq> AllowedNames<T> {
    fn read(list: Cursor<'_>, read: impl Fn(&str) -> Result<T, Invalid>) -> Option<Self> {
        if is_any(list) {
            return Some(Self::Any);
        }
        let items = list.list()?;
        if let [only] = items[..]
            && is_any(only)
        {
            return Some(Self::Any);
        }
        let count = items.len();
        let all = list.unique_items(|item| item.parse(&read));
        (all.len() == count).then_some(Self::Listed(all))
    }
}

fn is_any(item: Cursor<'_>) -> bool {
    item.interpolated().as_deref() == Some("*")
}

fn methods(list: Cursor<'_>) -> Option<AllowedNames<Method>> {
    AllowedNames::read(list, method)
}

fn fields(list: Cursor<'_>) -> Option<AllowedNames<HeaderName>> {
    AllowedNames::read(list, field_name)
}

fn exposed_field(text: &str) -> Result<HeaderName, Invalid> {
    match text {
        "*" => Err(Invalid::new("is not taken here, since browsers ignore it beside credentials")
            .expected("name the headers that pages may read, such as [x-total-count, ratelimit]")),
        _ => field_name(text),
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
