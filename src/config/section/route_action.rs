//! `upstream`, `reply` and `redirect` of a route: what is done with its requests.

use bytes::Bytes;
use http::HeaderValue;

use super::{message_changes::TextReader, redirect::redirect, upstreams::Upstreams, user::IdentitySources};
use crate::config::{
    model::{PathPattern, RouteAction, RouteReply, reply_fields},
    reader::{Cursor, MappingCursor},
    redact::has_no_credentials,
    settings,
    value::{Invalid, Placeholders, field_value, route_reply_field_name, route_reply_status},
};

/// The settings of which a route has exactly one.
const ACTIONS: [&str; 4] = ["upstream", "upstreams", "reply", "redirect"];

/// Settings that say something to an upstream, or of it.
const OF_UPSTREAM: [&str; 4] = ["timeouts", "retry", "rewrite", "request_headers"];

/// Reads what is done with the requests of a route with this `path`. `split`: where it has several upstreams, the one that is
/// meant, if it is valid. `None`: it is invalid, or the path is.
pub(super) fn action(
    mapping: &mut MappingCursor<'_>,
    upstreams: &Upstreams<'_>,
    split: Option<Option<usize>>,
    path: Option<&PathPattern>,
    identity: IdentitySources,
) -> Option<RouteAction> {
    explain_foreign(mapping);
    let given: Vec<&str> = ACTIONS.into_iter().filter(|key| mapping.key_location(key).is_some()).collect();
    if let [first, .., second] = given[..]
        && second != "upstreams"
        && let Some(location) = mapping.key_location(second)
    {
        let help = "keep one of them, or make two routes that match different requests".to_owned();
        mapping.report_at(location, format!("a route has either `{first}` or `{second}`"), help);
    }
    let (replied, redirected) = (mapping.take("reply"), mapping.take("redirect"));
    if let Some(index) = split {
        return index.map(RouteAction::Upstream);
    }
    if replied.is_none() && redirected.is_none() {
        let is_meant =
            ["upstreams", "reply", "redirect"].into_iter().any(|key| mapping.has_or_misspells(key));
        let value = match is_meant {
            true => mapping.take("upstream"),
            false => mapping.require("upstream", MISSING),
        };
        return upstream(value?, upstreams).map(RouteAction::Upstream);
    }
    for key in OF_UPSTREAM {
        if let Some(location) = mapping.key_location(key) {
            let help = format!("remove `{key}`: without an upstream, it says nothing");
            mapping.report_at(location, "this route sends its requests to no upstream", help);
        }
    }
    if let Some(value) = replied {
        return reply(value).map(|reply| RouteAction::Reply(Box::new(reply)));
    }
    let path = path?;
    let captures = path.captures();
    let reader = TextReader { placeholders: Placeholders { captures: &captures }, identity };
    redirect(redirected?, path, reader).map(|redirect| RouteAction::Redirect(Box::new(redirect)))
}

const MISSING: &str = "the name of one of `upstreams`; or write `reply: { status: 200, body: ok }` or `redirect: { path: /new }` \
                       to do without one";

/// What nginx writes for a reply, a redirect or CORS.
fn explain_foreign(mapping: &mut MappingCursor<'_>) {
    let written = |mapping: &MappingCursor<'_>, key| {
        let text = mapping.peek(key)?.scalar()?.trim_end_matches(';').trim();
        (has_no_credentials(text) && text.len() <= 200).then(|| text.to_owned())
    };
    if let Some(text) = written(mapping, "return") {
        let (ours, line) = suggest_for_return(&text);
        mapping.explain("return", ours, format!("did you mean `{line}`?"));
    }
    for key in ["add_header", "more_set_headers", "header"] {
        let is_cors = |text: &String| text.to_ascii_lowercase().contains("access-control-");
        if let Some(text) = written(mapping, key).filter(is_cors) {
            let origin = text.split([' ', ':']).find(|word| word.starts_with("http") || *word == "*");
            let origin = origin.map_or("https://app.example.com".to_owned(), |_| {
                let at = text.find("http").or_else(|| text.find('*')).unwrap_or_default();
                text[at..].split([' ', '"', '\'']).next().unwrap_or_default().to_owned()
            });
            mapping.explain(key, "cors", format!("did you mean `cors: {{ origins: [\"{origin}\"] }}`?"));
        }
    }
}

/// Our setting for `return` of nginx, and its line.
fn suggest_for_return(text: &str) -> (&'static str, String) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim().trim_matches(['"', '\'']);
    let (status, target) = match first.parse::<u16>() {
        Ok(status) => (status, rest),
        Err(_) => (302, first),
    };
    if !(300..=399).contains(&status) {
        return (
            "reply",
            match rest {
                "" => format!("reply: {{ status: {status} }}"),
                body => format!("reply: {{ status: {status}, body: {body:?} }}"),
            },
        );
    }
    let named = target.replace("$request_uri", "/{rest}").replace("$uri", "/{rest}").replace("$1", "{rest}");
    let line = match named.split_once("://") {
        Some((scheme, rest)) if rest.starts_with("$host") || rest.starts_with("$server_name") => {
            format!("redirect: {{ scheme: {scheme}, status: {status} }}")
        }
        Some(_) => format!("redirect: {{ to: \"{named}\", status: {status} }}"),
        None => format!("redirect: {{ path: \"{named}\", status: {status} }}"),
    };
    ("redirect", line)
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
    let mut mapping = value.mapping_such_as(line)?.of(&settings::ROUTE_REPLY).knowing("routes[].reply");
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

    #[test]
    fn the_line_for_a_return_of_nginx() {
        for (text, line) in [
            ("200 ok", "reply: { status: 200, body: \"ok\" }"),
            ("403", "reply: { status: 403 }"),
            (
                "301 https://new.example.com$request_uri",
                "redirect: { to: \"https://new.example.com/{rest}\", status: 301 }",
            ),
            ("301 https://$host$request_uri", "redirect: { scheme: https, status: 301 }"),
            ("302 /new", "redirect: { path: \"/new\", status: 302 }"),
            ("https://new.example.com/", "redirect: { to: \"https://new.example.com/\", status: 302 }"),
        ] {
            assert_eq!(suggest_for_return(text).1, line);
        }
    }
}
