//! The common and the combined log format of Apache and nginx, followed by anything:
//!
//! ```text
//! CLIENT IDENT USER [TIME] "METHOD TARGET PROTOCOL" STATUS BYTES "REFERER" "USER-AGENT" …
//! ```

use std::borrow::Cow;

use http::{StatusCode, header};

use super::LoggedProgress;
use super::log_line::{Fields, LoggedRequestLine, TimeCache, address, user};

/// Reads a line. `None`: it has another format.
pub(super) fn read(line: &[u8], times: &mut TimeCache) -> Option<Fields> {
    let (client, rest) = split_once(line, b" ")?;
    // A user name may contain spaces.
    let (names, rest) = split_once(rest, b" [")?;
    let (_, name) = split_once(names, b" ")?;
    let (time, rest) = split_once(rest, b"] ")?;
    let (request, rest) = quoted(rest)?;
    let mut numbers = rest.trim_ascii_start().splitn(3, |&byte| byte == b' ');
    let status = StatusCode::from_bytes(numbers.next()?.trim_ascii()).ok()?;
    let bytes = numbers.next()?;
    let mut headers = Vec::new();
    let mut rest = numbers.next().unwrap_or_default();
    for header in [header::REFERER, header::USER_AGENT] {
        let Some((value, behind)) = quoted(rest) else { break };
        rest = behind;
        if *value != *b"-" {
            headers.push((header.as_str().to_owned(), value.into_owned()));
        }
    }
    Some(Fields {
        time: times.common(time)?,
        duration: None,
        client: address(std::str::from_utf8(client).ok()?)?,
        user: user(&String::from_utf8_lossy(&unescaped(name))),
        key: None,
        request: LoggedRequestLine::of(&request),
        host: None,
        headers,
        status,
        grpc_status: None,
        bytes: number(bytes),
        charged: None,
        progress: LoggedProgress::Responded,
    })
}

/// The number of bytes; Apache writes `-` for none.
fn number(text: &[u8]) -> Option<u64> {
    match text {
        b"-" => Some(0),
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

fn split_once<'t>(text: &'t [u8], by: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(by.len()).position(|window| window == by)?;
    Some((&text[..at], &text[at + by.len()..]))
}

/// Splits a quoted string, after spaces, from the text that follows it.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let mut is_escaped = false;
    let end = text.iter().position(|&byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    Some((unescaped(&text[..end]), &text[end + 1..]))
}

/// Decodes the escapes of Apache and nginx: `\"`, `\\`, `\n`, `\xHH`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let hex = |text: &[u8]| u8::from_str_radix(std::str::from_utf8(text.get(1..3)?).ok()?, 16).ok();
        match rest.as_slice() {
            [b'x', ..] => match hex(rest.as_slice()) {
                Some(byte) => {
                    out.push(byte);
                    rest.nth(2);
                }
                None => out.push(b'\\'),
            },
            [escaped, ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest.next();
            }
            [] => out.push(b'\\'),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_logs::LoggedUser;

    fn fields(line: &str) -> Option<Fields> {
        read(line.as_bytes(), &mut TimeCache::default())
    }

    #[test]
    fn lines_of_apache_and_nginx_are_read() {
        let line = concat!(
            r#"203.0.113.7 - ann lee [03/Jul/2026:14:00:01 +0200] "GET /a?b=%20c HTTP/1.1" 200 512 "-" "curl/8 \"x\"""#,
            r#" allowed - store"#
        );
        let read = fields(line).unwrap();
        assert_eq!((read.time.micros, read.time.is_whole_second), (1_783_080_001_000_000, true));
        assert_eq!((read.client.to_string(), read.user), ("203.0.113.7".into(), user("ann lee")));
        let request = read.request.unwrap();
        assert_eq!((&request.method[..], &request.target[..]), (&b"GET"[..], &b"/a?b=%20c"[..]));
        assert_eq!(read.status, 200);
        assert_eq!(read.headers, [("user-agent".to_owned(), br#"curl/8 "x""#.to_vec())]);
    }

    #[test]
    fn the_common_format_has_less() {
        let read = fields(r#"2001:db8::1 - - [03/Jul/2026:12:00:01 +0000] "POST / HTTP/1.0" 302 -"#).unwrap();
        assert_eq!((read.client.to_string(), read.user), ("2001:db8::1".into(), LoggedUser::Unknown));
        assert!(read.headers.is_empty() && read.request.is_some());
    }

    #[test]
    fn what_is_no_request_is_told_from_what_is_no_line() {
        for request in ["-", "", r"\x16\x03\x01", "GET /", "hello there"] {
            let line = format!("203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] \"{request}\" 400 0");
            assert!(fields(&line).unwrap().request.is_none(), "{request}");
        }
        for line in [
            "",
            "203.0.113.7",
            r#"host.example - - [03/Jul/2026:12:00:01 +0000] "GET / HTTP/1.1" 200 1"#,
            r#"203.0.113.7 - - [yesterday] "GET / HTTP/1.1" 200 1"#,
            r#"203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] "GET / HTTP/1.1 200 1"#,
            r#"203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] "GET / HTTP/1.1" OK 1"#,
        ] {
            assert!(fields(line).is_none(), "{line}");
        }
    }

    #[test]
    fn escapes_are_those_of_either_server() {
        for (text, bytes) in [
            (r"plain", &b"plain"[..]),
            (r#"a\"b\\c"#, br#"a"b\c"#),
            (r"\x22\xC3\xa9", b"\"\xc3\xa9"),
            (r"\n\t", b"\n\t"),
            (r"\xzz\", br"\xzz\"),
        ] {
            assert_eq!(&*unescaped(text.as_bytes()), bytes, "{text}");
        }
    }
}
