//! Apache's combined format, which every log analyser reads, followed by the verdict, its policy and its source.
//!
//! ```text
//! CLIENT - USER [TIME] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "USER-AGENT" VERDICT POLICY SOURCE
//! ```

use std::io::Write;

use super::{Line, LogVerdict, escape, timestamp::TimestampCache};
use crate::telemetry::metrics::SourceLabel;

/// Appends `line` and a newline.
pub(super) fn write(out: &mut Vec<u8>, line: &Line<'_>, timestamps: &mut TimestampCache) {
    // Writing to a vector can't fail; an address needs no escaping.
    let _ok = write!(out, "{} - ", line.client);
    match line.user {
        None | Some(b"") => out.push(b'-'),
        Some(user) => escape::bare(out, user),
    }
    out.extend_from_slice(b" [");
    timestamps.common(out, line.time);
    out.extend_from_slice(b"] \"");
    if line.method.is_empty() {
        out.push(b'-');
    } else {
        escape::quoted(out, line.method);
        out.push(b' ');
        escape::quoted(out, line.path);
        out.push(b' ');
        escape::quoted(out, line.protocol);
    }
    out.extend_from_slice(b"\" ");
    out.extend_from_slice(itoa::Buffer::new().format(line.status.as_u16()).as_bytes());
    out.push(b' ');
    // `%b`: an empty body is a dash.
    match line.bytes {
        0 => out.push(b'-'),
        bytes => out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes()),
    }
    quoted(out, line.referer);
    quoted(out, line.user_agent);
    word(out, line.verdict.map(LogVerdict::name));
    word(out, line.policy);
    word(out, line.source.map(SourceLabel::name));
    out.push(b'\n');
}

fn word(out: &mut Vec<u8>, value: Option<&str>) {
    out.push(b' ');
    match value {
        None | Some("") => out.push(b'-'),
        Some(value) => escape::bare(out, value.as_bytes()),
    }
}

fn quoted(out: &mut Vec<u8>, value: Option<&[u8]>) {
    out.extend_from_slice(b" \"");
    match value {
        None => out.push(b'-'),
        Some(value) => escape::quoted(out, value),
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{super::line::sample, *};

    fn formatted(line: &Line<'_>) -> String {
        let mut out = Vec::new();
        write(&mut out, line, &mut TimestampCache::new());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn as_apache_writes_it() {
        assert_eq!(
            formatted(&sample::line()),
            "203.0.113.7 - acme [03/Jul/2026:12:00:01 +0000] \"GET /a?b=c HTTP/1.1\" 200 512 \"-\" \"curl/8\" allowed - store\n"
        );
        let denied = Line { verdict: Some(LogVerdict::Denied), policy: Some("per ip"), ..sample::line() };
        assert!(formatted(&denied).ends_with("\"curl/8\" denied per\\x20ip store\n"));
        let undecided = Line { verdict: None, source: None, ..sample::line() };
        assert!(formatted(&undecided).ends_with("\"curl/8\" - - -\n"));
    }

    #[test]
    fn a_request_line_that_is_not_known_is_a_dash() {
        let line = Line {
            method: b"",
            path: b"",
            protocol: b"",
            status: http::StatusCode::BAD_REQUEST,
            ..sample::line()
        };
        assert!(formatted(&line).contains("] \"-\" 400 512 "), "{}", formatted(&line));
    }

    #[test]
    fn text_of_clients_stays_in_its_field() {
        let line = Line {
            user: Some(b"x [y] \"GET"),
            user_agent: Some(b"a\" 200 1\n10.0.0.1 - -"),
            bytes: 0,
            ..sample::line()
        };
        let text = formatted(&line);
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains(r"- x\x20\x5by\x5d\x20\x22GET ["), "{text}");
        assert!(text.ends_with("200 - \"-\" \"a\\x22 200 1\\x0a10.0.0.1 - -\" allowed - store\n"), "{text}");
    }
}
