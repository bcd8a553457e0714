//! Rates of requests.

use std::{fmt, time::Duration};

use super::format::format_duration;

/// A limit per window: `100/1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 1 to 10⁹.
    pub limit: u64,
    /// 1 ms to 366 days.
    pub window: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, format_duration(self.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_it_was_written() {
        assert_eq!(Rate { limit: 5, window: Duration::from_secs(90) }.to_string(), "5/90s");
    }
}
