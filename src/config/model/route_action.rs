//! The action of a route.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};

use super::{Redirect, serialize};

/// The action of a route.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteAction {
    /// Its requests are sent to this upstream: index into [`Config::upstreams`](super::Config::upstreams).
    Upstream(usize),
    /// Tollgate itself replies.
    Reply(Box<RouteReply>),
    /// Tollgate redirects the client.
    Redirect(Box<Redirect>),
}

impl RouteAction {
    /// The upstream that requests are sent to, by its index.
    pub fn upstream(&self) -> Option<usize> {
        match self {
            Self::Upstream(index) => Some(*index),
            Self::Reply(_) | Self::Redirect(_) => None,
        }
    }
}

/// The reply that a route gives to every request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RouteReply {
    /// 200 to 599, but no redirect.
    #[serde(serialize_with = "serialize::status")]
    pub status: StatusCode,
    /// `None`: there is no body.
    #[serde(serialize_with = "content_type")]
    pub content_type: Option<HeaderValue>,
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Text.
    #[serde(serialize_with = "text")]
    pub body: Bytes,
}

fn content_type<S: Serializer>(value: &Option<HeaderValue>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serialize::header_value(value, to),
        None => to.serialize_none(),
    }
}

fn text<S: Serializer>(body: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(body))
}
