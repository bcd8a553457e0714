//! Where the next page of bans begins: behind the last ban that was told, whatever comes and goes meanwhile.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::abuse::bans::{Key, Place};

/// The cursor for what comes behind a place.
pub(super) fn write((until, key, is_shadow): &Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{until} {} {key}", u8::from(*is_shadow)))
}

/// Reads a cursor. `None` where it is none.
pub(super) fn read(cursor: &str) -> Option<Place> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(3, ' ');
    let until = parts.next()?.parse().ok()?;
    let is_shadow = match parts.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    Some((until, Key::read(parts.next()?)?, is_shadow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for (key, is_shadow) in [("ip:10.0.0.0/8", true), ("user:é b", false)] {
            let place = (i64::MAX, Key::read(key).unwrap(), is_shadow);
            assert_eq!(read(&write(&place)), Some(place));
        }
        for nonsense in ["", "???", "MQ", "MSAy", "MSAyIHg"] {
            assert_eq!(read(nonsense), None);
        }
    }
}
