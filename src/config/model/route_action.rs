//! The action of a route.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};
use tollgate_derive::Settings;

use super::{Redirect, serialize};
use crate::config::{
    reader::{Cursor, MappingCursor},
    settings::{Read, Settings as _},
    value::{Invalid, field_value, route_reply_field_name, route_reply_status},
};

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
    /// Tollgate replies with the limits of the request's API key, and what is left of them.
    Usage,
}

impl RouteAction {
    /// The upstream that requests are sent to, by its index.
    pub fn upstream(&self) -> Option<usize> {
        match self {
            Self::Upstream(index) => Some(*index),
            Self::Reply(_) | Self::Redirect(_) | Self::Usage => None,
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

impl RouteReply {
    pub(in crate::config) fn read(value: Cursor<'_>) -> Option<Self> {
        let line = match value.scalar() {
            Some(text) if text.parse::<u16>().is_ok() => "reply: { status: VALUE }",
            _ => "reply: { body: VALUE }",
        };
        let mut mapping = value.mapping_such_as(line)?.of(RouteReplySettings::mapping());
        let written = RouteReplySettings::fields(&mut mapping);
        RouteReplySettings::check(&mapping, written.as_ref());
        mapping.finish();
        let RouteReplySettings { status, headers, content_type, body } = written?;
        let content_type =
            body.as_deref().map(|body| content_type.unwrap_or_else(|| infer_content_type(body)));
        Some(Self { status, content_type, headers, body: Bytes::from(body.unwrap_or_default()) })
    }
}

/// A response that Tollgate itself sends.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].reply", rules(With("content_type", "body")))]
#[settings(check = check_body)]
pub(in crate::config) struct RouteReplySettings {
    /// The status of the response.
    #[setting(either(count = "200..=299", count = "400..=599"), parse = route_reply_status)]
    #[setting(default = "200", example = "503")]
    status: StatusCode,
    /// The headers of the response.
    #[setting(names(FIELD, text = FIELD_VALUE, Any), read = reply_headers, unset = "none")]
    #[setting(example = "{ cache-control: no-store }")]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The type of the body.
    #[setting(text = FIELD_VALUE, parse = field_value)]
    #[setting(unset = "JSON, HTML or plain text, depending on how the body begins", example = "text/html")]
    #[setting(beside = "body: \"<p>Closed.</p>\"")]
    content_type: Option<HeaderValue>,
    /// The body.
    #[setting(text = ANY, parse = any_text, unset = "empty", example = "ok")]
    body: Option<String>,
}

fn reply_headers(value: Cursor<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    value.entries_by_name(route_reply_field_name, |value| value.parse(field_value))
}

fn any_text(text: &str) -> Result<String, Invalid> {
    Ok(text.to_owned())
}

fn check_body(mapping: &MappingCursor<'_>, reply: Option<&RouteReplySettings>) {
    if let Some(location) = mapping.key_location("content_type").filter(|_| !mapping.has_or_misspells("body"))
    {
        mapping.report_at(location, "`content_type` is set without a `body`", None);
    }
    if let (Some(StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT), Some(status), Some(_)) =
        (reply.map(|reply| reply.status), mapping.peek("status"), mapping.peek("body"))
    {
        let help = "remove `body`, or write another status".to_owned();
        status.report("a reply with this status has no body", help);
    }
}

/// The content type of a body without `content_type`.
fn infer_content_type(body: &str) -> HeaderValue {
    let start = body.trim_start();
    let is_html = ["<!doctype html", "<html"]
        .iter()
        .any(|tag| start.get(..tag.len()).is_some_and(|found| found.eq_ignore_ascii_case(tag)));
    HeaderValue::from_static(match start.as_bytes().first() {
        Some(b'{' | b'[') => "application/json",
        Some(b'<') if is_html => "text/html; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_body_is_told_by_its_beginning() {
        for (body, content_type) in [
            ("ok", "text/plain; charset=utf-8"),
            ("", "text/plain; charset=utf-8"),
            (" {\"ok\":true}", "application/json"),
            ("<!DOCTYPE html><title>x</title>", "text/html; charset=utf-8"),
            ("<html>", "text/html; charset=utf-8"),
            ("<é", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(infer_content_type(body), content_type, "{body}");
        }
    }
}
