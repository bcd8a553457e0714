//! The log line of one request.

use std::{net::IpAddr, time::Duration};

use http::{StatusCode, Version};
use opentelemetry::trace::TraceId;

use crate::{config::model::RetryReason, telemetry::metrics::SourceLabel};

/// A request and its response. Text from clients is bytes, because it may not be UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the request arrived, in microseconds since the Unix epoch.
    pub time: i64,
    pub client: IpAddr,
    /// The method, the path with its query, and the protocol as sent by the client. Empty: unknown.
    pub method: &'a [u8],
    pub path: &'a [u8],
    pub protocol: &'a [u8],
    pub status: StatusCode,
    /// `grpc-status`; `None`: it is not a gRPC call, or has no status.
    pub grpc_status: Option<u32>,
    /// The side that aborted the exchange; `None`: neither.
    pub aborted_by: Option<AbortedBy>,
    /// Bytes of the response body.
    pub bytes: u64,
    /// Bytes that the client sent through a tunnel. `None`: it is not a tunnel.
    pub received: Option<u64>,
    pub elapsed: Duration,
    /// `None`: no route matched.
    pub route: Option<&'a str>,
    /// The endpoint that responded: `10.0.0.1:3000`.
    pub upstream: Option<&'a str>,
    /// Attempts that were retried, in order.
    pub retried: &'a [RetriedTry],
    pub request_id: Option<&'a [u8]>,
    pub user: Option<&'a [u8]>,
    /// The customer, the plan and the ID of the request's valid API key.
    pub customer: Option<&'a [u8]>,
    pub plan: Option<&'a [u8]>,
    pub api_key: Option<&'a [u8]>,
    pub host: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
    /// `None`: no policy applied.
    pub verdict: Option<LogVerdict>,
    /// The policy that determined the verdict; `None` if all admitted the request.
    pub policy: Option<&'a str>,
    /// The shadow policy that would have denied the request, even if another policy denied it.
    pub shadow_policy: Option<&'a str>,
    /// Where the decision was made.
    pub source: Option<SourceLabel>,
    /// Time it waited for its slot (`delay`); 0: none.
    pub delay_millis: u32,
    /// Time that shadow policies would have delayed it.
    pub shadow_delay_millis: u32,
    /// Units that the request had reserved, and the cost of its response; `None`: no response tells a cost.
    pub cost: Option<(u64, u64)>,
    /// The values of the request that are logged, as a JSON object; `None`: none.
    pub values: Option<&'a str>,
    /// The proxy that has asked about the request, and forwards it itself; `None`: Tollgate forwards it.
    pub front: Option<&'a str>,
    pub trace_id: Option<TraceId>,
    /// `TLSv1.3`; `None`: the connection is not encrypted.
    pub tls_version: Option<&'a str>,
    /// The subject of the client's certificate (RFC 4514); `None`: it sent none.
    pub tls_subject: Option<&'a [u8]>,
}

/// An attempt at an upstream that was retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetriedTry {
    /// The endpoint: `10.0.0.1:3000`.
    pub upstream: String,
    pub reason: RetryReason,
}

/// The side that aborted an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortedBy {
    /// It closed the connection or was too slow before the request or response was complete.
    Client,
    /// Its response was incomplete.
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

/// `HTTP/1.1`
pub fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// The decision of policies, bans, `deny` and `allow` on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogVerdict {
    /// All policies admitted it.
    Allowed,
    /// A policy denied it.
    Denied,
    /// The client is banned.
    Banned,
    /// `deny` or `allow` rejects its address.
    Forbidden,
    /// It has no valid API key or user, and its route requires one.
    Unauthorized,
    /// Its API key or token is known, and not valid any more, or not here. It was no guess.
    Expired,
    /// It was admitted, but a shadow policy would have denied it.
    ShadowDenied,
    /// The store was unavailable, and a policy fails closed.
    Undecided,
}

impl LogVerdict {
    /// `shadow_denied`
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Banned => "banned",
            Self::Unauthorized => "unauthorized",
            Self::Expired => "expired",
            Self::Forbidden => "forbidden",
            Self::ShadowDenied => "shadow_denied",
            Self::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;

    /// A plain request; tests change some fields.
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
            customer: None,
            plan: None,
            api_key: None,
            host: Some(b"api.example.com"),
            referer: None,
            user_agent: Some(b"curl/8"),
            verdict: Some(LogVerdict::Allowed),
            policy: None,
            shadow_policy: None,
            source: Some(SourceLabel::Store),
            delay_millis: 0,
            shadow_delay_millis: 0,
            cost: None,
            values: None,
            front: None,
            trace_id: None,
            tls_version: None,
            tls_subject: None,
        }
    }
}
