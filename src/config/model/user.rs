//! Where the user ID of a request comes from.

use std::path::PathBuf;

use http::HeaderName;
use serde::Serialize;

use super::serialize;
use crate::{jwt_keys::JwtAlgorithm, tls::CertificateField};

/// A source of user IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSource {
    /// The value of the cookie of this name.
    Cookie(String),
    /// The name of HTTP Basic credentials.
    Basic,
    /// A claim of a verified token.
    Jwt(Jwt),
    /// Of the client's verified certificate.
    Tls(CertificateField),
    #[serde(untagged)]
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        from: HeaderFrom,
    },
}

/// Who may send the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderFrom {
    TrustedProxies,
    Anyone,
}

/// A token in a header field, and how it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jwt {
    /// In `authorization`, `Bearer` precedes the token.
    #[serde(serialize_with = "serialize::displayed")]
    pub header: HeaderName,
    /// The claim that is the user ID.
    pub claim: String,
    /// PEM, a JSON Web Key set, or the secret of HS. Read again when it changes.
    pub key: PathBuf,
    /// `None` for a key set whose keys name their algorithms.
    pub algorithm: Option<JwtAlgorithm>,
    /// If set, the token must have this issuer.
    pub issuer: Option<String>,
    /// If set, the token must be for this audience.
    pub audience: Option<String>,
}
