//! Factors: how many times as long the next one is.

use super::Invalid;

/// The largest factor.
const MOST: f64 = 1_000.0;

/// Reads `2`, `1.5`: 1 to 1000.
pub(in crate::config) fn factor(text: &str) -> Result<f64, Invalid> {
    let invalid = || Invalid::new("is not a factor").form("factors are written 2, 1.5");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return Err(invalid());
    }
    let factor: f64 = text.parse().map_err(|_| invalid())?;
    match (1.0..=MOST).contains(&factor) {
        true => Ok(factor),
        false => Err(Invalid::new("is out of range").form("from 1 to 1000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors() {
        for (text, value) in [("1", 1.0), ("1.5", 1.5), ("2", 2.0), ("1000", 1_000.0)] {
            assert_eq!(factor(text), Ok(value));
        }
        for text in ["", ".", "1.", ".5", "-2", "+2", "2x", "1e2", "inf", "NaN", "1.5.1", "1,5"] {
            assert_eq!(factor(text).unwrap_err().what, "is not a factor", "{text}");
        }
        for text in ["0", "0.99", "1000.1", "99999999999999999999999"] {
            assert_eq!(factor(text).unwrap_err().what, "is out of range", "{text}");
        }
    }
}
