//! Client connections: why they are refused or closed early.

use std::fmt;

use ipnet::IpNet;
use prometheus_client::encoding::DescriptorEncoder;
use tollgate_derive::Label;

use super::families::counters_by_reason;

/// Why a client connection is closed immediately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum ConnectionRefusal {
    /// `client_limits.connections` are open, and none can be closed to make room.
    Connections,
    /// The address has `client_limits.connections_per_address` open.
    ConnectionsPerAddress,
    /// The address is banned, and has as many open as a banned address may have.
    Banned,
}

/// Why an idle client connection is closed early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum IdleClosure {
    /// `client_limits.connections` were open, and it made room for another.
    Replaced,
    /// Its address was banned.
    Banned,
}

/// HTTP/2 traffic that only costs the server work: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum Http2Abuse {
    /// Requests that are reset immediately (CVE-2023-44487).
    RapidResets,
    /// Frames that carry no request: PING, SETTINGS, PRIORITY, padding.
    EmptyFrames,
    /// Rejected by hyper (ENHANCE_YOUR_CALM): endless CONTINUATION, tiny or empty DATA, resets before a request is
    /// accepted.
    ExcessiveLoad,
}

/// The distribution of client connections over addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    pub open: usize,
    /// `client_limits.connections`
    pub max: usize,
    /// The client with most connections, and their number. Trusted proxies, which carry many clients, do not count.
    pub heaviest: Option<(IpNet, usize)>,
}

pub(super) fn expose_refused(
    refused: impl Fn(ConnectionRefusal) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Client connections closed at once, by reason";
    counters_by_reason(
        out,
        "tollgate_connections_refused",
        help,
        ConnectionRefusal::ALL.map(|reason| (reason.name(), refused(reason))),
    )
}

pub(super) fn expose_idle_closed(
    closed: impl Fn(IdleClosure) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Idle client connections closed before their time, by reason";
    counters_by_reason(
        out,
        "tollgate_idle_connections_closed",
        help,
        IdleClosure::ALL.map(|reason| (reason.name(), closed(reason))),
    )
}

pub(super) fn expose_http2_abuse(
    closed: impl Fn(Http2Abuse) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "HTTP/2 connections closed because the client only wore the server out, by what it did";
    counters_by_reason(
        out,
        "tollgate_http2_abuse",
        help,
        Http2Abuse::ALL.map(|reason| (reason.name(), closed(reason))),
    )
}
