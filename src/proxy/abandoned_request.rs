//! A request whose client goes away before the upstream has responded.
//!
//! An upstream does not stop when a connection is closed. Only its response tells the cost of the request, and when
//! the upstream is finished with it. So a request with a reservation is sent by a task of its own, which waits for
//! the response for a while after the client has gone, as nginx does with `proxy_ignore_client_abort`.

use std::{pin::pin, rc::Rc, time::Duration};

use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use tokio::{sync::oneshot, task::spawn_local, time::timeout};

use super::{
    grpc::{response_status, status_of},
    request_body::RequestBody,
    reservation::{PendingReservations, ReservationGuard},
};
use crate::upstream::{IncomingBody, SendError, UpstreamConnection};

/// How long the task waits for the response once the client has gone, even if the upstream may take longer for a
/// client that waits. Until then, a client that comes back finds its limits used.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Bytes of the response's body that are read to find its end.
const MAX_BODY: usize = 64 << 10;

/// The outcome of sending a request, and its connection.
pub(super) struct Sent {
    pub(super) result: Result<Response<IncomingBody>, SendError<RequestBody>>,
    pub(super) connection: UpstreamConnection<RequestBody>,
}

/// A request that is being sent by a task. Dropped, it counts as abandoned by its client.
pub(super) struct PendingSend {
    pub(super) sent: oneshot::Receiver<Sent>,
    late: oneshot::Sender<()>,
}

impl PendingSend {
    /// Sends `request` over `connection`. If the client goes away, waits for the response for `longest_wait` at most.
    pub(super) fn new(
        connection: UpstreamConnection<RequestBody>,
        request: Request<RequestBody>,
        reservation: ReservationGuard,
        reservations: Rc<PendingReservations>,
        longest_wait: Duration,
    ) -> Self {
        let ((caller, sent), (late, told_late)) = (oneshot::channel(), oneshot::channel());
        let wait = longest_wait.min(LONGEST_WAIT);
        spawn_local(send(connection, request, reservation, reservations, wait, (caller, told_late)));
        Self { sent, late }
    }

    /// Closes the connection, because the upstream's time is over.
    pub(super) fn abort(self) {
        // The task may have ended just now.
        let _ended = self.late.send(());
    }
}

async fn send(
    mut connection: UpstreamConnection<RequestBody>,
    request: Request<RequestBody>,
    reservation: ReservationGuard,
    reservations: Rc<PendingReservations>,
    longest_wait: Duration,
    (mut caller, late): (oneshot::Sender<Sent>, oneshot::Receiver<()>),
) {
    let before = reservation.sending();
    let mut response = pin!(connection.send(request));
    let result = tokio::select! {
        biased;
        result = &mut response => Some(result),
        Ok(()) = late => return connection.excuse_client(),
        () = caller.closed() => None,
    };
    let (connection, result) = match result {
        Some(result) => {
            if is_unsent(&result) {
                reservation.not_sent(before);
            }
            match caller.send(Sent { result, connection }) {
                Ok(()) => return,
                Err(Sent { result, connection }) => (connection, Some(result)),
            }
        }
        None => (connection, None),
    };

    // The client has gone.
    let read_response = async {
        let result = match result {
            Some(result) => result,
            None => response.await,
        };
        if is_unsent(&result) {
            reservation.not_sent(before);
        }
        let Ok(response) = result else { return false };
        reservation.responded(response_status(&response));
        let Ok(read) = Limited::new(response.into_body(), MAX_BODY).collect().await else { return false };
        if let Some(trailers) = read.trailers() {
            reservation.call_ended(status_of(trailers));
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

/// Whether the upstream has not processed the request at all.
fn is_unsent<B>(result: &Result<Response<IncomingBody>, SendError<B>>) -> bool {
    matches!(result, Err(SendError { is_unprocessed: true, .. }))
}
