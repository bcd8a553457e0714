//! Scalars of HTTP: fields, methods, cookies, tokens and statuses.

use std::ops::RangeInclusive;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};
use strsim::damerau_levenshtein;

use crate::config::value::{
    Invalid,
    quantity::{number, whole_number},
};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Reads the name of a header field, in any case.
pub(in crate::config) fn field_name(text: &str) -> Result<HeaderName, Invalid> {
    text.parse().map_err(|_| Invalid::new("is not a valid header name"))
}

/// Fields that frame a message, belong to one connection, or carry credentials. They cannot have another use.
const RESERVED_FIELDS: [&str; 16] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Other standard fields, which a request ID must not overwrite.
const STANDARD_FIELDS: [&str; 27] = [
    "age",
    "allow",
    "alt-svc",
    "cache-control",
    "date",
    "early-data",
    "etag",
    "expires",
    "forwarded",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "range",
    "ratelimit",
    "ratelimit-policy",
    "referer",
    "retry-after",
    "server",
    "strict-transport-security",
    "user-agent",
    "vary",
    "via",
    "x-real-ip",
];

/// Prefixes of further standard fields.
const STANDARD_PREFIXES: [&str; 6] = ["accept", "access-control-", "content-", "if-", "sec-", "x-forwarded-"];

/// Reads the name of the field in which request IDs travel.
pub(in crate::config) fn request_id_field_name(text: &str) -> Result<HeaderName, Invalid> {
    let name = unreserved_field_name(text)?;
    let known = name.as_str();
    if STANDARD_FIELDS.contains(&known) || STANDARD_PREFIXES.iter().any(|family| known.starts_with(family)) {
        return Err(Invalid::new("is a header with another purpose")
            .expected("use a header for this alone, such as x-request-id"));
    }
    Ok(name)
}

/// Reads the name of a field that HTTP does not reserve.
pub(in crate::config) fn unreserved_field_name(text: &str) -> Result<HeaderName, Invalid> {
    let name = field_name(text)?;
    if RESERVED_FIELDS.contains(&name.as_str()) {
        return Err(
            Invalid::new("is a header that HTTP itself needs").expected("use another header, such as x-NAME")
        );
    }
    Ok(name)
}

/// Fields that Tollgate itself adds to a reply: framing, and the state of the limits.
const GENERATED_FIELDS: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "keep-alive",
    "proxy-connection",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
];

/// Reads the name of a field that a reply to a denied client may add.
pub(in crate::config) fn reply_field_name(text: &str) -> Result<HeaderName, Invalid> {
    let name = field_name(text)?;
    match name.as_str() {
        "content-type" => {
            Err(Invalid::new("has its own setting")
                .expected("set `content_type: text/html` next to `headers`"))
        }
        known if GENERATED_FIELDS.contains(&known) || known.starts_with("x-ratelimit-") => {
            Err(Invalid::new("is a header that Tollgate sets in every such response")
                .expected("use another header, such as x-NAME"))
        }
        _ => Ok(name),
    }
}

/// Fields that frame a reply, or belong to its connection.
const FRAMING_FIELDS: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
];

/// Reads the name of a field that the reply of a route may have.
pub(in crate::config) fn route_reply_field_name(text: &str) -> Result<HeaderName, Invalid> {
    let name = field_name(text)?;
    match name.as_str() {
        "content-type" => reply_field_name(text),
        known if FRAMING_FIELDS.contains(&known) => {
            Err(Invalid::new("is a header that Tollgate sets in every response"))
        }
        _ => Ok(name),
    }
}

/// Reads the name of a field that a route or an upstream may change.
pub(in crate::config) fn editable_field_name(text: &str) -> Result<HeaderName, Invalid> {
    if text.starts_with(':') {
        return Err(Invalid::new("is a pseudo-header of HTTP/2, which is no header")
            .expected("to send another path, write `rewrite: { path: /new/path }`"));
    }
    let name = field_name(text)?;
    match name.as_str() {
        "host" => Err(Invalid::new("has its own setting").expected(
            "write `host: preserve` (the client's) or `host: rewrite` (the endpoint's) in the upstream",
        )),
        known if UNEDITABLE_FIELDS.contains(&known) => {
            Err(Invalid::new("is a header that HTTP itself needs; Tollgate sets it for each connection")
                .expected("leave it out"))
        }
        _ => Ok(name),
    }
}

/// Reads the status of the reply of a route.
pub(in crate::config) fn route_reply_status(text: &str) -> Result<StatusCode, Invalid> {
    let expected = "from 200 to 299, or from 400 to 599";
    let status = whole_number(text).and_then(|status| u16::try_from(status).ok());
    match status {
        Some(status @ (200..=299 | 400..=599)) => {
            StatusCode::from_u16(status).map_err(|_| Invalid::new("is not a status code"))
        }
        Some(300..=399) => Err(Invalid::new("is the status of a redirect")
            .expected("write `redirect: { path: /new, status: 301 }` in place of `reply`")),
        Some(_) => Err(Invalid::new("is not the status of a reply").expected(expected)),
        None => Err(Invalid::new("is not a status code").expected(expected)),
    }
}

/// Reads the name of a field to remove, or `x-internal-*` for all with this prefix.
pub(in crate::config) fn editable_fields(text: &str) -> Result<FieldPattern, Invalid> {
    let Some(prefix) = text.strip_suffix('*') else {
        return editable_field_name(text).map(FieldPattern::Name);
    };
    let expected = "write the beginning of a name, such as \"x-internal-*\"";
    let prefix = field_name(prefix).map_err(|invalid| invalid.expected(expected))?.as_str().to_owned();
    match UNEDITABLE_FIELDS.iter().chain(&["host"]).find(|field| field.starts_with(&prefix)) {
        Some(field) => {
            let reason = format!("would also remove `{field}`, which HTTP itself needs");
            Err(Invalid::new(reason).expected(expected))
        }
        None => Ok(FieldPattern::Prefix(prefix)),
    }
}

/// Fields that negotiate how the two ends of a connection read a message. Changing them changes the message itself.
const UNEDITABLE_FIELDS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "sec-websocket-accept",
    "sec-websocket-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the value of a header field.
pub(in crate::config) fn field_value(text: &str) -> Result<HeaderValue, Invalid> {
    let trimmed = text.trim_matches([' ', '\t']) == text;
    match HeaderValue::from_str(text) {
        Ok(value) if trimmed => Ok(value),
        _ => Err(Invalid::new("is not a valid header value")),
    }
}

/// Reads a method; they are case-sensitive (RFC 9110, 9.1).
pub(in crate::config) fn method(text: &str) -> Result<Method, Invalid> {
    let upper = text.to_ascii_uppercase();
    let invalid = || Invalid::new("is not an HTTP method");
    if matches!(upper.as_str(), "*" | "ANY" | "ALL") {
        return Err(invalid().expected(
            "name single methods; for every method, leave the list out (in `cors`, write `methods: \"*\"`)",
        ));
    }
    if METHODS.contains(&text) {
        return Method::from_bytes(text.as_bytes()).map_err(|_| invalid());
    }
    // Other methods exist (PROPFIND, PURGE), but one that differs in one letter from a known one is a misspelling.
    if let Some(near) = METHODS.iter().find(|known| damerau_levenshtein(known, &upper) <= 1) {
        return Err(invalid().suggestion(format!("did you mean `{near}`?")));
    }
    let words: Vec<&str> =
        upper.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
    if words.len() > 1 && words.iter().all(|word| METHODS.contains(word)) {
        return Err(invalid().suggestion(format!("write a list: [{}]", words.join(", "))));
    }
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = text.bytes().all(is_usual) && text.starts_with(|c: char| c.is_ascii_alphabetic());
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) if !is_name => Err(invalid().expected("such as GET, each by its name")),
        Ok(method) if text == upper => Ok(method),
        Ok(_) => Err(invalid().suggestion(format!("methods are case-sensitive; did you mean `{upper}`?"))),
        Err(_) => Err(invalid()),
    }
}

/// Reads the name of a cookie (RFC 6265, 4.1.1).
pub(in crate::config) fn cookie_name(text: &str) -> Result<String, Invalid> {
    is_token(text).then(|| text.to_owned()).ok_or_else(|| Invalid::new("is not a valid cookie name"))
}

/// Reads the value of a cookie (RFC 6265, 4.1.1), without quotes around it.
pub(in crate::config) fn cookie_value(text: &str) -> Result<String, Invalid> {
    let is_possible = |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && !matches!(byte, b';' | b'"');
    match text.bytes().all(is_possible) && text.trim() == text {
        true => Ok(text.to_owned()),
        false => {
            Err(Invalid::new("is not a value that a cookie can have")
                .expected("write it as browsers send it"))
        }
    }
}

/// Reads the name of a query parameter, decoded.
pub(in crate::config) fn parameter_name(text: &str) -> Result<String, Invalid> {
    match text {
        "" => Err(Invalid::new("is not the name of a query parameter")),
        _ => parameter_value(text),
    }
}

/// Reads the value of a query parameter, decoded.
pub(in crate::config) fn parameter_value(text: &str) -> Result<String, Invalid> {
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    match decoded == text {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("is percent-encoded, but parameters are compared decoded")
            .suggestion(format!("did you mean `{}`?", decoded.escape_debug()))),
    }
}

/// Reads a pseudonym for `Via` (RFC 9110, 7.6.3).
pub(in crate::config) fn pseudonym(text: &str) -> Result<String, Invalid> {
    let invalid =
        || Invalid::new("cannot be used in Via").expected("write a word without spaces, such as tollgate");
    is_token(text).then(|| text.to_owned()).ok_or_else(invalid)
}

/// Reads a bearer token, or none if it is empty.
pub(in crate::config) fn bearer_token(text: &str) -> Result<Option<String>, Invalid> {
    match text {
        "" => Ok(None),
        _ if text.bytes().all(|b| b.is_ascii_graphic()) => Ok(Some(text.to_owned())),
        _ => Err(Invalid::new("is not a valid bearer token")
            .expected("use visible ASCII characters without spaces")),
    }
}

/// A token (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Reads a status, `401`, a range, `200-399`, or a class, `4xx`.
pub(in crate::config) fn status_range(text: &str) -> Result<RangeInclusive<u16>, Invalid> {
    let invalid = || {
        Invalid::new("is not a status code or a class of them")
            .expected("write a status such as 401, a range such as 400-403, or a class from 1xx to 5xx")
    };
    if let Some((first, last)) = text.split_once('-') {
        let [first, last] = [first, last].map(|end| u16::try_from(whole_number(end)?).ok());
        let range = first.zip(last).map(|(first, last)| first..=last).ok_or_else(invalid)?;
        return match *range.start() >= 100 && *range.end() <= 599 && !range.is_empty() {
            true => Ok(range),
            false => Err(Invalid::new("is not a range of status codes").expected("from 100 to 599")),
        };
    }
    if let Some(class) = text.strip_suffix("xx") {
        let class = whole_number(class).filter(|class| (1..=5).contains(class) && text.len() == 3);
        let first = class.and_then(|class| u16::try_from(class * 100).ok()).ok_or_else(invalid)?;
        return Ok(first..=first + 99);
    }
    let status = u16::try_from(whole_number(text).ok_or_else(invalid)?).unwrap_or(u16::MAX);
    if !(100..=599).contains(&status) {
        return Err(Invalid::new("is not a status code").expected("from 100 to 599"));
    }
    Ok(status..=status)
}

/// The codes of gRPC by their numbers (<https://grpc.io/docs/guides/status-codes/>).
const GRPC_STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Reads a status of gRPC, by its number or its name: `16` or `UNAUTHENTICATED`.
pub(in crate::config) fn grpc_status(text: &str) -> Result<u32, Invalid> {
    let by_name = GRPC_STATUSES.iter().position(|name| name.eq_ignore_ascii_case(text));
    let number = by_name.or_else(|| usize::try_from(whole_number(text)?).ok());
    let number = number.filter(|number| *number < GRPC_STATUSES.len());
    number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
        Invalid::new("is not a status of gRPC").expected("from 0 to 16, or a name such as UNAUTHENTICATED")
    })
}

/// Reads the status of a reply to a denied client.
pub(in crate::config) fn denial_status(text: &str) -> Result<StatusCode, Invalid> {
    let status = number(400..=599)(text).map_err(|_| {
        Invalid::new("is not an error status").expected("from 400 to 599, such as 429 or 503")
    })?;
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    status.ok_or_else(|| Invalid::new("is not a status code"))
}

/// Which fields are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldPattern {
    Name(HeaderName),
    /// `x-internal-*` as `x-internal-`, in lower case.
    Prefix(String),
}

impl Serialize for FieldPattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => to.serialize_str(name.as_str()),
            Self::Prefix(prefix) => to.collect_str(&format_args!("{prefix}*")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods() {
        assert_eq!(method("POST"), Ok(Method::POST));
        assert_eq!(method("PURGE").unwrap().as_str(), "PURGE");
        let suggestion = |text| method(text).unwrap_err().help(false);
        assert_eq!(suggestion("post").unwrap(), "did you mean `POST`?");
        assert_eq!(suggestion("PSOT").unwrap(), "did you mean `POST`?");
        assert_eq!(suggestion("propfind").unwrap(), "methods are case-sensitive; did you mean `PROPFIND`?");
        for several in ["GET POST", "GET|POST", "get,post"] {
            assert_eq!(suggestion(several).unwrap(), "write a list: [GET, POST]");
        }
        for wrong in ["^GET$", "123", "GET+"] {
            assert!(method(wrong).is_err(), "{wrong}");
        }
        for any in ["*", "any", "ANY", "ALL"] {
            assert!(suggestion(any).unwrap().contains("leave the list out"), "{any}");
        }
        assert_eq!(suggestion(""), None);
    }

    #[test]
    fn fields_and_tokens() {
        assert_eq!(field_name("X-User-Id").unwrap(), "x-user-id");
        assert!(field_name("x user").is_err());
        assert_eq!(field_value("2").unwrap(), "2");
        assert!(field_value("a\nb").is_err());
        assert!(field_value(" a").is_err());
        assert!(cookie_name("a=b").is_err());
        assert!(pseudonym("a b").is_err());
        assert_eq!(bearer_token(""), Ok(None));
        assert_eq!(bearer_token("s3cret"), Ok(Some("s3cret".to_owned())));
        assert!(bearer_token("a b").is_err());
    }

    #[test]
    fn fields_that_are_taken() {
        for text in ["Host", "content-length", "Transfer-Encoding", "TE", "trailer", "Cookie", "Connection"] {
            assert!(unreserved_field_name(text).is_err() && request_id_field_name(text).is_err(), "{text}");
        }
        for text in ["Via", "X-Forwarded-For", "forwarded", "date", "Content-Type", "accept-encoding"] {
            assert!(unreserved_field_name(text).is_ok() && request_id_field_name(text).is_err(), "{text}");
        }
        for text in ["X-Request-Id", "x-correlation-id", "traceparent", "cf-ray", "request-id"] {
            assert!(request_id_field_name(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn statuses_are_one_or_a_class() {
        assert_eq!(status_range("401"), Ok(401..=401));
        assert_eq!(status_range("4xx"), Ok(400..=499));
        assert_eq!(status_range("1xx"), Ok(100..=199));
        assert_eq!(status_range("200-399"), Ok(200..=399));
        for text in [
            "",
            "xx",
            "6xx",
            "0xx",
            "04xx",
            "4XX",
            "99",
            "600",
            "4x",
            "399-200",
            "99-200",
            "200-600",
            "200-",
            "-",
            "401.0",
            "99999999999",
            "ok",
        ] {
            assert!(status_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_status_of_a_denial_is_an_error() {
        assert_eq!(denial_status("429"), Ok(StatusCode::TOO_MANY_REQUESTS));
        for text in ["200", "399", "600", "x", ""] {
            assert!(denial_status(text).is_err(), "{text}");
        }
    }
}
