//! Certificates and private keys, from the bytes of their files. Pure: nothing is read or sent here.

mod certificate;
mod pem;

pub use certificate::{Certificate, CertificateError, certified_key};
pub use pem::{PemError, authorities, certificates, private_key};
