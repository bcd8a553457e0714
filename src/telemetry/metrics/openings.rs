//! How client connections begin: TLS handshakes, and PROXY headers of load balancers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::{
    Counter, ThreadMetrics,
    exposition::{count, counter},
};

/// Why a TLS handshake with a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client speaks no version that is served.
    NoSharedVersion,
    /// No cipher suite, group or signature is known to both.
    NoSharedParameters,
    /// No certificate is for the name that the client asked for, and it refused the first one.
    UnknownName,
    /// The client refused the certificate that is for the name.
    RefusedCertificate,
    /// The client's own certificate is not valid.
    ClientCertificate,
    /// The client spoke HTTP without TLS.
    PlainHttp,
    /// What the client sent is not TLS.
    Malformed,
    /// The client went away.
    Closed,
    /// It took longer than `client_limits.header_timeout`.
    Timeout,
}

impl HandshakeFailure {
    pub(super) const ALL: [(Self, &'static str); 9] = [
        (Self::NoSharedVersion, "no_shared_version"),
        (Self::NoSharedParameters, "no_shared_parameters"),
        (Self::UnknownName, "unknown_name"),
        (Self::RefusedCertificate, "refused_certificate"),
        (Self::ClientCertificate, "client_certificate"),
        (Self::PlainHttp, "plain_http"),
        (Self::Malformed, "malformed"),
        (Self::Closed, "closed"),
        (Self::Timeout, "timeout"),
    ];

    /// The word for it: `no_shared_version`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Why the PROXY header of a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeaderFailure {
    /// The peer is not a trusted proxy.
    Untrusted,
    /// The connection began with something else.
    Missing,
    Malformed,
    /// The connection ended before the header did, or the header took too long.
    Incomplete,
}

impl ProxyHeaderFailure {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Untrusted, "untrusted"),
        (Self::Missing, "missing"),
        (Self::Malformed, "malformed"),
        (Self::Incomplete, "incomplete"),
    ];

    /// The word for it: `untrusted`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
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

/// What one worker counts of how connections begin.
#[derive(Debug, Default)]
pub struct OpeningMetrics {
    handshakes: [Counter; Handshake::ALL.len()],
    handshake_failures: [Counter; HandshakeFailure::ALL.len()],
    proxy_header_failures: [Counter; ProxyHeaderFailure::ALL.len()],
}

impl OpeningMetrics {
    /// The TLS handshakes of this kind.
    pub fn handshakes(&self, handshake: Handshake) -> &Counter {
        &self.handshakes[handshake.index()]
    }

    /// The TLS handshakes that failed for this reason.
    pub fn handshake_failures(&self, reason: HandshakeFailure) -> &Counter {
        &self.handshake_failures[reason as usize]
    }

    /// The connections closed for this fault of their PROXY header.
    pub fn proxy_header_failures(&self, reason: ProxyHeaderFailure) -> &Counter {
        &self.proxy_header_failures[reason as usize]
    }
}

/// Writes down what `sum` adds up over all workers.
pub(super) fn expose(
    sum: impl Fn(&dyn Fn(&ThreadMetrics) -> u64) -> u64,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut family = counter(out, "tollgate_tls_handshakes", "TLS handshakes with clients, by version")?;
    for (handshake, [version, resumed]) in Handshake::ALL {
        let value = sum(&|worker| worker.openings().handshakes(handshake).value());
        count(&mut family, [("version", version), ("resumed", resumed)], value)?;
    }
    let help = "TLS handshakes with clients that failed, by reason";
    let mut family = counter(out, "tollgate_tls_handshake_failures", help)?;
    for (reason, name) in HandshakeFailure::ALL {
        let value = sum(&|worker| worker.openings().handshake_failures(reason).value());
        count(&mut family, [("reason", name)], value)?;
    }
    let help = "Client connections closed because of their PROXY header, by reason";
    let mut family = counter(out, "tollgate_proxy_header_failures", help)?;
    for (reason, name) in ProxyHeaderFailure::ALL {
        let value = sum(&|worker| worker.openings().proxy_header_failures(reason).value());
        count(&mut family, [("reason", name)], value)?;
    }
    Ok(())
}
