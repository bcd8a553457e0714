//! How origins may read a path that is in normal form.

use std::borrow::Cow;

use super::{
    Refused,
    normalise::{escaped, is_dot_segment, push_escaped},
};

/// A set of liberties that an origin may take with a path. Without any it reads literally: only `/`
/// parts segments, and an escaped reserved character is the character (`%40` is `@`), as practically
/// every framework has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading(u8);

impl Reading {
    pub(super) const LITERAL: Self = Self(0);
    /// `%2F` and `%5C` are decoded before segments are parted.
    const ENCODED: Self = Self(1);
    /// `\` is a slash.
    const BACKSLASH: Self = Self(1 << 1);
    /// `//` is one slash.
    const MERGED: Self = Self(1 << 2);
    /// What follows a `;` in a segment is not part of its name.
    const PARAMETER: Self = Self(1 << 3);

    /// The liberties that make a difference to `path`.
    ///
    /// # Errors
    /// As [`Reading::apply`].
    pub(super) fn possible(path: &str) -> Result<Self, Refused> {
        let mut possible = Self::LITERAL;
        for (at, byte) in path.bytes().enumerate() {
            possible = possible.with(match byte {
                b'\\' => Self::BACKSLASH,
                b';' => Self::PARAMETER,
                b'%' => match escaped(&path.as_bytes()[at..]) {
                    Some(b'/') => Self::ENCODED,
                    Some(b'\\') => Self::ENCODED.with(Self::BACKSLASH),
                    _ => Self::LITERAL,
                },
                _ => Self::LITERAL,
            });
        }
        // Other liberties may be what puts two slashes side by side: "/a/%2Fb", "/a/;x/b".
        if possible.apply(path)?.contains("//") {
            possible = possible.with(Self::MERGED);
        }
        Ok(possible)
    }

    /// `path` as it reads with these liberties. Paths that are one to such an origin read the same, and
    /// only they do: escapes are decoded iff the character could stand in a path by itself. Borrowed
    /// where a path reads as it is written.
    ///
    /// # Errors
    /// 400 if a dot segment appears, which would lead to another place than the path says.
    pub(super) fn apply(self, path: &str) -> Result<Cow<'_, str>, Refused> {
        if self == Self::LITERAL && !path.contains('%') {
            return Ok(Cow::Borrowed(path));
        }
        let mut out = String::with_capacity(path.len());
        let mut segment = 0;
        let mut in_parameter = false;
        let mut rest = path;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'/' | b'\\' | b';' | b'%')) {
            if !in_parameter {
                out.push_str(&rest[..at]);
            }
            let special = &rest.as_bytes()[at..];
            let (byte, length) = escaped(special).map_or((special[0], 1), |byte| (byte, 3));
            let is_encoded = length == 3;
            rest = &rest[at + length..];
            if self.is_separator(byte, is_encoded) {
                no_dot_segment(&out[segment..])?;
                if !(self.has(Self::MERGED) && out.ends_with('/')) {
                    out.push('/');
                }
                segment = out.len();
                in_parameter = false;
            } else if in_parameter || (byte == b';' && !is_encoded && self.has(Self::PARAMETER)) {
                in_parameter = true;
            } else if !is_encoded || may_stand_by_itself(byte) {
                out.push(char::from(byte));
            } else {
                push_escaped(&mut out, byte);
            }
        }
        if !in_parameter {
            out.push_str(rest);
        }
        no_dot_segment(&out[segment..])?;
        Ok(Cow::Owned(out))
    }

    /// These liberties without `others`.
    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Every set of these liberties, the literal reading aside.
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
        let is_slash = byte == b'/' || (byte == b'\\' && self.has(Self::BACKSLASH));
        is_slash && (!is_encoded || self.has(Self::ENCODED))
    }
}

fn no_dot_segment(segment: &str) -> Result<(), Refused> {
    match is_dot_segment(segment) {
        true => Err(Refused::bad_request("The path hides a dot segment.")),
        false => Ok(()),
    }
}

/// What a request line may hold within a path, apart from the slash and the percent sign.
const fn may_stand_by_itself(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'#' | b'?' | b'<' | b'>' | b'`')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::normalise::normalise, *};

    fn loosely(path: &str) -> Result<String, Refused> {
        Ok(Reading::possible(path)?.apply(path)?.into_owned())
    }

    #[test]
    fn the_literal_reading_decodes_what_needs_no_escape() {
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
            assert_eq!(Reading::LITERAL.apply(path).unwrap(), read, "{path}");
        }
        assert!(matches!(Reading::LITERAL.apply("//a;x\\y"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn the_loosest_reading_takes_every_liberty() {
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
            assert_eq!(loosely(path).unwrap(), read, "{path}");
        }
    }

    #[test]
    fn hidden_dot_segments_are_refused() {
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
            assert_eq!(loosely(path).map_err(|refused| refused.status.as_u16()), Err(400), "{path}");
        }
        for path in ["/a/..b%2Fc", "/a/...%2Fb", "/a/%252e%252e%252Fb", "/a/b;/..c"] {
            assert!(loosely(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn only_liberties_that_make_a_difference_are_possible() {
        for (path, possible) in [
            ("/a/b%40", Reading::LITERAL),
            ("/a%2Fb", Reading::ENCODED),
            ("/a\\b", Reading::BACKSLASH),
            ("/a%5Cb", Reading::ENCODED.with(Reading::BACKSLASH)),
            ("//a", Reading::MERGED),
            ("/a;b", Reading::PARAMETER),
            ("/a/%2Fb", Reading::ENCODED.with(Reading::MERGED)),
            ("/a/;x/b", Reading::PARAMETER.with(Reading::MERGED)),
        ] {
            assert_eq!(Reading::possible(path), Ok(possible), "{path}");
        }
    }

    #[test]
    fn subsets_are_all_but_the_literal_one() {
        let set = Reading::ENCODED.with(Reading::MERGED);
        let subsets: Vec<_> = set.subsets().collect();
        assert_eq!(subsets, [Reading::ENCODED, Reading::MERGED, set]);
        assert_eq!(Reading::LITERAL.subsets().count(), 0);
    }

    proptest! {
        /// What the loosest reading accepts, no other reading finds a dot segment in.
        #[test]
        fn the_loosest_reading_finds_every_dot_segment(path in "/([a./;\\\\]|%2F|%5C|%3B|%25){0,16}") {
            let normal = normalise(&path).unwrap();
            if let Ok(possible) = Reading::possible(&normal) && possible.apply(&normal).is_ok() {
                for reading in possible.subsets() {
                    let read = reading.apply(&normal).unwrap();
                    prop_assert!(read.starts_with('/'));
                    prop_assert!(!read.split('/').any(is_dot_segment));
                }
            }
        }
    }
}
