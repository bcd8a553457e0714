//! The head of a request in HTTP/2.

use h2::ext::Protocol;
use http::{
    Method, Request, Uri, Version,
    header::{self, HeaderMap},
    request,
    uri::{self, Authority, PathAndQuery, Scheme},
};
use http_body::SizeHint;

use crate::{config::model::Endpoint, http2_frames::copy_values};

/// The head of a request with a body of this `length`: without connection-specific fields (RFC 9113, 8.2.2), and with
/// the host in `:authority`. The handshake of a WebSocket becomes an extended CONNECT (RFC 8441, 5).
///
/// A host that is not a valid authority remains in its field.
pub(super) fn http2_head(mut head: request::Parts, length: &SizeHint, endpoint: &Endpoint) -> Request<()> {
    let headers = &mut head.headers;
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
    if headers.remove(header::UPGRADE).is_some() {
        headers.remove(header::SEC_WEBSOCKET_KEY);
        head.method = Method::CONNECT;
        head.extensions.insert(Protocol::from_static("websocket"));
    }
    if let Some(length) = length.exact()
        && (length > 0 || matches!(head.method, Method::POST | Method::PUT | Method::PATCH))
        && !headers.contains_key(header::CONTENT_LENGTH)
    {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    match authority(headers, endpoint) {
        Some(authority) => {
            headers.remove(header::HOST);
            let mut parts = uri::Parts::default();
            parts.scheme = Some(endpoint.url.scheme().cloned().unwrap_or(Scheme::HTTP));
            parts.authority = Some(authority);
            let target = head.uri.path_and_query().cloned();
            parts.path_and_query = Some(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
            // All three parts are present.
            head.uri = Uri::from_parts(parts).unwrap_or(head.uri);
            head.version = Version::HTTP_2;
        }
        // In this version h2 accepts a request whose host is not in `:authority`.
        None => head.version = Version::HTTP_11,
    }
    copy_values(&mut head.headers);
    Request::from_parts(head, ())
}

fn authority(headers: &HeaderMap, endpoint: &Endpoint) -> Option<Authority> {
    match headers.get(header::HOST) {
        Some(host) => Authority::try_from(host.as_bytes()).ok(),
        None => Some(endpoint.authority.clone()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;

    fn endpoint() -> Endpoint {
        let authority = Authority::from_static("origin:1");
        Endpoint { url: "http://origin:1".parse().unwrap(), authority, port: 1, weight: 1, drain: false }
    }

    fn head(request: request::Builder) -> Request<()> {
        let (head, ()) = request.body(()).unwrap().into_parts();
        http2_head(head, &SizeHint::with_exact(0), &endpoint())
    }

    #[test]
    fn its_fields_keep_no_buffer_that_they_were_received_in() {
        let received = Bytes::from(b"one".repeat(1000));
        let tag = HeaderValue::from_maybe_shared(received.slice(..3)).unwrap();
        let head = head(Request::get("/").header("host", "a").header("x-tag", tag));
        assert_eq!(head.headers()["x-tag"], "one");
        assert!(received.is_unique());
    }

    #[test]
    fn the_host_becomes_the_authority() {
        let head = head(Request::get("/a?b=c").header("host", "example.com:8080"));
        assert_eq!(head.uri(), "http://example.com:8080/a?b=c");
        assert!(head.headers().is_empty());
        assert_eq!(head.version(), Version::HTTP_2);
    }

    #[test]
    fn a_host_that_is_no_authority_stays_a_field() {
        let head = head(Request::get("/a").header("host", "exa{mple"));
        assert_eq!((head.uri(), head.version()), (&"/a".parse().unwrap(), Version::HTTP_11));
        assert_eq!(head.headers()["host"], "exa{mple");
    }

    #[test]
    fn a_request_for_the_server_itself_keeps_its_asterisk() {
        let head = head(Request::options("*").header("host", "example.com"));
        assert_eq!(head.uri().path_and_query().unwrap().as_str(), "*");
    }

    #[test]
    fn fields_of_a_connection_go_and_the_wish_for_trailers_stays() {
        let request = Request::post("/").header("host", "a").header("te", "trailers");
        let request = request.header("connection", "te").header("transfer-encoding", "chunked");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let head = http2_head(head, &SizeHint::default(), &endpoint());
        let names: Vec<_> = head.headers().keys().map(header::HeaderName::as_str).collect();
        assert_eq!(names, ["te"]);
    }

    #[test]
    fn the_handshake_of_a_websocket_is_an_extended_connect() {
        let request = Request::get("/chat").header("host", "a").header("connection", "Upgrade");
        let request = request.header("upgrade", "websocket").header("sec-websocket-key", "x");
        let head = head(request.header("sec-websocket-version", "13"));
        assert_eq!((head.method(), head.uri()), (&Method::CONNECT, &"http://a/chat".parse().unwrap()));
        assert_eq!(head.extensions().get::<Protocol>().unwrap().as_str(), "websocket");
        let names: Vec<_> = head.headers().keys().map(header::HeaderName::as_str).collect();
        assert_eq!(names, ["sec-websocket-version"]);
    }

    #[test]
    fn an_empty_body_has_a_length_where_one_is_expected() {
        assert_eq!(head(Request::post("/").header("host", "a")).headers()["content-length"], "0");
        assert!(!head(Request::get("/").header("host", "a")).headers().contains_key("content-length"));
    }
}
