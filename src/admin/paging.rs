//! Pages of a list: their size, and the cursor at which the next one begins.
//!
//! A cursor is the position of the page's last entry, not a count of entries: additions and removals between two
//! requests neither hide an entry nor repeat one. It is opaque to clients: JSON in base64url.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

use super::problem::Problem;

/// Entries per page by default.
const DEFAULT_LIMIT: usize = 100;
/// Most entries per page.
const MAX_LIMIT: usize = 1_000;

/// Entries per page.
///
/// # Errors
/// The query's `limit` is out of range.
pub(super) fn page_size(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    let is_valid = (1..=MAX_LIMIT).contains(&limit);
    is_valid.then_some(limit).ok_or_else(|| Problem::bad_request(format!("limit must be 1 to {MAX_LIMIT}")))
}

/// The cursor of the page after `position`.
pub(super) fn encode_cursor(position: &impl Serialize) -> String {
    // Positions are tuples of numbers and texts: writing them as JSON does not fail.
    serde_json::to_vec(position).map(|json| URL_SAFE_NO_PAD.encode(json)).unwrap_or_default()
}

/// Decodes the query's `cursor`. `position` validates the decoded value: `None` if no such position exists.
///
/// # Errors
/// The cursor is not from this list.
pub(super) fn decode_cursor<E: DeserializeOwned, P>(
    cursor: Option<&str>,
    position: impl FnOnce(E) -> Option<P>,
) -> Result<Option<P>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let json = URL_SAFE_NO_PAD.decode(cursor).ok();
    let encoded = json.and_then(|json| serde_json::from_slice(&json).ok());
    let malformed = || Problem::bad_request("the cursor is not from this list");
    encoded.and_then(position).map(Some).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(cursor: &str) -> Result<Option<(i64, String, bool)>, Problem> {
        decode_cursor(Some(cursor), |position: (i64, String, bool)| {
            Some(position).filter(|position| !position.1.is_empty())
        })
    }

    #[test]
    fn a_cursor_is_decoded_to_what_was_encoded() {
        for key in ["ip:10.0.0.0/8", "user:é b"] {
            let position = (i64::MAX, key.to_owned(), true);
            let cursor = encode_cursor(&position);
            assert_eq!(decoded(&cursor), Ok(Some(position)));
            assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        }
        assert_eq!(decode_cursor(None, |position: u64| Some(position)), Ok(None));
    }

    #[test]
    fn invalid_cursors_and_those_of_other_lists_are_refused() {
        let foreign = encode_cursor(&(1, "a"));
        let empty = encode_cursor(&(1, "", true));
        for cursor in ["", "???", "MQ", "nonsense", &foreign, &empty] {
            assert!(decoded(cursor).is_err(), "{cursor}");
        }
    }

    #[test]
    fn a_page_has_one_to_a_thousand_entries() {
        assert_eq!([None, Some(1), Some(1_000)].map(|limit| page_size(limit).unwrap()), [100, 1, 1_000]);
        assert!(page_size(Some(0)).is_err() && page_size(Some(1_001)).is_err());
    }
}
