//! A request whose client goes away before the upstream has responded.
//!
//! An upstream does not stop when a connection is closed. Only its response tells the cost of the request, and when
//! the upstream is finished with it. So if the client of a request with a reservation goes away, a task waits for the
//! response for a while, as nginx does with `proxy_ignore_client_abort`.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::{task::spawn_local, time::timeout};

use super::{
    cost_meter::CostMeter,
    grpc::{response_status, status_of},
    request_body::RequestBody,
    reservation::{PendingReservations, RequestStage, ReservationGuard},
};
use crate::upstream::{IncomingBody, SendError, UpstreamConnection};

/// How long the task waits for the response once the client has gone, even if the upstream may take longer for a
/// client that waits. Until then, a client that comes back finds its limits used.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Bytes of the response's body that are read to find its end.
const MAX_BODY: usize = 64 << 10;
/// The same where the body tells the cost: a stream tells it last.
const MAX_METERED_BODY: usize = 16 << 20;

/// The outcome of sending a request, and its connection.
pub(super) struct Sent {
    pub(super) result: SendResult,
    pub(super) connection: UpstreamConnection<RequestBody>,
}

type SendResult = Result<Response<IncomingBody>, SendError<RequestBody>>;

/// A request with a reservation that is being sent. Dropped, it counts as abandoned by its client: a task waits for the
/// response.
pub(super) struct PendingSend<F: Future<Output = SendResult> + 'static>(Option<SentRequest<F>>);

struct SentRequest<F> {
    response: Pin<Box<F>>,
    connection: UpstreamConnection<RequestBody>,
    reservation: ReservationGuard,
    /// The stage before this attempt.
    before: RequestStage,
    reservations: Rc<PendingReservations>,
    /// How long a task waits for the response.
    longest_wait: Duration,
}

/// Sends `request` over `connection`. If the client goes away, waits for the response for `longest_wait` at most.
pub(super) fn send(
    connection: UpstreamConnection<RequestBody>,
    request: Request<RequestBody>,
    reservation: ReservationGuard,
    reservations: Rc<PendingReservations>,
    longest_wait: Duration,
) -> PendingSend<impl Future<Output = SendResult>> {
    let before = reservation.sending();
    let response = Box::pin(connection.send(request));
    let longest_wait = longest_wait.min(LONGEST_WAIT);
    PendingSend(Some(SentRequest { response, connection, reservation, before, reservations, longest_wait }))
}

impl<F: Future<Output = SendResult>> Future for PendingSend<F> {
    type Output = Sent;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent> {
        let pending = &mut self.get_mut().0;
        // After its end, it is not polled again.
        let Some(request) = pending else { return Poll::Pending };
        let result = ready!(request.response.as_mut().poll(cx));
        if is_unsent(&result) {
            request.reservation.not_sent(request.before);
        }
        match pending.take() {
            Some(SentRequest { connection, .. }) => Poll::Ready(Sent { result, connection }),
            None => Poll::Pending,
        }
    }
}

impl<F: Future<Output = SendResult>> PendingSend<F> {
    /// Closes the connection, because the upstream's time is over.
    pub(super) fn abort(mut self) {
        if let Some(request) = self.0.take() {
            request.connection.excuse_client();
        }
    }
}

impl<F: Future<Output = SendResult> + 'static> Drop for PendingSend<F> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            spawn_local(request.abandoned());
        }
    }
}

impl<F: Future<Output = SendResult>> SentRequest<F> {
    /// Waits for the response, whose client has gone.
    async fn abandoned(self) {
        let Self { response, connection, reservation, before, reservations, longest_wait } = self;
        let read_response = async {
            let result = response.await;
            if is_unsent(&result) {
                reservation.not_sent(before);
            }
            let Ok(response) = result else { return false };
            reservation.responded(response_status(&response));
            let mut meter = CostMeter::new(&reservation, response.status(), response.headers());
            let longest = match &meter {
                Some(meter) if meter.needs_end() => MAX_METERED_BODY,
                _ => MAX_BODY,
            };
            let (mut body, mut read) = (response.into_body(), 0);
            while let Some(frame) = body.frame().await {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => {
                        read += data.len();
                        meter.iter_mut().for_each(|meter| meter.read(&data));
                    }
                    Ok(Err(frame)) => {
                        let Some(trailers) = frame.trailers_ref() else { continue };
                        reservation.call_ended(status_of(trailers));
                        meter.iter_mut().for_each(|meter| meter.read_trailers(trailers));
                    }
                    Err(_) => return false,
                }
                if read > longest {
                    return false;
                }
            }
            if let Some(meter) = meter.take() {
                meter.finish();
            }
            true
        };
        let is_complete = tokio::select! {
            biased;
            read = timeout(longest_wait, read_response) => read.unwrap_or(false),
            () = connection.evicted() => false,
            () = reservations.draining() => false,
        };
        if is_complete {
            reservation.completed();
            connection.release();
        }
    }
}

/// Whether the upstream has not processed the request at all.
fn is_unsent(result: &SendResult) -> bool {
    matches!(result, Err(SendError { is_unprocessed: true, .. }))
}
