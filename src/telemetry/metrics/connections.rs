//! The client connections: how many there are, and which are closed so that there is room for others.

use std::fmt;

use ipnet::IpNet;
use prometheus_client::encoding::DescriptorEncoder;

use super::{
    ThreadMetrics,
    exposition::{count, counter},
};

/// Why a client connection is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// `client_limits.connections` are open, and none can make room.
    Connections,
    /// The address has `client_limits.connections_per_address` open.
    ConnectionsPerAddress,
    /// The address is banned, and has as many open as a banned one may have.
    Banned,
}

impl ConnectionRefusal {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::Connections, "connections"),
        (Self::ConnectionsPerAddress, "connections_per_address"),
        (Self::Banned, "banned"),
    ];

    /// The word for it: `connections_per_address`
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Why an idle client connection is closed early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleClosure {
    /// `client_limits.connections` were open, and it made room for another.
    Replaced,
    /// Its address was banned.
    Banned,
}

impl IdleClosure {
    pub(super) const ALL: [(Self, &'static str); 2] =
        [(Self::Replaced, "replaced"), (Self::Banned, "banned")];
}

/// What a client does by HTTP/2 that only wears the server out: its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2Abuse {
    /// Requests that are reset as soon as they are sent (CVE-2023-44487).
    RapidResets,
    /// Frames that ask for nothing: PING, SETTINGS, PRIORITY, padding.
    EmptyFrames,
    /// What hyper's HTTP/2 finds excessive: CONTINUATION without end, tiny or empty DATA, resets before a request is
    /// looked at.
    ExcessiveLoad,
}

impl Http2Abuse {
    pub(in crate::telemetry) const ALL: [(Self, &'static str); 3] = [
        (Self::RapidResets, "rapid_resets"),
        (Self::EmptyFrames, "empty_frames"),
        (Self::ExcessiveLoad, "excessive_load"),
    ];

    /// The word for it: `rapid_resets`
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// How the client connections are spread over addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    pub open: usize,
    /// `client_limits.connections`
    pub max: usize,
    /// The client that has most of them, and how many. Trusted proxies, which stand for many clients, do not count.
    pub heaviest: Option<(IpNet, usize)>,
}

/// Writes down what `sum` adds up over all workers.
pub(super) fn expose(
    sum: impl Fn(&dyn Fn(&ThreadMetrics) -> u64) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Client connections closed at once, by reason";
    let mut family = counter(out, "tollgate_connections_refused", help)?;
    for (reason, name) in ConnectionRefusal::ALL {
        let value = sum(&|worker| worker.connections_refused(reason).value());
        count(&mut family, [("reason", name)], value)?;
    }
    let help = "Idle client connections closed before their time, by reason";
    let mut family = counter(out, "tollgate_idle_connections_closed", help)?;
    for (reason, name) in IdleClosure::ALL {
        let value = sum(&|worker| worker.idle_closed(reason).value());
        count(&mut family, [("reason", name)], value)?;
    }
    let help = "HTTP/2 connections closed because the client only wore the server out, by what it did";
    let mut family = counter(out, "tollgate_http2_abuse", help)?;
    for (abuse, name) in Http2Abuse::ALL {
        let value = sum(&|worker| worker.http2_abuse(abuse).value());
        count(&mut family, [("reason", name)], value)?;
    }
    Ok(())
}
