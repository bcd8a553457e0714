//! When a request to an upstream is tried again.

use http::StatusCode;
use serde::{Serialize, Serializer};

use super::serialize;

/// When a request to an upstream is tried again, and how often.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retry {
    /// Tries after the first one.
    pub max: usize,
    pub when: Vec<RetryReason>,
    /// The part of the requests that may be tried again, as a share of 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub budget: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 1, when: vec![RetryReason::Connect, RetryReason::Refused], budget: 0.2 }
    }
}

/// Why a try is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// There is no connection to the endpoint.
    Connect,
    /// The endpoint has closed the connection before it answered, or says that it has not processed the request.
    Refused,
    /// The endpoint has answered 502.
    BadGateway,
    /// The endpoint has answered 503.
    ServiceUnavailable,
    /// The endpoint has answered 504.
    GatewayTimeout,
    /// The endpoint has not answered in time.
    Timeout,
}

impl RetryReason {
    /// All of them, each with its word.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Connect, "connect"),
        (Self::Refused, "refused"),
        (Self::BadGateway, "502"),
        (Self::ServiceUnavailable, "503"),
        (Self::GatewayTimeout, "504"),
        (Self::Timeout, "timeout"),
    ];

    /// The word for it: `refused`
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// That the endpoint has answered with `status`.
    pub fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::BAD_GATEWAY => Some(Self::BadGateway),
            StatusCode::SERVICE_UNAVAILABLE => Some(Self::ServiceUnavailable),
            StatusCode::GATEWAY_TIMEOUT => Some(Self::GatewayTimeout),
            _ => None,
        }
    }
}

impl Serialize for RetryReason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
