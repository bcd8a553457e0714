//! `reply`: the response to a denied client.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::config::{
    model::{DenialBody, DenialReply, TemplatePart},
    reader::Cursor,
    settings,
    value::{Invalid, denial_status, field_value, reply_field_name, template},
};

/// The reply of a policy or of a ban. `default` is its status if it sets none.
pub(in crate::config::section) fn reply(value: Cursor<'_>, default: StatusCode) -> Option<DenialReply> {
    let mut mapping = value.mapping()?.of(&settings::REPLY);
    let status = mapping.parse_or("status", default, denial_status);
    let headers =
        mapping.take("headers").map(|value| reply_fields(value, reply_field_name)).unwrap_or_default();
    let content_type = mapping.take("content_type").map(|value| value.parse(field_value));
    let body = mapping.take("body");
    if let Some(location) = mapping.key_location("content_type").filter(|_| !mapping.has_or_misspells("body"))
    {
        mapping.report_at(location, "`content_type` is set without a `body`", None);
    }
    mapping.finish();
    let body = match body {
        None => None,
        Some(body) => {
            let template = body.parse(template)?;
            let content_type = content_type.unwrap_or_else(|| Some(infer_content_type(&template)))?;
            Some(DenialBody { content_type, template })
        }
    };
    Some(DenialReply { status, headers, body })
}

/// The content type of a body without `content_type`.
fn infer_content_type(template: &[TemplatePart]) -> HeaderValue {
    match template.first() {
        Some(TemplatePart::Text(text)) if text.trim_start().starts_with(['{', '[']) => {
            HeaderValue::from_static("application/json")
        }
        _ => HeaderValue::from_static("text/plain; charset=utf-8"),
    }
}

/// Fields that a reply adds, whose names `read_name` reads.
pub(in crate::config::section) fn reply_fields(
    value: Cursor<'_>,
    read_name: fn(&str) -> Result<HeaderName, Invalid>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut all: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (location, name, value) in value.named_entries().unwrap_or_default() {
        let content = value.parse(field_value);
        match read_name(name) {
            Err(invalid) => {
                value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
            }
            Ok(name) if all.iter().any(|(other, _)| *other == name) => {
                value.report_at(
                    location,
                    format!("`{name}` is set twice; header names are case-insensitive"),
                    None,
                );
            }
            Ok(name) => all.extend(content.map(|content| (name, content))),
        }
    }
    all
}
