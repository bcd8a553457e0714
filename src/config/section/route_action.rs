//! `upstream` and `reply` of a route: what is done with its requests.

use bytes::Bytes;
use http::HeaderValue;

use super::{other_names, policies::reply_fields, upstreams::Upstreams};
use crate::config::{
    model::{RouteAction, RouteReply},
    reader::{Cursor, MappingCursor},
    redact::has_no_credentials,
    value::{Invalid, field_value, route_reply_field_name, route_reply_status},
};

/// The settings of which a route has exactly one.
const ACTIONS: [&str; 3] = ["upstream", "upstreams", "reply"];

/// Reads what is done with the requests of a route. `split`: where it has several upstreams, the one that is meant, if it is
/// valid.
pub(super) fn action(
    mapping: &mut MappingCursor<'_>,
    upstreams: &Upstreams<'_>,
    split: Option<Option<usize>>,
) -> Option<RouteAction> {
    let given: Vec<&str> = ACTIONS.into_iter().filter(|key| mapping.key_location(key).is_some()).collect();
    if let [first, .., second] = given[..]
        && second != "upstreams"
        && let Some(location) = mapping.key_location(second)
    {
        let help = "keep one of them, or make two routes that match different requests".to_owned();
        mapping.report_at(location, format!("a route has either `{first}` or `{second}`"), help);
    }
    let reply = mapping.take("reply").map(reply);
    if let Some(index) = split {
        mapping.mark_known("upstream");
        return index.map(RouteAction::Upstream);
    }
    if let Some(reply) = reply {
        mapping.mark_known("upstream");
        if let Some(location) = mapping.key_location("timeouts") {
            let help = "remove `timeouts`: they hold for an upstream".to_owned();
            mapping.report_at(location, "this route sends its requests to no upstream", help);
        }
        return reply.map(|reply| RouteAction::Reply(Box::new(reply)));
    }
    let value = match mapping.has_or_misspells("reply") || mapping.has_or_misspells("upstreams") {
        true => mapping.take("upstream"),
        false => mapping.require(
            "upstream",
            "the name of one of `upstreams`; or write `reply: { status: 200, body: ok }` to reply without one",
        ),
    };
    upstream(value?, upstreams).map(RouteAction::Upstream)
}

fn upstream(value: Cursor<'_>, upstreams: &Upstreams<'_>) -> Option<usize> {
    let Some(url) = value.scalar().filter(|text| text.contains("://")) else {
        return upstreams.names.resolve(value);
    };
    let help = "give the URL a name: `upstreams: { api: { endpoints: [URL] } }`, and here `upstream: api`"
        .to_owned();
    let help = if has_no_credentials(url) { help.replace("URL]", &format!("{url}]")) } else { help };
    value.report("this is a URL, not the name of an upstream", help);
    None
}

/// The reply of a route.
fn reply(value: Cursor<'_>) -> Option<RouteReply> {
    let line = match value.scalar() {
        Some(text) if text.parse::<u16>().is_ok() => "reply: { status: VALUE }",
        _ => "reply: { body: VALUE }",
    };
    let mut mapping = value.mapping_such_as(line)?.knowing(other_names::ROUTE_REPLY);
    let status = mapping.take("status").map(|value| (value, value.parse(route_reply_status)));
    let headers = mapping.take("headers").map(|value| reply_fields(value, route_reply_field_name));
    let content_type = mapping.take("content_type").map(|value| value.parse(field_value));
    let body = mapping.take("body");
    if let Some(location) = mapping.key_location("content_type").filter(|_| !mapping.has_or_misspells("body"))
    {
        mapping.report_at(location, "`content_type` is set without a `body`", None);
    }
    if let (Some((status, Some(204 | 205))), Some(_)) = (&status, body) {
        let help = "remove `body`, or write another status".to_owned();
        status.report("a reply with this status has no body", help);
    }
    mapping.finish();
    let status = status.map_or(Some(200), |(_, status)| status)?;
    let body = body.map(|body| body.parse(|text| Ok::<_, Invalid>(text.to_owned())));
    let (body, content_type) = match body {
        None => (Bytes::new(), None),
        Some(body) => {
            let body = body?;
            let content_type = content_type.unwrap_or_else(|| Some(infer_content_type(&body)))?;
            (Bytes::from(body), Some(content_type))
        }
    };
    let status = http::StatusCode::from_u16(status).ok()?;
    Some(RouteReply { status, content_type, headers: headers.unwrap_or_default(), body })
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
