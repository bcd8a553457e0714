//! What a client's connection waits for, and until when.
//!
//! Every phase of a request has a time limit, and phases change several times per request. A timer for
//! each would cost more than the rest of the bookkeeping together. So a connection has one deadline,
//! which is only written down when a phase begins, and one timer, which checks the deadline when it
//! fires: most of the time the deadline has moved on, and the timer is set again.

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

use super::{early_ends::WatchedRequest, early_hints::EarlyHints, tunnel::Tunnel};
use crate::{
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
    upstream::{ClientWait, Eviction, SharedUpstream, UpstreamClient},
};

/// How far the deadline lies behind the end of a wait that ends by itself, so that it never comes first.
const DEADLINE_MARGIN: Duration = Duration::from_secs(60);
/// Longer than the store takes in any case: `store.redis.timeout` is ten seconds at most, for each of a few rounds.
const STORE_LIMIT: Duration = Duration::from_secs(300);

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
    /// The store, a connection to the upstream, the head of its answer, or the next bytes of its body.
    Upstream,
    /// The client, to read the answer.
    Client,
    /// The end of a tunnel, which has time limits of its own.
    Tunnel,
}

/// The time limit of a phase has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// The deadline of one connection, or of one request that shares a connection with others. Shared, in one thread, by
/// everything that serves it.
#[derive(Debug)]
pub struct PhaseTimer {
    is_stream: bool,
    /// `None`: the connection has the requests of one client.
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
    /// Until when the client waits for the outcome of the call in flight, if it has said so (gRPC).
    call_deadline: Cell<Option<Instant>>,
    /// Until when the answer in flight has to begin, whatever is tried for it (`timeouts.total`).
    answer_deadline: Cell<Option<Instant>>,
    /// Whether the connection is being polled: then it checks the deadline by itself.
    polled: Cell<bool>,
    /// The request's body was not read to its end.
    body_unread: Cell<bool>,
    /// The number of requests that have begun.
    requests: Cell<u64>,
    /// Whether the last one was HTTP/1.0, to which a response may end with its connection.
    is_http10: Cell<bool>,
    write_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Bytes of requests' bodies that were handed on, of all streams of the connection.
    received: Rc<Cell<u64>>,
    /// Bytes of responses' bodies that were handed on.
    sent: Cell<u64>,
    /// Whether the deadline is that of the minimum rate, and not that of the idle timeout.
    is_rate_deadline: Cell<bool>,
    /// A response has begun whose first blocked write is still to come.
    new_response: Cell<bool>,
    /// A response has begun of which not every byte was written yet.
    response_pending: Cell<bool>,
    /// Why the request in flight is ended before its time.
    cut_off: Cell<Option<CutOff>>,
    /// Whether the request in flight has waited for its client: only then others may get its connection.
    may_be_evicted: Cell<bool>,
    /// The client as the upstream of the last request sees it.
    upstream_client: RefCell<Option<Rc<UpstreamClient>>>,
    /// The early hints of the request in flight, if they go to the client.
    early_hints: RefCell<Option<Arc<EarlyHints>>>,
    /// What follows the answer that is being written.
    tunnel: RefCell<Option<Box<Tunnel>>>,
}

/// The time that an answer has to begin in, until this is dropped.
#[must_use]
pub(super) struct AnswerLimit<'a>(&'a PhaseTimer);

impl Drop for AnswerLimit<'_> {
    fn drop(&mut self) {
        self.0.answer_deadline.set(None);
    }
}

impl PhaseTimer {
    /// A new connection, which has `limit` to begin its first request.
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
            answer_deadline: Cell::new(None),
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

    /// A request that has come by a connection which it shares with others (HTTP/2), and has `limit` to be looked at.
    /// What comes of its body is added to `received`. `watched`: where the connection has the requests of many clients.
    pub fn for_stream(limit: Duration, received: Rc<Cell<u64>>, watched: Option<Rc<WatchedRequest>>) -> Self {
        Self {
            is_stream: true,
            watched,
            phase: Cell::new(Phase::RequestHead),
            ..Self::counting(limit, received)
        }
    }

    /// The request, where its connection has those of many clients.
    pub fn watched(&self) -> Option<&Rc<WatchedRequest>> {
        self.watched.as_ref()
    }

    /// Whether it is that of a request that shares its connection.
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

    /// Begins [`Phase::Upstream`], which may last for `limit`, and no longer than the client of a call waits, nor than until
    /// the answer has to begin.
    pub fn enter_upstream(&self, limit: Duration) {
        self.enter(Phase::Upstream, limit);
        self.heed_other_deadlines();
    }

    /// The upstream's side of a request runs in a task of its own, and the connection may not have been polled for as long
    /// as the upstream took nothing.
    #[cold]
    fn read_clock(&self) {
        self.now.set(Instant::now());
    }

    /// Until when the client waits for the outcome of the call in flight, if it says so.
    pub(super) fn set_call_deadline(&self, deadline: Option<Instant>) {
        self.call_deadline.set(deadline);
    }

    /// Whether the client no longer waits for the outcome of the call in flight, as it has said before.
    pub(super) fn is_call_over(&self) -> bool {
        self.call_deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Has the answer in flight begin within `total` from now, however often it is tried, until what this returns is dropped.
    /// Zero: there is no such limit.
    pub(super) fn limit_answer(&self, total: Duration) -> AnswerLimit<'_> {
        self.answer_deadline.set((!total.is_zero()).then(|| self.now.get() + total));
        AnswerLimit(self)
    }

    /// Whether the answer in flight should have begun before.
    pub(super) fn is_answer_late(&self) -> bool {
        self.answer_deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn heed_other_deadlines(&self) {
        for deadline in [self.call_deadline.get(), self.answer_deadline.get()] {
            if let Some(deadline) = deadline
                && deadline < self.deadline.get()
            {
                self.set_deadline(deadline, false);
            }
        }
    }

    /// Waits for the client's next bytes: until the idle timeout, or until it is slower than the minimum rate allows; and no
    /// longer than the client of a call waits, nor than until the answer has to begin.
    pub fn wait_for_client(&self, phase: Phase, idle_timeout: Duration, budget: Duration) {
        self.enter(phase, idle_timeout);
        if budget < idle_timeout {
            self.set_deadline(self.now.get() + budget, true);
        }
        self.heed_other_deadlines();
    }

    /// Sets when the phase has to end; `for_rate`: because the client would then be slower than the minimum rate.
    pub fn set_deadline(&self, deadline: Instant, for_rate: bool) {
        self.deadline.set(deadline);
        self.is_rate_deadline.set(for_rate);
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

    /// The output of `future`, for which [`Phase::Upstream`] begins. It is pinned by the caller: moved in here, it would be
    /// copied twice for each request.
    ///
    /// # Errors
    /// It took longer than `limit` since [`Phase::Upstream`] last began.
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

    /// Ready after `delay`, during which no other time limit runs than that of a call.
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

    /// Begins to wait for the store, whose answers have a time limit of their own. Meanwhile the connection is not idle, nor is its
    /// request late.
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

    /// Called by the connection after it was polled: its timer is set for `alarm`.
    pub fn end_poll(&self, alarm: Instant) {
        self.alarm.set(alarm);
        self.polled.set(false);
    }

    /// Called by the connection when the deadline has passed and the request's own code has to answer.
    pub fn set_timed_out(&self) {
        self.timed_out.set(true);
    }

    /// Called by the connection when the deadline has passed while the client was waited for, or when the request in
    /// flight loses its connection to others.
    pub fn cut_off_client(&self) {
        // It has taken the time that it has given itself, or that all tries together have: the request is answered.
        if self.is_call_over() || self.is_answer_late() {
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

    /// Why a response is ended whose client takes too long for it.
    pub fn slow_reader(&self) -> CutOff {
        let reason = match self.is_rate_deadline.get() {
            true => CutOffReason::MinRate,
            false => CutOffReason::IdleTimeout,
        };
        CutOff { body: CutOffBody::Response, reason }
    }

    /// Notes why the request in flight is ended before its time.
    pub(super) fn cut_off(&self, cut_off: CutOff) {
        self.cut_off.set(Some(cut_off));
    }

    /// Why the request in flight is ended before its time, if it is.
    pub fn cut_off_reason(&self) -> Option<CutOffReason> {
        self.cut_off.get().map(|cut_off| cut_off.reason)
    }

    /// Likewise, once.
    pub(super) fn take_cut_off(&self) -> Option<CutOff> {
        self.cut_off.take()
    }

    /// The client as `upstream` sees it, at the address `ip`: mostly the one of the last request.
    pub(super) fn upstream_client(&self, upstream: &Arc<SharedUpstream>, ip: IpAddr) -> Rc<UpstreamClient> {
        self.may_be_evicted.set(false);
        let mut last = self.upstream_client.borrow_mut();
        match &*last {
            Some(client) if upstream.has_client(client, ip) => Rc::clone(client),
            _ => Rc::clone(last.insert(upstream.client(ip))),
        }
    }

    /// The client is waited for from now on.
    pub fn client_wait_begins(&self, wait: ClientWait) {
        if let (Some(client), Some(waker)) = (&*self.upstream_client.borrow(), &*self.waker.borrow()) {
            client.wait_begins(wait, self.now.get(), waker);
            self.may_be_evicted.set(true);
        }
    }

    /// The client has sent or read something.
    pub fn client_wait_ends(&self, wait: ClientWait) {
        if let Some(client) = &*self.upstream_client.borrow() {
            client.wait_ends(wait, self.now.get());
        }
    }

    /// Whether the request in flight is to be broken off for the sake of others.
    pub fn is_evicted(&self) -> bool {
        self.may_be_evicted.get() && self.eviction().is_some()
    }

    fn eviction(&self) -> Option<Eviction> {
        let client = self.upstream_client.borrow();
        client.as_ref().filter(|_| self.may_be_evicted.get())?.eviction()
    }

    /// Counts bytes of a request's body that were handed on.
    pub(super) fn add_received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    /// Counts bytes of a response's body that were handed on.
    pub(super) fn add_sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// Bytes of responses' bodies that were handed on.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// A response begins.
    pub(super) fn begin_response(&self) {
        self.new_response.set(true);
        self.response_pending.set(true);
    }

    /// Whether a response has begun of which not every byte was written yet. What is written while there is none, hyper
    /// says by itself.
    pub fn is_response_pending(&self) -> bool {
        self.response_pending.get()
    }

    /// Whether a client would take the end of the connection for that of the response that is being written: HTTP/1.0 has no
    /// other one where the length is unknown (RFC 9112, 6.3).
    pub fn is_end_of_response(&self) -> bool {
        self.is_http10.get() && self.response_pending.get()
    }

    /// All that hyper had to write was written. A response whose request goes on may have more later.
    pub fn flushed(&self) {
        if matches!(self.phase.get(), Phase::FirstRequest | Phase::Request | Phase::RequestHead) {
            self.response_pending.set(false);
        }
    }

    /// Whether a response has begun since this was last asked.
    pub fn take_new_response(&self) -> bool {
        self.new_response.replace(false)
    }

    /// Leaves the tunnel that follows the answer which is being written. The connection's owner has to take it, also
    /// where the connection ends before: the tunnel holds the timer.
    pub(super) fn set_tunnel(&self, tunnel: Tunnel) {
        *self.tunnel.borrow_mut() = Some(Box::new(tunnel));
    }

    /// Takes the tunnel that follows the last answer, if one does.
    pub fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// Asks the connection to end after the request in flight. Its response says so, even if it has come already.
    pub fn drain(&self) {
        self.announce_close();
        self.draining.set(true);
        self.wake();
    }

    /// Asks the connection, which is idle, to end at once: another one needs its place.
    pub fn make_room(&self) {
        self.makes_room.set(true);
        self.drain();
    }

    /// Whether the connection was asked to make room.
    pub fn makes_room(&self) -> bool {
        self.makes_room.get()
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

    /// The early hints of the request in flight, if they go to the client. None once its answer begins.
    pub(super) fn set_early_hints(&self, hints: Option<Arc<EarlyHints>>) {
        *self.early_hints.borrow_mut() = hints;
    }

    /// Those hints.
    pub(super) fn early_hints(&self) -> Option<Arc<EarlyHints>> {
        self.early_hints.borrow().clone()
    }

    /// The heads of hints that are to be written now.
    pub fn take_early_hints(&self) -> Option<Vec<u8>> {
        self.early_hints.borrow().as_ref().map(|hints| hints.take()).filter(|heads| !heads.is_empty())
    }

    /// What has the connection polled, from another thread as well.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.waker.borrow().clone()
    }

    /// Has the connection polled.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Whether the connection was asked to end.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A request of this version has come, with a body if `has_body`.
    pub(super) fn begin_request(&self, version: Version, has_body: bool) {
        self.requests.set(self.requests.get() + 1);
        self.is_http10.set(version == Version::HTTP_10);
        self.body_unread.set(has_body);
    }

    /// The number of the request that came last.
    pub(super) fn request_number(&self) -> u64 {
        self.requests.get()
    }

    /// The body of the request that came last was read to its end.
    pub(super) fn body_was_read(&self) {
        self.body_unread.set(false);
    }

    /// The body of a refused request was read to its end, unless another request has come since then: that one's is not.
    pub(super) fn refused_body_was_read(&self, request: u64) {
        if self.requests.get() == request {
            self.body_unread.set(false);
            // Now the connection may be idle.
            self.wake();
        }
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
