//! What a client's connection waits for, and until when.
//!
//! Every phase of a request has a time limit, and phases change several times per request. A timer for
//! each would cost more than the rest of the bookkeeping together. So a connection has one deadline,
//! which is only written down when a phase begins, and one timer, which checks the deadline when it
//! fires: most of the time the deadline has moved on, and the timer is set again.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How far the deadline of [`PhaseTimer::delay`] lies behind its end, so that it never comes first.
const DELAY_MARGIN: Duration = Duration::from_secs(60);

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first byte of the first request.
    FirstRequest,
    /// The first byte of another request.
    Request,
    /// The rest of a request's head.
    RequestHead,
    /// The next bytes of a request's body.
    RequestBody,
    /// A connection to the upstream, the head of its answer, or the next bytes of its body.
    Upstream,
    /// The client, to read the answer.
    Client,
}

/// The time limit of a phase has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// One connection's deadline. Shared, in one thread, by everything that serves the connection.
#[derive(Debug)]
pub struct PhaseTimer {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    deadline: Cell<Instant>,
    /// The time at which the connection was last polled: precise enough for a deadline.
    now: Cell<Instant>,
    /// Set when the deadline of [`Phase::Upstream`] has passed, until it is taken.
    timed_out: Cell<bool>,
    draining: Cell<bool>,
    last_response: Cell<bool>,
    /// The time that the connection's timer is set for.
    alarm: Cell<Instant>,
    /// Whether the connection is being polled: then it checks the deadline by itself.
    polled: Cell<bool>,
    /// The request's body was not read to its end.
    body_unread: Cell<bool>,
    write_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl PhaseTimer {
    /// A new connection, which has `limit` to begin its first request.
    pub fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            phase: Cell::new(Phase::FirstRequest),
            since: Cell::new(now),
            deadline: Cell::new(now + limit),
            now: Cell::new(now),
            timed_out: Cell::new(false),
            draining: Cell::new(false),
            last_response: Cell::new(false),
            alarm: Cell::new(now + limit),
            polled: Cell::new(false),
            body_unread: Cell::new(false),
            write_blocked: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Begins `phase`, which may last for `limit`.
    pub fn enter(&self, phase: Phase, limit: Duration) {
        self.phase.set(phase);
        self.since.set(self.now.get());
        let deadline = self.now.get() + limit;
        self.deadline.set(deadline);
        // The upstream's side of a request runs in a task of its own.
        if !self.polled.get() && deadline < self.alarm.get() {
            self.wake();
        }
    }

    /// Begins to wait for the first request anew, for `limit`: what came before it is done.
    pub fn restart(&self, limit: Duration) {
        self.now.set(Instant::now());
        self.enter(Phase::FirstRequest, limit);
    }

    /// What the connection waits for.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// When the phase began.
    pub fn since(&self) -> Instant {
        self.since.get()
    }

    /// When the phase has to end.
    pub fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// The time at which the connection was last polled.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// The output of `future`, for which [`Phase::Upstream`] begins.
    ///
    /// # Errors
    /// It took longer than `limit` since [`Phase::Upstream`] last began.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, TimedOut> {
        self.enter(Phase::Upstream, limit);
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.take_timed_out() => Poll::Ready(Err(TimedOut)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Ready after `delay`, during which no other time limit runs.
    pub async fn delay(&self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        // The sleep ends this phase, not the phase's own deadline.
        self.enter(Phase::Upstream, delay.saturating_add(DELAY_MARGIN));
        tokio::time::sleep(delay).await;
    }

    /// Whether the deadline of [`Phase::Upstream`] has passed. True once for each time it has.
    pub fn take_timed_out(&self) -> bool {
        self.timed_out.replace(false)
    }

    /// Called by the connection before it is polled.
    pub fn begin_poll(&self, cx: &Context<'_>) {
        self.polled.set(true);
        self.now.set(Instant::now());
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Called by the connection after it was polled: its timer is set for `alarm`.
    pub fn end_poll(&self, alarm: Instant) {
        self.alarm.set(alarm);
        self.polled.set(false);
    }

    /// Called by the connection when the deadline has passed and the request's own code has to answer.
    pub fn set_timed_out(&self) {
        self.timed_out.set(true);
    }

    /// Asks the connection to end after the request in flight.
    pub fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    /// Makes the next response the last: it tells the client that the connection closes. An idle connection stays open
    /// until then, so that a request that is on its way is served.
    pub fn announce_close(&self) {
        self.last_response.set(true);
    }

    /// Whether the next response has to tell the client that the connection closes.
    pub fn is_last_response(&self) -> bool {
        self.last_response.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Whether the connection was asked to end.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Sets whether part of the request's body is still to be read.
    pub fn set_body_unread(&self, unread: bool) {
        self.body_unread.set(unread);
    }

    /// Whether part of the request's body is still to be read.
    pub fn is_body_unread(&self) -> bool {
        self.body_unread.get()
    }

    /// Sets whether the client has to read before more can be written.
    pub fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.set(blocked);
    }

    /// Whether the client has to read before more can be written.
    pub fn is_write_blocked(&self) -> bool {
        self.write_blocked.get()
    }
}
