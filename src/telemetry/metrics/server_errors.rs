//! Responses with a 5xx status, by route and by who gave them: the origin, or the proxy itself. What policies and bans deny
//! is not among them, whatever its status.

use std::{fmt, iter::Sum, ops::Sub};

use http::StatusCode;
use prometheus_client::encoding::DescriptorEncoder;

use super::{
    exposition::{count, counter},
    totals::Totals,
};

/// Who gave a response with a 5xx status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerErrorSource {
    /// The origin answered, and this was its answer.
    Origin,
    /// The proxy: 502, there was no usable answer from the upstream.
    BadGateway,
    /// The proxy: 503, the upstream's connections are all in use, or the store is not available.
    Unavailable,
    /// The proxy: 504, the upstream took too long.
    GatewayTimeout,
    /// The proxy, with any other status.
    Other,
}

impl ServerErrorSource {
    /// Each with its labels: who gave it, and with which status.
    pub(super) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Origin, "origin", "5xx"),
        (Self::BadGateway, "proxy", "502"),
        (Self::Unavailable, "proxy", "503"),
        (Self::GatewayTimeout, "proxy", "504"),
        (Self::Other, "proxy", "other"),
    ];

    /// That of a response of the proxy itself.
    pub fn from_proxy(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_GATEWAY => Self::BadGateway,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => Self::GatewayTimeout,
            _ => Self::Other,
        }
    }
}

/// Numbers of responses with a 5xx status, by who gave them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerErrors([u64; ServerErrorSource::ALL.len()]);

impl ServerErrors {
    /// With a number for each source, in their order.
    pub fn from_counts(counts: [u64; ServerErrorSource::ALL.len()]) -> Self {
        Self(counts)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that the origin gave.
    pub fn origin(&self) -> u64 {
        self.0[ServerErrorSource::Origin as usize]
    }

    /// Those that the proxy gave itself.
    pub fn proxy(&self) -> u64 {
        self.total() - self.origin()
    }

    /// Those that the proxy gave itself, by status, without zeros: `502`, `503`, `504`, `other`.
    pub fn proxy_by_status(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counted = ServerErrorSource::ALL.iter().zip(self.0).skip(1);
        counted.map(|(&(_, _, status), count)| (status, count)).filter(|&(_, count)| count > 0)
    }
}

/// What came since an earlier reading.
impl Sub for ServerErrors {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self(std::array::from_fn(|source| self.0[source].saturating_sub(before.0[source])))
    }
}

impl Sum for ServerErrors {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| {
            Self(std::array::from_fn(|source| sum.0[source] + one.0[source]))
        })
    }
}

pub(super) fn expose(totals: &Totals, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Responses with a 5xx status, by route, by who gave them (the origin or Tollgate itself) and by status; \
                denials are not among them";
    let mut family = counter(out, "tollgate_server_errors", help)?;
    for (route, row) in &totals.routes {
        for (kind, source, status) in ServerErrorSource::ALL {
            let labels = [("route", route.as_str()), ("source", source), ("status", status)];
            count(&mut family, labels, row.server_errors[kind as usize].value())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_the_proxy_are_told_by_status() {
        let errors = ServerErrors([3, 40, 0, 2, 0]);
        assert_eq!((errors.total(), errors.origin(), errors.proxy()), (45, 3, 42));
        assert_eq!(errors.proxy_by_status().collect::<Vec<_>>(), [("502", 40), ("504", 2)]);
        assert_eq!(ServerErrorSource::from_proxy(StatusCode::NOT_IMPLEMENTED), ServerErrorSource::Other);
        for (index, (source, ..)) in ServerErrorSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, index);
        }
    }
}
