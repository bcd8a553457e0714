//! The body of a request on its way to the upstream.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    connection_state::{ConnectionState, Phase},
    expect_continue::ContinueGate,
    paced_body::PacedBody,
    trailers::TrailerFilter,
};
use crate::{
    config::model::ClientLimits,
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
    upstream,
};

/// A request's body as it is sent to the upstream: either whole, or broken off with an error, which closes the
/// upstream's connection. It never ends early as if it were whole.
#[derive(Debug)]
pub enum RequestBody {
    /// No body.
    Empty,
    /// The client's whole body. Boxed: a request is moved often, and most have no body.
    Buffered(Box<Bytes>),
    /// The client's body, streamed.
    Stream(Box<ClientBody>),
}

/// A client's body that is streamed to the upstream.
#[derive(Debug)]
pub struct ClientBody {
    /// Bytes that were received before.
    begun: Bytes,
    incoming: PacedBody,
    /// Bytes that are not received yet, if the length was announced.
    left: Option<u64>,
    /// The maximum length, in bytes.
    max: u64,
    gate: Option<ContinueGate>,
    trailers: TrailerFilter,
    progress: Rc<BodyProgress>,
    client: Rc<ConnectionState>,
    timeouts: BodyTimeouts,
}

/// How long the upstream may take while a body is sent.
#[derive(Debug, Clone, Copy)]
pub struct BodyTimeouts {
    /// For the upstream to read the received bytes, and then to respond.
    pub response: Duration,
    /// Once the response has begun: how long both sides may be silent.
    pub idle: Duration,
    /// Whether it is a gRPC call. Once the response has begun, its client sends a message now and then, which has no
    /// other time limit.
    pub is_call: bool,
}

/// How far the sending of a request's body has got.
#[derive(Debug, Default)]
pub struct BodyProgress {
    state: Cell<UploadState>,
    bytes: Cell<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum UploadState {
    #[default]
    Sending,
    Sent,
    Faulty(BodyFault),
    /// The response is complete; the rest of the body is not needed.
    Abandoned,
}

/// Why the upstream does not get the whole body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// The client broke it off, or sent an invalid body.
    Broken,
    /// It is longer than `max_body` allows.
    TooLarge,
}

impl BodyProgress {
    /// Whether the whole body was sent.
    pub fn is_sent(&self) -> bool {
        self.state.get() == UploadState::Sent
    }

    /// The reason why the body was broken off, if it was.
    pub fn fault(&self) -> Option<BodyFault> {
        match self.state.get() {
            UploadState::Faulty(fault) => Some(fault),
            _ => None,
        }
    }

    /// Bytes of the body that were passed on.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The response is complete. A later end of the body is not its real end: hyper stops reading a request after the
    /// response, and reports that as the end of the body.
    pub fn abandon(&self) {
        if self.state.get() == UploadState::Sending {
            self.state.set(UploadState::Abandoned);
        }
    }
}

/// Why a request's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The client broke it off, or sent an invalid body.
    #[error("reading the request body failed: {0}")]
    Client(#[from] hyper::Error),
    /// It ended before its announced length, or before its last chunk.
    #[error("the request body ended early")]
    Incomplete,
    /// The client sent it too slowly.
    #[error("the request body was sent too slowly")]
    Late,
    /// It is longer than `max_body` allows.
    #[error("the request body is too large")]
    TooLarge,
}

impl RequestBody {
    /// The client's body, to be streamed, of which `begun` was received before. `max`: its maximum length in bytes.
    pub fn stream(
        (begun, incoming): (Bytes, Incoming),
        gate: Option<ContinueGate>,
        client: &Rc<ConnectionState>,
        limits: &ClientLimits,
        max: Option<u64>,
        timeouts: BodyTimeouts,
        trailers: TrailerFilter,
    ) -> (Self, Rc<BodyProgress>) {
        let progress = Rc::new(BodyProgress::default());
        let incoming = PacedBody::new(incoming, Rc::clone(client), limits);
        let stream = ClientBody {
            left: incoming.size_hint().exact().map(|left| left + begun.len() as u64),
            begun,
            max: max.unwrap_or(u64::MAX),
            incoming,
            gate,
            trailers,
            progress: Rc::clone(&progress),
            client: Rc::clone(client),
            timeouts,
        };
        (Self::Stream(Box::new(stream)), progress)
    }
}

impl ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.poll_open(cx));
            self.gate = None;
        }
        let is_sending = self.progress.state.get() == UploadState::Sending;
        let BodyTimeouts { response, idle, is_call } = self.timeouts;
        let has_response = self.client.meter().is_response_pending();
        let is_untimed = has_response && is_call;
        let frame = match self.begun.is_empty() {
            true => ready!(self.incoming.poll_frame(cx, is_sending && !is_untimed)),
            false => Some(Ok(Frame::data(std::mem::take(&mut self.begun)))),
        };
        match has_response {
            _ if !is_sending => {}
            false => self.client.timer().enter_upstream(response),
            // A client that does not read the response gains no time by sending.
            true if self.client.timer().phase() == Phase::Client => {}
            true => self.client.timer().enter_upstream(idle),
        }
        Poll::Ready(match frame {
            Some(Ok(mut frame)) => {
                let trailers = frame.trailers_mut().map(|trailers| self.trailers.apply(trailers)).is_some();
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                if self.incoming.is_late(length) && !is_untimed {
                    let cut_off = CutOff { body: CutOffBody::Request, reason: CutOffReason::MinRate };
                    self.client.hand_off().cut_off(cut_off);
                    self.finish(UploadState::Faulty(BodyFault::Broken));
                    return Poll::Ready(Some(Err(RequestBodyError::Late)));
                }
                if length > self.max - self.progress.bytes() {
                    self.finish(UploadState::Faulty(BodyFault::TooLarge));
                    return Poll::Ready(Some(Err(RequestBodyError::TooLarge)));
                }
                self.left = self.left.map(|left| left.saturating_sub(length));
                self.progress.bytes.set(self.progress.bytes.get() + length);
                if trailers || self.left == Some(0) {
                    self.finish(UploadState::Sent);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.finish(UploadState::Faulty(BodyFault::Broken));
                Some(Err(error.into()))
            }
            None if self.progress.is_sent() => None,
            None if self.left.is_none()
                && self.progress.state.get() == UploadState::Sending
                && self.incoming.is_at_end() =>
            {
                self.finish(UploadState::Sent);
                None
            }
            None => {
                self.finish(UploadState::Faulty(BodyFault::Broken));
                Some(Err(RequestBodyError::Incomplete))
            }
        })
    }

    fn finish(&self, state: UploadState) {
        if self.progress.state.get() == UploadState::Sending {
            self.progress.state.set(state);
        }
        if state == UploadState::Sent {
            self.client.meter().body_was_read();
        }
    }
}

impl upstream::OutgoingBody for RequestBody {
    fn repeatable(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Buffered(bytes) => Some(Self::Buffered(bytes.clone())),
            Self::Stream(_) => None,
        }
    }

    fn into_whole(self) -> Result<Bytes, Self> {
        match self {
            Self::Empty => Ok(Bytes::new()),
            Self::Buffered(bytes) => Ok(*bytes),
            Self::Stream(_) => Err(self),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Buffered(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Buffered(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut **bytes))))),
            Self::Stream(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Buffered(bytes) => bytes.is_empty(),
            // The incoming body's own method is also true for a body that broke off.
            Self::Stream(stream) => stream.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Buffered(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(stream) => stream.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
