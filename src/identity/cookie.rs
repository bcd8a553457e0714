//! Cookies (RFC 6265, 4.2 and 5.4).

use http::{HeaderMap, header::COOKIE};

/// The value of the first cookie of this name, without the quotes around it. All `Cookie` fields are
/// searched.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let fields = headers.get_all(COOKIE).iter();
    fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';')).find_map(|pair| {
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
    fn the_first_cookie_of_the_name_counts() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["session=a"], Some("a")),
            (&["x=1; session=a; y=2"], Some("a")),
            (&["x=1;session=a"], Some("a")),
            (&["x=1", "session=a"], Some("a")),
            (&["session=a; session=b"], Some("a")),
            (&["session=\"a b\""], Some("a b")),
            (&["session=\"a"], Some("\"a")),
            (&["session=\""], Some("\"")),
            (&["session = a"], Some("a")),
            (&["session=a=b"], Some("a=b")),
            (&["session="], Some("")),
            (&["session"], None),
            (&["Session=a"], None),
            (&["xsession=a; sessionx=a; my session=a"], None),
            (&[""], None),
            (&[], None),
        ];
        for (lines, value) in cases {
            let mut headers = HeaderMap::new();
            for line in *lines {
                headers.append(COOKIE, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(cookie(&headers, "session"), value.map(str::as_bytes), "{lines:?}");
        }
    }
}
