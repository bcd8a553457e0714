//! Header fields that name a user, and cookies (RFC 6265, 4.2 and 5.4).

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, header::COOKIE};

/// The value of a field with a single line. Of two lines, the client may have added one.
pub fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    lines.next().is_none().then(|| line.as_bytes().trim_ascii())
}

/// A user name, if it is UTF-8, not empty, and without control characters.
pub(super) fn user_name(name: &[u8]) -> Option<CompactString> {
    let name = str::from_utf8(name).ok()?;
    (!name.is_empty() && !name.contains(char::is_control)).then(|| name.into())
}

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
