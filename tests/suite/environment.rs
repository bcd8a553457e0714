//! What configurations in tests find in the environment and on disk.

use std::{io, path::Path, sync::LazyLock};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tollgate::config::Sources;

/// In every value that must never be shown.
pub(crate) const SECRET: &str = "hunter2";

/// A few variables, and a file.
pub(crate) struct Environment;

impl Sources for Environment {
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

    fn file(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("/run/secrets/token") => Ok("hunter2-file\n".to_owned()),
            Some("/run/secrets/bad") => Ok("hunter2 file\n".to_owned()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory")),
        }
    }
    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = match path.to_str() {
            Some("tls/ca.pem" | "tls/me.pem") => PAIR.cert.pem(),
            Some("tls/me.key") => PAIR.signing_key.serialize_pem(),
            Some("tls/other.key") => OTHER.signing_key.serialize_pem(),
            Some("tls/cut.pem") => PAIR.cert.pem().replace("-----END", ""),
            Some("tls/damaged.pem") => PAIR.cert.pem().replace("MII", "AAA"),
            Some("tls/empty") => String::new(),
            Some("tls/text") => "hunter2\n".to_owned(),
            _ => return Err(io::Error::new(io::ErrorKind::NotFound, "No such file or directory")),
        };
        Ok(text.into_bytes())
    }
}

static PAIR: LazyLock<CertifiedKey<rcgen::KeyPair>> = LazyLock::new(pair);
static OTHER: LazyLock<CertifiedKey<rcgen::KeyPair>> = LazyLock::new(pair);

fn pair() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(["redis.internal".to_owned()]).unwrap()
}
