//! The normal form of a path: what routes match and upstreams get (RFC 3986, 6.2.2).

use std::borrow::Cow;

use super::Rejection;

const MALFORMED: Rejection = Rejection::bad_request("The path has a malformed percent-encoding.");
const CONTROL: Rejection = Rejection::bad_request("The path has an encoded control character.");

/// Decodes percent-encoded unreserved characters, encodes what is not ASCII, writes hexadecimal digits
/// in upper case, and removes dot segments. Borrowed if nothing changes. Everything else stays as it is:
/// case, `%2F`, `\`, `//`, `;`.
///
/// `path` begins with `/`, and so does what is returned, which is ASCII.
///
/// # Errors
/// 400 for `%` without two hexadecimal digits, and for encoded control characters.
pub(super) fn normalize(path: &str) -> Result<Cow<'_, str>, Rejection> {
    let decoded = match path.bytes().any(|byte| byte == b'%' || !byte.is_ascii()) {
        true => Cow::Owned(normalize_percent_encoding(path)?),
        false => Cow::Borrowed(path),
    };
    Ok(if has_dot_segment(&decoded) { Cow::Owned(remove_dot_segments(&decoded)) } else { decoded })
}

/// The byte that the three bytes `%XX` at the start of `text` stand for.
pub(super) fn percent_decode(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Appends `byte` as `%XX`.
pub(super) fn push_percent_encoded(out: &mut String, byte: u8) {
    out.push_str(percent_encoding::percent_encode_byte(byte));
}

pub(super) fn is_dot_segment(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn normalize_percent_encoding(path: &str) -> Result<String, Rejection> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.bytes().position(|byte| byte == b'%' || !byte.is_ascii()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with('%') {
            match percent_decode(rest.as_bytes()).ok_or(MALFORMED)? {
                control if control.is_ascii_control() => return Err(CONTROL),
                unreserved if is_unreserved(unreserved) => out.push(char::from(unreserved)),
                reserved => push_percent_encoded(&mut out, reserved),
            }
            3
        } else {
            let length = rest.chars().next().map_or(0, char::len_utf8);
            rest[..length].bytes().for_each(|byte| push_percent_encoded(&mut out, byte));
            length
        };
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Unreserved characters (RFC 3986, 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn has_dot_segment(path: &str) -> bool {
    path.contains("/.") && path.split('/').any(is_dot_segment)
}

/// Removes dot segments (RFC 3986, 5.2.4).
fn remove_dot_segments(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if !is_dot_segment(segment) {
            out.push('/');
            out.push_str(segment);
            continue;
        }
        if segment == ".." {
            out.truncate(out.rfind('/').unwrap_or(0));
        }
        // "/a/." and "/a/b/.." name the directory "/a/".
        if segments.peek().is_none() {
            out.push('/');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_paths_are_borrowed() {
        for path in ["/", "/a", "/a/b/", "/.well-known/x", "/a/.../b", "/a/..b", "//a", "/a;x=1", "/a\\b"] {
            assert!(matches!(normalize(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    #[test]
    fn paths_have_one_normal_form() {
        for (path, normal) in [
            ("/%61%7e%2D%2e%5F%30", "/a~-._0"),
            ("/%c3%a9", "/%C3%A9"),
            ("/é", "/%C3%A9"),
            ("/a%2fb%5cc", "/a%2Fb%5Cc"),
            ("/%40%3a%3B%20", "/%40%3A%3B%20"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/..", "/"),
            ("/.", "/"),
            ("/../../a", "/a"),
            ("/a/b/../../../c", "/c"),
            ("/a//../b", "/a/b"),
            ("/.//a", "//a"),
            ("/a/..%2Fb", "/a/..%2Fb"),
        ] {
            assert_eq!(normalize(path).unwrap(), normal, "{path}");
        }
    }

    #[test]
    fn malformed_encodings_and_control_characters_are_rejected() {
        for path in ["/%", "/%2", "/%zz", "/a%2", "/%%20", "/%+1", "/% 1", "/%é"] {
            assert_eq!(normalize(path), Err(MALFORMED), "{path}");
        }
        for path in ["/%00", "/a%0d%0Ab", "/%1f", "/%7F"] {
            assert_eq!(normalize(path), Err(CONTROL), "{path}");
        }
    }

    proptest! {
        #[test]
        fn normalising_is_idempotent_and_leaves_no_dot_segment(
            path in "/([a/.%25eEfFcC;\\\\é@]|%2[eEfF5]|%5[cC]|%[0-9a-fA-F]{2}){0,24}"
        ) {
            if let Ok(normal) = normalize(&path) {
                prop_assert!(normal.starts_with('/') && normal.is_ascii());
                prop_assert!(!normal.split('/').any(is_dot_segment));
                prop_assert_eq!(normalize(&normal).unwrap(), normal.clone());
            }
        }

        #[test]
        fn any_text_is_normalised_or_refused(tail in any::<String>()) {
            let _ = normalize(&format!("/{tail}"));
        }
    }
}
