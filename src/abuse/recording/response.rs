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

impl ObservedResponse<'_> {
    /// Whether this status says that the client is not who it claims to be, or is not allowed to do this.
    pub(super) fn is_refusal(status: StatusCode) -> bool {
        matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }
}

/// The responses to one client in one tick of one worker.
#[derive(Debug, Default)]
pub(in crate::abuse) struct ResponseTally {
    pub(in crate::abuse) traffic: Traffic,
    pub(in crate::abuse) last: i64,
}

impl ResponseTally {
    pub(super) fn add(&mut self, response: &ObservedResponse<'_>) {
        self.traffic.answered = self.traffic.answered.saturating_add(1);
        let (refused, write) = (ObservedResponse::is_refusal(response.status), !response.request.is_safe);
        for (count, is_one) in [
            (&mut self.traffic.refused, refused),
            (&mut self.traffic.written, write),
            (&mut self.traffic.refused_writes, refused && write),
        ] {
            *count = count.saturating_add(u32::from(is_one));
        }
        self.traffic.add_line(&response.request, 1);
        self.last = self.last.max(response.now);
    }
}
