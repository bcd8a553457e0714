//! The fields by which proxies tell each other whose request it is: X-Forwarded-*, `Forwarded` (RFC 7239), and those of
//! the client's certificate.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    client::ClientInfo,
    headers::{append_to_list, remove_where},
};
use crate::config::model::{AddressHeader, Config, Forwarded, HeaderFrom, UserSource};

/// Addresses of the client and of the proxies after it.
pub(super) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The scheme of the client's request.
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The host of the client's request.
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The configured fields that only trusted peers may send: the client's address, the request's ID, and users that a
/// gateway in front sets.
pub(super) fn configured_claims(config: &Config) -> Vec<HeaderName> {
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

/// Sets the fields about `client` for the upstream: what an untrusted peer claims is replaced, what a trusted one says is
/// appended to. `claims`: those of [`configured_claims`].
pub(super) fn set(headers: &mut HeaderMap, client: &ClientInfo, config: &Config, claims: &[HeaderName]) {
    if !client.is_trusted() {
        remove_forwarding_claims(headers, claims);
    }
    if let Some(fields) = client.certificate_fields(config.forward_client_certificate) {
        fields.add_to(headers);
    }
    let form = config.forwarded;
    if matches!(form, Forwarded::XForwarded | Forwarded::Both) {
        set_x_forwarded(headers, client);
    }
    if matches!(form, Forwarded::Forwarded | Forwarded::Both) {
        let member = forwarded_member(client, headers.get(header::HOST));
        append_to_list(headers, &header::FORWARDED, &member);
    }
}

fn set_x_forwarded(headers: &mut HeaderMap, client: &ClientInfo) {
    append_to_list(headers, &X_FORWARDED_FOR, client.peer_value());
    // What the first proxy saw counts. The claims of an untrusted peer are removed by now.
    headers.entry(&X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(client.scheme()));
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.entry(&X_FORWARDED_HOST).or_insert(host);
    }
}

/// RFC 7239, 4: an IPv6 address is bracketed and quoted; a host is quoted, for it may have a port.
fn forwarded_member(client: &ClientInfo, host: Option<&HeaderValue>) -> HeaderValue {
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
    member.extend_from_slice(b";proto=");
    member.extend_from_slice(client.scheme().as_bytes());
    // A host that came this far has neither quotes nor backslashes.
    HeaderValue::from_bytes(&member).unwrap_or_else(|_| HeaderValue::from_static("for=unknown"))
}

/// Removes what an untrusted client claims about itself: every field by which proxies tell each other
/// whose request it is, or what it is for, and those that are `configured`.
///
/// Spellings with underscores are removed too: many frameworks can't tell `X_Forwarded_For` from the real one.
fn remove_forwarding_claims(headers: &mut HeaderMap, configured: &[HeaderName]) {
    remove_where(headers, |name| {
        configured.iter().any(|claim| is_spelling(name.as_str(), claim.as_str()))
            || is_forwarding_claim(name.as_str())
    });
}

pub(super) fn is_forwarding_claim(name: &str) -> bool {
    // Hardly any field that clients send begins with one of these letters.
    if !matches!(name.as_bytes().first(), Some(b'x' | b'f' | b't' | b'c')) {
        return false;
    }
    has_prefix(name, "x-forwarded-") || CLAIMS.iter().any(|claim| is_spelling(name, claim))
}

const CLAIMS: [&str; 13] = [
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-original-host",
    // Some origins take these for the path, which would then differ from the one that was matched.
    "x-original-url",
    "x-rewrite-url",
    "client-ip",
    // RFC 9440
    "client-cert",
    "client-cert-chain",
];

/// Whether `name` is `field`, with underscores in place of dashes or not.
fn is_spelling(name: &str, field: &str) -> bool {
    name.len() == field.len() && has_prefix(name, field)
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.len() >= prefix.len()
        && name.bytes().zip(prefix.bytes()).all(|(byte, want)| byte == want || (byte, want) == (b'_', b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::testing::{headers, names};

    #[test]
    fn claims_are_removed_in_every_spelling() {
        let mut map = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("fastly-client-ip", "1.1.1.1"),
            ("x-forwarded-client-cert", "Hash=1"),
            ("x_forwarded_client_cert", "Hash=1"),
            ("client-cert", ":AA==:"),
            ("client_cert", ":AA==:"),
            ("client-cert-chain", ":AA==:"),
            ("client_cert-chain", ":AA==:"),
            ("client-certs", "kept"),
            ("x-request-id", "abc"),
            ("forwarded-by-me", "kept"),
            ("from", "me@example.org"),
        ]);
        remove_forwarding_claims(&mut map, &[HeaderName::from_static("fastly-client-ip")]);
        assert_eq!(names(&map), ["client-certs", "forwarded-by-me", "from", "x-request-id"]);
        map.insert("x_request_id", HeaderValue::from_static("abc"));
        remove_forwarding_claims(&mut map, &[HeaderName::from_static("x-request-id")]);
        assert_eq!(names(&map), ["client-certs", "forwarded-by-me", "from"]);
    }
}
