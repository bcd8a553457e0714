//! What is known of a TLS connection once its handshake is done.

use super::TlsIdentity;

/// What all requests on a TLS connection have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSession {
    /// The protocol's version as logs name it: `TLSv1.3`.
    pub version: &'static str,
    /// The client's certificate; `None`: it has shown none.
    pub identity: Option<TlsIdentity>,
}
