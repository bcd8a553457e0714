//! `reply`: the response to a denied client.

use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use tollgate_derive::Settings;

use crate::config::{
    reader::{Cursor, MappingCursor},
    settings::Read,
    value::{denial_status, field_value, reply_field_name, template, template::TemplatePart},
    written::serialize,
};

/// The reply to a denied client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DenialReply {
    #[serde(serialize_with = "serialize::status")]
    pub status: StatusCode,
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `None`: problem details.
    pub body: Option<DenialBody>,
}

/// A body with `{{retry_after}}`, `{{policy}}` and `{{limit}}` in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DenialBody {
    #[serde(serialize_with = "serialize::header_value")]
    pub content_type: HeaderValue,
    pub template: Vec<TemplatePart>,
}

/// The response to a denied request.
#[derive(Settings)]
#[settings(written, page = "policies.md#change-the-429-response", check = content_type_without_body)]
#[settings(rules(With("content_type", "body")))]
pub(in crate::config) struct ReplySettings {
    /// The status of the response.
    #[setting(count = "400..=599", parse = denial_status, example = "503")]
    #[setting(unset = "429 for a policy, 403 for a ban")]
    status: Option<StatusCode>,
    /// Additional headers of the response.
    #[setting(names(FIELD, text = FIELD_VALUE, Any), read = denial_fields, unset = "none")]
    #[setting(example = "{ x-reason: slow-down }")]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The type of the body.
    #[setting(text = FIELD_VALUE, parse = field_value, example = "text/html", beside = "body: \"<p>Slow down.</p>\"")]
    #[setting(unset = "JSON if the body begins with `{` or `[`, else plain text")]
    content_type: Option<HeaderValue>,
    /// The body, in which `{{retry_after}}`, `{{policy}}` and `{{limit}}` are filled in.
    #[setting(text = TEMPLATE, parse = template, example = "\"retry in {{retry_after}} s\"")]
    #[setting(unset = "problem details (RFC 9457)")]
    body: Option<Vec<TemplatePart>>,
}

impl DenialReply {
    /// Reads the reply of a policy or of a ban. `default`: its status if it sets none.
    pub(in crate::config) fn read(value: Cursor<'_>, default: StatusCode) -> Option<Self> {
        let ReplySettings { status, headers, content_type, body } = ReplySettings::read(value)?;
        let body = body.map(|template| {
            let content_type = content_type.unwrap_or_else(|| infer_content_type(&template));
            DenialBody { content_type, template }
        });
        Some(Self { status: status.unwrap_or(default), headers, body })
    }
}

/// The content type of a body without `content_type`.
fn infer_content_type(template: &[TemplatePart]) -> HeaderValue {
    HeaderValue::from_static(match template.first() {
        Some(TemplatePart::Text(text)) if text.trim_start().starts_with(['{', '[']) => "application/json",
        _ => "text/plain; charset=utf-8",
    })
}

/// Reports a `content_type` that applies to nothing.
pub(in crate::config) fn content_type_without_body<T>(mapping: &MappingCursor<'_>, _: Option<&T>) {
    if let Some(location) = mapping.key_location("content_type").filter(|_| !mapping.has_or_misspells("body"))
    {
        mapping.report_at(location, "`content_type` is set without a `body`", None);
    }
}

fn denial_fields(value: Cursor<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    value.entries_by_name(reply_field_name, |value| value.parse(field_value))
}
