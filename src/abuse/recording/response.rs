//! Responses to watched clients: the proxy's reports, and the tallies that a worker hands over.

use http::StatusCode;
use ipnet::IpNet;

use super::super::traffic::{RequestLine, Traffic};

/// An upstream's response to a request.
#[derive(Debug, Clone, Copy)]
pub struct ObservedResponse<'a> {
    pub client: IpNet,
    pub request: RequestLine<'a>,
    pub status: StatusCode,
    /// When the request was received, in microseconds since the Unix epoch.
    pub now: i64,
}

/// The responses to one client in one tick of one worker.
#[derive(Debug, Default)]
pub(in crate::abuse) struct ResponseTally {
    pub(in crate::abuse) traffic: Traffic,
    pub(in crate::abuse) last: i64,
}

impl ResponseTally {
    pub(super) fn add(&mut self, response: &ObservedResponse<'_>) {
        self.traffic.add_response(response.status, response.request.is_safe);
        self.traffic.add_line(&response.request, 1);
        self.last = self.last.max(response.now);
    }
}
