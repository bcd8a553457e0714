//! The ways in which origins may interpret a path.

use std::borrow::Cow;

use percent_encoding::percent_encode_byte;

use super::{
    Rejection,
    normalization::{DotSegmentSpelling, has_dot_segment, percent_decode, remove_dot_segments},
};

/// A set of liberties that an origin may take with a path. Without any, the path is literal: only `/` separates
/// segments, and a percent-encoded reserved character equals the character (`%40` is `@`), as in practically every
/// framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathInterpretation(u8);

impl PathInterpretation {
    pub(super) const LITERAL: Self = Self(0);
    /// `%2F` and `%5C` are decoded before segments are separated.
    const ENCODED_SLASHES: Self = Self(1);
    /// `\` is a slash.
    const BACKSLASHES: Self = Self(1 << 1);
    /// Adjacent slashes are merged: `//` is one slash.
    const MERGED_SLASHES: Self = Self(1 << 2);
    /// A segment ends at its `;`, which begins parameters.
    const PARAMETERS: Self = Self(1 << 3);

    /// The liberties that change `path`.
    pub(super) fn ambiguities(path: &str) -> Self {
        let mut ambiguities = Self::LITERAL;
        for (at, byte) in path.bytes().enumerate() {
            ambiguities = ambiguities.with(match byte {
                b'\\' => Self::BACKSLASHES,
                b';' => Self::PARAMETERS,
                b'%' => match percent_decode(&path.as_bytes()[at..]) {
                    Some(b'/') => Self::ENCODED_SLASHES,
                    Some(b'\\') => Self::ENCODED_SLASHES.with(Self::BACKSLASHES),
                    _ => Self::LITERAL,
                },
                _ => Self::LITERAL,
            });
        }
        // Other liberties may produce two adjacent slashes: "/a/%2Fb", "/a/;x/b".
        if ambiguities.read(path).contains("//") {
            ambiguities = ambiguities.with(Self::MERGED_SLASHES);
        }
        ambiguities
    }

    /// Interprets `path`, which has no dot segments, with these liberties. The result is equal for two paths if and
    /// only if such an origin treats them as one: a percent-encoding is decoded if the character may also occur
    /// unencoded. Borrowed if nothing changes.
    ///
    /// # Errors
    /// 400 if a dot segment appears, which would lead to a different resource.
    pub(super) fn interpret(self, path: &str) -> Result<Cow<'_, str>, Rejection> {
        let read = self.read(path);
        match has_dot_segment(&read, DotSegmentSpelling::Literal) {
            true => Err(Rejection::bad_request("The path contains a disguised dot segment.")),
            false => Ok(read),
        }
    }

    fn read(self, path: &str) -> Cow<'_, str> {
        if self == Self::LITERAL && !path.contains('%') {
            return Cow::Borrowed(path);
        }
        let mut out = String::with_capacity(path.len());
        let mut in_parameters = false;
        let mut rest = path;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'/' | b'\\' | b';' | b'%')) {
            if !in_parameters {
                out.push_str(&rest[..at]);
            }
            let special = &rest.as_bytes()[at..];
            let (byte, length) = percent_decode(special).map_or((special[0], 1), |byte| (byte, 3));
            let is_encoded = length == 3;
            rest = &rest[at + length..];
            if self.is_separator(byte, is_encoded) {
                if !(self.has(Self::MERGED_SLASHES) && out.ends_with('/')) {
                    out.push('/');
                }
                in_parameters = false;
            } else if in_parameters || (byte == b';' && !is_encoded && self.has(Self::PARAMETERS)) {
                in_parameters = true;
            } else if !is_encoded || needs_no_encoding(byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(percent_encode_byte(byte));
            }
        }
        if !in_parameters {
            out.push_str(rest);
        }
        Cow::Owned(out)
    }

    /// These liberties without `others`.
    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Every non-empty set of these liberties.
    pub(super) fn subsets(self) -> impl Iterator<Item = Self> {
        (1..=self.0).map(Self).filter(move |subset| self.has(*subset))
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn is_separator(self, byte: u8, is_encoded: bool) -> bool {
        let is_slash = byte == b'/' || (byte == b'\\' && self.has(Self::BACKSLASHES));
        is_slash && (!is_encoded || self.has(Self::ENCODED_SLASHES))
    }
}

/// The paths that origins may derive from a path whose dot segments are passed on: with none resolved, with all, with
/// first the literal and then the percent-encoded ones, and with only the literal ones.
///
/// # Errors
/// 400 if the path is also ambiguous: the segments that a dot segment removes would depend on the interpretation.
pub(super) fn dot_segment_readings(path: &str) -> Result<[String; 4], Rejection> {
    if PathInterpretation::ambiguities(path) != PathInterpretation::LITERAL {
        return Err(Rejection::bad_request("The path has dot segments, and is ambiguous besides."));
    }
    let literally_resolved = remove_dot_segments(path, DotSegmentSpelling::Literal);
    let paths = [
        Cow::Borrowed(path),
        Cow::Owned(remove_dot_segments(path, DotSegmentSpelling::Any)),
        Cow::Owned(remove_dot_segments(&literally_resolved, DotSegmentSpelling::Any)),
        Cow::Owned(literally_resolved),
    ];
    Ok(paths.map(|path| PathInterpretation::LITERAL.read(&path).into_owned()))
}

/// The bytes that may occur in the path of a request line, apart from the slash and the percent sign.
const fn needs_no_encoding(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'#' | b'?')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interpret_loosely(path: &str) -> Result<String, Rejection> {
        Ok(PathInterpretation::ambiguities(path).interpret(path)?.into_owned())
    }

    #[test]
    fn the_literal_interpretation_decodes_what_needs_no_encoding() {
        for (path, read) in [
            ("/a/b", "/a/b"),
            ("/users/%40me%3A%2B%7B%7D", "/users/@me:+{}"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%5Cb", "/a\\b"),
            ("/a%3Bb", "/a;b"),
            ("/100%25%20%3F%23%C3%A9", "/100%25%20%3F%23%C3%A9"),
            ("/%3Ca%3E%60%22%7B%7C", "/<a>`\"{|"),
            ("/a%0A%7f", "/a%0A%7F"),
            ("/a%252Fb", "/a%252Fb"),
            ("//a;x\\y", "//a;x\\y"),
        ] {
            assert_eq!(PathInterpretation::LITERAL.interpret(path).unwrap(), read, "{path}");
        }
        assert!(matches!(PathInterpretation::LITERAL.interpret("//a;x\\y"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn the_loosest_interpretation_takes_every_liberty() {
        for (path, read) in [
            ("/a%2Fb%5Cc\\d", "/a/b/c/d"),
            ("//a///b//", "/a/b/"),
            ("/a/%2Fb", "/a/b"),
            ("/a\\/b", "/a/b"),
            ("/a;x=1/b;y", "/a/b"),
            ("/a;x=%2Fy/b", "/a/y/b"),
            ("/a/;x/b", "/a/b"),
            ("/a%3Bb", "/a;b"),
            ("/a%252Fb", "/a%252Fb"),
            ("/fetch/https://x/", "/fetch/https:/x/"),
        ] {
            assert_eq!(interpret_loosely(path).unwrap(), read, "{path}");
        }
    }

    #[test]
    fn hidden_dot_segments_are_rejected() {
        for path in [
            "/a/..%2Fb",
            "/a%2F..%2Fb",
            "/a%2F..",
            "/a/.%2Fb",
            "/a/..\\b",
            "/a\\..",
            "/a/..%5Cb",
            "/a/..;/b",
            "/a/..;x=1/b",
            "/a/.;x",
            "/a;%2F../b",
        ] {
            assert_eq!(
                interpret_loosely(path).map_err(|rejection| rejection.status.as_u16()),
                Err(400),
                "{path}"
            );
        }
        for path in ["/a/..b%2Fc", "/a/...%2Fb", "/a/%252e%252e%252Fb", "/a/b;/..c"] {
            assert!(interpret_loosely(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn only_liberties_that_make_a_difference_are_ambiguities() {
        for (path, ambiguities) in [
            ("/a/b%40", PathInterpretation::LITERAL),
            ("/a%2Fb", PathInterpretation::ENCODED_SLASHES),
            ("/a\\b", PathInterpretation::BACKSLASHES),
            ("/a%5Cb", PathInterpretation::ENCODED_SLASHES.with(PathInterpretation::BACKSLASHES)),
            ("//a", PathInterpretation::MERGED_SLASHES),
            ("/a;b", PathInterpretation::PARAMETERS),
            ("/a/%2Fb", PathInterpretation::ENCODED_SLASHES.with(PathInterpretation::MERGED_SLASHES)),
            ("/a/;x/b", PathInterpretation::PARAMETERS.with(PathInterpretation::MERGED_SLASHES)),
        ] {
            assert_eq!(PathInterpretation::ambiguities(path), ambiguities, "{path}");
        }
    }

    #[test]
    fn dot_segments_that_are_passed_on_are_read_in_every_way() {
        for (path, readings) in [
            ("/a/../b", ["/a/../b", "/b", "/b", "/b"]),
            ("/a/./%7eb/..", ["/a/./~b/..", "/a/", "/a/", "/a/"]),
            ("/a/%2e%2E/b", ["/a/../b", "/b", "/b", "/a/../b"]),
            ("/a/b/%2e%2e/../%2e%2e/c", ["/a/b/../../../c", "/c", "/a/c", "/a/b/../c"]),
        ] {
            assert_eq!(dot_segment_readings(path).unwrap(), readings, "{path}");
        }
        for path in ["/a//../b", "/a%2Fb/../c", "/a;x/../b", "/a\\b/../c"] {
            assert!(dot_segment_readings(path).is_err(), "{path}");
        }
    }

    #[test]
    fn subsets_are_all_but_the_empty_one() {
        let set = PathInterpretation::ENCODED_SLASHES.with(PathInterpretation::MERGED_SLASHES);
        let subsets: Vec<_> = set.subsets().collect();
        assert_eq!(subsets, [PathInterpretation::ENCODED_SLASHES, PathInterpretation::MERGED_SLASHES, set]);
        assert_eq!(PathInterpretation::LITERAL.subsets().count(), 0);
    }

    proptest! {
        /// If the loosest interpretation accepts a path, no other one finds a dot segment in it.
        #[test]
        fn the_loosest_interpretation_finds_every_dot_segment(path in "/([a./;\\\\]|%2[eEfF]|%5C|%3B|%25){0,16}") {
            let path = remove_dot_segments(&path, DotSegmentSpelling::Any);
            let ambiguities = PathInterpretation::ambiguities(&path);
            if ambiguities.interpret(&path).is_ok() {
                for interpretation in ambiguities.subsets() {
                    let read = interpretation.interpret(&path).unwrap();
                    prop_assert!(read.starts_with('/'));
                    prop_assert!(!has_dot_segment(&read, DotSegmentSpelling::Any));
                }
            }
        }

        /// A character that needs no percent-encoding is equal in both spellings, with digits in either case.
        #[test]
        fn spellings_of_a_character_are_read_as_one(path in "/([a~./;]|%2F|%C3%A9|%40){0,16}") {
            let spelled = path.replace('a', "%61").replace('~', "%7e").replace("%C3", "%c3").replace("%2F", "%2f");
            let ambiguities = PathInterpretation::ambiguities(&path);
            prop_assert_eq!(PathInterpretation::ambiguities(&spelled), ambiguities);
            for interpretation in ambiguities.subsets().chain([PathInterpretation::LITERAL]) {
                prop_assert_eq!(interpretation.read(&spelled), interpretation.read(&path));
            }
        }
    }
}
