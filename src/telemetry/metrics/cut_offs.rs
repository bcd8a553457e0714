//! Requests that were aborted because their clients were too slow.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{
    Counter,
    families::{count, counter},
};

/// A request that was aborted because its client was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutOff {
    pub body: CutOffBody,
    pub reason: CutOffReason,
}

/// The body that the proxy waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOffBody {
    /// The client had to send it.
    Request,
    /// The client had to read it.
    Response,
    /// Neither: the request had become a tunnel.
    Tunnel,
}

impl CutOffBody {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Request, "request"), (Self::Response, "response"), (Self::Tunnel, "tunnel")];
}

/// Why the proxy stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOffReason {
    /// Nothing was received or read for `client_limits.idle_timeout`.
    IdleTimeout,
    /// It was slower than `client_limits.min_rate`.
    MinRate,
    /// The address used more than `max_connections_per_address`, and other clients waited for a connection.
    MaxConnectionsPerAddress,
    /// Too many bytes were buffered in total, and most of them for this address.
    Memory,
}

impl CutOffReason {
    const ALL: [(Self, &'static str); 4] = [
        (Self::IdleTimeout, "idle_timeout"),
        (Self::MinRate, "min_rate"),
        (Self::MaxConnectionsPerAddress, "max_connections_per_address"),
        (Self::Memory, "memory"),
    ];

    /// The setting: `min_rate`. `memory` is not a setting.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The aborted requests of one worker.
#[derive(Debug, Default)]
pub struct CutOffMetrics([[Counter; CutOffReason::ALL.len()]; CutOffBody::ALL.len()]);

impl CutOffMetrics {
    pub fn counter(&self, cut_off: CutOff) -> &Counter {
        &self.0[cut_off.body as usize][cut_off.reason as usize]
    }
}

pub(super) fn expose(cut_off: impl Fn(CutOff) -> u64, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests ended because their clients sent or read too slowly, by body and by setting";
    let mut family = counter(out, "tollgate_requests_cut_off", help)?;
    for (body, body_name) in CutOffBody::ALL {
        for (reason, reason_name) in CutOffReason::ALL {
            let value = cut_off(CutOff { body, reason });
            count(&mut family, [("body", body_name), ("reason", reason_name)], value)?;
        }
    }
    Ok(())
}
