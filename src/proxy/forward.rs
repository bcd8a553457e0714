//! Forwards a request: gets a connection to the upstream, sends the request, and waits for the head of the response.

use std::{
    pin::{Pin, pin},
    rc::Rc,
};

use http::{HeaderValue, Request, header};

use super::{
    abandoned_request::{self, Sent},
    attempt::UpstreamAttempt,
    attempt_context::AttemptContext,
    client_request::ClientRequest,
    connection_state::TimedOut,
    reply::Reply,
    request_body::{BodyProgress, RequestBody},
    reservation::{PendingReservations, ReservationGuard},
    retries::{Retries, discard},
    tunnel::Upgrade,
    upstream_response::{CheckedOutConnection, UpstreamResponse},
};
use crate::{
    config::model::{HostHeader, Route},
    telemetry::access_log::RetriedTry,
    upstream::{Affinity, UpstreamClient, UpstreamConnection, UpstreamHost},
};

/// Forwards one request to its upstream.
pub(super) struct Forwarder<'a> {
    context: AttemptContext<'a>,
    /// The request's reservation.
    reservation: Option<&'a ReservationGuard>,
    reservations: &'a Rc<PendingReservations>,
}

impl<'a> Forwarder<'a> {
    /// Forwards to the upstream of this index, under the settings of `route`.
    pub(super) fn new<S>(
        served: &'a ClientRequest<'_, S>,
        upstream_client: &'a Rc<UpstreamClient>,
        route: &'a Route,
        index: usize,
        upgrade: Option<&'a Upgrade>,
    ) -> Self {
        let ClientRequest { worker, client, exchange, .. } = served;
        let context = AttemptContext {
            upstream: &worker.upstreams[index],
            client: upstream_client,
            index,
            timeouts: route.timeouts,
            retry: &route.retry,
            timer: client.timer(),
            hand_off: client.hand_off(),
            metrics: worker.metrics(),
            warnings: &worker.telemetry.upstream_warnings,
            upgrade,
        };
        Self { context, reservation: exchange.reservation(), reservations: &worker.reservations }
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
    ) -> impl Future<Output = Result<UpstreamResponse, Box<Reply>>> {
        self.context.upstream.retry_budget().count_request();
        // An async function's future would hold the request twice.
        async move {
            let context = &self.context;
            let _deadline = context.timer.limit_response(context.timeouts.total);
            // An HTTP/1.0 request may have no Host; the upstream gets HTTP/1.1, with its own.
            let has_no_host = !request.headers().contains_key(header::HOST);
            let mut retries = Retries::new(context, &request, tried);
            let upload = progress.as_deref();
            loop {
                // Pick a host, and get a connection to it, or to another one.
                // In a block, because a borrowed local keeps its place in the future until its scope ends.
                let began = context.timer.now();
                let mut connection = {
                    let choice = retries.choice(affinity);
                    let mut picked = context.pick(&choice, began)?;
                    if let Some(pooled) = retries.checkout(&picked) {
                        pooled
                    } else {
                        // Boxed: it is rare, and would make each request's future as large as itself.
                        match Box::pin(context.connect(&mut picked, &choice, retries.needs)).await {
                            Ok(connected) => connected,
                            Err(failure) => {
                                failure.retry(&picked, &mut retries)?;
                                continue;
                            }
                        }
                    }
                };

                // Send the request over it, and wait for the head of the response.
                context.check_upgrade(&connection)?;
                self.set_host(&mut request, connection.host(), has_no_host);
                let copy = retries.copy(&request);
                let mut attempt = UpstreamAttempt::new(context, &connection, began, copy);
                let result = match self.reservation {
                    None => {
                        let response = pin!(connection.send(request));
                        context.timer.timeout(context.timeouts.response, response).await
                    }
                    // Boxed: most requests do not need it.
                    Some(reservation) => {
                        let sent = Box::pin(self.send_reserved(connection, request, reservation)).await;
                        let Ok(sent) = sent else {
                            request = attempt.timed_out(None, upload, &mut retries)?;
                            continue;
                        };
                        connection = sent.connection;
                        Ok(sent.result)
                    }
                };

                // Return the response, or send the request again.
                request = match result {
                    Ok(Ok(response)) => {
                        let survey = attempt.responded(&response, upload)?;
                        let Some(again) = attempt.retry_status(response.status(), &mut retries) else {
                            let (host, reservation) = (Rc::clone(&attempt.host), self.reservation.cloned());
                            let connection = CheckedOutConnection::new(connection, progress, reservation);
                            return Ok(UpstreamResponse { response, survey, connection, host });
                        };
                        discard(response, connection);
                        again
                    }
                    Ok(Err(failed)) => attempt.failed(failed, &connection, upload, &mut retries)?,
                    Err(TimedOut) => attempt.timed_out(Some(&connection), upload, &mut retries)?,
                };
            }
        }
    }

    /// Sets the host that the upstream gets, if that is not the client's.
    fn set_host(&self, request: &mut Request<RequestBody>, host: &UpstreamHost, has_none: bool) {
        if !has_none && self.context.upstream.shared().config.host != HostHeader::Rewrite {
            return;
        }
        // An authority has only characters that are allowed in a field.
        if let Ok(host) = HeaderValue::from_str(host.endpoint.authority.as_str()) {
            request.headers_mut().insert(header::HOST, host);
        }
    }

    /// Sends `request`, whose response settles `reservation`.
    fn send_reserved(
        &self,
        connection: UpstreamConnection<RequestBody>,
        request: Request<RequestBody>,
        reservation: &ReservationGuard,
    ) -> impl Future<Output = Result<Sent, TimedOut>> {
        let limit = self.context.timeouts.response;
        let (reservation, reservations) = (reservation.clone(), Rc::clone(self.reservations));
        let wait = (self.context.client.ip(), limit);
        let mut pending = abandoned_request::send(connection, request, reservation, reservations, wait);
        // An async function's future would hold the request as well.
        async move {
            let sent = self.context.timer.timeout(limit, Pin::new(&mut pending)).await;
            // When the client's own deadline has passed, its place is not freed while the upstream works for it.
            if sent.is_err() && !self.context.timer.is_call_over() {
                pending.abort();
            }
            sent
        }
    }
}
