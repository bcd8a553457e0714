//! The client and the user of a request, and why.

use http::{HeaderMap, HeaderName};

use crate::{
    config::model::UserSource,
    identity::{ClientIp, Credentials, ForwardedHop, Identity, explain_failure},
    proxy::{request_facts::RequestFacts, rules::Rules},
};

/// The client's address, and its source. `as_sent`: the headers, with those that count for nothing.
pub(super) fn address(rules: &Rules, facts: &RequestFacts<'_>, as_sent: &HeaderMap) -> (ClientIp, String) {
    let RequestFacts { peer, is_peer_trusted, .. } = *facts;
    let headers = &facts.request.headers;
    let (proxies, mut hops) = (&rules.trusted_proxies, Vec::new());
    let field = proxies.field();
    let address = proxies.client_address_with(peer, is_peer_trusted, headers, |hop| hops.push(hop));
    let peer = peer.to_canonical();
    if !is_peer_trusted {
        let concealed = as_sent.keys().filter(|name| !headers.contains_key(*name)).map(HeaderName::as_str);
        let names: Vec<&str> =
            concealed.chain(headers.contains_key(field).then_some(field.as_str())).collect();
        let ignored = match names.as_slice() {
            [] => String::new(),
            names => format!("; its {} is ignored, because it is not a trusted proxy", names.join(", ")),
        };
        return (address, format!("the peer's own address{ignored}"));
    }
    let mut by = format!("the trusted proxy {peer}");
    for hop in &hops {
        match hop {
            ForwardedHop::Proxy(proxy) => by += &format!(", and the trusted proxy {proxy} before it"),
            ForwardedHop::Client(_) => return (address, format!("from {field}, sent by {by}")),
            ForwardedHop::Malformed(part) => {
                let part = String::from_utf8_lossy(part);
                let part = part.trim().escape_debug();
                return (
                    address,
                    format!(
                        "unknown: the last valid address in {field}, sent by {by}; `{part}` before it is not an address"
                    ),
                );
            }
            ForwardedHop::Repeated => {
                return (
                    address,
                    format!("unknown: {by} sent {field} more than once, and stands in for the client"),
                );
            }
        }
    }
    let why = match hops.as_slice() {
        [] => format!("{by} itself: it sent no {field}"),
        _ => format!("the first address in {field}, although it is a trusted proxy: {by}"),
    };
    (address, why)
}

/// The user, and the source that names it; or why none does. `as_sent`: the headers, with those that count for nothing.
pub(super) fn user(
    rules: &Rules,
    facts: &RequestFacts<'_>,
    as_sent: &HeaderMap,
    now: i64,
) -> (Identity, String) {
    let (sources, mut tried) = (&rules.config.user, Vec::new());
    let identity = rules.identify(facts, || now, |index| tried.push(index));
    let named_by = tried.last().filter(|_| identity.user.is_some()).and_then(|&index| sources.get(index));
    if identity.user.is_some() {
        tried.pop();
    }
    let credentials = Credentials { headers: as_sent, ..facts.credentials(&identity.key) };
    let failures = tried.iter().map(|&index| explain_failure(sources, index, &rules.verifier, credentials));
    let mut why: Vec<String> =
        named_by.map(|source| describe_source(source, &identity)).into_iter().collect();
    why.extend(failures);
    if why.is_empty() {
        why.push("no source of user IDs is configured".to_owned());
    }
    (identity, why.join("; "))
}

fn describe_source(source: &UserSource, identity: &Identity) -> String {
    let source = match source {
        UserSource::Header { name, .. } if identity.is_verified => {
            format!("header {name} from a trusted proxy")
        }
        UserSource::Header { name, .. } => format!("header {name}"),
        UserSource::Cookie(name) => format!("cookie {name}"),
        UserSource::Basic => "Basic credentials".to_owned(),
        UserSource::Tls(field) => format!("{} of the client certificate", field.name()),
        UserSource::ApiKey(field) => format!("{} of the API key", field.name()),
        UserSource::Jwt(jwt) => format!("claim {} of the token in {}", jwt.claim, jwt.header),
    };
    match identity.is_verified {
        true => format!("{source}, verified"),
        false => format!("{source}, not verified, so overrides and exemptions ignore it"),
    }
}
