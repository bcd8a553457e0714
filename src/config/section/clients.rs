//! How clients are identified, their limits, and the fields that clients and upstreams receive.

use std::time::Duration;

use http::HeaderName;

use super::{MIN_DURATION, user::IdentitySources};
use crate::config::{
    model::{
        AddressHeader, ClientAddress, ClientLimits, ForwardClientCertificate, Forwarded, MinRate,
        RateLimitFields, ReplyHeaders, TrustedProxy,
    },
    reader::Cursor,
    settings,
    value::{
        Invalid, MAX_DURATION, body_size, choice, count, duration, network, pseudonym, request_id_field_name,
        size, unreserved_field_name,
    },
};

pub(super) fn trusted_proxies(value: Option<Cursor<'_>>) -> Vec<TrustedProxy> {
    let trusted = |item: Cursor<'_>| {
        let proxy = item.parse(trusted_proxy)?;
        if matches!(proxy, TrustedProxy::Network(network) if network.prefix_len() == 0) {
            item.warn(
                "every client is a trusted proxy: each can write the address that its limits are counted by",
                "list the addresses of your proxies alone; see docs/identity.md".to_owned(),
            );
        }
        Some(proxy)
    };
    value.map(|list| list.unique_items(trusted)).unwrap_or_default()
}

fn trusted_proxy(text: &str) -> Result<TrustedProxy, Invalid> {
    match text {
        "unix" => Ok(TrustedProxy::Unix),
        _ => network(text).map(TrustedProxy::Network),
    }
}

pub(super) fn trusted_headers(value: Option<Cursor<'_>>) -> Vec<HeaderName> {
    value.map(|list| list.unique_items(|item| item.parse(unreserved_field_name))).unwrap_or_default()
}

pub(super) fn client_address(value: Option<Cursor<'_>>, has_trusted_proxies: bool) -> ClientAddress {
    let default = ClientAddress { header: AddressHeader::XForwardedFor, ipv6_prefix: 64 };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::CLIENT_ADDRESS);
    let header = mapping.peek("header").filter(|_| !has_trusted_proxies);
    // Of one that is wrong, this is said below.
    if let Some(header) = header.filter(|header| header.again(|| header.parse(address_header)).is_some()) {
        let help =
            "add the addresses of what sets it to `trusted_proxies`: a load balancer, or a CDN".to_owned();
        header.warn("no trusted_proxies are configured, so this header is never read", help);
    }
    let address = ClientAddress {
        header: mapping.parse_or("header", default.header, address_header),
        ipv6_prefix: mapping.parse_or("ipv6_prefix", default.ipv6_prefix, |text| {
            let length = count(1..=128)(text)?;
            u8::try_from(length).map_err(|_| Invalid::new("is too large"))
        }),
    };
    mapping.finish();
    address
}

fn address_header(text: &str) -> Result<AddressHeader, Invalid> {
    let name = unreserved_field_name(text)?;
    Ok(match name.as_str() {
        "x-forwarded-for" => AddressHeader::XForwardedFor,
        "forwarded" => AddressHeader::Forwarded,
        _ => AddressHeader::Single(name),
    })
}

pub(super) fn request_id(value: Option<Cursor<'_>>) -> HeaderName {
    value
        .and_then(|value| value.parse(request_id_field_name))
        .unwrap_or(HeaderName::from_static("x-request-id"))
}

pub(super) fn limits(value: Option<Cursor<'_>>) -> ClientLimits {
    let default = ClientLimits {
        header_size: 32 << 10,
        headers: 100,
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
        connections: 10_000,
        connections_per_address: 1_000,
        min_rate: MinRate { bytes: 240, grace: Duration::from_secs(20) },
        h2_streams: 100,
        max_body: 0,
    };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::CLIENT_LIMITS).knowing("client_limits");
    let time = || duration(MIN_DURATION..=MAX_DURATION);
    let limits = ClientLimits {
        header_size: mapping.parse_or("header_size", default.header_size, size(1 << 10..=1 << 20)),
        headers: mapping.parse_or("headers", default.headers, count(1..=10_000)),
        header_timeout: mapping.parse_or("header_timeout", default.header_timeout, time()),
        idle_timeout: mapping.parse_or("idle_timeout", default.idle_timeout, time()),
        connections: mapping.parse_or("connections", default.connections, count(1..=10_000_000)),
        connections_per_address: mapping.parse_or(
            "connections_per_address",
            default.connections_per_address,
            count(0..=10_000_000),
        ),
        min_rate: min_rate(mapping.take("min_rate"), default.min_rate),
        h2_streams: mapping.parse_or("h2_streams", default.h2_streams, |text| {
            u32::try_from(count(1..=10_000)(text)?).map_err(|_| Invalid::new("is too large"))
        }),
        max_body: mapping.parse_or("max_body", default.max_body, body_size),
    };
    mapping.finish();
    limits
}

fn min_rate(value: Option<Cursor<'_>>, default: MinRate) -> MinRate {
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::MIN_RATE);
    let bytes =
        mapping.parse_or("bytes", usize::try_from(default.bytes).unwrap_or(usize::MAX), size(0..=1 << 30));
    let rate = MinRate {
        bytes: bytes as u64,
        grace: mapping.parse_or("grace", default.grace, duration(MIN_DURATION..=MAX_DURATION)),
    };
    mapping.finish();
    rate
}

pub(super) fn reply_headers(value: Option<Cursor<'_>>) -> ReplyHeaders {
    let default = ReplyHeaders { ratelimit: RateLimitFields::Draft, via: "tollgate".to_owned() };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::REPLY_HEADERS);
    let ratelimit = choice(&[
        ("draft", RateLimitFields::Draft),
        ("legacy", RateLimitFields::Legacy),
        ("both", RateLimitFields::Both),
        ("off", RateLimitFields::Off),
    ]);
    let ratelimit = mapping.parse_or("ratelimit", default.ratelimit, ratelimit);
    let via = mapping.parse_or("via", default.via, pseudonym);
    mapping.finish();
    ReplyHeaders { ratelimit, via }
}

pub(super) fn forwarded(value: Option<Cursor<'_>>) -> Forwarded {
    let read = choice(&[
        ("x-forwarded", Forwarded::XForwarded),
        ("forwarded", Forwarded::Forwarded),
        ("both", Forwarded::Both),
        ("off", Forwarded::Off),
    ]);
    value.and_then(|value| value.parse(read)).unwrap_or(Forwarded::XForwarded)
}

pub(super) fn forward_client_certificate(
    value: Option<Cursor<'_>>,
    identity: IdentitySources,
) -> ForwardClientCertificate {
    let read = choice(&[
        ("off", ForwardClientCertificate::Off),
        ("xfcc", ForwardClientCertificate::Xfcc),
        ("xfcc-cert", ForwardClientCertificate::XfccCert),
        ("client-cert", ForwardClientCertificate::ClientCert),
        ("client-cert-chain", ForwardClientCertificate::ClientCertChain),
    ]);
    let Some(value) = value else { return ForwardClientCertificate::Off };
    let form = value.parse(read).unwrap_or(ForwardClientCertificate::Off);
    if form != ForwardClientCertificate::Off {
        identity.warn_without_client_certificates(value);
    }
    form
}
