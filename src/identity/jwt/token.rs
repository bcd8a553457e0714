//! The token of a request.

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};

use crate::identity::field::sole;

/// Bytes of a token; a longer one is none.
const LONGEST: usize = 16 << 10;

/// The token in this field. In `authorization` it follows `Bearer`, in any case (RFC 6750, 2.1; RFC 9110, 11.1);
/// elsewhere it stands alone.
pub(super) fn of<'a>(headers: &'a HeaderMap, field: &HeaderName) -> Option<&'a [u8]> {
    let value = sole(headers, field)?;
    let token = if *field == AUTHORIZATION {
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())?
    } else {
        value
    };
    (!token.is_empty() && token.len() <= LONGEST).then_some(token)
}
