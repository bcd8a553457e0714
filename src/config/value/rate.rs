//! Rates: so many in so long.

use std::time::Duration;

use super::{
    Invalid,
    quantity::{LONGEST, split, time, whole},
};
use crate::config::model::Rate;

/// The largest limit.
pub(in crate::config) const MOST: u64 = 1_000_000_000;

/// Reads `100/1s`; `10/m` is `10/1m`.
pub(in crate::config) fn rate(text: &str) -> Result<Rate, Invalid> {
    let invalid =
        || Invalid::new("is not a rate").form("rates are written 100/1s, 10/m: how many in how long");
    let (limit, window) = text.split_once('/').ok_or_else(invalid)?;
    let limit = whole(limit).ok_or_else(invalid)?;
    let (number, unit) = split(window);
    let window = time(if number.is_empty() { "1" } else { number }, unit).ok_or_else(invalid)?;
    if !(1..=MOST).contains(&limit) {
        return Err(Invalid::new("has a limit that is out of range").form("from 1 to 1000000000"));
    }
    if !(Duration::from_millis(1)..=LONGEST).contains(&window) {
        return Err(Invalid::new("has a window that is out of range").form("from 1ms to 366d"));
    }
    Ok(Rate { limit, window })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let secs = |limit, secs| Rate { limit, window: Duration::from_secs(secs) };
        assert_eq!(rate("100/1s"), Ok(secs(100, 1)));
        assert_eq!(rate("10/m"), Ok(secs(10, 60)));
        assert_eq!(rate("1000000000/366d"), Ok(secs(MOST, 366 * 86_400)));
        assert_eq!(rate("1/250ms"), Ok(Rate { limit: 1, window: Duration::from_millis(250) }));
        for text in ["", "/", "100", "100/", "/1s", "10x/s", "10/1", "10 / s", "-1/s", "1/1/s", "1/sec"] {
            assert_eq!(rate(text).unwrap_err().what, "is not a rate", "{text}");
        }
        for text in ["0/s", "1000000001/s"] {
            assert_eq!(rate(text).unwrap_err().what, "has a limit that is out of range");
        }
        for text in ["1/0s", "1/367d"] {
            assert_eq!(rate(text).unwrap_err().what, "has a window that is out of range");
        }
    }
}
