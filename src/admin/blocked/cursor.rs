//! The order of a list, and where its next page begins.
//!
//! A cursor holds the place of the last address that was told, not a count of them: what comes and goes
//! meanwhile neither hides an address nor tells it twice.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::abuse::{self, Place, Sort};

/// The cursor for what comes after `place`.
pub(super) fn cursor(sort: Sort, place: Place) -> String {
    let (number, address) = (place.number(), abuse::shown(place.address()));
    URL_SAFE_NO_PAD.encode(format!("{} {number} {address}", sort.name()))
}

/// Reads a cursor. `None` where it is none of this order's.
pub(super) fn read(sort: Sort, cursor: &str) -> Option<Place> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let mut parts = text.splitn(3, ' ');
    let written = parts.next()?;
    let number = parts.next()?.parse().ok()?;
    let address = abuse::parse(parts.next()?)?;
    (written == sort.name()).then(|| Place::new(number, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_by_its_own_order_alone() {
        for address in ["203.0.113.7", "2001:db8::/64"] {
            let place = Place::new(u64::MAX, abuse::parse(address).unwrap());
            let cursor = cursor(Sort::Denied, place);
            assert_eq!(read(Sort::Denied, &cursor), Some(place));
            assert_eq!(read(Sort::Last, &cursor), None);
        }
        for nonsense in ["", "???", "bGFzdCAx", "bGFzdCAxIHg"] {
            assert_eq!(read(Sort::Last, nonsense), None);
        }
    }
}
