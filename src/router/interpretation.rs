//! How origins may interpret a path that is in normal form.

use std::borrow::Cow;

use super::{
    Rejection,
    normalization::{is_dot_segment, percent_decode, push_percent_encoded},
};

/// A set of liberties that an origin may take with a path. Without any the path is literal: only `/`
/// separates segments, and a percent-encoded reserved character is the character (`%40` is `@`), as in practically
/// every framework.
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
    /// A segment ends at its `;`: what follows are parameters.
    const PARAMETERS: Self = Self(1 << 3);

    /// The liberties that make a difference to `path`.
    ///
    /// # Errors
    /// As [`PathInterpretation::interpret`].
    pub(super) fn ambiguities(path: &str) -> Result<Self, Rejection> {
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
        // Other liberties may be what puts two slashes side by side: "/a/%2Fb", "/a/;x/b".
        if ambiguities.interpret(path)?.contains("//") {
            ambiguities = ambiguities.with(Self::MERGED_SLASHES);
        }
        Ok(ambiguities)
    }

    /// `path` as it is with these liberties. Two paths that are one to such an origin become the same, and
    /// only they do: a percent-encoding is decoded iff the character may stand in a path without it. Borrowed
    /// if nothing changes.
    ///
    /// # Errors
    /// 400 if a dot segment appears, which would lead to another resource than the path names.
    pub(super) fn interpret(self, path: &str) -> Result<Cow<'_, str>, Rejection> {
        if self == Self::LITERAL && !path.contains('%') {
            return Ok(Cow::Borrowed(path));
        }
        let mut out = String::with_capacity(path.len());
        let mut segment = 0;
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
                reject_dot_segment(&out[segment..])?;
                if !(self.has(Self::MERGED_SLASHES) && out.ends_with('/')) {
                    out.push('/');
                }
                segment = out.len();
                in_parameters = false;
            } else if in_parameters || (byte == b';' && !is_encoded && self.has(Self::PARAMETERS)) {
                in_parameters = true;
            } else if !is_encoded || needs_no_encoding(byte) {
                out.push(char::from(byte));
            } else {
                push_percent_encoded(&mut out, byte);
            }
        }
        if !in_parameters {
            out.push_str(rest);
        }
        reject_dot_segment(&out[segment..])?;
        Ok(Cow::Owned(out))
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

fn reject_dot_segment(segment: &str) -> Result<(), Rejection> {
    match is_dot_segment(segment) {
        true => Err(Rejection::bad_request("The path contains a disguised dot segment.")),
        false => Ok(()),
    }
}

/// The bytes that a request line may hold within a path, apart from the slash and the percent sign.
const fn needs_no_encoding(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'#' | b'?' | b'<' | b'>' | b'`')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::normalization::normalize, *};

    fn interpret_loosely(path: &str) -> Result<String, Rejection> {
        Ok(PathInterpretation::ambiguities(path)?.interpret(path)?.into_owned())
    }

    #[test]
    fn the_literal_interpretation_decodes_what_needs_no_encoding() {
        for (path, read) in [
            ("/a/b", "/a/b"),
            ("/users/%40me%3A%2B%7B%7D", "/users/@me:+{}"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%5Cb", "/a\\b"),
            ("/a%3Bb", "/a;b"),
            ("/100%25%20%3F%23%3C%C3%A9", "/100%25%20%3F%23%3C%C3%A9"),
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
            assert_eq!(PathInterpretation::ambiguities(path), Ok(ambiguities), "{path}");
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
        fn the_loosest_interpretation_finds_every_dot_segment(path in "/([a./;\\\\]|%2F|%5C|%3B|%25){0,16}") {
            let normal = normalize(&path).unwrap();
            if let Ok(ambiguities) = PathInterpretation::ambiguities(&normal) && ambiguities.interpret(&normal).is_ok() {
                for interpretation in ambiguities.subsets() {
                    let read = interpretation.interpret(&normal).unwrap();
                    prop_assert!(read.starts_with('/'));
                    prop_assert!(!read.split('/').any(is_dot_segment));
                }
            }
        }
    }
}
