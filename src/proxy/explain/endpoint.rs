//! The endpoint that a request is tied to.

use crate::{
    config::model::{Balance, Upstream},
    identity::{RequestAttributes, identifier},
    proxy::affinity::balancing_key,
    request_values::cookies,
    upstream::{HostId, KeyHash, endpoint_of_key},
};

/// The endpoint that a request goes to while it is healthy, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedEndpoint {
    pub url: String,
    pub because: String,
}

/// The endpoint that a cookie or a hash ties the request to. `None`: any may get it.
pub(super) fn explain(upstream: &Upstream, attributes: &RequestAttributes<'_>) -> Option<ExplainedEndpoint> {
    named_by_cookie(upstream, attributes).or_else(|| owner_of_key(upstream, attributes))
}

fn named_by_cookie(upstream: &Upstream, attributes: &RequestAttributes<'_>) -> Option<ExplainedEndpoint> {
    let name = &upstream.sticky.as_ref()?.cookie;
    let host = cookies(attributes.headers, name).find_map(HostId::read)?;
    // Names have other hosts as they are resolved.
    let endpoint = upstream.endpoints.iter().find(|endpoint| HostId::of_endpoint(endpoint) == host)?;
    let because = format!("the cookie {name} names it, while it is healthy");
    Some(ExplainedEndpoint { url: endpoint.base_url(), because })
}

fn owner_of_key(upstream: &Upstream, attributes: &RequestAttributes<'_>) -> Option<ExplainedEndpoint> {
    let Balance::Hash(recipe) = &upstream.balance else { return None };
    let key = balancing_key(recipe, attributes)?;
    let endpoint = endpoint_of_key(&upstream.endpoints, KeyHash::new(&key))?;
    let lacks = match identifier(recipe, attributes) {
        Some(_) => String::new(),
        None => format!(", since the request has no {recipe}"),
    };
    let because = format!("the hash of {key}{lacks}, while it is healthy");
    Some(ExplainedEndpoint { url: endpoint.base_url(), because })
}
