//! The handshake of a tunnel: the requests that may switch protocols, and the responses that do.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header, request};
use hyper::{ext::Protocol, upgrade::OnUpgrade};

use crate::proxy::headers::elements;

const WEBSOCKET: &str = "websocket";

/// Appended to the key by a WebSocket server to show that it has understood the request (RFC 6455, 1.3).
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Protocols that could carry unchecked requests: HTTP itself, under any name, and TLS (RFC 2817).
const UNCHECKED: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// The protocol that a request asks for instead of HTTP.
#[derive(Debug)]
pub(in crate::proxy) struct Upgrade {
    /// As the client wrote it.
    protocol: HeaderValue,
    /// The byte stream that the client's HTTP/2 stream becomes.
    client_stream: Option<OnUpgrade>,
    is_websocket: bool,
    /// The key of a WebSocket.
    key: Option<HeaderValue>,
}

impl Upgrade {
    /// The protocol that a request asks for, if it may be passed on. An extended CONNECT is turned into a GET.
    #[inline]
    pub(in crate::proxy) fn of(head: &mut request::Parts, has_body: bool) -> Option<Self> {
        match head.version {
            // If hyper has found no upgrade, the fields need not be searched.
            Version::HTTP_11 if head.extensions.get::<OnUpgrade>().is_some() => {
                Self::requested(head, has_body)
            }
            Version::HTTP_2 if head.method == Method::CONNECT => Self::extended_connect(head),
            _ => None,
        }
    }

    /// The protocol that an HTTP/1.1 request asks for, if it may be passed on: the request is a GET without a body
    /// that asks for one protocol. Other requests are passed on without their `Upgrade`, which a server is free to
    /// ignore (RFC 9110, 7.8).
    fn requested(head: &request::Parts, has_body: bool) -> Option<Self> {
        let headers = &head.headers;
        if head.method != Method::GET || has_body {
            return None;
        }
        let mut protocols = headers.get_all(header::UPGRADE).iter().flat_map(elements);
        let (Some(protocol), None) = (protocols.next(), protocols.next()) else { return None };
        let text = str::from_utf8(protocol).ok()?;
        let (name, version) = text.split_once('/').unwrap_or((text, "0"));
        let is_one = !name.is_empty() && is_token(name) && is_token(version);
        if !is_one || UNCHECKED.iter().any(|unchecked| name.eq_ignore_ascii_case(unchecked)) {
            return None;
        }
        if !names_upgrade(headers) || headers.contains_key("http2-settings") {
            return None;
        }
        let is_websocket = text.eq_ignore_ascii_case(WEBSOCKET);
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_websocket).cloned();
        Some(Self { protocol: HeaderValue::from_str(text).ok()?, client_stream: None, is_websocket, key })
    }

    /// The protocol of an extended CONNECT (RFC 8441), if it is a WebSocket. The request is turned into the GET that
    /// HTTP/1.1 would use, for limits, routes and the upstream.
    fn extended_connect(head: &mut request::Parts) -> Option<Self> {
        let protocol = head.extensions.remove::<Protocol>()?;
        if !protocol.as_str().eq_ignore_ascii_case(WEBSOCKET) {
            return None;
        }
        let client_stream = head.extensions.remove::<OnUpgrade>()?;
        head.method = Method::GET;
        let key = HeaderValue::from_str(&STANDARD.encode(fastrand::u128(..).to_be_bytes())).ok();
        let protocol = HeaderValue::from_static(WEBSOCKET);
        Some(Self { protocol, client_stream: Some(client_stream), is_websocket: true, key })
    }

    /// Whether the client's stream is one of HTTP/2.
    pub(super) fn is_extended_connect(&self) -> bool {
        self.client_stream.is_some()
    }

    pub(super) fn into_client_stream(self) -> Option<OnUpgrade> {
        self.client_stream
    }

    pub(in crate::proxy) fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// Asks for the protocol in an HTTP/1.1 request, whose own fields of this kind were removed.
    pub(in crate::proxy) fn request(&self, headers: &mut HeaderMap) {
        // It would have to be named in `Connection` as well, and there are no trailers.
        headers.remove(header::TE);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
        if let Some(key) = self.key.as_ref().filter(|_| self.is_extended_connect()) {
            headers.insert(header::SEC_WEBSOCKET_KEY, key.clone());
        }
    }

    /// Whether `response` may be passed on: it switches to the requested protocol, or refuses to. A success over
    /// HTTP/2 without the switch is not a refusal: the client of an extended CONNECT would take it for the WebSocket.
    pub(in crate::proxy) fn permits<B>(&self, response: &Response<B>) -> bool {
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => self.is_accepted_by(response),
            status => !(status.is_success() && self.is_extended_connect()),
        }
    }

    /// Whether `response` switches to the requested protocol. Otherwise, the bytes after it would pass as unchecked
    /// requests.
    fn is_accepted_by<B>(&self, response: &Response<B>) -> bool {
        if response.version() == Version::HTTP_2 {
            // For an extended CONNECT, the status alone decides.
            return self.is_websocket;
        }
        let headers = response.headers();
        let mut protocols = headers.get_all(header::UPGRADE).iter().flat_map(elements);
        protocols.next().is_some_and(|protocol| protocol.eq_ignore_ascii_case(self.protocol.as_bytes()))
            && protocols.next().is_none()
            && names_upgrade(headers)
            && (!self.is_websocket || self.has_understood(headers))
    }

    fn has_understood(&self, headers: &HeaderMap) -> bool {
        let accept = headers.get(header::SEC_WEBSOCKET_ACCEPT);
        self.key.as_ref().zip(accept).is_some_and(|(key, accept)| {
            accept.as_bytes().trim_ascii() == websocket_accept(key.as_bytes().trim_ascii()).as_bytes()
        })
    }

    /// The status and the fields that tell the client that `response` accepts the upgrade.
    pub(super) fn respond(&self, headers: &mut HeaderMap) -> StatusCode {
        headers.remove(header::CONTENT_LENGTH);
        if self.is_extended_connect() {
            headers.remove(header::SEC_WEBSOCKET_ACCEPT);
            return StatusCode::OK;
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, self.protocol.clone());
        if let Some(key) = &self.key {
            let accept = websocket_accept(key.as_bytes().trim_ascii());
            // Base64 has only characters that are allowed in a field. An HTTP/2 upstream has not seen the key.
            if let Ok(accept) = HeaderValue::try_from(accept) {
                headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            }
        }
        StatusCode::SWITCHING_PROTOCOLS
    }
}

fn websocket_accept(key: &[u8]) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, ACCEPT_GUID].concat()))
}

/// Whether `Connection` names `Upgrade`.
fn names_upgrade(headers: &HeaderMap) -> bool {
    let mut options = headers.get_all(header::CONNECTION).iter().flat_map(elements);
    options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder();
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn requested(fields: &[(&str, &str)]) -> Option<Upgrade> {
        Upgrade::requested(&head(fields), false)
    }

    #[test]
    fn one_protocol_that_hides_no_requests_is_passed_on() {
        for (protocol, is_passed_on) in [
            ("websocket", true),
            ("WebSocket", true),
            (" websocket ", true),
            ("SPDY/3.1", true),
            ("tcp", true),
            ("h2c", false),
            ("H2C", false),
            ("h2", false),
            ("HTTP/2.0", false),
            ("TLS/1.2", false),
            ("websocket, h2c", false),
            ("websocket h2c", false),
            ("websocket/", false),
            ("/13", false),
            ("", false),
            ("websocket,", true),
            (", ,websocket ,", true),
            (",", false),
            (", h2c,", false),
            ("websocket,,h2c", false),
            ("web\u{e9}socket", false),
        ] {
            let upgrade = requested(&[("connection", "keep-alive, Upgrade"), ("upgrade", protocol)]);
            assert_eq!(upgrade.is_some(), is_passed_on, "{protocol}");
        }
        let twice = [("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "websocket")];
        assert!(requested(&twice).is_none());
        let once = [("connection", ", upgrade,"), ("upgrade", ""), ("upgrade", "websocket")];
        assert!(requested(&once).is_some());
        assert!(requested(&[("connection", "close"), ("upgrade", "websocket")]).is_none());
        let with_settings = [("connection", "upgrade"), ("upgrade", "websocket"), ("http2-settings", "AAA")];
        assert!(requested(&with_settings).is_none());
        let mut post = head(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        assert!(Upgrade::requested(&post, true).is_none());
        post.method = Method::POST;
        assert!(Upgrade::requested(&post, false).is_none());
    }

    #[test]
    fn only_what_was_asked_for_is_switched_to() {
        // The example of RFC 6455, 1.3.
        let asked = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let upgrade = requested(&asked).unwrap();
        let is_permitted = |fields: &[(&str, &str)]| {
            let mut response = Response::builder().status(101);
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            upgrade.permits(&response.body(()).unwrap())
        };
        let accept = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let right = [("connection", "upgrade"), ("upgrade", "WebSocket"), accept];
        assert!(is_permitted(&right));
        assert!(!is_permitted(&right[..2]), "without an accept");
        assert!(!is_permitted(&right[1..]), "without a connection option");
        assert!(!is_permitted(&[right[0], accept]), "without a name");
        assert!(!is_permitted(&[right[0], ("upgrade", "h2c"), accept]));
        assert!(!is_permitted(&[right[0], right[1], right[1], accept]));
        assert!(is_permitted(&[
            ("connection", ",upgrade"),
            ("upgrade", "websocket,"),
            ("upgrade", ""),
            accept
        ]));
        assert!(!is_permitted(&[right[0], ("upgrade", ","), accept]));
        let wrong = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=");
        assert!(!is_permitted(&[right[0], right[1], wrong]));
    }
}
