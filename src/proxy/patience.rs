//! What a client's connection waits for, and until when.
//!
//! Every phase of a request has a bound, and phases change several times a request. A timer for each
//! would cost more than the rest of the bookkeeping together. So a connection has one deadline, which
//! is only written down when a phase begins, and one timer, which looks at it when it fires: most of
//! the time the deadline has moved on, and the timer is set again.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How far behind the end of a rest its deadline lies, which is never to come first.
const BEYOND: Duration = Duration::from_secs(60);

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
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
    /// That the client reads what was answered.
    Client,
}

/// The time for what was waited for is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// One connection's deadline. Shared by whoever serves it, all in one thread.
#[derive(Debug)]
pub struct Patience {
    waiting: Cell<Waiting>,
    since: Cell<Instant>,
    deadline: Cell<Instant>,
    /// The time at which the connection was last polled: precise enough for a deadline.
    now: Cell<Instant>,
    /// Set when the deadline of [`Waiting::Upstream`] has passed, until somebody has noticed.
    elapsed: Cell<bool>,
    draining: Cell<bool>,
    /// For when the connection's timer is set, and whether the connection is being polled, and so will
    /// look at the deadline by itself.
    alarm: Cell<Instant>,
    polled: Cell<bool>,
    /// The request's body was not read to its end.
    body_left: Cell<bool>,
    write_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Patience {
    /// A new connection, which has `limit` to begin its first request.
    pub fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            waiting: Cell::new(Waiting::FirstRequest),
            since: Cell::new(now),
            deadline: Cell::new(now + limit),
            now: Cell::new(now),
            elapsed: Cell::new(false),
            draining: Cell::new(false),
            alarm: Cell::new(now + limit),
            polled: Cell::new(false),
            body_left: Cell::new(false),
            write_blocked: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Waits for `waiting` from now on, for `limit` at most.
    pub fn wait(&self, waiting: Waiting, limit: Duration) {
        self.waiting.set(waiting);
        self.since.set(self.now.get());
        let deadline = self.now.get() + limit;
        self.deadline.set(deadline);
        // The upstream's side of a request runs in a task of its own.
        if !self.polled.get() && deadline < self.alarm.get() {
            self.wake();
        }
    }

    /// What is waited for.
    pub fn waiting(&self) -> Waiting {
        self.waiting.get()
    }

    /// Since when.
    pub fn since(&self) -> Instant {
        self.since.get()
    }

    /// Until when.
    pub fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// The time at which the connection was last polled.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// `future`'s output, or that it took longer than `limit` since the upstream was last waited for.
    pub async fn bound<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        self.wait(Waiting::Upstream, limit);
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.take_elapsed() => Poll::Ready(Err(Elapsed)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Ready after `delay`, for which the client waits and the upstream does not. Whatever else has a bound begins after
    /// it.
    pub async fn rest(&self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        // The connection's own bound is of no use here: the timer ends it.
        self.wait(Waiting::Upstream, delay.saturating_add(BEYOND));
        tokio::time::sleep(delay).await;
    }

    /// Whether the upstream's time is up. Says so once.
    pub fn take_elapsed(&self) -> bool {
        self.elapsed.replace(false)
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

    /// Called by the connection when the deadline has passed while the upstream was waited for.
    pub fn set_elapsed(&self) {
        self.elapsed.set(true);
    }

    /// Asks the connection to end after the request under way.
    pub fn drain(&self) {
        self.draining.set(true);
        self.wake();
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

    /// Notes whether something of the request's body is still to be read.
    pub fn expect_body(&self, expected: bool) {
        self.body_left.set(expected);
    }

    /// Notes whether the client has to read before more can be written.
    pub fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.set(blocked);
    }

    /// Whether the client has to read before more can be written.
    pub fn is_write_blocked(&self) -> bool {
        self.write_blocked.get()
    }

    /// Whether the request's body was not read to its end.
    pub fn has_left_body(&self) -> bool {
        self.body_left.get()
    }
}
