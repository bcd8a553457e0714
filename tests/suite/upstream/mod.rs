//! What is between Tollgate and the services behind it.

mod balancing;
mod drain;
mod endpoints_file;
mod grpc;
mod health;
mod http2;
mod https;
mod https_changes;
mod https_errors;
mod https_programs;
mod names;
mod outliers;
mod retries;
mod retries_under_load;
mod shared_connections;

use std::net::SocketAddr;

use crate::harness::{Authority, Config, Tollgate, file_name};

/// An upstream `origin` at these URLs, with more settings: what stands in its braces.
fn upstream(urls: &[String], settings: &str) -> Config {
    Config::yaml(format!(
        "workers: 1\nupstreams:\n  origin: {{ endpoints: {urls:?}, {settings} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n"
    ))
}

/// A handshake takes time on a machine that does much else.
const PATIENT: &str = "timeouts: { connect: 5s }";

/// Tollgate before an origin that speaks TLS as this host, and has a certificate of `authority`. `more` stands in `tls`.
fn before(origin: SocketAddr, authority: &Authority, more: &str) -> Tollgate {
    Tollgate::start(trusting(&[origin], authority, more))
}

fn trusting(origins: &[SocketAddr], authority: &Authority, more: &str) -> Config {
    let urls: Vec<_> = origins.iter().map(|origin| format!("https://{origin}")).collect();
    let tls = format!("tls: {{ ca: {}{more} }}, {PATIENT}", file_name(&authority.file()));
    upstream(&urls, &tls)
}
