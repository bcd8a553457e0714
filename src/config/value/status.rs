//! Statuses of answers (RFC 9110, 15).

use std::ops::RangeInclusive;

use http::StatusCode;

use super::{
    Invalid,
    quantity::{number, whole},
};

/// Reads `401`, or a whole class: `4xx`.
pub(in crate::config) fn statuses(text: &str) -> Result<RangeInclusive<u16>, Invalid> {
    let invalid = || Invalid::new("is neither a status nor a class of them").form("401, or 4xx: 1xx to 5xx");
    if let Some(class) = text.strip_suffix("xx") {
        let class = whole(class).filter(|class| (1..=5).contains(class) && text.len() == 3);
        let first = class.and_then(|class| u16::try_from(class * 100).ok()).ok_or_else(invalid)?;
        return Ok(first..=first + 99);
    }
    let status = u16::try_from(whole(text).ok_or_else(invalid)?).unwrap_or(u16::MAX);
    if !(100..=599).contains(&status) {
        return Err(Invalid::new("is no status").form("from 100 to 599"));
    }
    Ok(status..=status)
}

/// Reads the status of a reply to a denied client.
pub(in crate::config) fn denial_status(text: &str) -> Result<StatusCode, Invalid> {
    let status = number(400..=599)(text).map_err(|_| {
        Invalid::new("is no status that denies something").form("from 400 to 599, such as 429 or 503")
    })?;
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    status.ok_or_else(|| Invalid::new("is no status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_a_class() {
        assert_eq!(statuses("401"), Ok(401..=401));
        assert_eq!(statuses("4xx"), Ok(400..=499));
        assert_eq!(statuses("1xx"), Ok(100..=199));
        for text in ["", "xx", "6xx", "0xx", "04xx", "4XX", "99", "600", "4x", "401.0", "99999999999", "ok"] {
            assert!(statuses(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_denial_is_an_error() {
        assert_eq!(denial_status("429"), Ok(StatusCode::TOO_MANY_REQUESTS));
        for text in ["200", "399", "600", "x", ""] {
            assert!(denial_status(text).is_err(), "{text}");
        }
    }
}
