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
    Ok(())
}
