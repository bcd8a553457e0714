//! What a request takes of a limit.

use http::HeaderMap;

use crate::config::model::Cost;

/// The units that a request with these `headers` takes. What they say counts only where the peer is a trusted proxy,
/// and says one whole number; it is 1 at least, since 0 would be a free pass.
pub fn units(cost: &Cost, headers: &HeaderMap, is_peer_trusted: bool) -> u64 {
    match cost {
        Cost::Fixed(units) => *units,
        Cost::Header { name, default, max } => {
            let mut lines = headers.get_all(name).iter();
            let said = match (lines.next(), lines.next()) {
                (Some(only), None) if is_peer_trusted => number(only.as_bytes().trim_ascii()),
                _ => None,
            };
            said.map_or(*default, |units| units.clamp(1, (*max).max(1)))
        }
    }
}

/// Digits and nothing else; what is beyond counting is the most that can be counted.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'9' => Some(sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_a_trusted_proxy_says_counts_within_bounds() {
        let name = HeaderName::from_static("x-cost");
        let cost = Cost::Header { name: name.clone(), default: 3, max: 100 };
        let units = |lines: &[&'static str], trusted| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&name, HeaderValue::from_static(line));
            }
            units(&cost, &headers, trusted)
        };
        assert_eq!(units(&["7"], true), 7);
        assert_eq!(units(&["7"], false), 3, "a client chooses nothing");
        assert_eq!([units(&["0"], true), units(&["101"], true)], [1, 100]);
        assert_eq!(units(&["99999999999999999999999"], true), 100);
        for lines in [&[][..], &[""], &["7", "7"], &["7, 8"], &["-1"], &["+1"], &["1.5"], &["x"]] {
            assert_eq!(units(lines, true), 3, "{lines:?}");
        }
    }
}
