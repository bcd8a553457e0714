//! Where a route sends its clients.

use std::fmt;

use http::StatusCode;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::PlaceholderText;

/// The redirect that a route gives to every request. What it does not say stays as the request has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
    /// Host and port. Without one, a scheme alone keeps the host, and drops its port.
    pub authority: Option<String>,
    /// `None` only with a scheme or an authority.
    pub path: Option<PlaceholderText>,
    /// Comes before that of the request.
    pub query: Option<String>,
    pub keeps_query: bool,
    pub fragment: Option<String>,
}

impl Redirect {
    /// Whether it must not be shown.
    pub fn is_secret(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.is_secret)
    }

    /// As operators see it.
    pub fn shown(&self) -> String {
        if self.is_secret() { "***".to_owned() } else { self.to_string() }
    }
}

impl fmt::Display for Redirect {
    /// `https://new.example.com/{rest}`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scheme, &self.authority) {
            (Some(scheme), authority) => {
                write!(f, "{scheme}://{}", authority.as_deref().unwrap_or("{host}"))?;
            }
            (None, Some(authority)) => write!(f, "//{authority}")?,
            (None, None) => {}
        }
        f.write_str(self.path.as_ref().map_or("/…", |path| &path.written))?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        match &self.fragment {
            Some(fragment) => write!(f, "#{fragment}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Redirect {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("to", &self.to_string())?;
        map.serialize_entry("status", &self.status.as_u16())?;
        map.serialize_entry("query", if self.keeps_query { "keep" } else { "drop" })?;
        map.end()
    }
}
