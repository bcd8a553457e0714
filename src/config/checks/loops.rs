//! Endpoints that are Tollgate itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::{
    listeners::settings::Listener, reader::Cursor, resolved::Config, upstreams::endpoint::Endpoint,
    value::network::ListenAddress,
};

/// Warns about every upstream with an endpoint on this machine that is a listener whose requests go there: a request comes back, and
/// is sent there again.
pub(in crate::config) fn warn(root: Cursor<'_>, config: &Config) {
    for (index, upstream) in config.upstreams.iter().enumerate() {
        let comes_back = |endpoint: &&Endpoint| {
            let Some(address) = address_here(endpoint) else { return false };
            let is_there = |listener: &&Listener| listener.addresses.iter().any(|own| own.overlaps(&address));
            config.listeners.iter().filter(is_there).any(|listener| sends_to(config, listener, index))
        };
        let endpoint = upstream.endpoints.iter().find(comes_back);
        let written = root.entry("upstreams").and_then(|all| all.entry(&upstream.name)?.entry("endpoints"));
        if let (Some(endpoint), Some(written)) = (endpoint, written) {
            let url = endpoint.base_url();
            let message = format!("{url} is a listener of this Tollgate: requests to it come back");
            written.warn(message, "write the address of your API".to_owned());
        }
    }
}

/// Whether requests that come in at `listener` may go to the upstream of this index.
fn sends_to(config: &Config, listener: &Listener, upstream: usize) -> bool {
    let is_named = |names: &[String]| listener.name.as_ref().is_some_and(|name| names.contains(name));
    listener.decisions.is_none()
        && config.routes.iter().any(|route| {
            (route.listeners.is_empty() || is_named(&route.listeners))
                && route.variants().iter().any(|route| route.action.upstream() == Some(upstream))
        })
}

/// Where the endpoint is, if that is this machine.
fn address_here(endpoint: &Endpoint) -> Option<ListenAddress> {
    let host = endpoint.url.host()?.trim_start_matches('[').trim_end_matches(']');
    let ip = if host == "localhost" { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { host.parse().ok()? };
    ip.is_loopback().then(|| ListenAddress::Tcp(SocketAddr::new(ip, endpoint.port)))
}
