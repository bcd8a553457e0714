//! Certificates and private keys, from the bytes of their files, and what a connection over TLS has proved. Pure: nothing
//! is read or sent here.

mod certificate;
mod certificate_info;
mod handshake_hint;
mod identity;
mod pem;

pub use certificate::{Certificate, CertificateError, certified_key};
pub use certificate_info::{CertificateInfo, Validity, covers, is_valid_now};
pub use handshake_hint::{ServerSettings, client_certificate_hint, find_tls_error, handshake_hint};
pub use identity::{IdentityError, TlsIdentity, TlsSession, canonical_subject, read_fingerprint};
pub use pem::{PemError, authorities, certificates, private_key};
