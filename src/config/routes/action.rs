//! What happens to the requests of a route: which upstream takes them, or what Tollgate replies by itself.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};
use tollgate_derive::Settings;

use crate::config::{
    reader::{Cursor, MappingCursor, NameTable},
    redact::has_no_credentials,
    routes::{placeholder_text::TextReader, redirect::Redirect},
    settings::{Read, Settings as _},
    value::{
        Invalid, count, field_value, key::KeyRecipe, patterns::PathPattern, route_reply_field_name,
        route_reply_status,
    },
    written::serialize,
};

/// The action of a route.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteAction {
    /// Its requests are sent to this upstream: index into [`Config::upstreams`](crate::config::resolved::Config::upstreams).
    Upstream(usize),
    /// Tollgate itself replies.
    Reply(Box<RouteReply>),
    /// Tollgate redirects the client.
    Redirect(Box<Redirect>),
    /// Tollgate replies with the limits of the request's API key, and what is left of them.
    Usage,
    /// Nothing: another proxy asks about its requests, and forwards them itself.
    Decision,
}

impl RouteAction {
    /// The upstream that requests are sent to, by its index.
    pub fn upstream(&self) -> Option<usize> {
        match self {
            Self::Upstream(index) => Some(*index),
            Self::Reply(_) | Self::Redirect(_) | Self::Usage | Self::Decision => None,
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

/// Reads `upstream`, `reply` or `redirect` of the route `mapping`. `is_usage`: it has `usage: true`. `path`: its path, and the reader of texts that refer to it.
/// `is_forwarded`: whether a listener reaches it that forwards requests. `None`: the action is invalid, or the path is.
pub(in crate::config) fn action(
    mapping: &MappingCursor<'_>,
    [upstream, reply, redirect]: [Option<Cursor<'_>>; 3],
    (is_usage, is_forwarded): (bool, bool),
    upstreams: &NameTable<'_>,
    path: Option<(&PathPattern, TextReader<'_>)>,
) -> Option<RouteAction> {
    if is_usage {
        return Some(RouteAction::Usage);
    }
    if let Some(value) = reply {
        return RouteReply::read(value).map(|reply| RouteAction::Reply(Box::new(reply)));
    }
    if let Some(value) = redirect {
        let (path, reader) = path?;
        return Redirect::read(value, path, reader).map(|redirect| RouteAction::Redirect(Box::new(redirect)));
    }
    if !["upstream", "upstreams", "reply", "redirect"].into_iter().any(|key| mapping.has_or_misspells(key)) {
        if !is_forwarded {
            return Some(RouteAction::Decision);
        }
        mapping.report("`upstream` is missing", MISSING.to_owned());
    }
    self::upstream(upstream?, upstreams).map(RouteAction::Upstream)
}

const MISSING: &str = "the name of one of `upstreams`; or write `reply: { status: 200, body: ok }` or `redirect: { path: /new }` \
                       to do without one";

/// Several upstreams of a route.
pub(in crate::config) struct Shares {
    /// The key that requests are split by.
    pub(in crate::config) by: Option<KeyRecipe>,
    /// Each upstream, by its index, and its weight. Never empty.
    pub(in crate::config) upstreams: Vec<(usize, u32)>,
}

impl Shares {
    /// The upstream that takes most of the requests.
    pub(in crate::config) fn heaviest(&self) -> Option<usize> {
        // Of equals the first.
        let heaviest = self.upstreams.iter().rev().max_by_key(|(_, weight)| *weight)?;
        Some(heaviest.0)
    }
}

/// An upstream, and its share of the requests.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[].upstreams[]", sample = "name: api")]
#[settings(such_as = "{ name: VALUE, weight: 50 }")]
pub(in crate::config) struct ShareSettings<'t> {
    /// The name of the upstream.
    #[setting(text = RESOURCE, example = "api")]
    #[setting(missing = "the name of one of `upstreams` at the top level")]
    name: Cursor<'t>,
    /// Its share, relative to the other weights. With `0`, it gets no requests.
    #[setting(count = "0..=1000000", parse = weight, default = "1", example = "95")]
    weight: u32,
}

/// Reads `upstreams` of a route. `by`: its `split_by`, if it has one; the inner `None`: it is invalid.
pub(in crate::config) fn shares(
    list: Cursor<'_>,
    by: Option<Option<KeyRecipe>>,
    names: &NameTable<'_>,
) -> Option<Shares> {
    if list.is_mapping() {
        let entries = list.named_entries()?;
        let shares = entries.iter().map(|(_, name, weight)| {
            format!("{{ name: {name}, weight: {} }}", weight.scalar().unwrap_or("1"))
        });
        let help = format!("write [{}]", shares.collect::<Vec<_>>().join(", "));
        list.report("expected a list, not a mapping", help);
        return None;
    }
    if list.is_empty_list() {
        let help = "such as [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]".to_owned();
        list.report("no upstream would take the requests", help);
        return None;
    }
    let items = list.list()?;
    let shares: Vec<(usize, u32)> = items
        .iter()
        .filter_map(|item| {
            let ShareSettings { name, weight } = ShareSettings::read(*item)?;
            Some((names.resolve(name)?, weight))
        })
        .collect();
    if shares.len() < items.len() {
        return None;
    }
    for (nth, (upstream, _)) in shares.iter().enumerate() {
        if shares[..nth].iter().any(|(earlier, _)| earlier == upstream) {
            let name = names.name(*upstream).unwrap_or_default();
            items[nth].report(format!("`{name}` is in this list twice"), "add up its weights".to_owned());
            return None;
        }
    }
    if shares.iter().all(|(_, weight)| *weight == 0) {
        list.report("no upstream would take the requests: every weight is 0", None);
        return None;
    }
    let by = match by {
        Some(by) => Some(by?),
        None => None,
    };
    Some(Shares { by, upstreams: shares })
}

fn weight(text: &str) -> Result<u32, Invalid> {
    let weight = count(0..=1_000_000)(text).map_err(|invalid| match text.trim().strip_suffix('%') {
        Some(number) if number.trim().parse::<u32>().is_ok() => {
            Invalid::new("has a unit; weights are compared with each other")
                .suggestion(format!("did you mean `{}`?", number.trim()))
        }
        _ => invalid,
    })?;
    u32::try_from(weight).map_err(|_| Invalid::new("is too large"))
}

/// Explains the directives of nginx for a reply, a redirect or CORS.
pub(in crate::config) fn explain_foreign(mapping: &mut MappingCursor<'_>) {
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

fn upstream(value: Cursor<'_>, upstreams: &NameTable<'_>) -> Option<usize> {
    let Some(url) = value.scalar().filter(|text| text.contains("://")) else {
        return upstreams.resolve(value);
    };
    let help = "give the URL a name: `upstreams: { api: { endpoints: [URL] } }`, and here `upstream: api`"
        .to_owned();
    let help = if has_no_credentials(url) { help.replace("URL]", &format!("{url}]")) } else { help };
    value.report("this is a URL, not the name of an upstream", help);
    None
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

#[cfg(test)]
mod tests_1 {
    use super::*;

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
