//! Receives small request bodies before a connection to the upstream is taken, so that a client that sends slowly
//! does not occupy one.

use std::{cell::Cell, future::poll_fn, rc::Rc, task::Poll};

use bytes::Bytes;
use http::request;
use http_body::Body;
use hyper::body::Incoming;

use super::{connection_state::ConnectionState, expect_continue, paced_body::PacedBody, reply::Reply};
use crate::{config::model::ClientLimits, telemetry::metrics::CutOffReason};

/// Bytes that a worker reserves for all bodies that it is receiving. Beyond that, bodies are streamed, so that
/// clients that never send the rest cannot take all memory.
const MAX_RESERVED_BYTES: u64 = 32 << 20;

/// The bytes that a worker has reserved for bodies that it is receiving.
#[derive(Debug, Default)]
pub(super) struct BodyRoom(Rc<Cell<u64>>);

/// The room for one body, until dropped.
pub(super) struct ReservedRoom {
    reserved: Rc<Cell<u64>>,
    length: u64,
}

impl BodyRoom {
    /// Reserves room for a whole body. `None`: there is no room.
    pub(super) fn reserve(&self, body: &Incoming) -> Option<ReservedRoom> {
        let length = body.size_hint().lower();
        let reserved = self.0.get().saturating_add(length);
        if reserved > MAX_RESERVED_BYTES {
            return None;
        }
        self.0.set(reserved);
        Some(ReservedRoom { reserved: Rc::clone(&self.0), length })
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        self.reserved.set(self.reserved.get().saturating_sub(self.length));
    }
}

/// A request's body when the request is forwarded.
#[derive(Debug)]
pub(super) enum ReceivedBody {
    /// The whole body, which may be empty.
    Whole(Bytes),
    /// It is still to be received.
    Stream(Incoming),
}

/// Receives the `body` of `request` if it has at most `limit` bytes, and there is `room`. A client that waits for a 100
/// gets it from the upstream, so its body is streamed.
///
/// # Errors
/// The reply for the client, which broke the body off or was too slow.
pub(super) async fn receive_small(
    body: Incoming,
    request: &request::Parts,
    limit: usize,
    room: &BodyRoom,
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<ReceivedBody, Box<Reply>> {
    let is_small = body.size_hint().exact().is_some_and(|length| length <= limit as u64);
    if is_small
        && !expect_continue::wants_continue(request.version, &request.headers)
        && let Some(_room) = room.reserve(&body)
    {
        // Boxed: most requests have no body, but would need room for its state.
        return Box::pin(receive(body, client, limits)).await.map(ReceivedBody::Whole);
    }
    Ok(ReceivedBody::Stream(body))
}

/// Receives a whole body. A body that arrived with its head is not copied.
async fn receive(
    body: Incoming,
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<Bytes, Box<Reply>> {
    let length = body.size_hint().lower();
    let mut body = PacedBody::new(body, Rc::clone(client), limits);
    let mut received = Bytes::new();
    let mut copied = Vec::new();
    while (received.len() + copied.len()) as u64 != length {
        let frame = poll_fn(|cx| match body.poll_frame(cx, true) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending if client.timer().take_timed_out() => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        });
        let Ok(frame) = frame.await else {
            let reason = client.hand_off().cut_off_reason();
            return Err(Box::new(Reply::slow_body(reason.unwrap_or(CutOffReason::IdleTimeout))));
        };
        let Some(Ok(frame)) = frame else { return Err(Box::new(Reply::broken_body())) };
        let Ok(data) = frame.into_data() else { return Err(Box::new(Reply::broken_body())) };
        body.is_late(data.len() as u64);
        if received.is_empty() && copied.is_empty() {
            received = data;
        } else {
            // It grows with the received bytes, not to the announced length.
            copied.extend_from_slice(&std::mem::take(&mut received));
            copied.extend_from_slice(&data);
        }
    }
    client.meter().body_was_read();
    Ok(if copied.is_empty() { received } else { copied.into() })
}
