//! Requests that ended before their time, because their clients were too slow.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{
    Counter, ThreadMetrics,
    exposition::{count, counter},
};

/// A request that ended because its client was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOff {
    /// What the client was waited for.
    pub body: CutOffBody,
    pub reason: CutOffReason,
}

/// The body that a client was too slow with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOffBody {
    /// It had to send it.
    Request,
    /// It had to read it.
    Response,
    /// None: the request had become a tunnel.
    Tunnel,
}

impl CutOffBody {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Request, "request"), (Self::Response, "response"), (Self::Tunnel, "tunnel")];
}

/// Why a client was not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOffReason {
    /// Nothing came or was read for `client_limits.idle_timeout`.
    IdleTimeout,
    /// It was slower than `client_limits.min_rate`.
    MinRate,
    /// Its address held more than `max_connections_per_address`, and others waited for a connection.
    MaxConnectionsPerAddress,
    /// Of all addresses, most was held for its own, and too much in all.
    Memory,
}

impl CutOffReason {
    const ALL: [(Self, &'static str); 4] = [
        (Self::IdleTimeout, "idle_timeout"),
        (Self::MinRate, "min_rate"),
        (Self::MaxConnectionsPerAddress, "max_connections_per_address"),
        (Self::Memory, "memory"),
    ];

    /// The setting: `min_rate`. Of memory, there is none.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The requests of one worker that were cut off.
#[derive(Debug, Default)]
pub struct CutOffMetrics([[Counter; CutOffReason::ALL.len()]; CutOffBody::ALL.len()]);

impl CutOffMetrics {
    /// Those that were cut off like this.
    pub fn counter(&self, cut_off: CutOff) -> &Counter {
        &self.0[cut_off.body as usize][cut_off.reason as usize]
    }
}

pub(super) fn expose(
    sum: impl Fn(&dyn Fn(&ThreadMetrics) -> u64) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Requests ended because their clients sent or read too slowly, by body and by setting";
    let mut family = counter(out, "tollgate_requests_cut_off", help)?;
    for (body, body_name) in CutOffBody::ALL {
        for (reason, reason_name) in CutOffReason::ALL {
            let value = sum(&|thread| thread.cut_offs().counter(CutOff { body, reason }).value());
            count(&mut family, [("body", body_name), ("reason", reason_name)], value)?;
        }
    }
    Ok(())
}
