//! Which spellings of a path a route takes for the same path.

use std::borrow::Cow;

use percent_encoding::{percent_decode, percent_encode_byte};
use tollgate_derive::{Settings, Word};

/// How the path of a request is compared with the paths of routes. A route may set one of these; the other is as at the
/// top level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "routes.md")]
pub struct PathMatching {
    /// Whether `/Login` and `/login` are the same path.
    #[setting(default = "insensitive", example = "sensitive")]
    pub case: PathCase,
    /// Whether `/login/` and `/login` are the same path.
    #[setting(default = "either", example = "exact")]
    pub trailing_slash: TrailingSlash,
}

/// Whether `/Login` is `/login`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum PathCase {
    Sensitive,
    Insensitive,
}

/// Whether `/login/` is `/login`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum TrailingSlash {
    Exact,
    Either,
}

impl PathMatching {
    /// The default. A policy holds for every spelling that some origin takes for the route's path.
    pub const LOOSE: Self = Self { case: PathCase::Insensitive, trailing_slash: TrailingSlash::Either };

    /// Every spelling is a path of its own.
    pub const STRICT: Self = Self { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };

    /// The canonical spelling of all that are the same path: in lower case, without its trailing slash. Borrowed if nothing
    /// changes.
    pub fn canonical(self, path: &str) -> Cow<'_, str> {
        let path = self.trim(path);
        match self.case {
            PathCase::Sensitive => Cow::Borrowed(path),
            PathCase::Insensitive => fold_case(path),
        }
    }

    /// The path without its trailing slash, where that makes no difference.
    pub fn trim(self, path: &str) -> &str {
        match self.trailing_slash {
            TrailingSlash::Exact => path,
            TrailingSlash::Either => trim_slash(path),
        }
    }
}

/// The path without its trailing slash. `/` is kept.
pub fn trim_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(trimmed) => trimmed,
    }
}

/// The path in lower case. Letters other than those of ASCII are percent-encoded in `path`; they are folded, too, since
/// some origins (ASP.NET) compare the decoded path. Borrowed if nothing changes.
pub fn fold_case(path: &str) -> Cow<'_, str> {
    let has = |condition: fn(&u8) -> bool| path.as_bytes().iter().any(condition);
    if !has(|byte| *byte == b'%') {
        return match has(u8::is_ascii_uppercase) {
            true => Cow::Owned(path.to_ascii_lowercase()),
            false => Cow::Borrowed(path),
        };
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        push_lower_case(&mut out, &rest[..at]);
        rest = &rest[at..];
        let length = rest.as_bytes().chunks(3).take_while(|escape| escape[0] == b'%').map(<[u8]>::len).sum();
        let (escapes, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        push_folded_escapes(&mut out, escapes);
        rest = after;
    }
    push_lower_case(&mut out, rest);
    Cow::Owned(out)
}

fn push_lower_case(out: &mut String, text: &str) {
    out.extend(text.chars().map(|character| character.to_ascii_lowercase()));
}

/// Appends percent-encoded characters, each in lower case. ASCII characters that are encoded nevertheless are kept.
fn push_folded_escapes(out: &mut String, escapes: &str) {
    let bytes: Vec<u8> = percent_decode(escapes.as_bytes()).collect();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let folded = if character.is_ascii() { character } else { fold_character(character) };
            let mut buffer = [0; 4];
            folded.encode_utf8(&mut buffer).bytes().for_each(|byte| out.push_str(percent_encode_byte(byte)));
        }
        chunk.invalid().iter().for_each(|&byte| out.push_str(percent_encode_byte(byte)));
    }
}

/// By way of upper case, so that all forms of a letter become one, such as both small sigmas. A letter that is several in
/// the other case is kept.
fn fold_character(character: char) -> char {
    let only = |mapped: &mut dyn Iterator<Item = char>| mapped.next().filter(|_| mapped.next().is_none());
    let upper = only(&mut character.to_uppercase()).unwrap_or(character);
    only(&mut upper.to_lowercase()).unwrap_or(upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_are_one_have_one_canonical_path() {
        for (path, canonical) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/API/Login/", "/api/login"),
            ("/A%20B", "/a%20b"),
            ("/a%3Cb", "/a%3Cb"),
            ("/CAF%C3%89/X", "/caf%C3%A9/x"),
            ("/caf%C3%A9/x", "/caf%C3%A9/x"),
            ("/%CE%A3", "/%CF%83"),
            ("/%CF%82", "/%CF%83"),
            ("/%C3%9F", "/%C3%9F"),
            ("/%FF%C3%89A", "/%FF%C3%A9a"),
            ("/%C3", "/%C3"),
        ] {
            assert_eq!(PathMatching::LOOSE.canonical(path), canonical, "{path}");
        }
        assert!(matches!(PathMatching::LOOSE.canonical("/a/b/"), Cow::Borrowed("/a/b")));
        let by_case = PathMatching { case: PathCase::Sensitive, ..PathMatching::LOOSE };
        assert_eq!(by_case.canonical("/A/"), "/A");
        let by_slash = PathMatching { trailing_slash: TrailingSlash::Exact, ..PathMatching::LOOSE };
        assert_eq!(by_slash.canonical("/A/"), "/a/");
    }
}
