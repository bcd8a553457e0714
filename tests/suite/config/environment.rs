//! What configurations in tests find in the environment and on disk.

use std::{io, path::Path, sync::LazyLock};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tollgate::config::Lookup;

/// In every value that must never be shown.
pub(crate) const SECRET: &str = "hunter2";

/// A few variables, and a file.
pub(crate) struct Environment;

impl Lookup for Environment {
    fn variable(&self, name: &str) -> Option<String> {
        let value = match name {
            "EMPTY" => "",
            "PORT" => "8081",
            "KEEP" => "7",
            "TOKEN" => "hunter2-token",
            "BAD_TOKEN" => "hunter2 token",
            "BAD_ADDRESS" => "hunter2:80",
            "BAD_RATE" => "hunter2/1s",
            "BAD_DURATION" => "2222",
            "BAD_NETWORK" => "10.22.33.44/8",
            "BAD_REDIS" => "redis://hunter2:hunter2@host:hunter2",
            "REDIS" => "rediss://app:hunter2@redis.internal:6380/3",
            "BAD_URL" => "http://hunter2:hunter2@host",
            "BAD_WORD" => "hunter2",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("/run/secrets/token") => Ok("hunter2-file\n".to_owned()),
            Some("/run/secrets/bad") => Ok("hunter2 file\n".to_owned()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory")),
        }
    }
    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = match path.to_str() {
            Some("tls/ca.pem" | "tls/me.pem") => PAIR.cert.pem(),
            Some("tls/me.key") => PAIR.signing_key.serialize_pem(),
            Some("tls/other.key") => OTHER.signing_key.serialize_pem(),
            Some("tls/cut.pem") => PAIR.cert.pem().replace("-----END", ""),
            Some("tls/damaged.pem") => PAIR.cert.pem().replace("MII", "AAA"),
            Some("keys/public.pem") => PAIR.signing_key.public_key_pem(),
            Some("keys/secret") => "hunter2-hunter2-hunter2-hunter2-hunter2\n".to_owned(),
            Some("keys/set.json") => set(r#""alg":"ES256""#),
            Some("keys/private.json") => set(r#""d":"hunter2""#),
            Some("keys/no_set.json") => r#"{"kty":"EC","crv":"P-256"}"#.to_owned(),
            Some("keys/rsa_without_alg.json") => rsa(344),
            Some("keys/short_rsa.json") => rsa(168),
            Some("keys/rsa1024.pem") => RSA_1024.to_owned(),
            Some("keys/p521.pem") => P521.to_owned(),
            Some("tls/empty") => String::new(),
            Some("tls/text") => "hunter2\n".to_owned(),
            _ => return Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory")),
        };
        Ok(text.into_bytes())
    }
}

/// A key set with one key (RFC 7517, appendix A.1), of which more is `said`.
fn set(said: &str) -> String {
    const POINT: &str = r#""x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM""#;
    format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256",{POINT},"kid":"1",{said}}}]}}"#)
}

/// A key set with one RSA key whose modulus has so many characters.
fn rsa(characters: usize) -> String {
    format!(r#"{{"keys":[{{"kty":"RSA","e":"AQAB","n":"{}"}}]}}"#, "x".repeat(characters))
}

static PAIR: LazyLock<CertifiedKey<rcgen::KeyPair>> = LazyLock::new(pair);
static OTHER: LazyLock<CertifiedKey<rcgen::KeyPair>> = LazyLock::new(pair);

fn pair() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(["redis.internal".to_owned()]).unwrap()
}

/// Too short to be safe.
const RSA_1024: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDVMXbUCtcP8tPX8mDTGJ4N7uvK
oauas3DfotQElwTdXGQFPzRPKRDFV0dOGeLE6ELzEPUo7z8fNI8QaoGSaV5fy9MT
hLu8m3wZANQ7l4bAnjFyjtAMIV0wBnihkExne2xetFphU3cB9Z5PRjg3UNeCwq/F
Ugbg36tw5JOyWI4V0QIDAQAB
-----END PUBLIC KEY-----
";

/// On a curve whose algorithm is not supported.
const P521: &str = "-----BEGIN PUBLIC KEY-----
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQAo977w9ZjhesxUfvwUHQ8zFEcwCGe
SacIcAc/KT4AnHZwmuSVGVOTm5hDH2SJJ5fZViutOcNE2o7ioN+xZNRs0KUAH8c6
5a16oyvotO/kygRZfDOZjHGL36zZzDTUPB0h5b1s7PT8IsGJ8TLMpB2mkZ7tAIGe
vuvMEMR/LtoLooIZXeA=
-----END PUBLIC KEY-----
";
