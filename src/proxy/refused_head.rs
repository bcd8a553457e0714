//! Heads that hyper does not accept as requests: malformed, too large, or not received in time. They get a reply, and
//! are counted and logged, like requests.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

use super::{client::ClientInfo, headers, reply::Reply, worker::Worker};
use crate::{
    telemetry::{
        access_log::Line,
        metrics::{Refusal, ServerErrorSource},
    },
    tls::TlsIdentity,
};

/// The fault of a refused head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// hyper can't parse it, and refuses it with this status.
    Unparsed(StatusCode),
    /// Its request target is not a URI.
    Target,
    /// It is the preface of HTTP/2, which the listener does not speak.
    Http2,
    /// It was not received in time.
    Timeout,
}

/// The longest path that is logged for such a head, in bytes.
const MAX_LOGGED: usize = 2 << 10;

/// Counts and logs a refused head, and returns the reply. `head` is the received part. It is empty if hyper had read
/// the head to its end, unless the head announced a length too large for a number; then the bytes after the head are
/// included.
pub fn refuse_head<S>(worker: &Worker<S>, client: &ClientInfo, fault: HeadFault, head: &[u8]) -> Bytes {
    let mut line = RawRequestLine::read(head);
    let (refusal, detail) = refusal(worker, fault, head, &line);
    if refusal == Refusal::BodyTooLarge {
        line = RawRequestLine::default();
    }
    let request_id = headers::request_id(&HeaderMap::new(), &worker.config().request_id, false);
    let mut reply = Reply::problem(refusal.status(), detail).closing();
    if line.method == b"HEAD" {
        reply.body = Bytes::new();
    }

    let telemetry = &worker.telemetry;
    let (began, elapsed) = (client.timer().since(), client.timer().since().elapsed());
    telemetry.metrics.request(None, reply.status, elapsed);
    telemetry.metrics.thread().refused(refusal).inc();
    if reply.status.is_server_error() {
        telemetry.metrics.server_error(None, ServerErrorSource::from_proxy(reply.status));
    }
    if telemetry.access_log.samples_next() {
        let tls = client.tls();
        let subject = client.certificate().map(TlsIdentity::subject);
        let subject = subject.and_then(|subject| telemetry.subject_names.log_name(subject));
        telemetry.access_log.write(&Line {
            time: telemetry.clock.at(began),
            client: client.peer().address().ip().to_canonical(),
            method: line.method,
            path: worker.rules.loggable_target(line.target),
            protocol: line.protocol,
            status: reply.status,
            grpc_status: None,
            aborted_by: None,
            bytes: reply.body.len() as u64,
            received: None,
            elapsed,
            route: None,
            upstream: None,
            retried: &[],
            request_id: Some(request_id.as_bytes()),
            user: None,
            customer: None,
            plan: None,
            api_key: None,
            host: None,
            referer: None,
            user_agent: None,
            verdict: None,
            policy: None,
            shadow_policy: None,
            source: None,
            delay_millis: 0,
            shadow_delay_millis: 0,
            cost: None,
            values: None,
            front: None,
            trace_id: None,
            tls_version: tls.map(|tls| tls.version),
            tls_subject: subject.as_deref().map(str::as_bytes),
        });
    }

    reply.headers.insert(&worker.config().request_id, request_id);
    if let Some(hsts) = client.hsts() {
        reply.headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    message(&reply)
}

/// The reason why a head is refused, and the text for the client.
fn refusal<S>(
    worker: &Worker<S>,
    fault: HeadFault,
    head: &[u8],
    line: &RawRequestLine<'_>,
) -> (Refusal, &'static str) {
    let limits = &worker.config().client_limits;
    match fault {
        HeadFault::Timeout => (Refusal::Timeout, "The head of the request was not received in time."),
        HeadFault::Http2 => (Refusal::Version, "This server does not speak HTTP/2 here."),
        HeadFault::Target => (
            Refusal::Malformed,
            "The request target is not a valid URL: percent-encode \" < > ` and control characters in it.",
        ),
        HeadFault::Unparsed(StatusCode::URI_TOO_LONG) => TOO_LONG,
        HeadFault::Unparsed(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => {
            let lines = head.split(|byte| *byte == b'\n');
            if head.len() >= limits.header_size
                && lines.clone().next().is_some_and(|line| line.len() >= limits.header_size)
            {
                TOO_LONG
            } else if !head.trim_ascii().is_empty()
                && head.len() < limits.header_size
                && lines.count() <= limits.headers
            {
                // It was read to its end, and its length is too large for a number.
                (Refusal::BodyTooLarge, "The request body is too large.")
            } else {
                (Refusal::HeadTooLarge, "The head of the request is too large, or has too many fields.")
            }
        }
        HeadFault::Unparsed(_) if line.is_of_other_version() => {
            (Refusal::Version, "This version of HTTP is not supported; use HTTP/1.1 or HTTP/2.")
        }
        HeadFault::Unparsed(_) => (Refusal::Malformed, "The request is malformed."),
    }
}

const TOO_LONG: (Refusal, &str) = (Refusal::UriTooLong, "The request target is too long.");

/// The request line of a head, as far as it was received. Empty if the head does not begin with one.
#[derive(Debug, Default, PartialEq, Eq)]
struct RawRequestLine<'h> {
    method: &'h [u8],
    target: &'h [u8],
    protocol: &'h [u8],
}

impl<'h> RawRequestLine<'h> {
    fn read(head: &'h [u8]) -> Self {
        let head = head.trim_ascii_start();
        let end = head.iter().position(|byte| *byte == b'\n');
        let line = head[..end.unwrap_or(head.len())].trim_ascii_end();
        let Some(space) = line.iter().position(|byte| *byte == b' ') else { return Self::default() };
        let (method, rest) = (&line[..space], &line[space + 1..]);
        let is_method = (1..=32).contains(&space)
            && method.iter().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(byte));
        let (target, protocol) = match rest.iter().rposition(|byte| *byte == b' ') {
            Some(space) if rest[space + 1..].starts_with(b"HTTP/") => (&rest[..space], &rest[space + 1..]),
            // The version may not be received yet.
            _ if end.is_none() => (rest, &rest[rest.len()..]),
            _ => return Self::default(),
        };
        let target = &target[..target.len().min(MAX_LOGGED)];
        let protocol = &protocol[..protocol.len().min(16)];
        if is_method { Self { method, target, protocol } } else { Self::default() }
    }

    /// Whether it is well-formed, but of a version that hyper does not parse.
    fn is_of_other_version(&self) -> bool {
        let Some(version) = self.protocol.strip_prefix(b"HTTP/") else { return false };
        let digits = match version {
            [major] => [*major, b'0'],
            [major, b'.', minor] => [*major, *minor],
            _ => return false,
        };
        digits.iter().all(u8::is_ascii_digit) && !matches!(&digits, b"10" | b"11")
    }
}

/// `reply` as an HTTP/1.1 message.
fn message(reply: &Reply) -> Bytes {
    let status = reply.status;
    let mut message =
        format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default())
            .into_bytes();
    for (name, value) in &reply.headers {
        message.extend_from_slice(name.as_str().as_bytes());
        message.extend_from_slice(b": ");
        message.extend_from_slice(value.as_bytes());
        message.extend_from_slice(b"\r\n");
    }
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()) {
        message.extend_from_slice(format!("date: {date}\r\n").as_bytes());
    }
    message.extend_from_slice(format!("content-length: {}\r\n\r\n", reply.body.len()).as_bytes());
    message.extend_from_slice(&reply.body);
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> [String; 3] {
        let line = RawRequestLine::read(head.as_bytes());
        [line.method, line.target, line.protocol].map(|part| String::from_utf8(part.to_vec()).unwrap())
    }

    #[test]
    fn the_request_line_is_read_as_far_as_it_is_one() {
        assert_eq!(read("GET /a b HTTP/1.1\r\nhost"), ["GET", "/a b", "HTTP/1.1"]);
        assert_eq!(read("\r\nGET / HTTP/3.0\r\n"), ["GET", "/", "HTTP/3.0"]);
        assert_eq!(read("GET /aaa"), ["GET", "/aaa", ""]);
        for other in
            ["", "hello=world", "hello world\r\n", "SSH-2.0-OpenSSH_9\r\n", "\u{16}\u{3}\u{1} x HTTP/1.1\r\n"]
        {
            assert_eq!(read(other), ["", "", ""], "{other:?}");
        }
        assert_eq!(read(&format!("GET /{} HTTP/1.1\n", "a".repeat(9_000)))[1].len(), MAX_LOGGED);
    }

    #[test]
    fn versions_that_are_not_spoken_are_told_from_what_is_none() {
        let is_other = |protocol: &str| {
            RawRequestLine { protocol: protocol.as_bytes(), ..RawRequestLine::default() }
                .is_of_other_version()
        };
        assert!(["HTTP/1.2", "HTTP/2.0", "HTTP/2", "HTTP/3"].into_iter().all(is_other));
        assert!(
            !["HTTP/1.1", "HTTP/1.0", "HTTP/1.11", "HTTP/x", "HTTP/", "HTTPS/1.1", ""]
                .into_iter()
                .any(is_other)
        );
    }
}
