//! What a field says of a user, if it says it once.

use compact_str::CompactString;
use http::{HeaderMap, HeaderName};

/// The value of a field that stands there once. Of two, one may be the client's own.
pub(super) fn sole<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    lines.next().is_none().then(|| line.as_bytes().trim_ascii())
}

/// A name that can be told.
pub(super) fn user_name(name: &[u8]) -> Option<CompactString> {
    let name = str::from_utf8(name).ok()?;
    (!name.is_empty() && !name.contains(char::is_control)).then(|| name.into())
}
