//! What configurations in tests find in the environment and on disk.

use std::{io, path::Path};

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
}
