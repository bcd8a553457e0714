//! Requests that were aborted because their clients were too slow.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_derive::Label;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum CutOffBody {
    /// The client had to send it.
    Request,
    /// The client had to read it.
    Response,
    /// Neither: the request had become a tunnel.
    Tunnel,
}

/// Why the proxy stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum CutOffReason {
    /// Nothing was received or read for `client_limits.idle_timeout`.
    IdleTimeout,
    /// It was slower than `client_limits.min_rate`.
    MinRate,
    /// The address used more than `max_connections_per_address`, and other clients waited for a connection.
    MaxConnectionsPerAddress,
    /// Too many bytes were buffered in total, and more for this address than for any other.
    Memory,
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
    for body in CutOffBody::ALL {
        for reason in CutOffReason::ALL {
            let value = cut_off(CutOff { body, reason });
            count(&mut family, [("body", body.name()), ("reason", reason.name())], value)?;
        }
    }
    Ok(())
}
