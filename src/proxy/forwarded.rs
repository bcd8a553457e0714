//! What the upstream is told about the client: X-Forwarded-*, or `Forwarded` (RFC 7239).

use http::{HeaderMap, HeaderValue, header};

use super::{
    client::Client,
    headers::{
        X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, append_to_list, remove_forwarding_claims,
    },
};
use crate::config::model::{AddressHeader, Config, Forwarded};

/// Tells the upstream about `client`: what an untrusted peer claimed is replaced, what a trusted one
/// said is added to.
pub fn tell(headers: &mut HeaderMap, client: &Client, config: &Config) {
    if !client.is_trusted() {
        match &config.client_address.header {
            AddressHeader::Single(name) => remove_forwarding_claims(headers, &[name, &config.request_id]),
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => {
                remove_forwarding_claims(headers, &[&config.request_id]);
            }
        }
    }
    if matches!(config.forwarded, Forwarded::XForwarded | Forwarded::Both) {
        tell_x_forwarded(headers, client);
    }
    if matches!(config.forwarded, Forwarded::Forwarded | Forwarded::Both) {
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
