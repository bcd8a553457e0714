//! An issuer that signs the tokens of a test.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode, jwk::Jwk};
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    PKCS_RSA_SHA256, RsaKeySize,
};
use serde_json::{Value, json};

/// A key, and one algorithm that goes with it.
pub struct Issuer {
    algorithm: Algorithm,
    key: EncodingKey,
    pair: Option<KeyPair>,
    secret: String,
}

impl Issuer {
    /// One with a new key.
    pub fn new(algorithm: Algorithm) -> Self {
        let pair = match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => None,
            Algorithm::ES256 => Some(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()),
            Algorithm::ES384 => Some(KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap()),
            Algorithm::EdDSA => Some(KeyPair::generate_for(&PKCS_ED25519).unwrap()),
            _ => Some(KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()),
        };
        let secret: String = std::iter::repeat_with(fastrand::alphanumeric).take(64).collect();
        let private = pair.as_ref().map(KeyPair::serialize_pem).unwrap_or_default();
        let key = match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
                EncodingKey::from_secret(secret.as_bytes())
            }
            Algorithm::ES256 | Algorithm::ES384 => EncodingKey::from_ec_pem(private.as_bytes()).unwrap(),
            Algorithm::EdDSA => EncodingKey::from_ed_pem(private.as_bytes()).unwrap(),
            _ => EncodingKey::from_rsa_pem(private.as_bytes()).unwrap(),
        };
        Self { algorithm, key, pair, secret }
    }

    /// The same key for another algorithm.
    pub fn with(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// What verifies its tokens: the public key in PEM, or the secret.
    pub fn public(&self) -> String {
        self.pair.as_ref().map_or_else(|| format!("{}\n", self.secret), KeyPair::public_key_pem)
    }

    /// The public key in a certificate.
    pub fn certificate(&self) -> String {
        let pair = self.pair.as_ref().unwrap();
        CertificateParams::new(vec!["issuer".to_owned()]).unwrap().self_signed(pair).unwrap().pem()
    }

    /// The public key as one of a set, called `id`.
    pub fn jwk(&self, id: &str) -> Value {
        let mut jwk = match (&self.pair, self.algorithm) {
            (Some(pair), Algorithm::EdDSA) => {
                Jwk::from_decoding_key(&DecodingKey::from_ed_der(pair.public_key_raw()), None).unwrap()
            }
            _ => Jwk::from_encoding_key(&self.key, self.algorithm).unwrap(),
        };
        jwk.common.key_id = Some(id.to_owned());
        jwk.common.key_algorithm = Some(self.algorithm.into());
        serde_json::to_value(jwk).unwrap()
    }

    /// A token that says `claims`, and no more.
    pub fn sign(&self, claims: &Value) -> String {
        encode(&Header::new(self.algorithm), claims, &self.key).unwrap()
    }

    /// Likewise, signed by the key called `id`.
    pub fn sign_as(&self, id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.key).unwrap()
    }

    /// A token for `user` that is good for an hour.
    pub fn token(&self, user: &str) -> String {
        self.sign(&json!({ "sub": user, "exp": in_seconds(3600) }))
    }

    /// Likewise as the value of `Authorization`.
    pub fn bearer(&self, user: &str) -> String {
        format!("Bearer {}", self.token(user))
    }
}

/// A time from now on, or before it, as tokens say it.
pub fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}
