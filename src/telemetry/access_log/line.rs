//! What is logged of one request.

use std::{net::IpAddr, time::Duration};

use http::{StatusCode, Version};
use opentelemetry::trace::TraceId;

use crate::{config::model::RetryReason, telemetry::metrics::SourceLabel};

/// One request and its answer. What clients choose is bytes, as it need not be UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the request came, in microseconds since the Unix epoch.
    pub time: i64,
    pub client: IpAddr,
    /// This, the path with its query, and the protocol as the client sent them. Empty: they are not known.
    pub method: &'a [u8],
    pub path: &'a [u8],
    pub protocol: &'a [u8],
    pub status: StatusCode,
    /// `grpc-status`; `None`: it is no call of gRPC, or has none.
    pub grpc_status: Option<u32>,
    /// Which side has broken the exchange off; `None`: neither.
    pub aborted_by: Option<AbortedBy>,
    /// Of the answer's body.
    pub bytes: u64,
    /// Of a tunnel: what the client has sent. `None`: it is none.
    pub received: Option<u64>,
    pub elapsed: Duration,
    /// `None` where none matched.
    pub route: Option<&'a str>,
    /// The endpoint that answered: `10.0.0.1:3000`.
    pub upstream: Option<&'a str>,
    /// The tries that were followed by another one, in order.
    pub retried: &'a [RetriedTry],
    pub request_id: Option<&'a [u8]>,
    pub user: Option<&'a [u8]>,
    pub host: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
    /// `None` where no policy had a say.
    pub verdict: Option<LogVerdict>,
    /// The policy that the verdict comes from, if it is not that all admitted it.
    pub policy: Option<&'a str>,
    /// The shadow policy that would have held the request back, also where another one did.
    pub shadow_policy: Option<&'a str>,
    /// Where it was decided.
    pub source: Option<SourceLabel>,
    /// How long it waited for its slot (`delay`); 0: it did not.
    pub delay_millis: u32,
    /// How long shadow policies would have had it wait.
    pub shadow_delay_millis: u32,
    pub trace_id: Option<TraceId>,
    /// `TLSv1.3`; `None`: the connection is not encrypted.
    pub tls_version: Option<&'a str>,
    /// The subject of the client's certificate (RFC 4514); `None`: it has shown none.
    pub tls_subject: Option<&'a [u8]>,
}

/// A try at an upstream that was followed by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetriedTry {
    /// The endpoint that was tried: `10.0.0.1:3000`.
    pub upstream: String,
    /// What became of it.
    pub reason: RetryReason,
}

/// Which side has broken an exchange off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortedBy {
    /// It has gone, or was too slow, before its request or its answer had ended.
    Client,
    /// Its answer breaks off.
    Upstream,
}

impl AbortedBy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        }
    }
}

/// The protocol of a request of this version: `HTTP/1.1`.
pub fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// The outcome of a request, as far as policies, bans, `deny` and `allow` decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogVerdict {
    /// All policies admitted it.
    Allowed,
    /// A policy denied it.
    Denied,
    /// The client is banned.
    Banned,
    /// Its address may not send it.
    Forbidden,
    /// It was admitted, but a shadow policy would have denied it.
    ShadowDenied,
    /// The store was not available, and a policy fails closed.
    Undecided,
}

impl LogVerdict {
    /// The word for it: `shadow_denied`
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Banned => "banned",
            Self::Forbidden => "forbidden",
            Self::ShadowDenied => "shadow_denied",
            Self::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;

    /// A plain request; tests change what they are about.
    pub(in super::super) fn line() -> Line<'static> {
        Line {
            time: 1_783_080_001_250_999,
            client: IpAddr::from([203, 0, 113, 7]),
            method: b"GET",
            path: b"/a?b=c",
            protocol: b"HTTP/1.1",
            status: StatusCode::OK,
            grpc_status: None,
            aborted_by: None,
            bytes: 512,
            received: None,
            elapsed: Duration::from_micros(12_034),
            route: Some("all"),
            upstream: Some("127.0.0.1:3000"),
            retried: &[],
            request_id: Some(b"4f1c"),
            user: Some(b"acme"),
            host: Some(b"api.example.com"),
            referer: None,
            user_agent: Some(b"curl/8"),
            verdict: Some(LogVerdict::Allowed),
            policy: None,
            shadow_policy: None,
            source: Some(SourceLabel::Store),
            delay_millis: 0,
            shadow_delay_millis: 0,
            trace_id: None,
            tls_version: None,
            tls_subject: None,
        }
    }
}
