//! How Tollgate finds out which endpoints of an upstream work.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use serde::Serialize;

use super::{Statuses, serialize};

/// Active health checks: what each host of an upstream is asked, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    #[serde(flatten)]
    pub probe: Probe,
    /// From the beginning of one probe to the beginning of the next, give or take a tenth.
    #[serde(serialize_with = "serialize::duration")]
    pub interval: Duration,
    /// For a whole probe, from the connection to the end of the response.
    #[serde(serialize_with = "serialize::duration")]
    pub timeout: Duration,
    /// Successes in a row after which an unhealthy host is healthy. At least 1.
    pub healthy: u32,
    /// Failures in a row after which a healthy host is unhealthy. At least 1.
    pub unhealthy: u32,
}

/// What a host is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Probe {
    /// `GET`, by the upstream's version of HTTP.
    Http {
        #[serde(serialize_with = "serialize::displayed")]
        path: PathAndQuery,
        /// `None`: the endpoint's own.
        #[serde(serialize_with = "serialize::optional_displayed", skip_serializing_if = "Option::is_none")]
        host: Option<Authority>,
        /// What a healthy host responds with.
        statuses: Statuses,
    },
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Empty: the server as a whole.
        service: String,
        #[serde(serialize_with = "serialize::optional_displayed", skip_serializing_if = "Option::is_none")]
        host: Option<Authority>,
    },
    /// Opens a connection, with the TLS handshake of an `https` endpoint, and asks nothing.
    Tcp,
}

/// Outlier detection: a host that fails the requests of clients is ejected for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OutlierDetection {
    /// Failures in a row that eject a host. At least 1.
    pub failures: u32,
    /// How long the first ejection lasts. Each further one lasts as much longer.
    #[serde(serialize_with = "serialize::duration")]
    pub eject: Duration,
    /// The part of the hosts that may be ejected at a time, as a share of 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub at_most: f64,
}
