//! The well-formed path, and its dot segments (RFC 3986, 5.2.4).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::Rejection;

const MALFORMED: Rejection = Rejection::bad_request("The path has a malformed percent-encoding.");
const NUL: Rejection = Rejection::bad_request("The path has an encoded NUL character.");

/// The bytes of a path that a request target must not contain, beside those that are not ASCII.
const NOT_IN_A_PATH: &AsciiSet = &AsciiSet::EMPTY.add(b'<').add(b'>').add(b'`');

/// Percent-encodes the characters that a request target must not contain. Borrowed if nothing changes.
///
/// # Errors
/// 400 for `%` without two hexadecimal digits, and for `%00`, at which many programs truncate a path.
pub(super) fn well_formed(path: &str) -> Result<Cow<'_, str>, Rejection> {
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        if percent_decode(&rest[at..]).ok_or(MALFORMED)? == 0 {
            return Err(NUL);
        }
        rest = &rest[at + 3..];
    }
    Ok(utf8_percent_encode(path, NOT_IN_A_PATH).into())
}

/// The byte encoded by the three bytes `%XX` at the start of `text`.
pub(super) fn percent_decode(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Which dot segments are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DotSegmentSpelling {
    /// Only `.` and `..`.
    Literal,
    /// Also segments with `%2e`.
    Any,
}

impl DotSegmentSpelling {
    /// The number of dots of a dot segment. `None`: an ordinary segment.
    fn dots(self, segment: &str) -> Option<usize> {
        // The longest is "%2e%2e", and most segments begin otherwise.
        if segment.len() > 6 || !segment.starts_with(['.', '%']) {
            return None;
        }
        let (mut dots, mut rest) = (0, segment);
        while !rest.is_empty() {
            rest = rest.strip_prefix('.').or_else(|| match self {
                Self::Literal => None,
                Self::Any => rest.strip_prefix("%2e").or_else(|| rest.strip_prefix("%2E")),
            })?;
            dots += 1;
        }
        matches!(dots, 1 | 2).then_some(dots)
    }
}

pub(super) fn has_dot_segment(path: &str, spelling: DotSegmentSpelling) -> bool {
    path.split('/').any(|segment| spelling.dots(segment).is_some())
}

/// Removes dot segments (RFC 3986, 5.2.4). The other segments are unchanged. `path` begins with `/`, and so does the
/// result.
pub(super) fn remove_dot_segments(path: &str, spelling: DotSegmentSpelling) -> String {
    let mut out = String::with_capacity(path.len());
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let Some(dots) = spelling.dots(segment) else {
            out.push('/');
            out.push_str(segment);
            continue;
        };
        if dots == 2 {
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

    use super::{DotSegmentSpelling::*, *};

    fn resolved(path: &str) -> Result<String, Rejection> {
        Ok(remove_dot_segments(&well_formed(path)?, Any))
    }

    #[test]
    fn paths_are_borrowed_if_they_are_well_formed() {
        for path in ["/", "/a/b/", "//a", "/a;x=1", "/a\\b", "/a/../b", "/%7e%2F%2f%c3%a9", "/%252e"] {
            assert!(matches!(well_formed(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
        assert_eq!(well_formed("/é%c3/x/中").unwrap(), "/%C3%A9%c3/x/%E4%B8%AD");
    }

    #[test]
    fn dot_segments_are_removed_and_nothing_else() {
        for (path, without) in [
            ("/%61%7e%2D%2e%5F%30", "/%61%7e%2D%2e%5F%30"),
            ("/a/.../b", "/a/.../b"),
            ("/a/..b/%2e%2e%2e/%2eb", "/a/..b/%2e%2e%2e/%2eb"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a%2fb/./%7ec", "/a%2fb/%7ec"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/%2e/b", "/a/b"),
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
            assert_eq!(resolved(path).unwrap(), without, "{path}");
            assert_eq!(has_dot_segment(path, Any), path != without, "{path}");
        }
        assert_eq!(remove_dot_segments("/a/%2e%2e/../b/./c", Literal), "/a/b/c");
        assert!(!has_dot_segment("/a/%2e%2E/.%2e/b", Literal));
    }

    #[test]
    fn malformed_encodings_and_nul_are_rejected() {
        for path in ["/%", "/%2", "/%zz", "/a%2", "/%%20", "/%+1", "/% 1", "/%é", "/%20%"] {
            assert_eq!(well_formed(path), Err(MALFORMED), "{path}");
        }
        for path in ["/%00", "/a%0d%00Ab"] {
            assert_eq!(well_formed(path), Err(NUL), "{path}");
        }
        for path in ["/a%0d%0Ab", "/%1f", "/%7F"] {
            assert!(matches!(well_formed(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn resolving_is_idempotent_and_leaves_no_dot_segment(
            path in "/([a/.%25eEfFcC;\\\\é@]|%2[eEfF5]|%5[cC]|%[0-9a-fA-F]{2}){0,24}"
        ) {
            if let Ok(without) = resolved(&path) {
                prop_assert!(without.starts_with('/') && without.is_ascii());
                prop_assert!(!has_dot_segment(&without, Any));
                prop_assert_eq!(resolved(&without).unwrap(), without);
            }
        }

        #[test]
        fn any_text_is_well_formed_or_refused(tail in any::<String>()) {
            let _ = resolved(&format!("/{tail}"));
        }
    }
}
