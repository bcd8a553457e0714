//! The values of cookies (RFC 6265, 4.2 and 5.4) and of query parameters.

use std::borrow::Cow;

use http::{HeaderMap, header::COOKIE};
use percent_encoding::percent_decode;

/// The values of all cookies of this name in their order, without the quotes around them. All `Cookie`
/// fields are searched.
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

/// The values of all query parameters of this name in their order, decoded. One without `=` is empty.
pub fn query_values<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*form_decoded(key) == *name.as_bytes()).then(|| form_decoded(value))
    })
}

/// As forms are encoded: `+` is a space, the rest is percent-encoded.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode(spaced.as_bytes()).collect());
    }
    percent_decode(text.as_bytes()).into()
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
