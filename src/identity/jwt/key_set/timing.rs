//! When a key set is fetched.

use std::time::Duration;

use http::{HeaderMap, header};

/// The times of a key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySetTiming {
    /// How long a set is fresh, at least and at most, whatever its `Cache-Control` says.
    pub lifetime: (Duration, Duration),
    /// How long a set without `max-age` is fresh.
    pub default_lifetime: Duration,
    /// The pause after the first failure, which doubles with each further one, and its maximum.
    pub retry: (Duration, Duration),
    /// How long a fetch may take.
    pub fetch: Duration,
    /// The shortest time between two fetches that tokens with unknown keys cause.
    pub ask: Duration,
    /// How long the start waits for the first fetch.
    pub first: Duration,
}

impl Default for KeySetTiming {
    fn default() -> Self {
        Self {
            lifetime: (Duration::from_secs(5 * 60), Duration::from_secs(24 * 60 * 60)),
            default_lifetime: Duration::from_secs(10 * 60),
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            fetch: Duration::from_secs(10),
            ask: Duration::from_secs(10),
            first: Duration::from_secs(5),
        }
    }
}

impl KeySetTiming {
    /// How long a set with these headers is fresh (RFC 9111, 4.2 and 5.2.2).
    pub(super) fn lifetime(&self, headers: &HeaderMap) -> Duration {
        let (least, most) = self.lifetime;
        let lines = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
        let mut lifetime = self.default_lifetime;
        for directive in lines.flat_map(|line| line.split(',')) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" | "no-cache" => return least,
                "max-age" => {
                    let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                    lifetime = Duration::from_secs(seconds).saturating_sub(age(headers));
                }
                _ => {}
            }
        }
        lifetime.clamp(least, most)
    }

    /// When a set is fetched again, after a fetch that made it fresh for `lifetime`: before it grows old, and not at the
    /// same time on all instances.
    pub(super) fn refresh_after(lifetime: Duration) -> Duration {
        lifetime.mul_f64(0.8 + 0.1 * fastrand::f64())
    }

    /// The pause after this many failures in a row.
    pub(super) fn retry_after(&self, failures: u32) -> Duration {
        let (first, most) = self.retry;
        let pause = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
        pause.mul_f64(0.8 + 0.2 * fastrand::f64())
    }
}

/// How long caches have kept the response (RFC 9111, 5.1).
fn age(headers: &HeaderMap) -> Duration {
    let age = headers.get(header::AGE).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(age.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn minutes(fields: &[(HeaderName, &'static str)]) -> u64 {
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        KeySetTiming::default().lifetime(&fields.collect()).as_secs() / 60
    }

    #[test]
    fn a_set_is_fresh_for_as_long_as_it_says_within_bounds() {
        let cache = |value| vec![(header::CACHE_CONTROL, value)];
        assert_eq!(minutes(&[]), 10);
        for (value, expected) in [
            ("max-age=3600", 60),
            ("public, MAX-AGE = \"3600\", must-revalidate", 60),
            ("max-age=1", 5),
            ("max-age=0", 5),
            ("max-age=soon", 5),
            ("max-age=99999999999999999999999", 5),
            ("max-age=9999999", 24 * 60),
            ("public", 10),
            ("max-age=3600, no-cache", 5),
            ("no-store", 5),
        ] {
            assert_eq!(minutes(&cache(value)), expected, "{value}");
        }
        let aged = |age| minutes(&[(header::CACHE_CONTROL, "max-age=3600"), (header::AGE, age)]);
        assert_eq!([aged("600"), aged("9999"), aged("old")], [50, 5, 60]);
    }

    #[test]
    fn pauses_double_up_to_their_maximum() {
        let timing = KeySetTiming::default();
        let seconds = |failures| timing.retry_after(failures).as_secs_f64();
        for (failures, most) in [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (u32::MAX, 60.0)] {
            assert!((most * 0.8..=most).contains(&seconds(failures)), "{failures}");
        }
        let refresh = KeySetTiming::refresh_after(Duration::from_secs(600)).as_secs();
        assert!((480..=540).contains(&refresh), "{refresh}");
    }
}
