//! One line of an access log.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header::HOST, request};
use jiff::Timestamp;

use super::{LoggedKey, LoggedProgress, LoggedRequest, LoggedUser};
use crate::limit::{GrpcOutcome, ResponseStatus};

/// A request, and the precision of its time.
#[derive(Debug)]
pub(super) struct LogLine {
    pub(super) request: LoggedRequest,
    /// Whether its time has no fraction of a second.
    pub(super) is_whole_second: bool,
}

/// Why a line has no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    /// It is not an access log line in a known format.
    Unreadable,
    /// The client sent something other than HTTP, which policies never check.
    NoRequest,
}

impl LogLine {
    /// `fields`: `None` if the line has an unknown format.
    pub(super) fn from_fields(fields: Option<Fields>) -> Result<Self, LineFault> {
        let Fields {
            time,
            duration,
            client,
            user,
            key,
            request,
            host,
            headers,
            status,
            grpc_status,
            bytes,
            charged,
            progress,
        } = fields.ok_or(LineFault::Unreadable)?;
        let mut parts = request.and_then(LoggedRequestLine::parts).ok_or(LineFault::NoRequest)?;
        let host = host.map(|host| (HOST.as_str().to_owned(), host));
        for (name, value) in headers.into_iter().chain(host) {
            // Invalid fields were altered by the log.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&value)) {
                parts.headers.append(name, value);
            }
        }
        let status = ResponseStatus { http: status, grpc: GrpcOutcome::Known(grpc_status) };
        let request = LoggedRequest {
            time: time.micros,
            duration,
            client,
            user,
            key,
            request: parts,
            status,
            bytes,
            charged,
            progress,
        };
        Ok(Self { request, is_whole_second: time.is_whole_second })
    }
}

/// The fields of a line.
pub(super) struct Fields {
    pub(super) time: LogTime,
    /// In microseconds.
    pub(super) duration: Option<i64>,
    pub(super) client: IpAddr,
    pub(super) user: LoggedUser,
    pub(super) key: Option<LoggedKey>,
    /// `None`: the client sent something other than HTTP.
    pub(super) request: Option<LoggedRequestLine>,
    pub(super) host: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) status: StatusCode,
    pub(super) grpc_status: Option<u32>,
    pub(super) bytes: Option<u64>,
    pub(super) charged: Option<u64>,
    pub(super) progress: LoggedProgress,
}

/// The method and the request target as sent by the client.
pub(super) struct LoggedRequestLine {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
}

impl LoggedRequestLine {
    /// Parses `GET /path HTTP/1.1`. `None`: it is not a request line.
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

/// The arrival or completion time of a request, as logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogTime {
    /// Microseconds since the Unix epoch.
    pub(super) micros: i64,
    pub(super) is_whole_second: bool,
}

impl LogTime {
    /// Parses RFC 3339: `2026-07-03T12:00:01.250Z`, `2026-07-03T14:00:01+02:00`.
    pub(super) fn rfc3339(text: &str) -> Option<Self> {
        let time: Timestamp = text.parse().ok()?;
        Some(Self { micros: time.as_microsecond(), is_whole_second: !text.contains(['.', ',']) })
    }

    /// Parses a number since the Unix epoch: seconds, or milliseconds if seconds would be thousands of years away.
    pub(super) fn number(text: &str) -> Option<Self> {
        let number: f64 = text.parse().ok()?;
        let is_millis = number.abs() >= 1e11;
        let micros = number * if is_millis { 1e3 } else { 1e6 };
        let is_whole_second = !is_millis && !text.contains(['.', 'e', 'E']);
        (micros.abs() < 1e17).then_some(Self { micros: micros as i64, is_whole_second })
    }
}

/// Caches the time of the last line: consecutive lines often have the same, and parsing it dominates the cost.
#[derive(Debug, Default)]
pub(super) struct TimeCache(Option<(Vec<u8>, i64)>);

impl TimeCache {
    /// Parses a time in the common log format: `03/Jul/2026:14:00:01 +0200`.
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

/// Parses an address as in logs: possibly with a port, and IPv6 in brackets.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let without_port = || Some(text.parse::<std::net::SocketAddr>().ok()?.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(without_port).or_else(in_brackets)
}

/// A user name, unless it is empty or `-`.
pub(super) fn user(text: &str) -> LoggedUser {
    if matches!(text, "" | "-") { LoggedUser::Unknown } else { LoggedUser::Named(text.into()) }
}
