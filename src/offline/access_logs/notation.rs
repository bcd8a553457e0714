//! The notations in which servers are told the format of their access log.

use http::header;

use super::{
    field::{Field, Meaning, Unit},
    template::{FormatError, FormatPart, Template},
    value::Escape,
};

/// Compiles a format in the notation of nginx (`$remote_addr`), Apache (`%h`) or Envoy (`%START_TIME%`).
///
/// # Errors
/// It can't be used.
pub(super) fn compile(format: &str) -> Result<Template, FormatError> {
    let format = format.trim_end_matches(['\n', '\r']);
    if format.contains('$') {
        Template::compile(nginx(format)?, Escape::Backslash, false)
    } else if is_envoy(format) {
        Template::compile(envoy(format.trim_end_matches("\\n"))?, Escape::None, false)
    } else {
        Template::compile(apache(format)?, Escape::Backslash, false)
    }
}

/// Whether Envoy's commands are in it: `%START_TIME%`, `%REQ(:PATH)%`. Apache's directives have one letter.
pub(super) fn is_envoy(format: &str) -> bool {
    format.split('%').any(|part| {
        let name = part.split('(').next().unwrap_or_default();
        name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '0'..='9'))
    })
}

/// `$name` and `${name}`.
pub(super) fn nginx(format: &str) -> Result<Vec<FormatPart>, FormatError> {
    let mut parts = Vec::new();
    let mut rest = format;
    while let Some((literal, behind)) = rest.split_once('$') {
        parts.push(FormatPart::Literal(literal.to_owned()));
        let (name, behind) = match behind.strip_prefix('{') {
            Some(in_braces) => {
                in_braces.split_once('}').ok_or_else(|| FormatError::Unclosed("${".to_owned()))?
            }
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                behind.split_at(behind.find(|c| !is_name(c)).unwrap_or(behind.len()))
            }
        };
        rest = behind;
        parts.push(match name {
            "" => FormatPart::Literal("$".to_owned()),
            name => FormatPart::Variable { meaning: Meaning::by_name(name), name: format!("${name}") },
        });
    }
    parts.push(FormatPart::Literal(rest.to_owned()));
    Ok(without_empty(parts))
}

/// Apache's directives: `%h`, `%>s`, `%{Referer}i`, `%!200{Referer}i`.
fn apache(format: &str) -> Result<Vec<FormatPart>, FormatError> {
    let format = format.replace("\\\"", "\"").replace("\\t", "\t");
    let mut parts = Vec::new();
    let mut rest = format.as_str();
    while let Some((literal, behind)) = rest.split_once('%') {
        parts.push(FormatPart::Literal(literal.to_owned()));
        let unconditional =
            behind.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | '!' | '<' | '>'));
        let (argument, letters) = match unconditional.strip_prefix('{') {
            Some(in_braces) => {
                in_braces.split_once('}').ok_or_else(|| FormatError::Unclosed("%{".to_owned()))?
            }
            None => ("", unconditional),
        };
        let count = if letters.starts_with('^') { 3 } else { 1 };
        let end = letters.char_indices().nth(count).map_or(letters.len(), |(at, _)| at);
        let (letter, behind) = letters.split_at(end);
        let name = match argument {
            "" => format!("%{letter}"),
            argument => format!("%{{{argument}}}{letter}"),
        };
        let mut push = |field, rank| {
            parts.push(FormatPart::Variable { meaning: Meaning { field, rank }, name: name.clone() });
        };
        match (letter, argument) {
            ("%", _) => parts.push(FormatPart::Literal("%".to_owned())),
            ("a", "") => push(Field::Client, 0),
            ("h", _) => push(Field::Client, 1),
            ("a", _) => push(Field::Client, 2),
            ("u", _) => push(Field::User, 0),
            ("t", "") => {
                parts.push(FormatPart::Literal("[".to_owned()));
                parts.push(FormatPart::Variable { meaning: Meaning { field: Field::Start, rank: 1 }, name });
                parts.push(FormatPart::Literal("]".to_owned()));
            }
            ("t", format) => match format.split_once(':') {
                Some(("end", format)) if is_time(format) => push(Field::End, 0),
                Some(("begin", format)) if is_time(format) => push(Field::Start, 0),
                None if is_time(format) => push(Field::Start, 0),
                _ => push(Field::Ignored, 0),
            },
            ("r", _) => push(Field::RequestLine, 0),
            ("m", _) => push(Field::Method, 0),
            ("U", _) => push(Field::DecodedPath, 0),
            ("q", _) => push(Field::Query, 0),
            ("s", _) => push(Field::Status, 0),
            ("b" | "B", _) => push(Field::Bytes, 0),
            ("O", _) => push(Field::Bytes, 1),
            ("D", _) | ("T", "us") => push(Field::Duration(Unit::Micros), 0),
            ("T", "ms") => push(Field::Duration(Unit::Millis), 1),
            ("T", _) => push(Field::Duration(Unit::Seconds), 2),
            ("v" | "V", _) => push(Field::Host, 1),
            ("C", cookie) => push(Field::Cookie(cookie.to_owned()), 0),
            ("i", header) => push(of_header(header), 0),
            _ => push(Field::Ignored, 0),
        }
        rest = behind;
    }
    parts.push(FormatPart::Literal(rest.to_owned()));
    Ok(without_empty(parts))
}

/// Whether it is a format of `%{…}t` that tells a whole time.
fn is_time(format: &str) -> bool {
    let whole =
        ["sec", "msec", "usec", "%s", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z"];
    whole.contains(&format)
}

fn of_header(name: &str) -> Field {
    match name.parse() {
        Ok(header::HOST) => Field::Host,
        Ok(name) => Field::Header(name),
        Err(_) => Field::Ignored,
    }
}

/// Envoy's commands: `%START_TIME%`, `%REQ(X-ENVOY-ORIGINAL-PATH?:PATH):100%`.
pub(super) fn envoy(format: &str) -> Result<Vec<FormatPart>, FormatError> {
    let mut parts = Vec::new();
    let mut rest = format;
    while let Some((literal, behind)) = rest.split_once('%') {
        parts.push(FormatPart::Literal(literal.to_owned()));
        // The argument of a command may contain percent signs: `%START_TIME(%s)%`.
        let end = match (behind.find('('), behind.find('%')) {
            (Some(open), Some(close)) if open < close => behind.find(")").and_then(|open| {
                behind.get(open..).and_then(|rest| rest.find('%')).map(|close| open + close)
            }),
            (_, close) => close,
        };
        let end = end.ok_or_else(|| FormatError::Unclosed("%".to_owned()))?;
        let (command, behind) = (&behind[..end], &behind[end + 1..]);
        rest = behind;
        let (operator, argument) = command.split_once('(').unwrap_or((command, ""));
        let argument = argument.split(')').next().unwrap_or_default();
        let field = match operator {
            "" => {
                parts.push(FormatPart::Literal("%".to_owned()));
                continue;
            }
            "START_TIME" if argument.is_empty() || argument.starts_with("%s") => Field::Start,
            "DOWNSTREAM_REMOTE_ADDRESS" | "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Field::Client,
            "DURATION" => Field::Duration(Unit::Millis),
            "RESPONSE_CODE" => Field::Status,
            "RESPONSE_FLAGS" => Field::ResponseFlags,
            "BYTES_SENT" => Field::Bytes,
            "GRPC_STATUS_NUMBER" => Field::GrpcStatus,
            "REQ" => match argument.split('?').next_back().unwrap_or_default() {
                ":METHOD" => Field::Method,
                ":PATH" => Field::Target,
                ":AUTHORITY" => Field::Host,
                header => of_header(header),
            },
            _ => Field::Ignored,
        };
        parts.push(FormatPart::Variable { meaning: Meaning::of(field), name: format!("%{command}%") });
    }
    parts.push(FormatPart::Literal(rest.to_owned()));
    Ok(without_empty(parts))
}

/// The `#Fields` of the extended format of W3C, of CloudFront with tabs between the values, of IIS with spaces.
pub(super) fn w3c(fields: &str, separator: char) -> Result<Template, FormatError> {
    let is_cloudfront = separator == '\t';
    let mut parts = Vec::new();
    for name in fields.split_ascii_whitespace() {
        let (field, rank) = match name {
            "date" => (Field::Date, 0),
            "time" => (Field::TimeOfDay, 0),
            "timestamp" => (Field::End, 0),
            "timestamp(ms)" => (Field::End, 0),
            "c-ip" => (Field::Client, 0),
            "cs-method" => (Field::Method, 0),
            "cs-uri-stem" => (Field::Path, 0),
            "cs-uri-query" => (Field::Query, 0),
            "cs-username" => (Field::User, 0),
            "x-host-header" | "cs-host" => (Field::Host, 0),
            "cs(Host)" => (Field::Host, 1),
            "sc-status" => (Field::Status, 0),
            "sc-bytes" => (Field::Bytes, 0),
            "time-taken" if is_cloudfront => (Field::Duration(Unit::Seconds), 0),
            "time-taken" => (Field::Duration(Unit::Millis), 0),
            "x-forwarded-for" => (of_header(name), 0),
            name => match name.strip_prefix("cs(").and_then(|name| name.strip_suffix(')')).map(of_header) {
                Some(Field::Header(name)) if is_cloudfront => (Field::EncodedHeader(name), 0),
                Some(field) => (field, 0),
                None => (Field::Ignored, 0),
            },
        };
        if !parts.is_empty() {
            parts.push(FormatPart::Literal(separator.to_string()));
        }
        parts.push(FormatPart::Variable { meaning: Meaning { field, rank }, name: name.to_owned() });
    }
    Template::compile(parts, Escape::None, false)
}

fn without_empty(mut parts: Vec<FormatPart>) -> Vec<FormatPart> {
    parts.retain(|part| !matches!(part, FormatPart::Literal(text) if text.is_empty()));
    parts
}
