//! Responses to watched clients: the proxy's reports, and the tallies that a worker hands over.

use http::{Method, StatusCode};
use ipnet::IpNet;

use super::super::{
    incidents::Credential,
    traffic::{RequestLine, Signs, Traffic},
};

/// A response to a request, of an upstream or of ours.
#[derive(Debug, Clone, Copy)]
pub struct ObservedResponse<'a> {
    pub client: IpNet,
    /// The index of the route.
    pub route: usize,
    pub method: &'a Method,
    pub request: RequestLine<'a>,
    /// What its head told, if the client was watched when the request came.
    pub signs: Option<Signs>,
    pub credential: Credential,
    /// The user's name, or the one in the login form.
    pub user: Option<&'a str>,
    /// Whether it may be an attempt to log in. Requests that a rule of ours has refused are none.
    pub may_be_attempt: bool,
    /// Whether it has a valid API key or a verified user.
    pub is_customer: bool,
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
        response.signs.into_iter().for_each(|signs| self.traffic.add_signs(signs, 1));
        self.last = self.last.max(response.now);
    }
}
