//! The state of a client's connection that the code of its requests and the code of its bytes share: the deadline, the
//! progress of the messages, and the things that one leaves for the other.

mod hand_off;
mod meter;
mod phase_timer;
mod queued_hints;

use std::{cell::Cell, rc::Rc, time::Duration};

pub(super) use hand_off::Boxed;
pub use hand_off::{ByteStream, HandOff, NextProtocol};
pub use meter::MessageMeter;
pub(super) use phase_timer::TimedOut;
pub use phase_timer::{Phase, PhaseTimer};
pub(super) use queued_hints::QueuedHints;

use super::early_ends::WatchedRequest;
use crate::{
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
    upstream::{ClientWait, Eviction},
};

/// The state of one connection, or of one request that shares a connection with others. Shared within one thread by
/// all code that serves it.
#[derive(Debug)]
pub struct ConnectionState {
    is_stream: bool,
    closing: Cell<CloseStage>,
    timer: PhaseTimer,
    meter: MessageMeter,
    hand_off: HandOff,
}

/// How soon a connection has to end. Each stage includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CloseStage {
    Open,
    /// The next response is the last one.
    Announced,
    /// It ends after the request in flight.
    Draining,
    /// It is idle, and another connection needs its place.
    MakingRoom,
}

impl ConnectionState {
    /// The state of a new connection, whose first request has to begin within `limit`.
    pub fn new(limit: Duration) -> Self {
        Self {
            is_stream: false,
            closing: Cell::new(CloseStage::Open),
            timer: PhaseTimer::new(Phase::FirstRequest, limit),
            meter: MessageMeter::new(Rc::default()),
            hand_off: HandOff::default(),
        }
    }

    /// The state of an HTTP/2 request, which shares its connection, and has to be taken up within `limit` after its
    /// head was received. Bytes of its body are added to `received`. `watched`: set if the connection carries the
    /// requests of many clients.
    pub fn of_stream(limit: Duration, received: Rc<Cell<u64>>, watched: Option<Rc<WatchedRequest>>) -> Self {
        Self {
            is_stream: true,
            closing: Cell::new(CloseStage::Open),
            timer: PhaseTimer::new(Phase::RequestHead, limit),
            meter: MessageMeter::new(received),
            hand_off: HandOff::watching(watched),
        }
    }

    /// Whether it is the state of a request that shares its connection.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The phase and its deadline.
    pub fn timer(&self) -> &PhaseTimer {
        &self.timer
    }

    /// The progress of the messages.
    pub fn meter(&self) -> &MessageMeter {
        &self.meter
    }

    /// The things that a request leaves for the connection.
    pub fn hand_off(&self) -> &HandOff {
        &self.hand_off
    }

    /// Makes the next response the last one, which tells the client that the connection closes. An idle connection is
    /// kept open until then, so that a request on its way is served.
    pub fn announce_close(&self) {
        self.close(CloseStage::Announced);
    }

    /// Asks the connection to end after the request in flight. The response announces it, even if its head has
    /// arrived already.
    pub fn drain(&self) {
        self.close(CloseStage::Draining);
        self.timer.wake();
    }

    /// Asks the connection, which is idle, to end at once, because another one needs its place.
    pub fn make_room(&self) {
        self.close(CloseStage::MakingRoom);
        self.timer.wake();
    }

    fn close(&self, closing: CloseStage) {
        self.closing.set(self.closing.get().max(closing));
    }

    /// Whether the next response has to tell the client that the connection closes.
    pub fn is_last_response(&self) -> bool {
        self.closing.get() >= CloseStage::Announced
    }

    /// Whether the connection was asked to end.
    pub fn is_draining(&self) -> bool {
        self.closing.get() >= CloseStage::Draining
    }

    /// Whether the connection was asked to make room.
    pub fn makes_room(&self) -> bool {
        self.closing.get() == CloseStage::MakingRoom
    }

    /// Begins a wait for the client.
    pub fn client_wait_begins(&self, wait: ClientWait) {
        if let Some(waker) = &*self.timer.waker() {
            self.hand_off.client_wait_begins(wait, self.timer.now(), waker);
        }
    }

    /// Ends a wait for the client, which has sent or read something.
    pub fn client_wait_ends(&self, wait: ClientWait) {
        self.hand_off.client_wait_ends(wait, self.timer.now());
    }

    /// Called by the connection when the deadline has passed while it waited for the client, or when the request in
    /// flight loses its connection to others.
    pub fn cut_off_client(&self) {
        // The call's or the response's own deadline has passed: the request gets its reply.
        if self.timer.is_call_over() || self.timer.is_response_late() {
            return;
        }
        let reason = match self.hand_off.eviction() {
            Some(Eviction::Connection) => CutOffReason::MaxConnectionsPerAddress,
            Some(Eviction::Memory) => CutOffReason::Memory,
            None => self.timer.cut_off_reason(),
        };
        let is_response = self.timer.phase() == Phase::Client;
        let body = if is_response { CutOffBody::Response } else { CutOffBody::Request };
        self.hand_off.cut_off(CutOff { body, reason });
    }

    /// All bytes of hyper are written. A response may continue as long as its request does.
    pub fn flushed(&self) {
        if matches!(self.timer.phase(), Phase::FirstRequest | Phase::Request | Phase::RequestHead) {
            self.meter.end_response();
        }
    }

    /// The body of a refused request was read to its end. Ignored if another request has arrived since then.
    pub(super) fn refused_body_was_read(&self, request: u64) {
        if self.meter.request_number() == request {
            self.meter.body_was_read();
            // Now the connection may be idle.
            self.timer.wake();
        }
    }
}
