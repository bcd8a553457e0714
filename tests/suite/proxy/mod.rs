//! Proxying as users expect it: what is sent arrives, at once, as often as it should, and no further.

mod agreement;
mod allow_deny;
mod api_key_sources;
mod api_keys;
mod balancing;
mod broken_answers;
mod broken_uploads;
mod canary;
mod cancel;
mod capacity;
mod client_limits;
mod connection_shares;
mod cors;
mod dot_segments;
mod drain;
mod early_answers;
mod early_hints;
mod expect;
mod failures;
mod forwarding;
mod framing;
mod fuzz;
mod grpc;
mod header_edits;
mod hygiene;
mod matchers;
mod max_body;
mod messages;
mod own_replies;
mod pairs;
pub mod parking;
mod paths;
mod pool;
mod real_programs;
mod redirects;
mod refused_requests;
mod refused_uploads;
mod request_buffering;
mod response_costs;
mod rewrite;
mod signed_paths;
mod slow_clients;
mod start;
mod streaming;
mod timeouts;
mod tunnels;
mod values;
mod volume;
mod wrong_keys;

use std::net::SocketAddr;

use crate::harness::{Config, Origin, Reply, Tollgate, nobody};

/// A Tollgate in front of `origin`, with every setting at its default.
fn before(origin: &Origin) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], ""))
}

/// One with this upstream, and one worker, so that there is one pool and one turn.
fn one_worker(endpoints: &[SocketAddr], settings: &str) -> Tollgate {
    Tollgate::start(Config::upstream(endpoints, settings, "workers: 1\n"))
}

/// `reply` is a problem of this status, and tells nothing of what is behind the proxy.
#[track_caller]
fn assert_problem(reply: &Reply, status: u16, secrets: &[SocketAddr]) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["status"], status);
    let told = format!("{reply:?} {}", reply.text()).to_ascii_lowercase();
    let ports = secrets.iter().map(|address| address.port().to_string());
    for secret in ports.chain(["127.0.0.1", "refused", "os error", "hyper"].map(str::to_owned)) {
        assert!(!told.contains(&secret), "tells {secret:?}: {told}");
    }
}
