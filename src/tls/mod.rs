//! Certificates and private keys from the bytes of their files, the identity of a TLS client, and the system's
//! certificate authorities.

mod certificate;
mod certificate_info;
mod client;
mod handshake_hint;
mod identity;
mod pem;
pub mod system_authorities;

pub use certificate::{Certificate, CertificateError, certified_key};
pub use certificate_info::{CertificateInfo, Validity, covers, is_valid_now};
pub use client::client_config;
pub use handshake_hint::{ServerSettings, client_certificate_hint, find_tls_error, handshake_hint};
pub use identity::{
    CertificateField, IdentityError, TlsIdentity, TlsSession, canonical_subject, read_fingerprint,
};
pub use pem::{PemError, authorities, certificates, private_key};
