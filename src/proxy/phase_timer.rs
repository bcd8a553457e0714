//! The phase of a client's connection, and its deadline.
//!
//! Every phase of a request has a time limit, and phases change several times per request. One timer per phase would
//! cost more than the rest of the bookkeeping together. So a connection has one deadline, which is only written down
//! when a phase begins, and one timer, which checks the deadline when it fires: usually the deadline has moved on,
//! and the timer is set again.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use http::Version;

use super::{early_ends::WatchedRequest, early_hints::QueuedHints, tunnel::Tunnel};
use crate::{
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
    upstream::{ClientWait, Eviction, SharedUpstream, UpstreamClient},
};

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

/// The deadline of one connection, or of one request that shares a connection with others. Shared within one thread
/// by all code that serves it.
#[derive(Debug)]
pub struct PhaseTimer {
    is_stream: bool,
    /// `None`: all requests of the connection are of one client.
    watched: Option<Rc<WatchedRequest>>,
    phase: Cell<Phase>,
    since: Cell<Instant>,
    deadline: Cell<Instant>,
    /// The time at which the connection was last polled: precise enough for a deadline.
    now: Cell<Instant>,
    /// Set when the deadline of [`Phase::Upstream`] has passed, until it is taken.
    timed_out: Cell<bool>,
    draining: Cell<bool>,
    makes_room: Cell<bool>,
    last_response: Cell<bool>,
    /// The time that the connection's timer is set for.
    alarm: Cell<Instant>,
    /// When the client of the gRPC call in flight stops waiting, if it has sent `grpc-timeout`.
    call_deadline: Cell<Option<Instant>>,
    /// When the response in flight has to begin, over all retries (`timeouts.total`).
    response_deadline: Cell<Option<Instant>>,
    /// Whether the connection is being polled. Then it checks the deadline by itself.
    polled: Cell<bool>,
    /// The request's body was not read to its end.
    body_unread: Cell<bool>,
    /// The number of requests that have begun.
    requests: Cell<u64>,
    /// Whether the last one was HTTP/1.0, where a response may end with its connection.
    is_http10: Cell<bool>,
    write_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Bytes of requests' bodies that were passed on, for all streams of the connection.
    received: Rc<Cell<u64>>,
    /// Bytes of responses' bodies that were passed on.
    sent: Cell<u64>,
    /// Whether the deadline is the minimum rate's rather than the idle timeout's.
    is_rate_deadline: Cell<bool>,
    /// A response has begun, and no write of it was blocked yet.
    new_response: Cell<bool>,
    /// A response has begun, and not all of its bytes are written yet.
    response_pending: Cell<bool>,
    /// Why the request in flight is ended early.
    cut_off: Cell<Option<CutOff>>,
    /// Whether the request in flight has waited for its client. Only then its connection may be given to others.
    may_be_evicted: Cell<bool>,
    /// The last request's client, as its upstream identifies it.
    upstream_client: RefCell<Option<Rc<UpstreamClient>>>,
    /// The early hints of the request in flight, if the client gets them.
    early_hints: RefCell<Option<Arc<QueuedHints>>>,
    /// The tunnel that follows the response being written.
    tunnel: RefCell<Option<Box<Tunnel>>>,
}

/// The deadline for the start of the response, until this is dropped.
#[must_use]
pub(super) struct ResponseDeadline<'a>(&'a PhaseTimer);

impl Drop for ResponseDeadline<'_> {
    fn drop(&mut self) {
        self.0.response_deadline.set(None);
    }
}

impl PhaseTimer {
    /// The timer of a new connection, whose first request has to begin within `limit`.
    pub fn new(limit: Duration) -> Self {
        Self::counting(limit, Rc::default())
    }

    fn counting(limit: Duration, received: Rc<Cell<u64>>) -> Self {
        let now = Instant::now();
        Self {
            is_stream: false,
            watched: None,
            phase: Cell::new(Phase::FirstRequest),
            since: Cell::new(now),
            deadline: Cell::new(now + limit),
            now: Cell::new(now),
            timed_out: Cell::new(false),
            draining: Cell::new(false),
            makes_room: Cell::new(false),
            last_response: Cell::new(false),
            alarm: Cell::new(now + limit),
            call_deadline: Cell::new(None),
            response_deadline: Cell::new(None),
            polled: Cell::new(false),
            body_unread: Cell::new(false),
            requests: Cell::new(0),
            is_http10: Cell::new(false),
            write_blocked: Cell::new(false),
            waker: RefCell::new(None),
            received,
            sent: Cell::new(0),
            is_rate_deadline: Cell::new(false),
            new_response: Cell::new(false),
            response_pending: Cell::new(false),
            cut_off: Cell::new(None),
            may_be_evicted: Cell::new(false),
            upstream_client: RefCell::new(None),
            early_hints: RefCell::new(None),
            tunnel: RefCell::new(None),
        }
    }

    /// The timer of an HTTP/2 request, which shares its connection, and whose head has to be read within `limit`.
    /// Bytes of its body are added to `received`. `watched`: set if the connection carries the requests of many
    /// clients.
    pub fn for_stream(limit: Duration, received: Rc<Cell<u64>>, watched: Option<Rc<WatchedRequest>>) -> Self {
        Self {
            is_stream: true,
            watched,
            phase: Cell::new(Phase::RequestHead),
            ..Self::counting(limit, received)
        }
    }

    /// The watched request, if the connection carries the requests of many clients.
    pub fn watched(&self) -> Option<&Rc<WatchedRequest>> {
        self.watched.as_ref()
    }

    /// Whether it is the timer of a request that shares its connection.
    pub fn is_stream(&self) -> bool {
        self.is_stream
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
    pub(super) fn set_call_deadline(&self, deadline: Option<Instant>) {
        self.call_deadline.set(deadline);
    }

    /// Whether the deadline from `grpc-timeout` has passed.
    pub(super) fn is_call_over(&self) -> bool {
        self.call_deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sets the deadline for the start of the response, over all retries, to `total` from now. Dropping the returned
    /// guard removes it. Zero: there is no deadline.
    pub(super) fn limit_response(&self, total: Duration) -> ResponseDeadline<'_> {
        self.response_deadline.set((!total.is_zero()).then(|| self.now.get() + total));
        ResponseDeadline(self)
    }

    /// Whether the deadline for the start of the response has passed.
    pub(super) fn is_response_late(&self) -> bool {
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
    pub(super) fn wait_for_store(&self) {
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

    /// Called by the connection when the deadline has passed while it waited for the client, or when the request in
    /// flight loses its connection to others.
    pub fn cut_off_client(&self) {
        // The call's or the response's own deadline has passed: the request gets its reply.
        if self.is_call_over() || self.is_response_late() {
            return;
        }
        let body = if self.phase.get() == Phase::Client { CutOffBody::Response } else { CutOffBody::Request };
        let reason = match (self.eviction(), self.is_rate_deadline.get()) {
            (Some(Eviction::Connection), _) => CutOffReason::MaxConnectionsPerAddress,
            (Some(Eviction::Memory), _) => CutOffReason::Memory,
            (None, true) => CutOffReason::MinRate,
            (None, false) => CutOffReason::IdleTimeout,
        };
        self.cut_off(CutOff { body, reason });
    }

    /// Why a response to a slow client is ended.
    pub fn slow_reader(&self) -> CutOff {
        let reason = match self.is_rate_deadline.get() {
            true => CutOffReason::MinRate,
            false => CutOffReason::IdleTimeout,
        };
        CutOff { body: CutOffBody::Response, reason }
    }

    /// Notes why the request in flight is ended early.
    pub(super) fn cut_off(&self, cut_off: CutOff) {
        self.cut_off.set(Some(cut_off));
    }

    /// Why the request in flight is ended early, if it is.
    pub fn cut_off_reason(&self) -> Option<CutOffReason> {
        self.cut_off.get().map(|cut_off| cut_off.reason)
    }

    /// Takes the reason, so that it is reported once.
    pub(super) fn take_cut_off(&self) -> Option<CutOff> {
        self.cut_off.take()
    }

    /// The client at the address `ip`, as `upstream` identifies it: usually the same as for the last request.
    pub(super) fn upstream_client(&self, upstream: &Arc<SharedUpstream>, ip: IpAddr) -> Rc<UpstreamClient> {
        self.may_be_evicted.set(false);
        let mut last = self.upstream_client.borrow_mut();
        match &*last {
            Some(client) if upstream.has_client(client, ip) => Rc::clone(client),
            _ => Rc::clone(last.insert(upstream.client(ip))),
        }
    }

    /// Begins a wait for the client.
    pub fn client_wait_begins(&self, wait: ClientWait) {
        if let (Some(client), Some(waker)) = (&*self.upstream_client.borrow(), &*self.waker.borrow()) {
            client.wait_begins(wait, self.now.get(), waker);
            self.may_be_evicted.set(true);
        }
    }

    /// Ends a wait for the client, which has sent or read something.
    pub fn client_wait_ends(&self, wait: ClientWait) {
        if let Some(client) = &*self.upstream_client.borrow() {
            client.wait_ends(wait, self.now.get());
        }
    }

    /// Whether the request in flight is to be ended to free its connection for others.
    pub fn is_evicted(&self) -> bool {
        self.may_be_evicted.get() && self.eviction().is_some()
    }

    fn eviction(&self) -> Option<Eviction> {
        let client = self.upstream_client.borrow();
        client.as_ref().filter(|_| self.may_be_evicted.get())?.eviction()
    }

    /// Counts bytes of a request's body that were passed on.
    pub(super) fn add_received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    /// Counts bytes of a response's body that were passed on.
    pub(super) fn add_sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Bytes of responses' bodies that were passed on.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// A response begins.
    pub(super) fn begin_response(&self) {
        self.new_response.set(true);
        self.response_pending.set(true);
    }

    /// Whether a response has begun, and not all of its bytes are written yet. Bytes written while this is false are
    /// hyper's own messages.
    pub fn is_response_pending(&self) -> bool {
        self.response_pending.get()
    }

    /// Whether the client would take the end of the connection for the end of the response: an HTTP/1.0 response of
    /// unknown length has no other end (RFC 9112, 6.3).
    pub fn is_end_of_response(&self) -> bool {
        self.is_http10.get() && self.response_pending.get()
    }

    /// All bytes of hyper are written. A response may continue as long as its request does.
    pub fn flushed(&self) {
        if matches!(self.phase.get(), Phase::FirstRequest | Phase::Request | Phase::RequestHead) {
            self.response_pending.set(false);
        }
    }

    /// Whether a response has begun since the last call.
    pub fn take_new_response(&self) -> bool {
        self.new_response.replace(false)
    }

    /// Leaves the tunnel that follows the response being written. The connection's owner has to take it even if the
    /// connection ends before, because the tunnel holds the timer.
    pub(super) fn set_tunnel(&self, tunnel: Tunnel) {
        *self.tunnel.borrow_mut() = Some(Box::new(tunnel));
    }

    /// Takes the tunnel that follows the last response, if there is one.
    pub fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Asks the connection to end after the request in flight. The response announces it, even if its head has
    /// arrived already.
    pub fn drain(&self) {
        self.announce_close();
        self.draining.set(true);
        self.wake();
    }

    /// Asks the connection, which is idle, to end at once, because another one needs its place.
    pub fn make_room(&self) {
        self.makes_room.set(true);
        self.drain();
    }

    /// Whether the connection was asked to make room.
    pub fn makes_room(&self) -> bool {
        self.makes_room.get()
    }

    /// Makes the next response the last one, which tells the client that the connection closes. An idle connection is
    /// kept open until then, so that a request on its way is served.
    pub fn announce_close(&self) {
        self.last_response.set(true);
    }

    /// Whether the next response has to tell the client that the connection closes.
    pub fn is_last_response(&self) -> bool {
        self.last_response.get()
    }

    /// Sets the early hints of the request in flight, if the client gets them; `None` once the response begins.
    pub(super) fn set_early_hints(&self, hints: Option<Arc<QueuedHints>>) {
        *self.early_hints.borrow_mut() = hints;
    }

    /// The early hints of the request in flight.
    pub(super) fn early_hints(&self) -> Option<Arc<QueuedHints>> {
        self.early_hints.borrow().clone()
    }

    /// Takes the heads of the hints to be written now.
    pub fn take_early_hints(&self) -> Option<Vec<u8>> {
        self.early_hints.borrow().as_ref().map(|hints| hints.take()).filter(|heads| !heads.is_empty())
    }

    /// Wakes the connection, also from other threads.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.waker.borrow().clone()
    }

    /// Wakes the connection.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Whether the connection was asked to end.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A request of this version has arrived, with a body if `has_body`.
    pub(super) fn begin_request(&self, version: Version, has_body: bool) {
        self.requests.set(self.requests.get() + 1);
        self.is_http10.set(version == Version::HTTP_10);
        self.body_unread.set(has_body);
    }

    /// The number of the last request.
    pub(super) fn request_number(&self) -> u64 {
        self.requests.get()
    }

    /// The body of the last request was read to its end.
    pub(super) fn body_was_read(&self) {
        self.body_unread.set(false);
    }

    /// The body of a refused request was read to its end. Ignored if another request has arrived since then.
    pub(super) fn refused_body_was_read(&self, request: u64) {
        if self.requests.get() == request {
            self.body_unread.set(false);
            // Now the connection may be idle.
            self.wake();
        }
    }

    /// Whether part of the request's body is still unread.
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
