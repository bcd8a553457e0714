//! How requests are shared out among the endpoints of an upstream.

use std::time::Duration;

use serde::Serialize;

use super::{KeyRecipe, serialize};

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

/// A cookie that keeps a client at the endpoint that served it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sticky {
    /// Its name.
    pub cookie: String,
    /// How long clients keep it. `None`: until the browser is closed.
    #[serde(serialize_with = "serialize::optional_duration", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
}
