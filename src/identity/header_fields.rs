//! Header fields that name a user.

use compact_str::CompactString;
use http::{HeaderMap, HeaderName};

/// The value of a field with a single line. With two lines, the client may have added one.
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
