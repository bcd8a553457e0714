//! Sources of the user ID of a request.

use std::path::PathBuf;

use http::{HeaderName, header::AUTHORIZATION};
use serde::Serialize;
use tollgate_derive::{Settings, Word};

use super::serialize;
use crate::{
    api_keys::KeyField,
    config::{
        reader::{Cursor, MappingCursor},
        settings::{Kind, Read, Value},
        value::{Invalid, choice, field_name, printable_text, token_keys, unreserved_field_name},
    },
    jwt_keys::JwtAlgorithm,
    tls::CertificateField,
};

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
    /// A field of the client's verified certificate.
    Tls(CertificateField),
    /// The customer, or the ID, of the request's API key.
    ApiKey(KeyField),
    #[serde(untagged)]
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        from: HeaderFrom,
    },
}

/// Who may send the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum HeaderFrom {
    TrustedProxies,
    Anyone,
}

/// A JSON Web Token that Tollgate verifies.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "identity.md", sample = "key: { file: keys/public.pem }, algorithm: ES256", check = check_keys)]
pub struct Jwt {
    /// The header that holds the token. In `authorization`, the token follows the word `Bearer`; any other header holds
    /// the token alone.
    #[setting(text = FIELD, parse = token_field, default = "authorization", example = "x-token")]
    #[setting(shown = serialize::displayed)]
    pub header: HeaderName,
    /// The claim that is the user ID.
    #[setting(text = NAME, parse = printable_text, default = "sub", example = "email")]
    pub claim: String,
    /// The key that verifies tokens: a public key or certificate in PEM, a JSON Web Key set, or the secret for HS256,
    /// HS384 and HS512. The file is read again when it changes.
    #[setting(mapping(KeyFile), read = key_file, example = "{ file: keys/public.pem }")]
    #[setting(missing = "the key that verifies tokens: `key: { file: keys/jwt.pem }`")]
    pub key: PathBuf,
    /// The only algorithm that tokens may be signed with.
    #[setting(unset = "the one that the key is for", example = "ES256")]
    pub algorithm: Option<JwtAlgorithm>,
    /// The issuer (`iss`) that tokens must have.
    #[setting(text = NAME, parse = printable_text, unset = "any issuer", example = "https://login.example.com")]
    pub issuer: Option<String>,
    /// The audience (`aud`) that tokens must have.
    #[setting(text = NAME, parse = printable_text, unset = "any audience", example = "api")]
    pub audience: Option<String>,
}

/// The key that verifies tokens.
#[derive(Settings)]
#[settings(written, page = "identity.md")]
struct KeyFile {
    /// The path of the file. It is read again when it changes.
    #[setting(file, read = Cursor::path, example = "keys/public.pem", missing = KEY_FORMS)]
    file: PathBuf,
}

const KEY_FORMS: &str =
    "a public key or certificate in PEM, a JSON Web Key set, or the secret for HS256, HS384 or HS512";

impl Value for JwtAlgorithm {
    const KIND: Kind = Kind::Word(&[
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
        "EdDSA",
    ]);

    fn parse(text: &str) -> Result<Self, Invalid> {
        choice(&Self::ALL)(text)
    }
}

fn token_field(text: &str) -> Result<HeaderName, Invalid> {
    match field_name(text)? {
        AUTHORIZATION => Ok(AUTHORIZATION),
        _ => unreserved_field_name(text),
    }
}

fn key_file(value: Cursor<'_>) -> Option<PathBuf> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", "write `key: { file: FILE }`".to_owned());
        return None;
    }
    KeyFile::read(value).map(|key| key.file)
}

/// Reads the keys as they will be read again, so that an unusable file is an error.
fn check_keys(mapping: &MappingCursor<'_>, jwt: Option<&Jwt>) {
    let Some(jwt) = jwt.filter(|jwt| jwt.algorithm.is_some() || mapping.peek("algorithm").is_none()) else {
        return;
    };
    let Some(file) = mapping.peek("key").and_then(|key| key.entry("file")) else { return };
    for ignored in file.file(token_keys(jwt.algorithm)).iter().flat_map(|(_, keys)| keys.ignored()) {
        file.warn(
            ignored.to_string(),
            "tokens that it signs are not valid; the other keys of the set are used".to_owned(),
        );
    }
}

/// Which identities requests can have, so that settings which could never apply are reported.
#[derive(Clone, Copy)]
pub(in crate::config) struct IdentitySources {
    /// `trusted_proxies` is not empty.
    pub(in crate::config) has_trusted_proxies: bool,
    /// A listener asks clients for certificates.
    pub(in crate::config) has_client_certificates: bool,
    /// `api_keys` is configured.
    pub(in crate::config) has_api_keys: bool,
    /// `user` is configured.
    pub(in crate::config) has_users: bool,
    /// Tokens are verified.
    pub(in crate::config) has_tokens: bool,
    /// A source of user IDs is verified: a token, a client certificate, or a header from trusted proxies.
    pub(in crate::config) has_verified_users: bool,
    /// A source of user IDs is not verified: the client can choose its user ID.
    pub(in crate::config) has_unverified_users: bool,
}

impl IdentitySources {
    /// Reports a setting that needs API keys if there are none.
    pub(in crate::config) fn report_without_api_keys(self, setting: Cursor<'_>) {
        if !self.has_api_keys {
            let help = "configure where keys come from: `api_keys: { file: keys.yaml }`";
            setting
                .report("no request has an API key, because `api_keys` is not configured", help.to_owned());
        }
    }

    /// Warns of a setting that needs certificates of clients if there are none.
    pub(in crate::config) fn warn_without_client_certificates(self, setting: Cursor<'_>) {
        if !self.has_client_certificates {
            let help = "set `client_ca` under `tls` of a listener";
            setting.warn(
                "no request has a client certificate, because no listener asks for one",
                help.to_owned(),
            );
        }
    }
}
