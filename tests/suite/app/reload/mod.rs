//! The configuration is read again while requests are served.

mod errors;
mod limits;
mod metrics;
mod requests;
mod settings;
mod stamina;

use std::{fs, net::SocketAddr, path::PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::harness::{Config, Reply, Tollgate};

/// An API key.
const KEY: &str = "a-key-of-a-customer";

/// What stands before everything else where a test writes the whole file: listener and admin port are free ones.
const HEAD: &str = "\
listeners: [{ address: \"127.0.0.1:0\" }]
admin: { address: \"127.0.0.1:0\" }
workers: 2
access_log: off
log: { level: debug, format: text }
";

/// One upstream, one policy on it, one route for everything.
fn limited(origin: SocketAddr, policy: &str, rest: &str) -> String {
    format!(
        "{HEAD}upstreams:\n  origin: {{ endpoints: [\"http://{origin}\"], policies: [p] }}\n\
         policies:\n  p: {{ {policy} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n{rest}"
    )
}

/// One upstream, one route for everything.
fn plain(origin: SocketAddr, rest: &str) -> String {
    format!(
        "{HEAD}upstreams:\n  origin: {{ endpoints: [\"http://{origin}\"] }}\n\
         routes:\n  - {{ path: /*, upstream: origin }}\n{rest}"
    )
}

fn start(yaml: &str) -> Tollgate {
    Tollgate::start(Config::yaml(yaml))
}

fn file(tollgate: &Tollgate) -> PathBuf {
    tollgate.directory().join("proxy.yaml")
}

/// Writes `yaml`, and asks the admin port to read it.
fn write_and_reload(tollgate: &Tollgate, yaml: &str) -> Reply {
    fs::write(file(tollgate), yaml).unwrap();
    tollgate.admin("POST", "/v1/reload")
}

/// Likewise where that is to succeed: its answer.
#[track_caller]
fn reload(tollgate: &Tollgate, yaml: &str) -> Value {
    let reply = write_and_reload(tollgate, yaml);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The words of one of an answer's lists.
fn words(answer: &Value, list: &str) -> Vec<String> {
    let lines = answer[list].as_array().unwrap_or_else(|| panic!("no {list}: {answer}"));
    lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// A file of these API keys.
fn keys_file(keys: &[&str]) -> String {
    let key = |(n, key): (usize, &&str)| {
        let hash: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("- {{ id: k{n}, hash: \"sha256:{hash}\", customer: acme }}\n")
    };
    format!("keys:\n{}", keys.iter().enumerate().map(key).collect::<String>())
}
