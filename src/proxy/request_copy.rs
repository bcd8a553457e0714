//! A copy of a request, in case it has to be sent again.

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, uri::PathAndQuery};

use super::request_body::RequestBody;
use crate::upstream::OutgoingBody as _;

/// A copy of a request. Hardly any copy is used, so it is text, which is cheap to make: a map of fields would need
/// allocations, and a reference count for each value.
pub(super) struct RequestCopy {
    /// Lines: the method; the path with the query; and for each field its name, [`SEPARATOR`] or [`NEVER_INDEXED`],
    /// and its value.
    head: Vec<u8>,
    /// The handlers of informational responses.
    extensions: Extensions,
    body: RequestBody,
}

/// Bytes that most heads fit into. Computing each length first would take longer than growing for the few that are
/// longer.
const MOST_HEADS: usize = 1 << 10;
/// Ends a name (RFC 9110, 5.1).
const SEPARATOR: u8 = b':';
/// Ends the name of a field whose value HTTP/2 must not keep in its table.
const NEVER_INDEXED: u8 = b';';
/// No value has one (RFC 9110, 5.5).
const END_OF_LINE: u8 = b'\n';

impl RequestCopy {
    /// `None`: the body is not at hand, or the target is not just a path (RFC 9112, 3.2), which no upstream gets.
    pub(super) fn new(request: &Request<RequestBody>) -> Option<Self> {
        let body = request.body().repeatable()?;
        let (method, headers) = (request.method().as_str(), request.headers());
        let path = request.uri().path_and_query().filter(|_| request.uri().authority().is_none())?.as_str();
        let mut head = Vec::with_capacity(MOST_HEADS);
        for line in [method, path] {
            head.extend_from_slice(line.as_bytes());
            head.push(END_OF_LINE);
        }
        for (name, value) in headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.push(if value.is_sensitive() { NEVER_INDEXED } else { SEPARATOR });
            head.extend_from_slice(value.as_bytes());
            head.push(END_OF_LINE);
        }
        Some(Self { body, head, extensions: request.extensions().clone() })
    }

    /// Makes the request again. `None` if the copy is invalid, which does not happen.
    pub(super) fn into_request(self) -> Option<Request<RequestBody>> {
        let mut headers = HeaderMap::new();
        let mut lines = self.head.split(|byte| *byte == END_OF_LINE).filter(|line| !line.is_empty());
        let method = Method::from_bytes(lines.next()?).ok()?;
        let path = PathAndQuery::try_from(lines.next()?).ok()?;
        for line in lines {
            let end_of_name = line.iter().position(|byte| matches!(*byte, SEPARATOR | NEVER_INDEXED))?;
            let (name, value) = line.split_at(end_of_name);
            let mut value = HeaderValue::from_bytes(&value[1..]).ok()?;
            value.set_sensitive(line[end_of_name] == NEVER_INDEXED);
            headers.append(HeaderName::from_bytes(name).ok()?, value);
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.extensions;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_are_copied_as_they_are() {
        for (method, path) in [("OPTIONS", "*"), ("GET", "//a/b?"), ("PURGE", "/%0A?%ff:;"), ("GET", "/")] {
            let mut request = Request::new(RequestBody::Empty);
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = Uri::from(PathAndQuery::try_from(path).unwrap());
            let copy = RequestCopy::new(&request).and_then(RequestCopy::into_request).unwrap();
            assert_eq!((copy.method(), copy.uri()), (request.method(), request.uri()));
            assert_eq!(copy.uri().path_and_query().map(PathAndQuery::as_str), Some(path));
        }
        let elsewhere = Request::get("http://a/b").body(RequestBody::Empty).unwrap();
        assert!(RequestCopy::new(&elsewhere).is_none());
    }

    #[test]
    fn a_copy_is_the_same_request() {
        let mut request = Request::put("/a?b=c").body(RequestBody::Empty).unwrap();
        let mut secret = HeaderValue::from_static("a: b; c");
        secret.set_sensitive(true);
        let opaque = HeaderValue::from_bytes(b"\x80\xff\t:;").unwrap();
        for (name, value) in [
            ("x-empty", HeaderValue::from_static("")),
            ("cookie", secret),
            ("accept", HeaderValue::from_static("text/html")),
            ("accept", opaque),
        ] {
            request.headers_mut().append(name, value);
        }
        let copy = RequestCopy::new(&request).and_then(RequestCopy::into_request).unwrap();
        assert_eq!((copy.method(), copy.uri()), (request.method(), request.uri()));
        assert_eq!(copy.headers(), request.headers());
        assert!(copy.headers()["cookie"].is_sensitive() && !copy.headers()["accept"].is_sensitive());
    }
}
