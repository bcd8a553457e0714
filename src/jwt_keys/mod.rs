//! The keys that verify tokens, and the URLs of providers that publish some. Pure: parses bytes and text, so that the
//! configuration check and the verifier agree.

mod jwk_set;
mod key_type;
mod pem;
mod provider_url;

use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey};
use key_type::KeyType;
pub use provider_url::{UrlError, discovery_url, provider_url};
use serde::Serialize;

/// The algorithms of tokens (RFC 7518, 3.1; RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JwtAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl JwtAlgorithm {
    /// Each with its name in tokens and in `proxy.yaml`.
    pub const ALL: [(&'static str, Self); 12] = [
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];
}

/// The most keys tried for one token: any client may send tokens that none of them has signed.
const MAX_TRIED: usize = 4;

/// A key for one algorithm, which never depends on a token.
pub(crate) struct JwtKey {
    /// Its `kid`, if it is from a key set.
    pub(crate) id: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

/// The most keys of a provider's set.
pub const MAX_PROVIDER_KEYS: usize = 100;

/// All keys of a file, or of a provider's set. Never empty.
pub struct JwtKeys {
    keys: Vec<JwtKey>,
    ignored: Vec<IgnoredKey>,
}

/// An unusable key of a set with usable ones.
pub struct IgnoredKey {
    /// Its `kid`, if it has one.
    id: Option<String>,
    reason: KeyError,
}

/// The key and the reason, as a sentence.
impl fmt::Display for IgnoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "key `{id}` is ignored: it {}", self.reason.of_key()),
            None => write!(f, "a key without `kid` is ignored: it {}", self.reason.of_key()),
        }
    }
}

/// Why a file or a provider's set contains no usable keys, as the end of a sentence that begins with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("is empty")]
    Empty,
    #[error("contains a private key, but only the signer may have that: use the public key")]
    Private,
    #[error("is not a JSON Web Key set: set `algorithm` to how tokens are signed")]
    NoAlgorithm,
    #[error("contains neither a public key or certificate in PEM nor a JSON Web Key set")]
    Unknown,
    #[error("contains a damaged key")]
    Damaged,
    #[error("contains a key of an unsupported type")]
    Kind,
    #[error("contains a key that does not fit {0}")]
    NotFor(&'static str),
    #[error("contains an RSA key of less than 2048 bits")]
    ShortRsa,
    #[error("contains a secret that is too short for {0}")]
    ShortSecret(&'static str),
    #[error("is a PEM file, but {0} needs a shared secret")]
    NoSecret(&'static str),
    #[error("is not a JSON Web Key set")]
    NoSet,
    #[error("contains a key without `alg`: set `algorithm` to how tokens are signed")]
    NoKeyAlgorithm,
    #[error("contains no key that could verify a token")]
    NoneUsable,
    #[error("contains a shared secret, which everybody can read")]
    PublishedSecret,
    #[error("contains more than {MAX_PROVIDER_KEYS} keys")]
    TooMany,
}

impl KeyError {
    /// The error of a single key, as the end of a sentence that begins with the key.
    fn of_key(self) -> &'static str {
        match self {
            Self::ShortRsa => "is an RSA key of less than 2048 bits",
            Self::ShortSecret(_) => "is a secret that is too short for its algorithm",
            Self::NoKeyAlgorithm => "has no `alg`: set `algorithm` to how tokens are signed",
            Self::PublishedSecret => "is a shared secret, which everybody can read",
            _ => "is damaged",
        }
    }

    /// A suggestion to correct the error.
    pub fn form(&self) -> Option<&'static str> {
        Some(match self {
            Self::Private => "a public key begins with -----BEGIN PUBLIC KEY-----",
            Self::NoAlgorithm | Self::NoKeyAlgorithm => "such as `algorithm: RS256`",
            Self::Empty | Self::Unknown => {
                "use a file with -----BEGIN PUBLIC KEY-----, -----BEGIN CERTIFICATE-----, or {\"keys\": […]}"
            }
            Self::Kind | Self::NotFor(_) => {
                "RS and PS: RSA; ES256: EC on P-256; ES384: EC on P-384; EdDSA: Ed25519"
            }
            Self::ShortSecret(_) => "use at least 32 bytes for HS256, 48 for HS384, 64 for HS512",
            Self::NoSecret(_) => "use the secret itself, or the algorithm that fits the key",
            Self::NoSet => "use {\"keys\": […]}",
            Self::NoneUsable => "use signing keys that fit `algorithm`: check `alg`, `kty` and `use` of each",
            Self::Damaged | Self::ShortRsa | Self::PublishedSecret | Self::TooMany => return None,
        })
    }
}

impl JwtKeys {
    /// Reads a public key or a certificate in PEM, a JSON Web Key set (RFC 7517, 5), or the secret of an HS algorithm,
    /// without a newline at its end. If `algorithm` is set, keys for other algorithms are left out of a set.
    ///
    /// # Errors
    /// There is no key that could verify tokens safely.
    pub fn read(bytes: &[u8], algorithm: Option<JwtAlgorithm>) -> Result<Self, KeyError> {
        let algorithm = algorithm.map(to_jsonwebtoken);
        if bytes.trim_ascii().is_empty() {
            return Err(KeyError::Empty);
        }
        if pem::is_private(bytes) {
            return Err(KeyError::Private);
        }
        let is_pem = bytes.windows(pem::BEGIN.len()).any(|window| window == pem::BEGIN);
        if !is_pem && bytes.trim_ascii_start().starts_with(b"{") {
            match jwk_set::read(bytes, algorithm) {
                // A secret may begin with a brace.
                Err(KeyError::NoSet)
                    if algorithm.is_some_and(|it| KeyType::required_by(it) == KeyType::Secret) => {}
                read => return read,
            }
        }
        let algorithm = algorithm.ok_or(if is_pem { KeyError::NoAlgorithm } else { KeyError::Unknown })?;
        let key = match (KeyType::required_by(algorithm), is_pem) {
            (KeyType::Secret, true) => return Err(KeyError::NoSecret(key_type::name(algorithm))),
            (KeyType::Secret, false) => secret(bytes, algorithm)?,
            (_, false) => return Err(KeyError::Unknown),
            (key_type, true) => {
                let (found, key) = pem::read(bytes)?;
                if found != key_type {
                    return Err(KeyError::NotFor(key_type::name(algorithm)));
                }
                key
            }
        };
        Ok(Self { keys: vec![JwtKey { id: None, algorithm, key }], ignored: Vec::new() })
    }

    /// Reads the key set that a provider publishes. Secrets are ignored, as everybody can read them. An RSA key without
    /// `alg` is for `algorithm`, or else for RS256, which every OpenID provider uses by default (OpenID Connect
    /// Discovery, 3).
    ///
    /// # Errors
    /// There is no key that could verify tokens safely, or more than [`MAX_PROVIDER_KEYS`].
    pub fn read_published(bytes: &[u8], algorithm: Option<JwtAlgorithm>) -> Result<Self, KeyError> {
        jwk_set::read_published(bytes, algorithm.map(to_jsonwebtoken))
    }

    /// The number of usable keys, at least one.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key has this ID.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// The unusable keys of a set.
    pub fn ignored(&self) -> &[IgnoredKey] {
        &self.ignored
    }

    /// The keys of this algorithm that may have signed a token with the key ID `id`, the most likely first. A key or a
    /// token without an ID matches any (RFC 7515, 4.1.4), but no token makes the verifier try more than [`MAX_TRIED`]
    /// keys.
    pub(crate) fn candidates(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &JwtKey> {
        let fit = self.keys.iter().filter(move |key| key.algorithm == algorithm);
        let is_same = move |key: &&JwtKey| key.id.as_deref() == id;
        let others = fit.clone().filter(move |key| !is_same(key) && (key.id.is_none() || id.is_none()));
        fit.filter(is_same).chain(others).take(MAX_TRIED)
    }
}

fn secret(bytes: &[u8], algorithm: Algorithm) -> Result<DecodingKey, KeyError> {
    let secret = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    key_type::secret(secret, algorithm)
}

fn to_jsonwebtoken(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Hs384 => Algorithm::HS384,
        JwtAlgorithm::Hs512 => Algorithm::HS512,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}
