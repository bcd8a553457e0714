//! The fields by which proxies tell each other whose request it is: X-Forwarded-*, `Forwarded` (RFC 7239), and the
//! fields of the client's certificate.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    client::ClientInfo,
    headers::{X_FORWARDED_FOR, X_FORWARDED_PROTO, append_to_list},
};
use crate::config::model::{Config, Forwarded};

/// The host of the client's request.
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Sets the fields about `client` for the upstream. Claims of an untrusted peer were removed before; to claims of a
/// trusted peer, values are appended. `has_claims`: whether there may be some.
pub(super) fn set(headers: &mut HeaderMap, client: &ClientInfo, config: &Config, has_claims: bool) {
    if let Some(fields) = client.certificate_fields(config.forward_client_certificate) {
        fields.add_to(headers);
    }
    let form = config.forwarded;
    if matches!(form, Forwarded::XForwarded | Forwarded::Both) {
        set_x_forwarded(headers, client, has_claims);
    }
    if matches!(form, Forwarded::Forwarded | Forwarded::Both) {
        let member = forwarded_member(client, headers.get(header::HOST));
        append_to_list(headers, &header::FORWARDED, &member);
    }
}

fn set_x_forwarded(headers: &mut HeaderMap, client: &ClientInfo, has_claims: bool) {
    let (peer, scheme) = (client.peer_value(), HeaderValue::from_static(client.scheme()));
    let host = headers.get(header::HOST).cloned();
    if has_claims {
        append_to_list(headers, &X_FORWARDED_FOR, peer);
        // The scheme and the host that the first proxy saw are kept.
        headers.entry(&X_FORWARDED_PROTO).or_insert(scheme);
        if let Some(host) = host {
            headers.entry(&X_FORWARDED_HOST).or_insert(host);
        }
    } else {
        // The usual case: no look-up is needed.
        headers.append(&X_FORWARDED_FOR, peer.clone());
        headers.append(&X_FORWARDED_PROTO, scheme);
        if let Some(host) = host {
            headers.append(&X_FORWARDED_HOST, host);
        }
    }
}

/// One element of `Forwarded`. An IPv6 address is bracketed and quoted; a host is quoted, because it may have a port
/// (RFC 7239, 4).
fn forwarded_member(client: &ClientInfo, host: Option<&HeaderValue>) -> HeaderValue {
    let peer = client.peer().address().ip().to_canonical();
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
    member.extend_from_slice(b";proto=");
    member.extend_from_slice(client.scheme().as_bytes());
    // The host was validated before, and has neither quotes nor backslashes.
    HeaderValue::from_bytes(&member).unwrap_or_else(|_| HeaderValue::from_static("for=unknown"))
}
