//! Where spans are taken: the URL of an OTLP/HTTP collector.

use http::{
    Uri,
    uri::{PathAndQuery, Scheme},
};

use super::{Invalid, host::is_host};

/// The path below a collector's own that takes spans.
const TRACES: &str = "/v1/traces";

/// Reads `http://HOST:PORT`, or the same with a path, as the URL that spans are sent to: with `/v1/traces` at its
/// end (OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP").
pub(in crate::config) fn collector(text: &str) -> Result<Uri, Invalid> {
    let form = "http://HOST:PORT, such as http://127.0.0.1:4318";
    let invalid = |what: &'static str| Invalid::new(what).form(form);
    if !text.contains("://") {
        return Err(invalid("is not a URL").guess(format!("did you mean `http://{text}`?")));
    }
    let url: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
    match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => {}
        Some(scheme) if *scheme == Scheme::HTTPS => {
            return Err(invalid(
                "asks for TLS to the collector, which is not supported: a collector beside Tollgate may pass spans on by TLS",
            ));
        }
        Some(scheme) if scheme.as_str().eq_ignore_ascii_case("grpc") => {
            return Err(invalid("is for gRPC: spans are sent by HTTP, mostly to port 4318"));
        }
        _ => return Err(invalid("has another scheme than http")),
    }
    if url.query().is_some() || text.contains('#') {
        return Err(invalid("has more than a host, a port and a path"));
    }
    let authority = url.authority().ok_or_else(|| invalid("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(invalid(
            "has a user name: fields for the collector are set by OTEL_EXPORTER_OTLP_HEADERS",
        ));
    }
    if !is_host(authority.host()) {
        return Err(invalid("has a host that is neither a name nor an address"));
    }
    let port = authority.as_str().get(authority.host().len()..).unwrap_or_default();
    if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(invalid("has a port that is not one"));
    }
    below(url).ok_or_else(|| invalid("is not a URL"))
}

fn below(url: Uri) -> Option<Uri> {
    let path = url.path().trim_end_matches('/').to_owned();
    let path = if path.ends_with(TRACES) { path } else { path + TRACES };
    let mut parts = url.into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_below_the_collector() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("http://collector", "http://collector/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
            ("http://collector/otlp/", "http://collector/otlp/v1/traces"),
            ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        ] {
            let read = collector(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(read, url, "{text}");
        }
    }

    #[test]
    fn nothing_else() {
        for (text, what) in [
            ("127.0.0.1:4318", "not a URL"),
            ("https://collector:4318", "TLS"),
            ("grpc://collector:4317", "gRPC"),
            ("ftp://collector", "scheme"),
            ("http://", "not a URL"),
            ("http://collector?x", "more than"),
            ("http://collector#x", "more than"),
            ("http://user:word@collector", "user name"),
            ("http://collector:0", "port"),
            ("http://collector:", "port"),
            ("http://collector:99999", ""),
            ("http://a..b", "neither"),
        ] {
            let error = collector(text).unwrap_err();
            assert!(error.what.contains(what), "{text}: {error:?}");
        }
    }
}
