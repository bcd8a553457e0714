//! One attempt to forward a request: its outcome, and whether another attempt follows.

use std::{rc::Rc, time::Instant};

use http::{Request, Response, StatusCode};

use super::{
    attempt_context::AttemptContext,
    field_survey::FieldSurvey,
    headers::has_other_coding,
    reply::Reply,
    request_body::{BodyFault, BodyProgress, RequestBody},
    request_copy::RequestCopy,
    retries::Retries,
};
use crate::{
    config::model::RetryReason,
    telemetry::metrics::AttemptOutcome,
    upstream::{HostPool, IncomingBody, SendError, UpstreamConnection},
};

/// One request on one connection. Its outcome is counted when it is dropped.
pub(super) struct UpstreamAttempt<'a> {
    context: &'a AttemptContext<'a>,
    /// The host that gets the request.
    pub(super) host: Rc<HostPool<RequestBody>>,
    began: Instant,
    /// In case the request has to be sent again.
    copy: Option<RequestCopy>,
    outcome: AttemptOutcome,
}

impl Drop for UpstreamAttempt<'_> {
    fn drop(&mut self) {
        self.context.count(self.outcome);
    }
}

impl<'a> UpstreamAttempt<'a> {
    /// An attempt that `began` when its host was picked. Unless told otherwise, the client went away or broke its own
    /// request off.
    pub(super) fn new(
        context: &'a AttemptContext<'a>,
        connection: &UpstreamConnection<RequestBody>,
        began: Instant,
        copy: Option<RequestCopy>,
    ) -> Self {
        // The pool may have handed over a connection to another host than the picked one.
        let host = Rc::clone(connection.host());
        Self { context, host, began, copy, outcome: AttemptOutcome::Cancelled }
    }

    /// The request for another attempt, if it is retried after this one failed for this `reason`.
    fn retry(&mut self, reason: RetryReason, retries: &mut Retries<'_>) -> Option<Request<RequestBody>> {
        let copy = self.copy.take()?;
        if retries.may_retry(reason, &self.host) { copy.into_request() } else { None }
    }

    /// The request for another attempt, if the response of this one has a status that is retried.
    pub(super) fn retry_status(
        &mut self,
        status: StatusCode,
        retries: &mut Retries<'_>,
    ) -> Option<Request<RequestBody>> {
        self.retry(RetryReason::of_status(status)?, retries)
    }

    /// The host has responded. Returns the survey of the response's head.
    ///
    /// # Errors
    /// The response is not acceptable. The client gets the reply.
    pub(super) fn responded(
        &mut self,
        response: &Response<IncomingBody>,
        progress: Option<&BodyProgress>,
    ) -> Result<FieldSurvey, Box<Reply>> {
        let survey = FieldSurvey::new(response.headers(), None);
        if !self.is_acceptable(response, survey) {
            self.outcome = AttemptOutcome::Error;
            self.warn_unacceptable(response);
            return Err(Box::new(Reply::bad_gateway()));
        }
        self.outcome = AttemptOutcome::Ok;
        let now = self.context.timer.now();
        self.context.upstream.shared().responded(&self.host, response, owes_body(progress), self.began, now);
        Ok(survey)
    }

    /// The host did not respond in time. Returns the request if it is retried. `connection`: `None` if it was given
    /// up already.
    ///
    /// # Errors
    /// The reply for the client.
    pub(super) fn timed_out(
        &mut self,
        connection: Option<&UpstreamConnection<RequestBody>>,
        progress: Option<&BodyProgress>,
        retries: &mut Retries<'_>,
    ) -> Result<Request<RequestBody>, Box<Reply>> {
        let AttemptContext { timer, hand_off, timeouts, upstream, .. } = self.context;
        let cut_off = hand_off.cut_off_reason();
        // A client whose deadline has passed counts as gone.
        if cut_off.is_none() && !timer.is_call_over() {
            self.outcome = AttemptOutcome::Timeout;
            let now = Instant::now();
            // The total time is for all attempts, so this host may have had little of it.
            let has_had_most = now.saturating_duration_since(self.began) >= timeouts.total / 2;
            if !timer.is_response_late() || has_had_most && !owes_body(progress) {
                upstream.shared().response_timed_out(&self.host, now);
            }
            if let Some(connection) = connection {
                connection.excuse_client();
            }
        }
        self.retry(RetryReason::Timeout, retries)
            .ok_or_else(|| Box::new(cut_off.map_or_else(Reply::gateway_timeout, Reply::slow_body)))
    }

    /// The request `failed` on this `connection`, without a response. Returns the request if it is sent again.
    ///
    /// # Errors
    /// The reply for the client.
    pub(super) fn failed(
        &mut self,
        failed: SendError<RequestBody>,
        connection: &UpstreamConnection<RequestBody>,
        progress: Option<&BodyProgress>,
        retries: &mut Retries<'_>,
    ) -> Result<Request<RequestBody>, Box<Reply>> {
        let AttemptContext { timer, hand_off, upstream, .. } = self.context;
        match progress.and_then(BodyProgress::fault) {
            Some(BodyFault::TooLarge) => return Err(Box::new(Reply::body_too_large().closing())),
            Some(BodyFault::Broken) => {
                let reply = hand_off.cut_off_reason().map_or_else(Reply::broken_body, Reply::slow_body);
                return Err(Box::new(reply));
            }
            None => {}
        }
        self.outcome = AttemptOutcome::Error;
        let was_closed = connection.was_closed(&failed);
        let SendError { error, is_unprocessed, request: unsent } = failed;
        upstream.request_failed(&self.host, error.cause());
        // A kept connection may have been closed for being idle, which is not a failure of the host. A shared one may
        // have been closed because of any of its requests, including this one.
        let is_death = error.is_death_of_connection();
        retries.connection_failed(is_death);
        let may_be_well = was_closed && !connection.is_shared() || is_death || owes_body(progress);
        if !is_unprocessed && !may_be_well {
            upstream.shared().broke_off(&self.host, error.cause(), self.began, timer.now());
        }
        // A host that has not processed the request may do so now. If the host broke it off, another one has to.
        let is_useful = is_unprocessed || upstream.has_other_hosts();
        let again =
            unsent.map(|unsent| *unsent).or_else(|| self.copy.take().and_then(RequestCopy::into_request));
        let is_replaced = again.is_some() && was_closed && retries.may_replace(&self.host);
        let is_retried = again.is_some()
            && is_useful
            && !is_replaced
            && retries.may_retry(RetryReason::Refused, &self.host);
        if may_be_well && !is_unprocessed && !is_replaced {
            upstream.shared().left_unanswered(&self.host);
        }
        again.filter(|_| is_replaced || is_retried).ok_or_else(|| {
            let url = self.host.url();
            let why = upstream.shared().describe(&self.host, error.cause());
            self.context.warn(format_args!("endpoint {url} did not respond: {why}"));
            Box::new(Reply::bad_gateway())
        })
    }

    /// Whether the response uses only the requested features: no other protocol, and no transfer coding but
    /// `chunked`, since `TE` was not passed on.
    fn is_acceptable<B>(&self, response: &Response<B>, survey: FieldSurvey) -> bool {
        let is_switched = match self.context.upgrade {
            Some(upgrade) => upgrade.permits(response),
            None => response.status() != StatusCode::SWITCHING_PROTOCOLS,
        };
        is_switched && !has_other_coding(response.headers(), survey)
    }

    #[cold]
    fn warn_unacceptable<B>(&self, response: &Response<B>) {
        let url = self.host.url();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.context
                .warn(format_args!("endpoint {url} switched to a protocol that the request did not ask for"));
        } else if self.context.upgrade.is_some_and(|upgrade| !upgrade.permits(response)) {
            let status = response.status();
            self.context
                .warn(format_args!("endpoint {url} responded to the handshake of a WebSocket with {status}"));
        } else {
            self.context.warn(format_args!(
                "endpoint {url} sent a response with a transfer coding other than chunked"
            ));
        }
    }
}

/// Whether the client still has to send a part of the body. While it takes its time, a failure says nothing about the
/// endpoint.
fn owes_body(progress: Option<&BodyProgress>) -> bool {
    progress.is_some_and(|progress| !progress.is_sent())
}
