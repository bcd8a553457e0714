//! `${NAME}`, `${NAME:-fallback}` and `${file:PATH}` in values.

use std::{cell::Cell, io, path::Path};

use crate::file;

/// The largest file that `${file:…}` inserts, in bytes.
const MAX_INSERTED_BYTES: u64 = 64 << 10;
/// The largest file that a setting names, in bytes. A million addresses of IPv6 take 40 MB.
const MAX_NAMED_BYTES: u64 = 64 << 20;

/// Looks up environment variables and files for `${…}` and for settings that name a file.
pub trait Lookup {
    /// The environment variable of this name.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of the file at `path`, which `${file:…}` inserts.
    ///
    /// # Errors
    /// The file cannot be read, or is too large.
    fn read_text(&self, path: &Path) -> io::Result<String>;

    /// The contents of the file at `path`, which a setting names.
    ///
    /// # Errors
    /// The file cannot be read, or is too large.
    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Whether there is a directory at `path`.
    ///
    /// # Errors
    /// Nothing is there, or access is denied.
    fn is_directory(&self, _path: &Path) -> io::Result<bool> {
        Err(io::Error::other("there is no disk"))
    }
}

/// Looks up in the environment of the process and on disk. A relative path starts at the working directory.
#[derive(Debug, Clone, Copy)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        let bytes = file::read(path, MAX_INSERTED_BYTES)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
        // The program that should write the file has failed. An empty token would leave the admin port unprotected.
        match text.trim_ascii().is_empty() {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
            false => Ok(text),
        }
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        file::read_file(path, MAX_NAMED_BYTES)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        file::is_directory(path)
    }
}

/// As [`SystemLookup`], until reading a file takes too long. Then no other file is read: they may be on the same disk,
/// and each would take as long.
#[derive(Debug, Default)]
pub(super) struct ImpatientLookup {
    is_over: Cell<bool>,
}

impl ImpatientLookup {
    fn unless_over<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.is_over.get() {
            return Err(io::Error::other("reading another file takes too long"));
        }
        read().inspect_err(|error| self.is_over.set(error.kind() == io::ErrorKind::TimedOut))
    }
}

impl Lookup for ImpatientLookup {
    fn variable(&self, name: &str) -> Option<String> {
        SystemLookup.variable(name)
    }

    fn read_text(&self, path: &Path) -> io::Result<String> {
        self.unless_over(|| SystemLookup.read_text(path))
    }

    fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.unless_over(|| SystemLookup.read_bytes(path))
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.unless_over(|| SystemLookup.is_directory(path))
    }
}

/// A value after interpolation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interpolated {
    pub(super) value: String,
    /// Whether the text in the file has `${…}`, and so differs.
    pub(super) inserted: bool,
    /// Whether a part of it came from outside the file, and so must not be shown. A fallback is in the file.
    pub(super) is_foreign: bool,
}

/// Why `${…}` could not be resolved. The message quotes the file only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unresolved {
    pub(super) message: String,
    pub(super) help: Option<&'static str>,
}

/// Replaces each `${…}` of `text`; `$${` is a literal `${`. Inserted text is not interpolated again.
pub(super) fn interpolate(text: &str, lookup: &dyn Lookup) -> Result<Interpolated, Vec<Unresolved>> {
    let mut value = String::with_capacity(text.len());
    let (mut inserted, mut is_foreign) = (false, false);
    let mut unresolved = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            value.push_str(before);
            value.push_str("${");
            rest = &from[2..];
            continue;
        }
        value.push_str(before);
        let Some(end) = from.find('}') else {
            unresolved.push(Unresolved {
                message: "this `${` is never closed".to_owned(),
                help: Some("write ${NAME}, ${NAME:-fallback} or ${file:/path}; $${ is a plain ${"),
            });
            break;
        };
        inserted = true;
        match resolve(&from[2..end], lookup) {
            Ok(Replacement::Outside(found)) => {
                is_foreign = true;
                value.push_str(&found);
            }
            Ok(Replacement::Fallback(text)) => value.push_str(text),
            Err(error) => unresolved.push(error),
        }
        rest = &from[end + 1..];
    }
    value.push_str(rest);
    if unresolved.is_empty() { Ok(Interpolated { value, inserted, is_foreign }) } else { Err(unresolved) }
}

/// The replacement of one `${…}`.
enum Replacement<'a> {
    Outside(String),
    Fallback(&'a str),
}

/// The value of `inner`, the part between the braces.
fn resolve<'a>(inner: &'a str, lookup: &dyn Lookup) -> Result<Replacement<'a>, Unresolved> {
    if let Some(path) = inner.strip_prefix("file:") {
        return match lookup.read_text(Path::new(path)) {
            Ok(text) => Ok(Replacement::Outside(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(error) => {
                Err(Unresolved { message: format!("the file `{path}` cannot be read: {error}"), help: None })
            }
        };
    }
    let (name, fallback) = match inner.split_once(":-") {
        Some((name, fallback)) => (name, Some(fallback)),
        None => (inner, None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(word) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Unresolved {
            message: format!("`${{{inner}}}` is not the name of an environment variable"),
            help: Some("write ${NAME}, ${NAME:-fallback} or ${file:/path}; $${ is a plain ${"),
        });
    }
    if fallback.is_some_and(|fallback| fallback.contains("${")) {
        return Err(Unresolved {
            message: format!("the fallback of `{name}` has a `${{` of its own, which is not replaced"),
            help: Some("name one variable, or write the fallback as plain text"),
        });
    }
    // As in a shell, the fallback also replaces an empty variable.
    match (lookup.variable(name), fallback) {
        (Some(value), None) => Ok(Replacement::Outside(value)),
        (Some(value), Some(_)) if !value.is_empty() => Ok(Replacement::Outside(value)),
        (_, Some(fallback)) => Ok(Replacement::Fallback(fallback)),
        (None, None) => Err(Unresolved {
            message: format!("the environment variable `{name}` is not set"),
            help: Some("set it, or give a fallback: ${NAME:-fallback}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Lookup for Fixed {
        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "A" => Some("one".to_owned()),
                "EMPTY" => Some(String::new()),
                "DOLLAR" => Some("${A}".to_owned()),
                _ => None,
            }
        }

        fn read_text(&self, path: &Path) -> io::Result<String> {
            if path == Path::new("/secret") {
                Ok("hidden\r\n".to_owned())
            } else {
                Err(io::Error::from(io::ErrorKind::NotFound))
            }
        }

        fn read_bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
            self.read_text(path).map(String::into_bytes)
        }
    }

    fn value(text: &str) -> String {
        interpolate(text, &Fixed).unwrap().value
    }

    #[test]
    fn inserts_variables_fallbacks_and_files() {
        assert_eq!(value("${A}"), "one");
        assert_eq!(value("<${A}${A}>"), "<oneone>");
        assert_eq!(value("${NONE:-a:-b}"), "a:-b");
        assert_eq!(value("${EMPTY:-x}|${EMPTY}|${NONE:-}"), "x||");
        assert_eq!(value("${file:/secret}!"), "hidden!");
    }

    #[test]
    fn a_doubled_dollar_is_a_plain_one() {
        assert_eq!(value("$${A}"), "${A}");
        assert_eq!(value("$A $5 $"), "$A $5 $");
        assert!(!interpolate("$${A} plain", &Fixed).unwrap().inserted);
        assert!(interpolate("${A}", &Fixed).unwrap().inserted);
    }

    #[test]
    fn a_fallback_comes_from_the_file() {
        for (text, is_foreign) in [
            ("x", false),
            ("${NONE:-x}", false),
            ("${A:-x}", true),
            ("${file:/secret}", true),
            ("${NONE:-x}${A}", true),
        ] {
            assert_eq!(interpolate(text, &Fixed).unwrap().is_foreign, is_foreign, "{text}");
        }
    }

    #[test]
    fn an_inserted_value_is_not_interpolated_again() {
        assert_eq!(value("${DOLLAR}"), "${A}");
    }

    #[test]
    fn names_all_that_is_missing() {
        let messages = |text| -> Vec<_> {
            interpolate(text, &Fixed).unwrap_err().into_iter().map(|u| u.message).collect()
        };
        assert_eq!(
            messages("${B} ${C}"),
            ["the environment variable `B` is not set", "the environment variable `C` is not set"]
        );
        assert_eq!(messages("${A"), ["this `${` is never closed"]);
        assert_eq!(messages("${A-B}"), ["`${A-B}` is not the name of an environment variable"]);
        assert_eq!(messages("${}"), ["`${}` is not the name of an environment variable"]);
        assert!(messages("${file:/none}")[0].starts_with("the file `/none` cannot be read: "));
    }
}
