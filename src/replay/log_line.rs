//! One line of an access log.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header::HOST, request};
use jiff::Timestamp;

use super::{combined, json};
use crate::{
    limit::{AnswerStatus, GrpcOutcome},
    proxy::replay::{LoggedProgress, LoggedRequest, LoggedUser},
};

/// A request, and how exactly its line tells the time.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) request: LoggedRequest,
    /// Whether its time is one of whole seconds.
    pub(super) is_whole_second: bool,
}

/// Why a line has no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    /// It is not a line of an access log in a format that is known.
    Unreadable,
    /// The client has sent something else than HTTP, which no policy gets to see.
    NoRequest,
}

impl LogLine {
    /// Reads one line, of either format. `times`: those of the lines before.
    pub(super) fn parse(line: &[u8], times: &mut TimeCache) -> Result<Self, LineFault> {
        let fields = match line.trim_ascii_start().first() {
            Some(b'{') => json::read(line, times),
            _ => combined::read(line, times),
        };
        let Fields { time, duration, client, user, request, host, headers, status, grpc_status, progress } =
            fields.ok_or(LineFault::Unreadable)?;
        let mut parts = request.and_then(LoggedRequestLine::parts).ok_or(LineFault::NoRequest)?;
        let host = host.map(|host| (HOST.as_str().to_owned(), host));
        for (name, value) in headers.into_iter().chain(host) {
            // What can't be a field was changed by the log.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&value)) {
                parts.headers.append(name, value);
            }
        }
        let status = AnswerStatus { http: status, grpc: GrpcOutcome::Known(grpc_status) };
        let request =
            LoggedRequest { time: time.micros, duration, client, user, request: parts, status, progress };
        Ok(Self { request, is_whole_second: time.is_whole_second })
    }
}

/// What a line has.
pub(super) struct Fields {
    pub(super) time: LogTime,
    /// In microseconds.
    pub(super) duration: Option<i64>,
    pub(super) client: IpAddr,
    pub(super) user: LoggedUser,
    /// `None`: the client has sent something else.
    pub(super) request: Option<LoggedRequestLine>,
    pub(super) host: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) status: StatusCode,
    pub(super) grpc_status: Option<u32>,
    pub(super) progress: LoggedProgress,
}

/// The method, and the target as the client sent it.
pub(super) struct LoggedRequestLine {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
}

impl LoggedRequestLine {
    /// Of `GET /path HTTP/1.1`. `None`: it is something else.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        let method_end = line.iter().position(|&byte| byte == b' ')?;
        let (method, rest) = line.split_at(method_end);
        let rest = rest.trim_ascii_start();
        let protocol = rest.iter().rposition(|&byte| byte == b' ')?;
        let (target, protocol) = rest.split_at(protocol);
        protocol.starts_with(b" HTTP/").then(|| Self { method: method.into(), target: target.into() })
    }

    fn parts(self) -> Option<request::Parts> {
        let method = Method::from_bytes(&self.method).ok()?;
        let uri = Uri::from_maybe_shared(bytes::Bytes::from(self.target)).ok()?;
        let (parts, ()) = Request::builder().method(method).uri(uri).body(()).ok()?.into_parts();
        Some(parts)
    }
}

/// When a request came, or was answered, as far as the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogTime {
    /// Since the Unix epoch.
    pub(super) micros: i64,
    pub(super) is_whole_second: bool,
}

impl LogTime {
    /// Of RFC 3339: `2026-07-03T12:00:01.250Z`, `2026-07-03T14:00:01+02:00`.
    pub(super) fn rfc3339(text: &str) -> Option<Self> {
        let time: Timestamp = text.parse().ok()?;
        Some(Self { micros: time.as_microsecond(), is_whole_second: !text.contains(['.', ',']) })
    }

    /// Of a number since the Unix epoch: seconds, or milliseconds where seconds would be thousands of years away.
    pub(super) fn number(text: &str) -> Option<Self> {
        let number: f64 = text.parse().ok()?;
        let is_millis = number.abs() >= 1e11;
        let micros = number * if is_millis { 1e3 } else { 1e6 };
        let is_whole_second = !is_millis && !text.contains(['.', 'e', 'E']);
        (micros.abs() < 1e17).then_some(Self { micros: micros as i64, is_whole_second })
    }
}

/// The time of the last line: most lines have the same, and it takes longer to read than all the rest.
#[derive(Debug, Default)]
pub(super) struct TimeCache(Option<(Vec<u8>, i64)>);

impl TimeCache {
    /// Of the common log format: `03/Jul/2026:14:00:01 +0200`.
    pub(super) fn common(&mut self, text: &[u8]) -> Option<LogTime> {
        let micros = match &self.0 {
            Some((last, micros)) if last == text => *micros,
            _ => {
                let time = Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
                self.0.insert((text.into(), time.as_microsecond())).1
            }
        };
        Some(LogTime { micros, is_whole_second: true })
    }
}

/// An address as logs have it: also with a port, and of IPv6 in brackets.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let without_port = || Some(text.parse::<std::net::SocketAddr>().ok()?.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(without_port).or_else(in_brackets)
}

/// A user, unless the log has none.
pub(super) fn user(text: &str) -> LoggedUser {
    if matches!(text, "" | "-") { LoggedUser::Unknown } else { LoggedUser::Named(text.into()) }
}
