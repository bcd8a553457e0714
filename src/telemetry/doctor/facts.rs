//! What the rules go by.

use super::tally::Tally;
use crate::telemetry::metrics::StoreFacts;

/// How things stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Requests of the last minute.
    pub(super) traffic: Tally,
    pub(super) configured: Configured,
    /// `None`: limits are kept in memory alone.
    pub(super) store: Option<StoreFacts>,
}

/// What of the configuration matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Configured {
    /// Whether any policy goes by addresses.
    pub(super) limits_addresses: bool,
    /// Whether any proxy is trusted.
    pub(super) trusts_proxies: bool,
    /// The field in which the client's address is told: `X-Forwarded-For`
    pub(super) field: String,
}
