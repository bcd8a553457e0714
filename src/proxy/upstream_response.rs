//! The response of an upstream, and the connection that it arrives over.

use std::{fmt, rc::Rc, time::Duration};

use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tokio::{task::spawn_local, time::timeout};

use super::{
    cost_meter::CostMeter,
    field_survey::FieldSurvey,
    grpc::status_of,
    request_body::{BodyFault, BodyProgress, RequestBody},
    reservation::ReservationGuard,
};
use crate::upstream::{HostPool, IncomingBody, UpgradedConnection, UpstreamConnection};

/// How long an endpoint has to send the end of the response after its last byte.
const END_TIMEOUT: Duration = Duration::from_secs(1);

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

impl UpstreamResponse {
    /// Meters the response, if it tells its cost. A tunnel does not. Returns whether the cost is known already, because the
    /// response has no body.
    pub(super) fn meter(&mut self, is_head: bool) -> bool {
        let Self { response, connection, .. } = self;
        let status = response.status();
        let reservation = connection.reservation.as_ref();
        let Some(reservation) = reservation.filter(|_| status != StatusCode::SWITCHING_PROTOCOLS) else {
            return false;
        };
        let meter = CostMeter::new(reservation, status, response.headers());
        let has_body = !response.body().is_end_stream()
            && !is_head
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match meter {
            Some(meter) if !has_body && !reservation.waits_for_trailers() => {
                meter.finish();
                reservation.completed();
                true
            }
            meter => {
                connection.meter = meter;
                false
            }
        }
    }
}

/// An upstream's connection for the duration of one exchange, and the progress of the request's body.
pub(super) struct CheckedOutConnection {
    connection: Option<UpstreamConnection<RequestBody>>,
    progress: Option<Rc<BodyProgress>>,
    /// The request's reservation, which is notified when the response has arrived.
    reservation: Option<ReservationGuard>,
    /// Meters the response, if it tells its cost.
    meter: Option<Box<CostMeter>>,
}

impl fmt::Debug for CheckedOutConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedOutConnection").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl CheckedOutConnection {
    /// A `connection` on which a request is sent, with the `progress` of its body, if it has one.
    pub(super) fn new(
        connection: UpstreamConnection<RequestBody>,
        progress: Option<Rc<BodyProgress>>,
        reservation: Option<ReservationGuard>,
    ) -> Self {
        Self { connection: Some(connection), progress, reservation, meter: None }
    }

    /// Whether the response tells its cost.
    pub(super) const fn is_metered(&self) -> bool {
        self.meter.is_some()
    }

    /// Reads a piece of the response's body for its cost. Returns how many bytes of it were read: less than all where they
    /// are compressed and expand far.
    pub(super) fn meter_data(&mut self, piece: &[u8]) -> usize {
        self.meter.as_mut().map_or(piece.len(), |meter| meter.read(piece))
    }

    /// Whether the response was read to its end.
    pub(super) const fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Notes that the client is not to blame if the request ends early.
    pub(super) fn excuse_client(&self) {
        if let Some(connection) = &self.connection {
            connection.excuse_client();
        }
    }

    /// The URL of the endpoint; `None` once the response was read to its end.
    pub(super) fn endpoint_url(&self) -> Option<String> {
        self.connection.as_ref().map(|connection| connection.host().url())
    }

    /// Why the request broke off, which breaks off its response as well.
    pub(super) fn request_fault(&self) -> Option<BodyFault> {
        self.progress.as_ref()?.fault()
    }

    /// Whether the whole request was sent.
    pub(super) fn is_request_sent(&self) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.is_sent())
    }

    /// The byte stream that the connection becomes with `response`, which switches protocols. `None`: the connection
    /// has ended.
    pub(super) async fn upgrade(
        self,
        response: Response<IncomingBody>,
    ) -> Option<UpgradedConnection<RequestBody>> {
        self.connection?.upgrade(response).await
    }

    /// Notes the trailers. Returns whether the request's reservation depends on them.
    pub(super) fn call_ended(&mut self, trailers: &HeaderMap) -> bool {
        if let Some(meter) = &mut self.meter {
            meter.read_trailers(trailers);
        }
        self.reservation.as_ref().is_some_and(|reservation| reservation.call_ended(status_of(trailers)))
    }

    /// Reads `incoming` to its end, for a moment at most, once the client has the whole response: an empty HTTP/2
    /// frame or trailers may follow. If trailers that decide the cost of a request do not arrive, it is charged.
    pub(super) fn read_end(mut self, incoming: IncomingBody) {
        if !self.reservation.as_ref().is_some_and(ReservationGuard::waits_for_trailers)
            && !self.meter.as_ref().is_some_and(|meter| meter.reads_trailers())
            && let Some(reservation) = self.reservation.take()
        {
            if let Some(meter) = self.meter.take() {
                meter.finish();
            }
            reservation.completed();
        }
        spawn_local(async move {
            let read = timeout(END_TIMEOUT, Limited::new(incoming, 0).collect()).await;
            let Ok(Ok(read)) = read else { return };
            if let Some(trailers) = read.trailers() {
                self.call_ended(trailers);
            }
            self.end();
        });
    }

    /// The response was read to its end: the connection returns to its pool. If the request was not sent to its end,
    /// its rest is not needed, and the connection is closed.
    pub(super) fn end(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if let Some(meter) = self.meter.take() {
            meter.finish();
        }
        if let Some(reservation) = self.reservation.take() {
            reservation.completed();
        }
        match &self.progress {
            Some(progress) if !progress.is_sent() => {
                progress.abandon();
                connection.excuse_client();
            }
            _ => connection.release(),
        }
    }
}
