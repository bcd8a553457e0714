//! The endpoint that a request is tied to.

use std::time::Instant;

use super::explanation::ExplainedEndpoint;
use crate::{
    config::model::{Balance, Upstream},
    identity::{RequestAttributes, identifier},
    proxy::affinity::balancing_key,
    router::cookies,
    upstream::{AffinityHash, HostId, SharedUpstream, UpstreamHost},
};

/// The endpoint that a cookie or a hash ties the request to. `None`: any may get it.
pub(super) fn explain(
    upstream: &SharedUpstream,
    attributes: &RequestAttributes<'_>,
) -> Option<ExplainedEndpoint> {
    named_by_cookie(upstream, attributes).or_else(|| owner_of_key(upstream, attributes))
}

fn named_by_cookie(
    upstream: &SharedUpstream,
    attributes: &RequestAttributes<'_>,
) -> Option<ExplainedEndpoint> {
    let name = &upstream.config.sticky.as_ref()?.cookie;
    let id = cookies(attributes.headers, name).find_map(HostId::read)?;
    let host = upstream.named_host(id, Instant::now())?;
    let because = format!("the cookie {name} names it{}, while it is healthy", address(&host));
    Some(ExplainedEndpoint { url: host.url(), because })
}

fn owner_of_key(upstream: &SharedUpstream, attributes: &RequestAttributes<'_>) -> Option<ExplainedEndpoint> {
    let Upstream { balance: Balance::Hash(recipe), .. } = &upstream.config else { return None };
    let key = balancing_key(recipe, attributes)?;
    let owner = upstream.owner_of_key(AffinityHash::new(&key), Instant::now())?;
    let lacks = match identifier(recipe, attributes) {
        Some(_) => String::new(),
        None => format!(", since the request has no {recipe}"),
    };
    let serving = &owner.serving;
    let url = serving.url();
    let because = match owner.why_not_itself {
        None => format!("the hash of {key}{lacks}{}, while it is healthy", address(serving)),
        Some(why) => {
            let (own, at) = (owner.of_key.url(), address(&owner.of_key));
            format!("the hash of {key}{lacks}, whose own endpoint {own}{at} {why}")
        }
    };
    Some(ExplainedEndpoint { url, because })
}

/// Which of the addresses that the name of the endpoint has.
fn address(host: &UpstreamHost) -> String {
    let of_name = host.address.filter(|address| host.endpoint.host() != address.ip().to_string());
    of_name.map(|address| format!(" (at {address})")).unwrap_or_default()
}
