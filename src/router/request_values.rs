//! The values of cookies (RFC 6265, 4.2 and 5.4) and of query parameters, and the method of a CORS preflight.

use std::borrow::Cow;

use http::{
    HeaderMap, Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_LENGTH, COOKIE, ORIGIN, TRANSFER_ENCODING},
};
use percent_encoding::percent_decode;

/// The values of all cookies of this name, in order and without quotes. All `Cookie` fields are searched.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let fields = headers.get_all(COOKIE).iter();
    fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';')).filter_map(|pair| {
        let pair = pair.trim_ascii();
        let value =
            pair.strip_prefix(name.as_bytes())?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        Some(unquoted.unwrap_or(value))
    })
}

/// The values of all query parameters of this name, in order and decoded. A parameter without `=` is empty.
pub fn query_values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        form_decoded(key).eq(name.bytes()).then(|| match value.contains('+') {
            true => Cow::Owned(form_decoded(value).collect()),
            false => percent_decode(value.as_bytes()).into(),
        })
    })
}

/// Decodes a value like forms: `+` is a space, the rest is percent-encoded.
fn form_decoded(text: &str) -> impl Iterator<Item = u8> {
    text.split('+').enumerate().flat_map(|(place, part)| {
        let space = (place > 0).then_some(b' ');
        space.into_iter().chain(percent_decode(part.as_bytes()))
    })
}

/// The method that a CORS preflight (Fetch, 4.8) asks for: browsers send it with one origin and without a body. `None`:
/// not a preflight, but a request that an origin may serve.
pub fn preflight_method(method: &Method, headers: &HeaderMap) -> Option<Method> {
    if *method != Method::OPTIONS {
        return None;
    }
    let single = |name| {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next()?;
        lines.next().is_none().then(|| line.as_bytes().trim_ascii())
    };
    let has_no_body = !headers.contains_key(TRANSFER_ENCODING)
        && headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    if !has_no_body || single(ORIGIN)?.is_empty() {
        return None;
    }
    // A method is a token (RFC 9110, 9.1).
    Method::from_bytes(single(ACCESS_CONTROL_REQUEST_METHOD)?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn every_cookie_of_the_name_is_found() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["session=a"], &["a"]),
            (&["x=1; session=a; y=2"], &["a"]),
            (&["x=1;session=a"], &["a"]),
            (&["x=1", "session=a"], &["a"]),
            (&["session=a; session=b", "x=1; session=a"], &["a", "b", "a"]),
            (&["session=\"a b\""], &["a b"]),
            (&["session=\"a"], &["\"a"]),
            (&["session=\""], &["\""]),
            (&["session = a"], &["a"]),
            (&["session=a=b"], &["a=b"]),
            (&["session="], &[""]),
            (&["session"], &[]),
            (&["Session=a"], &[]),
            (&["xsession=a; sessionx=a; my session=a"], &[]),
            (&[""], &[]),
            (&[], &[]),
        ];
        for (lines, values) in cases {
            let mut headers = HeaderMap::new();
            for line in *lines {
                headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
            }
            let found: Vec<_> =
                cookies(&headers, "session").map(|value| str::from_utf8(value).unwrap()).collect();
            assert_eq!(found, *values, "{lines:?}");
        }
    }
}
