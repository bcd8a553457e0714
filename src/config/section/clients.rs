//! How clients are identified, their limits, and the fields that clients and upstreams receive.

use http::HeaderName;

use super::user::IdentitySources;
use crate::config::{
    model::{AddressHeader, ClientAddress, ForwardClientCertificate, TrustedProxy},
    reader::Cursor,
    settings::{ReadOver, Value},
    value::{Invalid, network, request_id_field_name, unreserved_field_name},
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
    let header = value.filter(|_| !has_trusted_proxies).and_then(|value| value.entry("header"));
    // An invalid value is reported below.
    if let Some(header) =
        header.filter(|header| header.again(|| header.parse(AddressHeader::parse)).is_some())
    {
        let help =
            "add the addresses of what sets it to `trusted_proxies`: a load balancer, or a CDN".to_owned();
        header.warn("no trusted_proxies are configured, so this header is never read", help);
    }
    ClientAddress::or(value, ClientAddress::default())
}

pub(super) fn request_id(value: Option<Cursor<'_>>) -> HeaderName {
    value
        .and_then(|value| value.parse(request_id_field_name))
        .unwrap_or(HeaderName::from_static("x-request-id"))
}

pub(super) fn forward_client_certificate(
    value: Option<Cursor<'_>>,
    identity: IdentitySources,
) -> ForwardClientCertificate {
    let form = value.and_then(|value| Some((value, value.parse(ForwardClientCertificate::parse)?)));
    let Some((value, form)) = form else { return ForwardClientCertificate::Off };
    if form != ForwardClientCertificate::Off {
        identity.warn_without_client_certificates(value);
    }
    form
}
