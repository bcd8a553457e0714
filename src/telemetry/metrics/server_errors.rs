//! Responses with a 5xx status by source: the origin, or the proxy itself. Denials are not counted, regardless of
//! status.

use std::{iter::Sum, ops::Sub};

use http::StatusCode;

/// The source of a 5xx response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerErrorSource {
    /// The origin responded with it.
    Origin,
    /// The proxy: 502, no usable response from the upstream.
    BadGateway,
    /// The proxy: 503, all connections to the upstream are in use, or the store is unavailable.
    Unavailable,
    /// The proxy: 504, the upstream took too long.
    GatewayTimeout,
    /// The proxy, with any other status.
    Other,
}

impl ServerErrorSource {
    /// Each with its labels `source` and `status`.
    pub(super) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Origin, "origin", "5xx"),
        (Self::BadGateway, "proxy", "502"),
        (Self::Unavailable, "proxy", "503"),
        (Self::GatewayTimeout, "proxy", "504"),
        (Self::Other, "proxy", "other"),
    ];

    /// The source of a response that the proxy made.
    pub fn from_proxy(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_GATEWAY => Self::BadGateway,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => Self::GatewayTimeout,
            _ => Self::Other,
        }
    }
}

/// Numbers of 5xx responses by source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerErrorCounts([u64; ServerErrorSource::ALL.len()]);

impl ServerErrorCounts {
    /// `counts` in the order of `ServerErrorSource::ALL`.
    pub fn from_counts(counts: [u64; ServerErrorSource::ALL.len()]) -> Self {
        Self(counts)
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn origin(&self) -> u64 {
        self.0[ServerErrorSource::Origin as usize]
    }

    pub fn proxy(&self) -> u64 {
        self.total() - self.origin()
    }

    /// Responses of the proxy by status, without zeros: `502`, `503`, `504`, `other`.
    pub fn proxy_by_status(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counted = ServerErrorSource::ALL.iter().zip(self.0).skip(1);
        counted.map(|(&(_, _, status), count)| (status, count)).filter(|&(_, count)| count > 0)
    }
}

/// The increase since an earlier reading.
impl Sub for ServerErrorCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self(std::array::from_fn(|source| self.0[source].saturating_sub(before.0[source])))
    }
}

impl Sum for ServerErrorCounts {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| {
            Self(std::array::from_fn(|source| sum.0[source] + one.0[source]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_the_proxy_are_told_by_status() {
        let errors = ServerErrorCounts([3, 40, 0, 2, 0]);
        assert_eq!((errors.total(), errors.origin(), errors.proxy()), (45, 3, 42));
        assert_eq!(errors.proxy_by_status().collect::<Vec<_>>(), [("502", 40), ("504", 2)]);
        assert_eq!(ServerErrorSource::from_proxy(StatusCode::NOT_IMPLEMENTED), ServerErrorSource::Other);
        for (index, (source, ..)) in ServerErrorSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, index);
        }
    }
}
