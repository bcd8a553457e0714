//! TLS to servers: Redis and upstreams.

use std::path::PathBuf;

use serde::Serialize;

/// Which authorities a server's certificate may be from, and what we show of ourselves. Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClientTls {
    /// The only certificate authorities that are trusted. `None`: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Our own certificate.
    #[serde(flatten)]
    pub certificate: Option<ClientCertificate>,
}

/// The files of a certificate that a server is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientCertificate {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
