//! What the upstream is told about the client: X-Forwarded-*, or `Forwarded` (RFC 7239).

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    client::Client,
    headers::{
        X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, append_to_list, remove_forwarding_claims,
    },
};
use crate::config::model::{AddressHeader, Config, Forwarded, HeaderFrom, UserSource};

/// The fields that only trusted peers may send, beside those by which all proxies tell each other whose
/// request it is: the address', the request's ID, and the users' that a gateway in front sets.
pub fn claims(config: &Config) -> Vec<HeaderName> {
    let address = match &config.client_address.header {
        AddressHeader::Single(name) => Some(name.clone()),
        AddressHeader::XForwardedFor | AddressHeader::Forwarded => None,
    };
    let users = config.user.iter().filter_map(|source| match source {
        UserSource::Header { name, from: HeaderFrom::TrustedProxies } => Some(name.clone()),
        _ => None,
    });
    users.chain(address).chain([config.request_id.clone()]).collect()
}

/// Tells the upstream about `client`: what an untrusted peer claimed is replaced, what a trusted one
/// said is added to. `claims` as [`claims`] gives them.
pub fn tell(headers: &mut HeaderMap, client: &Client, form: Forwarded, claims: &[HeaderName]) {
    if !client.is_trusted() {
        remove_forwarding_claims(headers, claims);
    }
    if matches!(form, Forwarded::XForwarded | Forwarded::Both) {
        tell_x_forwarded(headers, client);
    }
    if matches!(form, Forwarded::Forwarded | Forwarded::Both) {
        let member = forwarded_member(client, headers.get(header::HOST));
        append_to_list(headers, &header::FORWARDED, &member);
    }
}

fn tell_x_forwarded(headers: &mut HeaderMap, client: &Client) {
    append_to_list(headers, &X_FORWARDED_FOR, client.peer_value());
    // What the first proxy saw is what counts; an untrusted peer's word is gone by now.
    headers.entry(&X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.entry(&X_FORWARDED_HOST).or_insert(host);
    }
}

/// RFC 7239, 4: an IPv6 address is bracketed and quoted; a host is quoted, for it may have a port.
fn forwarded_member(client: &Client, host: Option<&HeaderValue>) -> HeaderValue {
    let peer = client.peer().ip().to_canonical();
    let mut member = Vec::with_capacity(64);
    member.extend_from_slice(
        match peer {
            std::net::IpAddr::V4(ip) => format!("for={ip}"),
            std::net::IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
        }
        .as_bytes(),
    );
    if let Some(host) = host {
        member.extend_from_slice(b";host=\"");
        member.extend_from_slice(host.as_bytes());
        member.push(b'"');
    }
    member.extend_from_slice(b";proto=http");
    // A host that came this far has neither quotes nor backslashes.
    HeaderValue::from_bytes(&member).unwrap_or_else(|_| HeaderValue::from_static("for=unknown"))
}
