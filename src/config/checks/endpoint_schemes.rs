//! Settings of an upstream that only endpoints of another scheme can use.

use crate::config::{
    model::{Endpoint, Endpoints, Probe, Protocol},
    reader::MappingCursor,
    section::UpstreamSettings,
};

/// Reports `tls` without an https:// endpoint, and gRPC health checks without HTTP/2.
pub(in crate::config) fn check(mapping: &MappingCursor<'_>, upstream: Option<&UpstreamSettings<'_>>) {
    let Some(upstream) = upstream else { return };
    // Of an empty list nothing is known: its endpoints are wrong.
    let listed = match &upstream.endpoints {
        Some(Endpoints::Listed(endpoints)) => Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
        _ => None,
    };
    if let (Some(location), Some(endpoints)) = (mapping.key_location("tls"), listed)
        && !endpoints.iter().any(Endpoint::is_https)
    {
        let help = "write https:// in `endpoints` to use TLS, or remove `tls`".to_owned();
        mapping.report_at(location, "`tls` works only with https:// endpoints", help);
    }
    let speaks_http2 = match upstream.protocol {
        Protocol::H1 => false,
        Protocol::H2 => true,
        Protocol::Auto => listed.is_none_or(|endpoints| endpoints.iter().all(Endpoint::is_https)),
    };
    let probe = upstream.health.as_ref().map(|health| &health.probe);
    if let (Some(value), Some(Probe::Grpc { .. }), false) = (mapping.peek("health"), probe, speaks_http2) {
        let help = "set `protocol: h2` on the upstream".to_owned();
        value.report("gRPC needs HTTP/2, which this upstream does not speak", help);
    }
}
