//! How requests are shared out among the endpoints of an upstream.

use std::time::Duration;

use serde::Serialize;
use tollgate_derive::Settings;

use super::KeyRecipe;
use crate::config::{reader::Cursor, value::cookie_name};

/// Which endpoint gets the next request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// The one with the fewest requests in flight.
    LeastRequest,
    /// One after the other.
    RoundRobin,
    /// The one that the request's key belongs to.
    Hash(KeyRecipe),
}

/// Sticky sessions.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "upstreams.md", sample = "cookie: tg_endpoint", foreign = "upstreams.*.sticky")]
#[settings(such_as = such_as)]
pub struct Sticky {
    /// The name of the cookie that Tollgate sets.
    #[setting(text = COOKIE, read = cookie, example = "tg_endpoint")]
    #[setting(missing = "the name of the cookie, such as `cookie: tg_endpoint`")]
    pub cookie: String,
    /// How long clients keep the cookie.
    #[setting(duration = "1s..=366d", unset = "until the browser is closed", example = "1h")]
    pub max_age: Option<Duration>,
}

fn such_as(word: &str) -> &'static str {
    match word {
        "true" | "on" | "yes" | "cookie" | "ip" => "sticky: { cookie: tg_endpoint }",
        _ => "sticky: { cookie: VALUE }",
    }
}

fn cookie(value: Cursor<'_>) -> Option<String> {
    // Traefik has its settings in there.
    if value.is_mapping() {
        let name = value.entry("name").and_then(Cursor::scalar);
        let help = format!("write `sticky: {{ cookie: {} }}`", name.unwrap_or("tg_endpoint"));
        value.report("expected the cookie's name, not a mapping", help);
        return None;
    }
    value.parse(cookie_name)
}
