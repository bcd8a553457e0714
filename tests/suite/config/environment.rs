//! What configurations in tests find in the environment and on disk.

use std::{
    io,
    path::Path,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
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
            "BRACES" => "abc{hunter2}def",
            "CERTIFICATE" => "nameless",
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
        if let Some(text) = path.to_str().and_then(issued) {
            return Ok(text.into_bytes());
        }
        let text = match path.to_str() {
            Some("tls/ca.pem" | "tls/me.pem") => PAIR.cert.pem(),
            Some("tls/me.key") => PAIR.signing_key.serialize_pem(),
            Some("tls/other.key") => OTHER.signing_key.serialize_pem(),
            Some("tls/cut.pem") => PAIR.cert.pem().replace("-----END", ""),
            Some("tls/cut.key") => PAIR.signing_key.serialize_pem().replace("-----END", ""),
            Some("tls/no_certificate.pem") => {
                "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".to_owned()
            }
            Some("tls/secp256k1.key") => SECP256K1.to_owned(),
            Some("tls/damaged.pem") => PAIR.cert.pem().replace("MII", "AAA"),
            Some("keys/public.pem") => PAIR.signing_key.public_key_pem(),
            Some("keys/secret") => "hunter2-hunter2-hunter2-hunter2-hunter2\n".to_owned(),
            Some("keys/set.json") => set(r#""alg":"ES256""#),
            Some("keys/private.json") => set(r#""d":"hunter2""#),
            Some("keys/no_set.json") => r#"{"kty":"EC","crv":"P-256"}"#.to_owned(),
            Some("keys/rsa_without_alg.json") => rsa(344),
            Some("keys/short_rsa.json") => rsa(168),
            Some("keys/some_unusable.json") => some_unusable(),
            Some("keys/rsa1024.pem") => RSA_1024.to_owned(),
            Some("keys/p521.pem") => P521.to_owned(),
            Some("keys.yaml") => "keys: []\n".to_owned(),
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

/// A key set of which a key is usable, and four are not: too short, without `alg`, damaged, and no key at all.
fn some_unusable() -> String {
    let modulus = "x".repeat(344);
    let short = r#"{"kty":"RSA","alg":"RS256","kid":"short","e":"AQAB","n":"AQAB"}"#;
    let without_alg = format!(r#"{{"kty":"RSA","kid":"of any use","e":"AQAB","n":"{modulus}"}}"#);
    let damaged = r#"{"kty":"EC","crv":"P-256","kid":"damaged","x":"AA","y":"AA"}"#;
    set(r#""alg":"ES256""#).replace("[", &format!("[{short},{without_alg},{damaged},7,"))
}

/// A certificate for these hosts. It begins and ends at these dates, if they are given.
struct Certificate {
    name: &'static str,
    hosts: &'static [&'static str],
    begin: Option<SystemTime>,
    end: Option<SystemTime>,
}

/// `tls/NAME.pem`, or its key, `tls/NAME.key`.
fn issued(path: &str) -> Option<String> {
    let (name, end) = path.strip_prefix("tls/")?.split_once('.')?;
    let (_, CertifiedKey { cert, signing_key }) = ISSUED.iter().find(|(known, _)| *known == name)?;
    match end {
        "pem" => Some(cert.pem()),
        "key" => Some(signing_key.serialize_pem()),
        _ => None,
    }
}

static ISSUED: LazyLock<Vec<(&'static str, CertifiedKey<KeyPair>)>> = LazyLock::new(|| {
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 60 * 60));
    let of = |name, hosts| Certificate { name, hosts, begin: None, end: None };
    let date = |year| Some(date_time_ymd(year, 1, 1).into());
    let certificates = [
        of("api", &["api.example.com", "*.example.org"]),
        of("addresses", &["192.0.2.7", "2001:db8::1"]),
        of("nameless", &[]),
        Certificate { end: date(2021), ..of("expired", &["expired.example.com"]) },
        Certificate { begin: date(2090), ..of("early", &["early.example.com"]) },
        // In the middle of a day, so that no test sees its end.
        Certificate { end: Some(now + day * 9 + day / 2), ..of("soon", &["soon.example.com"]) },
        Certificate { end: Some(now + day + day / 2), ..of("tomorrow", &["tomorrow.example.com"]) },
    ];
    certificates.map(|certificate| (certificate.name, certificate.issue())).into()
});

impl Certificate {
    fn issue(&self) -> CertifiedKey<KeyPair> {
        let hosts: Vec<_> = self.hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.not_before = self.begin.map_or(params.not_before, Into::into);
        params.not_after = self.end.map_or(params.not_after, Into::into);
        let signing_key = KeyPair::generate().unwrap();
        CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
    }
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

/// A private key on a curve that TLS does not have (RFC 8422).
const SECP256K1: &str = "-----BEGIN PRIVATE KEY-----
MIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQg/UwhT3gLc7jNqwSuBD9K
O1O+2wbpZ3anTlEBk0Wtm/+hRANCAAS8EXMTfSECM0Hn6TjybFtwnkswTXWd/f9x
VDYlqe7rf/3mTxReonOXwanNWjDg1oWjo8JiG7cGHEnmRt/DiRs7
-----END PRIVATE KEY-----
";
