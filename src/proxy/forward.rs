//! Forwards a request: gets a connection to the upstream, sends the request, and waits for the head of the response.

use std::{
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use http::{HeaderValue, Request, Response, StatusCode, header};

use super::{
    abandoned_request::{self, Sent},
    client::ClientInfo,
    field_survey::FieldSurvey,
    headers::has_other_coding,
    phase_timer::{PhaseTimer, TimedOut},
    reply::Reply,
    request_body::{BodyFault, BodyProgress, RequestBody},
    request_copy::RequestCopy,
    reservation::{PendingReservations, ReservationGuard},
    response_body::CheckedOutConnection,
    retries::{Retries, discard},
    tunnel::Upgrade,
    worker::Worker,
};
use crate::{
    config::model::{HostHeader, Protocol, Retry, RetryReason, Route, Timeouts},
    telemetry::{
        Throttle,
        access_log::RetriedTry,
        metrics::{AttemptOutcome, WorkerMetrics},
    },
    upstream::{
        Affinity, ConnectError, HostChoice, HostPool, IncomingBody, SendError, StreamNeeds, UpstreamClient,
        UpstreamConnection, UpstreamHost, UpstreamPool,
    },
};

/// Forwards one request to its upstream.
pub(super) struct Forwarder<'a> {
    pub(super) upstream: &'a Rc<UpstreamPool<RequestBody>>,
    client: &'a Rc<UpstreamClient>,
    /// The upstream's index.
    pub(super) index: usize,
    timeouts: Timeouts,
    pub(super) retry: &'a Retry,
    pub(super) timer: &'a PhaseTimer,
    pub(super) metrics: &'a WorkerMetrics,
    warnings: &'a Throttle,
    /// The request's reservation.
    reservation: Option<&'a ReservationGuard>,
    reservations: &'a Rc<PendingReservations>,
    /// The protocol that the request asks for instead of HTTP.
    pub(super) upgrade: Option<&'a Upgrade>,
}

/// The head of a response, its body, and the connection that it arrives over.
pub(super) struct UpstreamResponse {
    /// The upstream's response, unchanged.
    pub(super) response: Response<IncomingBody>,
    /// The survey of its head.
    pub(super) survey: FieldSurvey,
    pub(super) connection: CheckedOutConnection,
    /// The host that responded.
    pub(super) host: Rc<HostPool<RequestBody>>,
}

/// One request on one connection. Its outcome is counted when it is dropped.
struct UpstreamAttempt<'a> {
    forwarder: &'a Forwarder<'a>,
    outcome: AttemptOutcome,
}

impl Drop for UpstreamAttempt<'_> {
    fn drop(&mut self) {
        self.forwarder.metrics.upstream(self.forwarder.index, self.outcome);
    }
}

/// Why there is no connection. The client gets the reply unless the request is retried.
enum ConnectFailure {
    /// Another endpoint may accept a connection.
    Retryable(Reply),
    /// No other endpoint would accept one.
    Final(Reply),
}

impl<'a> Forwarder<'a> {
    /// Forwards to the upstream of this index, under the settings of `route`.
    pub(super) fn new<S>(
        worker: &'a Worker<S>,
        client: &'a ClientInfo,
        upstream_client: &'a Rc<UpstreamClient>,
        route: &'a Route,
        index: usize,
        reservation: Option<&'a ReservationGuard>,
        upgrade: Option<&'a Upgrade>,
    ) -> Self {
        Self {
            upstream: &worker.upstreams[index],
            client: upstream_client,
            index,
            timeouts: route.timeouts,
            retry: &route.retry,
            timer: client.timer(),
            metrics: worker.metrics(),
            warnings: &worker.telemetry.upstream_warnings,
            reservation,
            reservations: &worker.reservations,
            upgrade,
        }
    }

    /// Sends `request` and waits for the head of the response. `affinity` ties it to one of the hosts.
    ///
    /// A failed attempt is retried where that is safe, at another host if there is one, under the settings of
    /// `retry`. A request that the upstream has not seen, or reports as unprocessed (RFC 9113, 8.7), is always safe.
    /// One that it may have processed is safe if the method is idempotent and the whole body is at hand (RFC 9110,
    /// 9.2.2). Besides, a kept connection that turns out to be closed is replaced. Attempts that were followed by
    /// another one are noted in `tried`.
    ///
    /// # Errors
    /// The reply for the client.
    pub(super) fn forward(
        &self,
        mut request: Request<RequestBody>,
        progress: Option<Rc<BodyProgress>>,
        affinity: &Affinity,
        tried: &mut Vec<RetriedTry>,
    ) -> impl Future<Output = Result<UpstreamResponse, Reply>> {
        self.upstream.retry_budget().count_request();
        // An async function's future would hold the request twice.
        async move {
            let _deadline = self.timer.limit_response(self.timeouts.total);
            let mut retries = Retries::new(self, tried);
            // Whether to open a new connection rather than check one out of the pool.
            let mut fresh = false;
            // An HTTP/1.0 request may have no Host; the upstream gets HTTP/1.1, with its own.
            let has_no_host = !request.headers().contains_key(header::HOST);
            // The hosts on which it has failed.
            let mut failed_on = Vec::new();
            let mut needs = self.needs(&request);
            // While a client takes its time to send a body, a failure says nothing about the endpoint.
            let owes_body = || progress.as_ref().is_some_and(|progress| !progress.is_sent());
            loop {
                let began = self.timer.now();
                let choice = HostChoice { affinity, tried: &failed_on, within: self.timeouts.connect };
                let Some(mut picked) = self.upstream.pick(&choice, began) else {
                    return Err(self.no_endpoint());
                };
                let mut connection =
                    if !fresh && let Some(connection) = self.upstream.checkout(&picked, self.client, needs) {
                        connection
                    } else {
                        // Boxed: it is rare, and would make each request's future as large as itself.
                        match Box::pin(self.connect(&mut picked, &choice, needs)).await {
                            Ok(connection) => connection,
                            Err(ConnectFailure::Retryable(_))
                                if self.upstream.has_other_hosts()
                                    && retries.may_retry(RetryReason::Connect, &picked) =>
                            {
                                failed_on.push(Arc::clone(&picked.host));
                                continue;
                            }
                            Err(ConnectFailure::Retryable(reply) | ConnectFailure::Final(reply)) => {
                                return Err(reply);
                            }
                        }
                    };
                // The pool may have handed over a connection to another host.
                let host = Rc::clone(connection.host());
                if let Some(upgrade) = self.upgrade
                    && connection.is_shared()
                    && !(upgrade.is_websocket() && connection.offers_websockets())
                {
                    let url = host.url();
                    self.warn(format_args!(
                        "endpoint {url} speaks HTTP/2 and does not offer WebSockets by it (RFC 8441); other upgrades pass by HTTP/1.1 alone: set `protocol: h1`"
                    ));
                    self.metrics.upstream(self.index, AttemptOutcome::Error);
                    return Err(Reply::no_upgrade());
                }
                if has_no_host || self.upstream.shared().config.host == HostHeader::Rewrite {
                    let authority = host.endpoint.authority.as_str();
                    // An authority has only characters that are allowed in a field.
                    if let Ok(host) = HeaderValue::from_str(authority) {
                        request.headers_mut().insert(header::HOST, host);
                    }
                }
                let copy = retries.copy(&request, &connection);

                // Unless set otherwise below, the client went away or broke its own request off.
                let mut attempt = UpstreamAttempt { forwarder: self, outcome: AttemptOutcome::Cancelled };
                let result = match self.reservation {
                    None => {
                        let response = pin!(connection.send(request));
                        self.timer.timeout(self.timeouts.response, response).await
                    }
                    // Boxed: most requests do not need it.
                    Some(reservation) => {
                        match Box::pin(self.send_reserved(connection, request, reservation)).await {
                            Ok(sent) => {
                                connection = sent.connection;
                                Ok(sent.result)
                            }
                            Err(TimedOut) => {
                                let reply = self.timed_out(&mut attempt, &host, began, owes_body());
                                let copy = copy.filter(|_| retries.may_retry(RetryReason::Timeout, &host));
                                let again = copy.and_then(RequestCopy::into_request);
                                let Some(again) = again else { return Err(reply) };
                                failed_on.push(Arc::clone(&host.host));
                                request = again;
                                continue;
                            }
                        }
                    }
                };
                let failed = match result {
                    Ok(Ok(response)) => {
                        let survey = FieldSurvey::new(response.headers(), None);
                        if !self.is_acceptable(&response, survey) {
                            attempt.outcome = AttemptOutcome::Error;
                            self.warn_unacceptable(&host, &response);
                            return Err(Reply::bad_gateway());
                        }
                        attempt.outcome = AttemptOutcome::Ok;
                        self.upstream.shared().responded(
                            &host,
                            &response,
                            owes_body(),
                            began,
                            self.timer.now(),
                        );
                        if let Some(reason) = RetryReason::of_status(response.status())
                            && let Some(copy) = copy.filter(|_| retries.may_retry(reason, &host))
                            && let Some(again) = copy.into_request()
                        {
                            discard(response, connection);
                            failed_on.push(Arc::clone(&host.host));
                            request = again;
                            continue;
                        }
                        let reservation = self.reservation.cloned();
                        return Ok(UpstreamResponse {
                            response,
                            survey,
                            connection: CheckedOutConnection::new(connection, progress, reservation),
                            host,
                        });
                    }
                    Ok(Err(failed)) => failed,
                    Err(TimedOut) => {
                        let reply = self.timed_out(&mut attempt, &host, began, owes_body());
                        if attempt.outcome == AttemptOutcome::Timeout {
                            connection.excuse_client();
                        }
                        let copy = copy.filter(|_| retries.may_retry(RetryReason::Timeout, &host));
                        let Some(again) = copy.and_then(RequestCopy::into_request) else { return Err(reply) };
                        failed_on.push(Arc::clone(&host.host));
                        request = again;
                        continue;
                    }
                };
                match progress.as_ref().and_then(|progress| progress.fault()) {
                    Some(BodyFault::TooLarge) => return Err(Reply::body_too_large().closing()),
                    Some(BodyFault::Broken) => {
                        return Err(self
                            .timer
                            .cut_off_reason()
                            .map_or_else(Reply::broken_body, Reply::slow_body));
                    }
                    None => {}
                }
                attempt.outcome = AttemptOutcome::Error;
                let was_closed = connection.was_closed(&failed);
                let SendError { error, is_unprocessed, request: unsent } = failed;
                self.upstream.request_failed(&host, error.cause());
                // A kept connection may have been closed for being idle, which is not a failure of the host. A shared
                // one may have been closed because of any of its requests, including this one.
                let is_death = error.is_death_of_connection();
                needs.is_alone |= is_death;
                let may_be_well = was_closed && !connection.is_shared() || is_death || owes_body();
                if !is_unprocessed && !may_be_well {
                    self.upstream.shared().broke_off(&host, error.cause(), began, self.timer.now());
                }
                // A host that has not processed the request may do so now. If the host broke it off, another one has
                // to.
                let is_useful = is_unprocessed || self.upstream.has_other_hosts();
                let mut is_replaced = false;
                let again = unsent
                    .map(|unsent| *unsent)
                    .or_else(|| copy.and_then(RequestCopy::into_request))
                    .filter(|_| {
                        is_replaced = was_closed && retries.may_replace(&host);
                        is_replaced || is_useful && retries.may_retry(RetryReason::Refused, &host)
                    });
                if may_be_well && !is_unprocessed && !is_replaced {
                    self.upstream.shared().left_unanswered(&host);
                }
                let Some(again) = again else {
                    let url = host.url();
                    let why = self.upstream.shared().describe(&host, error.cause());
                    self.warn(format_args!("endpoint {url} did not respond: {why}"));
                    return Err(Reply::bad_gateway());
                };
                // An endpoint that closes connections may be shutting down, so another one is preferred. A client
                // that is tied to this endpoint keeps it as long as it accepts connections.
                if !is_replaced || !self.upstream.shared().config.ties_requests() {
                    failed_on.push(Arc::clone(&host.host));
                }
                (request, fresh) = (again, true);
            }
        }
    }

    /// The requirements of `request` for a connection that others share.
    fn needs(&self, request: &Request<RequestBody>) -> StreamNeeds {
        if self.upstream.shared().config.protocol == Protocol::H1 {
            return StreamNeeds::default();
        }
        let needs = StreamNeeds::of(request);
        StreamNeeds { is_alone: needs.is_alone || self.client.is_isolated(self.timer.now()), ..needs }
    }

    /// Sends `request`, whose response settles `reservation`.
    fn send_reserved(
        &self,
        connection: UpstreamConnection<RequestBody>,
        request: Request<RequestBody>,
        reservation: &ReservationGuard,
    ) -> impl Future<Output = Result<Sent, TimedOut>> {
        let limit = self.timeouts.response;
        let (reservation, reservations) = (reservation.clone(), Rc::clone(self.reservations));
        let mut pending = abandoned_request::send(connection, request, reservation, reservations, limit);
        // An async function's future would hold the request as well.
        async move {
            let sent = self.timer.timeout(limit, Pin::new(&mut pending)).await;
            // When the client's own deadline has passed, its place is not freed while the upstream works for it.
            if sent.is_err() && !self.timer.is_call_over() {
                pending.abort();
            }
            sent
        }
    }

    /// The reply to a request that `host`, tried since `began`, did not respond to in time.
    fn timed_out(
        &self,
        attempt: &mut UpstreamAttempt<'_>,
        host: &UpstreamHost,
        began: Instant,
        owes_body: bool,
    ) -> Reply {
        if let Some(reason) = self.timer.cut_off_reason() {
            return Reply::slow_body(reason);
        }
        // A client whose deadline has passed counts as gone.
        if !self.timer.is_call_over() {
            attempt.outcome = AttemptOutcome::Timeout;
            let now = Instant::now();
            // The total time is for all attempts, so this host may have had little of it.
            let has_had_most = now.saturating_duration_since(began) >= self.timeouts.total / 2;
            if !self.timer.is_response_late() || has_had_most && !owes_body {
                self.upstream.shared().response_timed_out(host, now);
            }
        }
        Reply::gateway_timeout()
    }

    /// Whether the response uses only the requested features: no other protocol, and no transfer coding but
    /// `chunked`, since `TE` was not passed on.
    fn is_acceptable<B>(&self, response: &Response<B>, survey: FieldSurvey) -> bool {
        let is_switched = match self.upgrade {
            Some(upgrade) => upgrade.permits(response),
            None => response.status() != StatusCode::SWITCHING_PROTOCOLS,
        };
        is_switched && !has_other_coding(response.headers(), survey)
    }

    #[cold]
    fn warn_unacceptable<B>(&self, host: &UpstreamHost, response: &Response<B>) {
        let url = host.url();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.warn(format_args!("endpoint {url} switched to a protocol that the request did not ask for"));
        } else if self.upgrade.is_some_and(|upgrade| !upgrade.permits(response)) {
            let status = response.status();
            self.warn(format_args!("endpoint {url} responded to the handshake of a WebSocket with {status}"));
        } else {
            self.warn(format_args!(
                "endpoint {url} sent a response with a transfer coding other than chunked"
            ));
        }
    }

    /// The reply if no endpoint accepts requests.
    #[cold]
    fn no_endpoint(&self) -> Reply {
        self.warn(format_args!(
            "all endpoints of upstream {} are drained: each request to it gets 503 until one is undrained",
            self.upstream.shared().config.name
        ));
        Reply::no_endpoint()
    }

    fn warn(&self, what: std::fmt::Arguments<'_>) {
        if let Some(held_back) = self.warnings.pass(self.timer.now()) {
            tracing::warn!(upstream = %self.upstream.shared().config.name, held_back, "{what}");
        }
    }

    async fn connect(
        &self,
        host: &mut Rc<HostPool<RequestBody>>,
        choice: &HostChoice<'_>,
        needs: StreamNeeds,
    ) -> Result<UpstreamConnection<RequestBody>, ConnectFailure> {
        // The pool limits each of its two waits itself.
        let backstop = self.timeouts.connect.saturating_mul(3);
        let connected = {
            let connect = pin!(self.upstream.connect(host, self.client, choice, needs));
            self.timer.timeout(backstop, connect).await
        };
        let error = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(ConnectError::NoHost)) => return Err(ConnectFailure::Final(self.no_endpoint())),
            Ok(Err(error)) => error,
            Err(TimedOut) if self.timer.is_call_over() => {
                self.metrics.upstream(self.index, AttemptOutcome::Cancelled);
                return Err(ConnectFailure::Final(Reply::gateway_timeout()));
            }
            // `timeouts.total` has passed, which says nothing about the host.
            Err(TimedOut) if self.timer.is_response_late() => {
                self.metrics.upstream(self.index, AttemptOutcome::Timeout);
                return Err(ConnectFailure::Final(Reply::gateway_timeout()));
            }
            Err(TimedOut) => ConnectError::Timeout,
        };
        let (name, url) = (&self.upstream.shared().config.name, host.url());
        match &error {
            ConnectError::Full(_) => self.warn(format_args!("upstream {name} is overloaded: {error}")),
            ConnectError::Exhausted(_) => {
                self.warn(format_args!("a connection to endpoint {url} can't be opened: {error}"));
            }
            error => {
                let why = self.upstream.shared().describe_connect_error(host, error);
                self.warn(format_args!("endpoint {url} could not be reached: {why}"));
            }
        }
        let (outcome, reply) = match error {
            ConnectError::NoHost | ConnectError::Unreachable(_) | ConnectError::Handshake(_) => {
                (AttemptOutcome::ConnectError, Reply::bad_gateway())
            }
            ConnectError::Full(_) | ConnectError::Exhausted(_) => {
                (AttemptOutcome::Overloaded, Reply::overloaded())
            }
            ConnectError::Timeout | ConnectError::HandshakeTimeout => {
                (AttemptOutcome::Timeout, Reply::gateway_timeout())
            }
        };
        self.metrics.upstream(self.index, outcome);
        Err(match outcome {
            AttemptOutcome::Overloaded => ConnectFailure::Final(reply),
            _ => ConnectFailure::Retryable(reply),
        })
    }
}
