//! The start of client connections: TLS handshakes, and PROXY headers of load balancers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_derive::Label;

use super::{
    Counter,
    families::{count, counter, counters_by_reason},
};

/// Why a TLS handshake with a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum HandshakeFailure {
    /// No TLS version is supported by both sides.
    NoSharedVersion,
    /// No cipher suite, group or signature algorithm is supported by both sides.
    NoSharedParameters,
    /// No certificate matches the requested name, and the client rejected the default one.
    UnknownName,
    /// The client rejected the certificate for the requested name.
    RefusedCertificate,
    /// The client's certificate is invalid.
    ClientCertificate,
    /// The client sent HTTP without TLS.
    PlainHttp,
    /// The client sent something other than TLS.
    Malformed,
    /// The client closed the connection.
    Closed,
    /// It took longer than `client_limits.header_timeout`.
    Timeout,
}

/// Why the PROXY header of a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum ProxyHeaderFailure {
    /// The peer is not a trusted proxy.
    Untrusted,
    /// The connection began without a PROXY header.
    Missing,
    Malformed,
    /// The connection was closed or timed out before the header was complete.
    Incomplete,
}

/// A completed TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    pub is_tls13: bool,
    pub is_resumed: bool,
}

impl Handshake {
    pub(super) const ALL: [(Self, [&'static str; 2]); 4] = [
        (Self { is_tls13: false, is_resumed: false }, ["1.2", "no"]),
        (Self { is_tls13: false, is_resumed: true }, ["1.2", "yes"]),
        (Self { is_tls13: true, is_resumed: false }, ["1.3", "no"]),
        (Self { is_tls13: true, is_resumed: true }, ["1.3", "yes"]),
    ];

    fn index(self) -> usize {
        usize::from(self.is_tls13) * 2 + usize::from(self.is_resumed)
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct OpeningMetrics {
    handshakes: [Counter; Handshake::ALL.len()],
    handshake_failures: [Counter; HandshakeFailure::ALL.len()],
    proxy_header_failures: [Counter; ProxyHeaderFailure::ALL.len()],
}

impl OpeningMetrics {
    pub fn handshakes(&self, handshake: Handshake) -> &Counter {
        &self.handshakes[handshake.index()]
    }

    pub fn handshake_failures(&self, reason: HandshakeFailure) -> &Counter {
        &self.handshake_failures[reason as usize]
    }

    /// Connections closed because of their PROXY header.
    pub fn proxy_header_failures(&self, reason: ProxyHeaderFailure) -> &Counter {
        &self.proxy_header_failures[reason as usize]
    }
}

/// `sum` sums a counter over all workers.
pub(super) fn expose(
    sum: impl Fn(&dyn Fn(&OpeningMetrics) -> &Counter) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut family = counter(out, "tollgate_tls_handshakes", "TLS handshakes with clients, by version")?;
    for (handshake, [version, resumed]) in Handshake::ALL {
        let value = sum(&|openings| openings.handshakes(handshake));
        count(&mut family, [("version", version), ("resumed", resumed)], value)?;
    }
    let help = "TLS handshakes with clients that failed, by reason";
    let failed =
        |reason: HandshakeFailure| (reason.name(), sum(&|openings| openings.handshake_failures(reason)));
    counters_by_reason(out, "tollgate_tls_handshake_failures", help, HandshakeFailure::ALL.map(failed))?;
    let help = "Client connections closed because of their PROXY header, by reason";
    let refused =
        |reason: ProxyHeaderFailure| (reason.name(), sum(&|openings| openings.proxy_header_failures(reason)));
    counters_by_reason(out, "tollgate_proxy_header_failures", help, ProxyHeaderFailure::ALL.map(refused))
}
