//! Receives small request bodies before a connection to the upstream is taken, so that a client that sends slowly
//! does not occupy one.

use std::{cell::Cell, future::poll_fn, net::IpAddr, rc::Rc, sync::Arc, task::Poll};

use bytes::Bytes;
use http::request;
use http_body::Body;
use hyper::body::Incoming;

use super::{
    body_memory::{BodyMemory, NoMemory, ReservedMemory},
    connection_state::ConnectionState,
    expect_continue,
    paced_body::PacedBody,
    read_request::ReceivedPart,
    reply::Reply,
};
use crate::{
    config::model::ClientLimits,
    request_values::{MAX_BLANKS, is_before_json},
    telemetry::metrics::CutOffReason,
};

/// Bytes that a worker reserves for all small bodies that it is receiving. Beyond that, bodies are streamed, so that
/// clients that never send the rest cannot take all memory.
const MAX_RESERVED_BYTES: u64 = 24 << 20;

/// The bytes that a worker has reserved for small bodies that it is receiving.
#[derive(Debug, Default)]
pub(super) struct BodyRoom(Rc<Cell<u64>>);

/// The room for one body, until dropped.
struct ReservedRoom {
    reserved: Rc<Cell<u64>>,
    length: u64,
}

impl BodyRoom {
    /// Reserves room for a body of this length. `None`: there is no room.
    fn reserve(&self, length: u64) -> Option<ReservedRoom> {
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

    /// The part that was received.
    pub(super) fn received(&self) -> ReceivedPart<'_> {
        let (bytes, is_whole) = match self {
            Self::Whole(bytes) | Self::Edited(bytes) => (&**bytes, true),
            Self::Begun(bytes, _) => (&**bytes, false),
            Self::Stream(rest) => (&[][..], rest.size_hint().exact() == Some(0)),
        };
        ReceivedPart { bytes, is_whole, least_length: self.least_length() }
    }

    /// The body, whose bytes are kept in this memory.
    pub(super) fn held_in(self, memory: ReservedMemory) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(memory.hold(bytes)),
            Self::Edited(bytes) => Self::Edited(memory.hold(bytes)),
            Self::Begun(bytes, rest) => Self::Begun(memory.hold(bytes), rest),
            Self::Stream(rest) => Self::Stream(rest),
        }
    }

    /// Whether nothing of it is there or follows.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Stream(rest) if rest.is_end_stream())
    }

    /// The part that is still to be received.
    pub(super) fn into_rest(self) -> Option<Incoming> {
        match self {
            Self::Whole(_) | Self::Edited(_) => None,
            Self::Stream(body) | Self::Begun(_, body) => Some(body),
        }
    }
}

/// How much of a body is received before the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededPart {
    /// All of it, if it has at most the limit's bytes.
    Whole,
    /// As much as tells whether it begins as JSON does.
    Begin,
}

/// Why the needed part of a body was not received.
pub(super) struct NotReceived {
    /// For the client: it broke the body off, was too slow, or there is no memory for it.
    pub(super) reply: Box<Reply>,
    /// The rest of the body, if the client is not to blame.
    pub(super) rest: Option<Incoming>,
}

/// Receives the needed part of `body` before the decision, into `memory` of its client, which is returned. One that is longer
/// than `limit` bytes stays a stream, or one that has begun.
///
/// # Errors
/// It was not received.
pub(super) async fn receive_before_decision(
    body: Incoming,
    (part, limit): (NeededPart, usize),
    (memory, address): (&Arc<BodyMemory>, IpAddr),
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<(ReceivedBody, ReservedMemory), NotReceived> {
    let length = body.size_hint().exact();
    let is_too_long = part == NeededPart::Whole && length.is_some_and(|length| length > limit as u64);
    let is_whole = part == NeededPart::Whole && !is_too_long;
    let expected = length.filter(|_| is_whole).unwrap_or_default() as usize;
    let mut memory = match memory.reserve(address, expected).await {
        Ok(memory) => memory,
        Err(NoMemory) => {
            return Err(NotReceived { reply: Box::new(Reply::no_body_memory()), rest: Some(body) });
        }
    };
    if is_too_long {
        return Ok((ReceivedBody::Stream(body), memory));
    }
    let (received, rest) = receive(body, (part, limit), Some(&mut memory), client, limits).await?;
    let received = match rest {
        None => ReceivedBody::Whole(received),
        Some(rest) => ReceivedBody::Begun(received, rest),
    };
    Ok((received, memory))
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
        let needed = (NeededPart::Whole, limit);
        let received = Box::pin(receive(body, needed, None, client, limits)).await;
        let received = received.map_err(|NotReceived { reply, .. }| reply)?;
        return Ok(ReceivedBody::Whole(received.0));
    }
    Ok(ReceivedBody::Stream(body))
}

/// Receives the needed part of a body, up to `limit` bytes or a little more. Returns the rest if it is longer. A body that
/// arrived with its head is not copied. What is received counts in `memory`.
async fn receive(
    body: Incoming,
    (part, limit): (NeededPart, usize),
    mut memory: Option<&mut ReservedMemory>,
    client: &Rc<ConnectionState>,
    limits: &ClientLimits,
) -> Result<(Bytes, Option<Incoming>), NotReceived> {
    let blamed = |reply: Reply| NotReceived { reply: Box::new(reply), rest: None };
    let length = body.size_hint().exact();
    // The most that is expected: of a longer body, one frame above the limit is received.
    let most = length.filter(|_| part == NeededPart::Whole).map_or(usize::MAX, |length| length as usize);
    let mut body = PacedBody::new(body, Rc::clone(client), limits);
    let (mut received, mut copied, mut is_begun) = (Bytes::new(), Vec::new(), false);
    while let count = received.len() + copied.len()
        && Some(count as u64) != length
    {
        if count > limit || is_begun || part == NeededPart::Begin && count >= MAX_BLANKS {
            return Ok((if copied.is_empty() { received } else { copied.into() }, Some(body.into_inner())));
        }
        let frame = poll_fn(|cx| match body.poll_frame(cx, true) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending if client.timer().take_timed_out() => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        });
        let Ok(frame) = frame.await else {
            let reason = client.hand_off().cut_off_reason();
            return Err(blamed(Reply::slow_body(reason.unwrap_or(CutOffReason::IdleTimeout))));
        };
        let data = match frame {
            None if length.is_none() && body.is_at_end() => break,
            None | Some(Err(_)) => return Err(blamed(Reply::broken_body())),
            // A whole body of unknown length may be followed by trailers, which are not forwarded.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) if length.is_none() => break,
                Err(_) => return Err(blamed(Reply::broken_body())),
            },
        };
        body.is_late(data.len() as u64);
        let mut bytes = data.iter().enumerate();
        is_begun = part == NeededPart::Begin && !bytes.all(|(at, byte)| is_before_json(count + at, *byte));
        let (needed, is_copied) = (count + data.len(), count > 0);
        if let Some(memory) = memory.as_deref_mut()
            && (!is_copied || needed > copied.capacity())
        {
            // Not a copy for each piece, and not more than the body may have.
            let capacity = if is_copied { (needed * 2).min(most).min(limit).max(needed) } else { needed };
            if memory.grow(capacity).await.is_err() {
                return Err(NotReceived { rest: Some(body.into_inner()), ..blamed(Reply::no_body_memory()) });
            }
            copied.reserve_exact(if is_copied { capacity - copied.len() } else { 0 });
        }
        if is_copied {
            copied.extend_from_slice(&std::mem::take(&mut received));
            copied.extend_from_slice(&data);
        } else {
            received = data;
        }
    }
    client.meter().body_was_read();
    copied.shrink_to_fit();
    Ok((if copied.is_empty() { received } else { copied.into() }, None))
}
