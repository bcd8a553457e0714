//! What a policy may say beside its algorithm: each of it as clients, origins and operators see it.

mod abandoned;
mod calendar;
mod count;
mod delay;
mod distinct;
mod exceptions;
mod fields;
mod lease_loss;
mod leases;
mod prices;
mod replies;
mod shadow;

use std::net::SocketAddr;

use crate::harness::{Config, Deployment, Origin, Tollgate, on_each_store};

/// Before `origin`, with all of `policies` (lines of YAML) applied to everything; limits are in memory, or in Redis.
/// `rest` is YAML for the top level.
pub(super) fn start(origin: &Origin, redis: Option<&Deployment>, policies: &[&str], rest: &str) -> Tollgate {
    start_before(origin, "response: 2s", redis, policies, rest)
}

/// The same before an origin with these `timeouts`.
pub(super) fn start_before(
    origin: &Origin,
    timeouts: &str,
    redis: Option<&Deployment>,
    policies: &[&str],
    rest: &str,
) -> Tollgate {
    start_at(origin.address, timeouts, redis, policies, rest)
}

/// The same before `endpoint`, at which there may be no origin.
pub(super) fn start_at(
    endpoint: SocketAddr,
    timeouts: &str,
    redis: Option<&Deployment>,
    policies: &[&str],
    rest: &str,
) -> Tollgate {
    // The timeout is for a machine that does much else.
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    let names: Vec<_> = policies.iter().filter_map(|policy| policy.split(':').next()).collect();
    let policies: String = policies.iter().map(|policy| format!("  {policy}\n")).collect();
    Tollgate::start(Config::yaml(format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [{}], timeouts: {{ {timeouts} }} }}
policies:
{policies}
routes:
  - {{ path: /*, upstream: origin }}
{store}
{rest}
",
        endpoint,
        names.join(", "),
    )))
}

/// Users are not verified.
pub(super) const ANYONE: &str = "user: [{ header: x-user-id, from: anyone }]\n";
/// Tests speak for a gateway that is believed.
pub(super) const TRUSTED: &str = "trusted_proxies: [127.0.0.0/8]\n";
