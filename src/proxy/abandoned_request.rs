//! A request whose client goes away before the upstream has responded.
//!
//! An upstream does not stop when a connection is closed. Only its response tells the cost of the request, and when
//! the upstream is finished with it. So if the client of a request with a reservation goes away, a task waits for the
//! response for a while, as nginx does with `proxy_ignore_client_abort`.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::LazyLock,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{
    task::{spawn_local, yield_now},
    time::timeout,
};

use super::{
    cost_meter::CostMeter,
    grpc::{response_status, status_of},
    request_body::RequestBody,
    reservation::{PendingReservations, RequestStage, ReservationGuard},
};
use crate::upstream::{IncomingBody, SendError, UpstreamConnection};

/// How long the task waits for the response once the client has gone, even if the upstream may take longer for a
/// client that waits. Until then, a client that comes back finds its limits used. It waits as long as the upstream may
/// take where the response tells the cost.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The most tasks that wait for the cost of requests of one client.
const MAX_WAITS: usize = 64;
/// How many do, by client. None is 0.
static WAITS: LazyLock<Mutex<HashMap<IpAddr, usize>>> = LazyLock::new(Mutex::default);

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
    /// The client, as limits identify it.
    client: IpAddr,
    /// How long a task waits for the response.
    longest_wait: Duration,
}

/// A wait for the cost of a request of this client, until dropped.
struct Wait(IpAddr);

impl Wait {
    /// `None`: the client has left as many requests as it may.
    fn begin(client: IpAddr) -> Option<Self> {
        let mut waits = WAITS.lock();
        let own = waits.entry(client).or_default();
        (*own < MAX_WAITS).then(|| {
            *own += 1;
            Self(client)
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Entry::Occupied(mut own) = WAITS.lock().entry(self.0) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// Sends `request` of `client` over `connection`. If the client goes away, waits for the response for `longest_wait` at
/// most.
pub(super) fn send(
    connection: UpstreamConnection<RequestBody>,
    request: Request<RequestBody>,
    reservation: ReservationGuard,
    reservations: Rc<PendingReservations>,
    (client, longest_wait): (IpAddr, Duration),
) -> PendingSend<impl Future<Output = SendResult>> {
    let before = reservation.sending();
    let response = Box::pin(connection.send(request));
    let has_costs = !reservation.costs().is_empty();
    let longest_wait = if has_costs { longest_wait } else { longest_wait.min(LONGEST_WAIT) };
    let sent = SentRequest { response, connection, reservation, before, reservations, client, longest_wait };
    PendingSend(Some(sent))
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
        let Self { response, connection, reservation, before, reservations, client, longest_wait } = self;
        let _wait = match reservation.costs().is_empty() {
            true => None,
            false => match Wait::begin(client) {
                Some(wait) => Some(wait),
                None => return reservation.left_unknown(),
            },
        };
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
            let mut body = response.into_body();
            if !read_to_end(&mut body, longest, &mut meter, &reservation).await {
                return false;
            }
            if let Some(meter) = meter.take() {
                meter.finish();
            }
            true
        };
        let left = || {
            reservation.left_unknown();
            false
        };
        let is_complete = tokio::select! {
            biased;
            read = timeout(longest_wait, read_response) => match read {
                Ok(is_complete) => is_complete,
                Err(_late) => left(),
            },
            () = connection.evicted() => left(),
            () = reservations.draining() => left(),
        };
        if is_complete {
            reservation.completed();
            connection.release();
        }
    }
}

/// Reads a response's body for its cost, up to `longest` bytes. Returns whether it has ended.
async fn read_to_end(
    body: &mut IncomingBody,
    longest: usize,
    meter: &mut Option<Box<CostMeter>>,
    reservation: &ReservationGuard,
) -> bool {
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                read += data.len();
                let mut unread = &data[..];
                while let Some(meter) = meter
                    && !unread.is_empty()
                {
                    unread = &unread[meter.read(unread)..];
                    // A compressed piece may expand far: other tasks run between its steps.
                    yield_now().await;
                }
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
    true
}

/// Whether the upstream has not processed the request at all.
fn is_unsent(result: &SendResult) -> bool {
    matches!(result, Err(SendError { is_unprocessed: true, .. }))
}
