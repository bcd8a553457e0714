//! Receives small request bodies before a connection to the upstream is taken, so that a client that sends slowly
//! does not occupy one.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, hash_map::Entry},
    future::poll_fn,
    net::IpAddr,
    rc::Rc,
    task::Poll,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use http::request;
use http_body::Body;
use hyper::body::Incoming;

use super::{connection_state::ConnectionState, expect_continue, paced_body::PacedBody, reply::Reply};
use crate::{config::model::ClientLimits, telemetry::metrics::CutOffReason};

/// Bytes that a worker reserves for all bodies that it is receiving. Beyond that, bodies are streamed, so that
/// clients that never send the rest cannot take all memory.
const MAX_RESERVED_BYTES: u64 = 32 << 20;

/// The part of them that only bodies get whose numbers are needed for the decision.
const KEPT_FOR_NUMBERS: u64 = 8 << 20;

/// The bytes that a worker has reserved for bodies that it is receiving.
#[derive(Debug, Default)]
pub(super) struct BodyRoom(Rc<UsedRoom>);

#[derive(Debug, Default)]
struct UsedRoom {
    reserved: Cell<u64>,
    /// The bytes for bodies whose numbers are needed, by client address. None is 0.
    by_address: RefCell<HashMap<IpAddr, u64, RandomState>>,
}

/// The room for one body, until dropped.
pub(super) struct ReservedRoom {
    used: Rc<UsedRoom>,
    length: u64,
    /// The client, if the body's numbers are needed.
    address: Option<IpAddr>,
}

impl BodyRoom {
    /// Reserves room for a body of this length. `None`: there is no room.
    fn reserve(&self, length: u64) -> Option<ReservedRoom> {
        let reserved = self.0.reserved.get().saturating_add(length);
        if reserved > MAX_RESERVED_BYTES - KEPT_FOR_NUMBERS {
            return None;
        }
        self.0.reserved.set(reserved);
        Some(ReservedRoom { used: Rc::clone(&self.0), length, address: None })
    }

    /// The same for a body whose numbers are needed. An address gets no more than it leaves for others (dynamic
    /// thresholds, Choudhury and Hahne 1998): alone at most half, and never all.
    fn reserve_for_numbers(&self, length: u64, address: IpAddr) -> Option<ReservedRoom> {
        let reserved = self.0.reserved.get().saturating_add(length);
        let left = MAX_RESERVED_BYTES.checked_sub(reserved)?;
        let mut by_address = self.0.by_address.borrow_mut();
        let own = by_address.get(&address).copied().unwrap_or_default() + length;
        if own > left {
            return None;
        }
        if length > 0 {
            by_address.insert(address, own);
        }
        self.0.reserved.set(reserved);
        Some(ReservedRoom { used: Rc::clone(&self.0), length, address: Some(address) })
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        let Self { used, length, address } = self;
        used.reserved.set(used.reserved.get().saturating_sub(*length));
        let Some(address) = address else { return };
        if let Entry::Occupied(mut own) = used.by_address.borrow_mut().entry(*address) {
            *own.get_mut() = own.get().saturating_sub(*length);
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// A request's body when the request is forwarded.
#[derive(Debug)]
pub(super) enum ReceivedBody {
    /// The whole body, which may be empty.
    Whole(Bytes),
    /// The whole body, which is not the client's any more.
    Edited(Bytes),
    /// It is still to be received.
    Stream(Incoming),
    /// It begins with these bytes. The rest is still to be received.
    Begun(Bytes, Incoming),
}

impl ReceivedBody {
    /// The least bytes that it has.
    pub(super) fn least_length(&self) -> u64 {
        match self {
            Self::Whole(bytes) | Self::Edited(bytes) => bytes.len() as u64,
            Self::Stream(rest) => rest.size_hint().lower(),
            Self::Begun(begun, rest) => begun.len() as u64 + rest.size_hint().lower(),
        }
    }

    /// The part that is still to be received.
    pub(super) fn into_rest(self) -> Option<Incoming> {
        match self {
            Self::Whole(_) | Self::Edited(_) => None,
            Self::Stream(body) | Self::Begun(_, body) => Some(body),
        }
    }
}

/// Receives `body` before the decision if it has at most `limit` bytes, and there is `room` for this `address`. One of
/// unknown length is received up to that many bytes.
///
/// # Errors
/// As [`receive_small`].
pub(super) async fn receive_up_to(
    body: Incoming,
    limit: usize,
    (room, address): (&BodyRoom, IpAddr),
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<ReceivedBody, Box<Reply>> {
    let length = body.size_hint().exact();
    if length.is_some_and(|length| length > limit as u64) {
        return Ok(ReceivedBody::Stream(body));
    }
    let Some(_room) = room.reserve_for_numbers(length.unwrap_or(limit as u64), address) else {
        return Ok(ReceivedBody::Stream(body));
    };
    let (received, rest) = receive(body, limit as u64, client, limits).await?;
    Ok(match rest {
        None => ReceivedBody::Whole(received),
        Some(rest) => ReceivedBody::Begun(received, rest),
    })
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
        && let Some(_room) = room.reserve(body.size_hint().lower())
    {
        // Boxed: most requests have no body, but would need room for its state.
        let received = Box::pin(receive(body, limit as u64, client, limits)).await?;
        return Ok(ReceivedBody::Whole(received.0));
    }
    Ok(ReceivedBody::Stream(body))
}

/// Receives a body up to `limit` bytes, or a little more. Returns the rest if it is longer. A body that arrived with its
/// head is not copied.
async fn receive(
    body: Incoming,
    limit: u64,
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<(Bytes, Option<Incoming>), Box<Reply>> {
    let length = body.size_hint().exact();
    let mut body = PacedBody::new(body, Rc::clone(client), limits);
    let mut received = Bytes::new();
    let mut copied = Vec::new();
    while let count = (received.len() + copied.len()) as u64
        && Some(count) != length
    {
        if count > limit {
            return Ok((if copied.is_empty() { received } else { copied.into() }, Some(body.into_inner())));
        }
        let frame = poll_fn(|cx| match body.poll_frame(cx, true) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending if client.timer().take_timed_out() => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        });
        let Ok(frame) = frame.await else {
            let reason = client.hand_off().cut_off_reason();
            return Err(Box::new(Reply::slow_body(reason.unwrap_or(CutOffReason::IdleTimeout))));
        };
        let data = match frame {
            None if length.is_none() && body.is_at_end() => break,
            None | Some(Err(_)) => return Err(Box::new(Reply::broken_body())),
            // A whole body of unknown length may be followed by trailers, which are not forwarded.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) if length.is_none() => break,
                Err(_) => return Err(Box::new(Reply::broken_body())),
            },
        };
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
    Ok((if copied.is_empty() { received } else { copied.into() }, None))
}
