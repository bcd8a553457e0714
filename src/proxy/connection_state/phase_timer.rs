//! The phase of a client's connection, and its deadline.
//!
//! Every phase of a request has a time limit, and phases change several times per request. One timer per phase would
//! cost more than the rest of the bookkeeping together. So a connection has one deadline, which is only written down
//! when a phase begins, and one timer, which checks the deadline when it fires: usually the deadline has moved on,
//! and the timer is set again.

use std::{
    cell::{Cell, Ref, RefCell},
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::telemetry::metrics::CutOffReason;

/// Margin of the deadline for a wait that ends by itself, so that the deadline never passes first.
const DEADLINE_MARGIN: Duration = Duration::from_secs(60);
/// Longer than any store call: `store.redis.timeout` is at most ten seconds, for each of a few rounds.
const STORE_LIMIT: Duration = Duration::from_secs(300);

/// The event that a connection waits for.
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
    /// The store, a connection to the upstream, the head of its response, or the next bytes of its body.
    Upstream,
    /// The client, until it reads the response.
    Client,
    /// The end of a tunnel, which has time limits of its own.
    Tunnel,
}

/// The time limit of a phase has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// The deadline of one connection, or of one request that shares a connection with others.
#[derive(Debug)]
pub struct PhaseTimer {
    phase: Cell<Phase>,
    since: Cell<Instant>,
    deadline: Cell<Instant>,
    /// Whether the deadline is the minimum rate's rather than the idle timeout's.
    is_rate_deadline: Cell<bool>,
    /// The time at which the connection was last polled: precise enough for a deadline.
    now: Cell<Instant>,
    /// Set when the deadline of [`Phase::Upstream`] has passed, until it is taken.
    timed_out: Cell<bool>,
    /// The time that the connection's timer is set for.
    alarm: Cell<Instant>,
    /// When the client of the gRPC call in flight stops waiting, if it has sent `grpc-timeout`.
    call_deadline: Cell<Option<Instant>>,
    /// When the response in flight has to begin, over all retries (`timeouts.total`).
    response_deadline: Cell<Option<Instant>>,
    /// Whether the connection is being polled. Then it checks the deadline by itself.
    polled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The deadline for the start of the response, until this is dropped.
#[must_use]
pub(in crate::proxy) struct ResponseDeadline<'a>(&'a PhaseTimer);

impl Drop for ResponseDeadline<'_> {
    fn drop(&mut self) {
        self.0.response_deadline.set(None);
    }
}

impl PhaseTimer {
    /// Begins with `phase`, which may last for `limit`.
    pub(super) fn new(phase: Phase, limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            phase: Cell::new(phase),
            since: Cell::new(now),
            deadline: Cell::new(now + limit),
            is_rate_deadline: Cell::new(false),
            now: Cell::new(now),
            timed_out: Cell::new(false),
            alarm: Cell::new(now + limit),
            call_deadline: Cell::new(None),
            response_deadline: Cell::new(None),
            polled: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Begins `phase`, which may last for `limit`.
    pub fn enter(&self, phase: Phase, limit: Duration) {
        if !self.polled.get() {
            self.read_clock();
        }
        self.phase.set(phase);
        self.since.set(self.now.get());
        self.set_deadline(self.now.get() + limit, false);
    }

    /// Begins [`Phase::Upstream`], which may last for `limit`, but not beyond the deadline of the call or of the
    /// response.
    pub fn enter_upstream(&self, limit: Duration) {
        self.enter(Phase::Upstream, limit);
        self.apply_other_deadlines();
    }

    /// Reads the clock, because the upstream's side of a request runs in a task of its own, and the connection may
    /// not have been polled for as long as the upstream read nothing.
    #[cold]
    fn read_clock(&self) {
        self.now.set(Instant::now());
    }

    /// Sets when the client of the call in flight stops waiting, if it says so.
    pub(in crate::proxy) fn set_call_deadline(&self, deadline: Option<Instant>) {
        self.call_deadline.set(deadline);
    }

    /// Whether the deadline from `grpc-timeout` has passed.
    pub(in crate::proxy) fn is_call_over(&self) -> bool {
        self.call_deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sets the deadline for the start of the response, over all retries, to `total` from now. Dropping the returned
    /// guard removes it. Zero: there is no deadline.
    pub(in crate::proxy) fn limit_response(&self, total: Duration) -> ResponseDeadline<'_> {
        self.response_deadline.set((!total.is_zero()).then(|| self.now.get() + total));
        ResponseDeadline(self)
    }

    /// Whether the deadline for the start of the response has passed.
    pub(in crate::proxy) fn is_response_late(&self) -> bool {
        self.response_deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn apply_other_deadlines(&self) {
        for deadline in [self.call_deadline.get(), self.response_deadline.get()] {
            if let Some(deadline) = deadline
                && deadline < self.deadline.get()
            {
                self.set_deadline(deadline, false);
            }
        }
    }

    /// Waits for the client's next bytes: until the idle timeout, or until the client is slower than the minimum
    /// rate, but not beyond the deadline of the call or of the response.
    pub fn wait_for_client(&self, phase: Phase, idle_timeout: Duration, budget: Duration) {
        self.enter(phase, idle_timeout);
        if budget < idle_timeout {
            self.set_deadline(self.now.get() + budget, true);
        }
        self.apply_other_deadlines();
    }

    /// Sets when the phase has to end. `for_rate`: whether it is the minimum rate that sets it.
    pub fn set_deadline(&self, deadline: Instant, for_rate: bool) {
        self.deadline.set(deadline);
        self.is_rate_deadline.set(for_rate);
        if !self.polled.get() && deadline < self.alarm.get() {
            self.wake();
        }
    }

    /// Begins to wait for the first request again, for `limit`. The bytes before it are handled.
    pub fn restart(&self, limit: Duration) {
        self.now.set(Instant::now());
        self.enter(Phase::FirstRequest, limit);
    }

    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Why a client that misses the deadline is cut off.
    pub fn cut_off_reason(&self) -> CutOffReason {
        match self.is_rate_deadline.get() {
            true => CutOffReason::MinRate,
            false => CutOffReason::IdleTimeout,
        }
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

    /// The output of `future`, during [`Phase::Upstream`]. The caller pins it: moved in here, it would be copied
    /// twice for each request.
    ///
    /// # Errors
    /// The future took longer than `limit`, counted from the last start of [`Phase::Upstream`].
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, TimedOut> {
        self.enter_upstream(limit);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending if self.take_timed_out() => Poll::Ready(Err(TimedOut)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Ready after `delay`, during which only the time limit of a call applies.
    pub async fn delay(&self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let delay = match self.call_deadline.get() {
            Some(deadline) => delay.min(deadline.saturating_duration_since(self.now.get())),
            None => delay,
        };
        // The sleep ends this phase, not the phase's own deadline.
        self.enter(Phase::Upstream, delay.saturating_add(DEADLINE_MARGIN));
        tokio::time::sleep(delay).await;
    }

    /// Begins to wait for the store, whose replies have a time limit of their own. Meanwhile the connection is not
    /// idle, and its request is not late.
    pub(in crate::proxy) fn wait_for_store(&self) {
        self.enter(Phase::Upstream, STORE_LIMIT);
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

    /// Called by the connection after it was polled, with its timer set for `alarm`.
    pub fn end_poll(&self, alarm: Instant) {
        self.alarm.set(alarm);
        self.polled.set(false);
    }

    /// Called by the connection when the deadline has passed, so that the request's own code replies.
    pub fn set_timed_out(&self) {
        self.timed_out.set(true);
    }

    /// Wakes the connection, also from other threads. `None`: it was not polled yet.
    pub(in crate::proxy) fn waker(&self) -> Ref<'_, Option<Waker>> {
        self.waker.borrow()
    }

    /// Wakes the connection.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker() {
            waker.wake_by_ref();
        }
    }
}
