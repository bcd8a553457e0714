//! A copy of a request, should it have to be sent again.

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::request_body::RequestBody;
use crate::upstream::RequestBody as _;

/// A copy of a request. Hardly any is needed, so its fields are text: a map of fields would have to be allocated, and a
/// reference to each value to be counted.
pub(super) struct RequestCopy {
    method: Method,
    uri: Uri,
    /// A line each: its name, [`SEPARATOR`] or [`NEVER_INDEXED`], its value.
    fields: Vec<u8>,
    /// What heeds informational answers.
    extensions: Extensions,
    body: RequestBody,
}

/// Ends a name (RFC 9110, 5.1).
const SEPARATOR: u8 = b':';
/// Ends the name of a field whose value HTTP/2 must not keep in its table.
const NEVER_INDEXED: u8 = b';';
/// No value has one (RFC 9110, 5.5).
const END_OF_LINE: u8 = b'\n';

impl RequestCopy {
    /// `None`: the body is not at hand.
    pub(super) fn new(request: &Request<RequestBody>) -> Option<Self> {
        let headers = request.headers();
        let length = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 2).sum();
        let mut fields = Vec::with_capacity(length);
        for (name, value) in headers {
            fields.extend_from_slice(name.as_str().as_bytes());
            fields.push(if value.is_sensitive() { NEVER_INDEXED } else { SEPARATOR });
            fields.extend_from_slice(value.as_bytes());
            fields.push(END_OF_LINE);
        }
        Some(Self {
            body: request.body().repeatable()?,
            method: request.method().clone(),
            uri: request.uri().clone(),
            fields,
            extensions: request.extensions().clone(),
        })
    }

    /// The request. `None`: it can't be made again, which does not happen.
    pub(super) fn into_request(self) -> Option<Request<RequestBody>> {
        let mut headers = HeaderMap::new();
        for line in self.fields.split(|byte| *byte == END_OF_LINE).filter(|line| !line.is_empty()) {
            let end_of_name = line.iter().position(|byte| matches!(*byte, SEPARATOR | NEVER_INDEXED))?;
            let (name, value) = line.split_at(end_of_name);
            let mut value = HeaderValue::from_bytes(&value[1..]).ok()?;
            value.set_sensitive(line[end_of_name] == NEVER_INDEXED);
            headers.append(HeaderName::from_bytes(name).ok()?, value);
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.extensions;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
