//! One worker's link to a server. It is self-clocking: an idle link sends a request at once; requests that arrive while
//! a batch is in flight are gathered into the next batch.
//!
//! If round trips are long, several batches are in flight, pipelined on one connection. The server runs them in order.
//! If the connection breaks, all of them fail.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bb8_redis::bb8::{Pool, PooledConnection, RunError};
use bb8_redis::redis::{self, Value};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{Notify, oneshot::Receiver},
    task,
    time::{Instant, sleep, timeout_at},
};

use super::{
    batch::{Batch, BatchScope, DecisionReply, Distributed, ReplyTime, time_of},
    connection::{LateReply, LinkConnection, Manager, PendingReply},
    failure::{Failure, is_unknown_script, refuses_any_slots},
    key, script,
    topology::{RedisNode, Topology},
};
use crate::{
    limit::{Check, Clock, Taken, WallClock},
    telemetry::{
        Throttle,
        metrics::{StoreFailure, StoreMetrics},
    },
};

/// Most times that a batch loads the script. Another flush may come between the load and the call: Redis reads the script
/// in several parts.
const MAX_LOADS: usize = 10;
/// Most connections on which a batch is tried if the server has closed them: as many as were idle may be.
const MAX_ENDED: usize = 4;
/// Most batches in flight on one connection.
const MAX_IN_FLIGHT: usize = 32;
/// A batch waits for the previous one no longer than this part of the timeout. The rest of the timeout is for the round
/// trip.
const PATIENCE: u32 = 20;
/// How long a batch that has timed out waits for its reply, to refund its units.
const LATE_FOR: Duration = Duration::from_secs(60);
/// Most batches of a link that wait so.
const MAX_LATE: usize = 256;
/// Time between looks at the breaker before a batch is undone.
const UNDO_AFTER: Duration = Duration::from_millis(50);

/// The settings of a worker's links.
pub(super) struct LinkConfig {
    pub(super) prefix: String,
    /// Timeout of a decision, including the time in the queue.
    pub(super) timeout: Duration,
    /// Most connections.
    pub(super) connections: u32,
    pub(super) metrics: Arc<StoreMetrics>,
    /// The clock; `None`: Redis' own.
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) topology: Arc<Topology>,
    pub(super) rounds: SendRounds,
    /// Limits messages about spoilt limits.
    pub(super) spoilt_messages: Throttle,
}

/// The rounds in which the links of one worker send: all send their batches at once, then wait for all replies, which
/// bring more requests. If each link were clocked by its own replies, the batches to the nodes of a cluster would be
/// small, and small batches cost more.
#[derive(Default)]
pub(super) struct SendRounds {
    /// Batches of this round in flight.
    in_flight: Cell<usize>,
    /// Links with requests that wait for the next round.
    waiting: RefCell<Vec<Rc<LinkState>>>,
}

impl SendRounds {
    /// Begins a batch that the next round waits for. `None` if another link already waits for the next round: a link
    /// that always has something to send must not delay it.
    fn begin(&self) -> Option<RoundGuard<'_>> {
        if !self.waiting.borrow().is_empty() {
            return None;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Some(RoundGuard(self))
    }

    /// Whether a link has to wait for the next round, which will start it.
    fn must_wait(&self, link: &Rc<LinkState>) -> bool {
        if self.in_flight.get() == 0 {
            return false;
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|known| Rc::ptr_eq(known, link)) {
            waiting.push(Rc::clone(link));
        }
        true
    }
}

/// A batch in flight. The next round waits until this is dropped.
struct RoundGuard<'a>(&'a SendRounds);

impl Drop for RoundGuard<'_> {
    fn drop(&mut self) {
        let in_flight = self.0.in_flight.get().saturating_sub(1);
        self.0.in_flight.set(in_flight);
        if in_flight > 0 {
            return;
        }
        for link in self.0.waiting.take() {
            if link.senders.get() == 0 && !link.queue.borrow().is_empty() {
                link.start_sender();
            }
        }
    }
}

/// A link, which belongs to one thread.
#[derive(Clone)]
pub(super) struct NodeLink(Rc<LinkState>);

pub(super) struct LinkState {
    config: Rc<LinkConfig>,
    node: Arc<RedisNode>,
    pool: Pool<Manager>,
    /// Connections in use.
    in_use: RefCell<Vec<SharedConnection>>,
    /// Senders that wait for a connection from the pool.
    opening: Cell<u32>,
    /// Wakes the senders that wait for another to get its connection.
    opened: Notify,
    queue: RefCell<VecDeque<Batch>>,
    /// Tasks that send batches, each with one in flight.
    senders: Cell<usize>,
    /// When the last batch was sent.
    sent: Cell<Instant>,
    /// The time in the server's last reply to a batch with windows of the calendar, in microseconds; before that, ours.
    server_time: Cell<i64>,
    /// Whether the last reply arrived in time for a round: then the next round waits for this link.
    is_prompt: Cell<bool>,
    /// Batches that have timed out, and wait for their replies.
    late: Cell<usize>,
}

/// A connection and the senders that use it.
#[derive(Clone)]
struct SharedConnection(Rc<PooledConnection<'static, Manager>>);

impl SharedConnection {
    fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// The senders that use it.
    fn users(&self) -> usize {
        // One reference belongs to the list.
        Rc::strong_count(&self.0) - 1
    }
}

impl NodeLink {
    pub(super) fn new(node: Arc<RedisNode>, config: Rc<LinkConfig>) -> Self {
        let pool = Pool::builder()
            .max_size(config.connections)
            // The others are opened with the first.
            .min_idle(config.connections)
            // Only a connection that was idle for a while is really tested.
            .test_on_check_out(true)
            // The breaker's probe detects that Redis is back.
            .retry_connection(false)
            .connection_timeout(Duration::from_secs(1).max(config.timeout))
            .max_lifetime(None)
            .idle_timeout(None)
            .build_unchecked(Manager(node.server.clone()));
        Self(Rc::new(LinkState {
            config,
            node,
            pool,
            in_use: RefCell::default(),
            opening: Cell::new(0),
            opened: Notify::new(),
            queue: RefCell::default(),
            senders: Cell::new(0),
            sent: Cell::new(Instant::now()),
            server_time: Cell::new(WallClock.now()),
            is_prompt: Cell::new(true),
            late: Cell::new(0),
        }))
    }

    /// Opens the connections, so that the first requests need not wait for them. Must be called in a runtime.
    pub(super) fn warm_up(&self) {
        let pool = self.0.pool.clone();
        tokio::spawn(async move {
            // On failure, the requests get the error.
            let _opened = pool.get().await;
        });
    }

    pub(super) fn node(&self) -> &Arc<RedisNode> {
        &self.0.node
    }

    /// Decides over one request. At most one of its checks may be on the same limit. Returns within the timeout.
    pub(super) async fn decide(&self, scope: BatchScope, checks: &[Check<'_>]) -> DecisionReply {
        self.wait(scope, |batch, prefix| batch.add(prefix, checks)).await
    }

    /// The result that [`NodeLink::decide`] would return, without changing anything. Returns within the timeout.
    pub(super) async fn look(&self, scope: BatchScope, checks: &[Check<'_>]) -> DecisionReply {
        let mut batch = Batch::new(scope, Instant::now() + self.0.config.timeout);
        let reply = batch.look(&self.0.config.prefix, checks);
        self.0.queue.borrow_mut().push_back(batch);
        self.0.wake();
        reply.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// Refunds the units that were taken. Returns within the timeout.
    pub(super) async fn settle(&self, scope: BatchScope, taken: &[Taken<'_>]) -> DecisionReply {
        self.wait(scope, |batch, prefix| batch.settle(prefix, taken)).await
    }

    async fn wait(
        &self,
        scope: BatchScope,
        add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>,
    ) -> DecisionReply {
        let reply = self.0.enqueue(scope, add);
        self.0.wake();
        reply.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// A connection for other commands; the pool may have to open one.
    pub(super) async fn connection(&self) -> Result<PooledConnection<'static, Manager>, Failure> {
        self.0.checkout().await
    }
}

impl LinkState {
    fn enqueue(
        &self,
        scope: BatchScope,
        add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>,
    ) -> Receiver<DecisionReply> {
        let mut queue = self.queue.borrow_mut();
        let open = queue.iter_mut().rev().find(|batch| batch.scope == scope && !batch.is_full());
        if let Some(batch) = open {
            return add(batch, &self.config.prefix);
        }
        let mut batch = Batch::new(scope, Instant::now() + self.config.timeout);
        let reply = add(&mut batch, &self.config.prefix);
        queue.push_back(batch);
        reply
    }

    /// Ensures that a sender task sends the queued requests. One batch in flight is enough while its reply arrives
    /// soon, since large batches cost less.
    fn wake(self: &Rc<Self>) {
        let senders = self.senders.get();
        if senders == 0 && self.must_wait() {
            return;
        }
        let is_behind = || {
            let queue = self.queue.borrow();
            queue.len() > 1
                || queue.front().is_some_and(Batch::is_full)
                || self.patience_ends() <= Instant::now()
        };
        if senders == 0 || senders < self.config.connections as usize * MAX_IN_FLIGHT && is_behind() {
            self.start_sender();
        }
    }

    /// Whether the queue has to wait for the next round. A full batch does not.
    fn must_wait(self: &Rc<Self>) -> bool {
        let is_small = self.queue.borrow().front().is_some_and(|batch| !batch.is_full());
        is_small && self.config.rounds.must_wait(self)
    }

    fn start_sender(self: &Rc<Self>) {
        self.senders.set(self.senders.get() + 1);
        task::spawn_local(Rc::clone(self).send());
    }

    /// The time until which a batch waits for the previous one.
    fn patience_ends(&self) -> Instant {
        self.sent.get() + self.config.timeout / PATIENCE
    }

    /// The sender task: sends batches until the queue is empty.
    async fn send(self: Rc<Self>) {
        let _guard = CountGuard(&self.senders);
        let mut connection = None;
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(mut batch) = next else { break };
            let (size, begun) = (batch.len(), Instant::now());
            let (mut round, late) = (None, LateReply::default());
            self.sent.set(begun);
            let reply = if self.node.breaker.is_open() {
                Some(Err(Failure::breaker_open()))
            } else if begun >= batch.deadline {
                // Its requests have timed out: it would take units that no request gets.
                Some(Err(Failure::overdue()))
            } else {
                round = if self.is_prompt.get() { self.config.rounds.begin() } else { None };
                let mut reply = pin!(self.call(&mut connection, &batch, &late));
                let in_time = timeout_at(self.patience_ends().min(batch.deadline), &mut reply).await;
                self.is_prompt.set(in_time.is_ok());
                match in_time {
                    Ok(reply) => Some(reply),
                    Err(_) => {
                        // Requests gathered meanwhile do not wait any longer, here and on other links.
                        round = None;
                        if !self.queue.borrow().is_empty() {
                            self.wake();
                        }
                        timeout_at(batch.deadline, reply).await.ok()
                    }
                }
            };
            let late = late.take();
            let reply = reply.unwrap_or_else(|| {
                Err(if late.is_some() { Failure::timeout() } else { Failure::no_connection() })
            });
            if connection.as_ref().is_some_and(SharedConnection::is_broken) {
                self.release(connection.take());
            }
            let outcome = batch.distribute(reply, |key| self.note_spoilt(key));
            self.report(&outcome, size, begun);
            match (outcome, late) {
                (Ok(distributed), _) => self.undo(batch, &distributed),
                (Err(_), Some(reply)) if self.late.get() < MAX_LATE => {
                    self.late.set(self.late.get() + 1);
                    task::spawn_local(Rc::clone(&self).undo_late(batch, reply));
                }
                (Err(_), _) => {}
            }
            // The requests that follow these replies join the next round.
            task::yield_now().await;
            drop(round);
            if self.senders.get() == 1 && self.must_wait() {
                break;
            }
        }
        self.release(connection);
    }

    /// Refunds the units that a batch took for requests that no longer wait for it. Tried once: units that are
    /// not refunded count.
    fn undo(self: &Rc<Self>, batch: Batch, distributed: &Distributed) {
        if let Some(undo) = batch.undo(distributed, Instant::now() + self.config.timeout) {
            self.queue.borrow_mut().push_back(undo);
            self.wake();
        }
    }

    /// Waits for the reply to a batch that has timed out, and refunds its units. Its connection is used for nothing
    /// else.
    async fn undo_late(self: Rc<Self>, mut batch: Batch, reply: PendingReply) {
        let _guard = CountGuard(&self.late);
        let ends = Instant::now() + LATE_FOR;
        let Ok(Ok(reply)) = timeout_at(ends, reply).await else { return };
        let Ok(distributed) = batch.distribute(Ok(reply), |key| self.note_spoilt(key)) else { return };
        while self.node.breaker.is_open() {
            if Instant::now() >= ends {
                return;
            }
            sleep(UNDO_AFTER).await;
        }
        self.undo(batch, &distributed);
    }

    /// Sends a batch on `connection`, or on a new one. If the server closed it before a byte was written, nothing was
    /// sent, and the batch is sent once more on another.
    async fn call(
        &self,
        connection: &mut Option<SharedConnection>,
        batch: &Batch,
        late: &LateReply,
    ) -> Result<Value, Failure> {
        for _ in 0..MAX_ENDED {
            if connection.as_ref().is_some_and(SharedConnection::is_broken) {
                self.release(connection.take());
            }
            let shared = match connection {
                Some(shared) => shared,
                None => connection.insert(self.share_connection().await?),
            };
            let written = shared.0.written();
            let reply = self.call_on(&shared.0, batch, late).await;
            if reply.is_ok() || !shared.0.has_ended() || shared.0.written() != written {
                return reply;
            }
        }
        Err(Failure::unreachable("the server closes connections before anything is sent"))
    }

    /// Sends a batch. If its windows of the calendar do not hold the server's time, nothing was taken, and it is sent once
    /// more, with windows about that time.
    async fn call_on(
        &self,
        connection: &LinkConnection,
        batch: &Batch,
        late: &LateReply,
    ) -> Result<Value, Failure> {
        let reply = self.run_script(connection, batch, late).await?;
        if !batch.has_calendar() {
            return Ok(reply);
        }
        match self.note_time(&reply) {
            Some(ReplyTime::NoWindow(_)) => {
                let reply = self.run_script(connection, batch, late).await?;
                match self.note_time(&reply) {
                    Some(ReplyTime::NoWindow(_)) => Err(Failure::no_window()),
                    _ => Ok(reply),
                }
            }
            _ => Ok(reply),
        }
    }

    /// Keeps the server's time, for the next windows.
    fn note_time(&self, reply: &Value) -> Option<ReplyTime> {
        let replied = time_of(reply);
        if let Some(ReplyTime::Decided(time) | ReplyTime::NoWindow(time)) = replied {
            self.server_time.set(time);
        }
        replied
    }

    async fn run_script(
        &self,
        connection: &LinkConnection,
        batch: &Batch,
        late: &LateReply,
    ) -> Result<Value, Failure> {
        let command = || batch.command(&script::HASH, self.now(), self.server_time.get());
        let asking = || (batch.scope == BatchScope::Importing).then(|| redis::cmd("ASKING"));
        let mut reply = match asking() {
            Some(asking) => connection.ask_after(vec![asking], command(), late).await,
            None => connection.ask(command(), late).await,
        };
        // The script was unknown, so nothing ran. One retry may not be enough if scripts are flushed repeatedly.
        for _ in 0..MAX_LOADS {
            if !reply.as_ref().is_err_and(is_unknown_script) {
                break;
            }
            let before = [script::load_command()].into_iter().chain(asking()).collect();
            reply = connection.ask_after(before, command(), late).await;
        }
        reply.map_err(|error| {
            let has_any_slots = batch.scope == BatchScope::AnySlots;
            if has_any_slots && refuses_any_slots(&error) {
                self.node.set_takes_any_slots(false);
            }
            Failure::of_node(error, &self.node.address, has_any_slots)
        })
    }

    /// A connection to send on: a new one while there are few, then the one with the fewest batches in flight.
    async fn share_connection(&self) -> Result<SharedConnection, Failure> {
        if let Some(shared) = self.shared_connection() {
            return Ok(shared);
        }
        // Senders beyond the pool's size would wait until the others have nothing to send.
        if self.opening.get() >= self.config.connections {
            self.opened.notified().await;
            if let Some(shared) = self.shared_connection() {
                return Ok(shared);
            }
        }
        let _opening = OpeningGuard::new(self);
        let connection = SharedConnection(Rc::new(self.checkout().await?));
        self.in_use.borrow_mut().push(connection.clone());
        Ok(connection)
    }

    /// The connection with the fewest batches in flight, unless a new one may be opened.
    fn shared_connection(&self) -> Option<SharedConnection> {
        self.in_use.borrow_mut().retain(|connection| !connection.is_broken());
        let in_use = self.in_use.borrow();
        // No batch waits for a new connection while there is an open one.
        let is_shared =
            in_use.len() >= self.config.connections as usize || self.pool.state().idle_connections == 0;
        in_use.iter().min_by_key(|connection| connection.users()).filter(|_| is_shared).cloned()
    }

    /// Releases a sender's connection. The last sender returns it to the pool.
    fn release(&self, connection: Option<SharedConnection>) {
        drop(connection);
        self.in_use.borrow_mut().retain(|connection| connection.users() > 0 && !connection.is_broken());
    }

    async fn checkout(&self) -> Result<PooledConnection<'static, Manager>, Failure> {
        let begun = Instant::now();
        loop {
            let connection = self.pool.get_owned().await.map_err(|error| match error {
                RunError::User(error) => Failure::of_opening(error),
                RunError::TimedOut => Failure::no_connection(),
            })?;
            match connection.opening_error() {
                None => return Ok(connection),
                // It may have failed to open for an earlier caller. Then try again.
                Some(_) if connection.failed_before(begun) => {}
                Some(error) => return Err(Failure::of_opening(error.clone())),
            }
        }
    }

    fn now(&self) -> Option<i64> {
        self.config.clock.as_ref().map(|clock| clock.now())
    }

    /// The value of a limit can't be ours. It does not count, and the script has removed it.
    fn note_spoilt(&self, key: &[u8]) {
        let LinkConfig { metrics, spoilt_messages, .. } = &*self.config;
        metrics.spoilt.inc();
        let Some(suppressed) = spoilt_messages.pass(std::time::Instant::now()) else { return };
        // The key names a client.
        let hash = Sha256::digest(key).iter().take(8).fold(0_u64, |hash, &byte| hash << 8 | u64::from(byte));
        let policy = key::policy_of(key).unwrap_or_default();
        tracing::warn!(node = %self.node.address, policy, suppressed, "the value of a limit of policy {policy} can't be read, and does not count: does another program write to this Redis? The SHA-256 of its key begins with {hash:016x}");
    }

    fn report(&self, outcome: &Result<Distributed, Failure>, size: usize, begun: Instant) {
        let (LinkConfig { metrics, topology, .. }, breaker) = (&*self.config, &self.node.breaker);
        match outcome {
            Ok(Distributed { discarded, .. }) => {
                breaker.succeeded();
                self.node.decisions.fetch_add(size as u64, Relaxed);
                metrics.replied(size, begun.elapsed(), *discarded);
            }
            // The node is up, and its requests are sent elsewhere.
            Err(failure) if failure.reroute.is_some() => breaker.succeeded(),
            Err(failure) => {
                metrics.failed(failure.kind);
                if matches!(failure.kind, StoreFailure::OutOfMemory | StoreFailure::ClusterDown) {
                    breaker.succeeded();
                }
                if failure.kind == StoreFailure::ClusterDown {
                    topology.doubt();
                } else if failure.trips_the_breaker() {
                    topology.doubt();
                    let (node, error) = (&self.node.address, failure.reason());
                    if breaker.failed()
                        && let Some(text) = self.node.seen.lock().fail(node, error, topology.is_cluster())
                    {
                        tracing::warn!(%node, %error, "{text}");
                    }
                }
            }
        }
    }
}

/// Counts a task while it runs. Without it, a task that panicked would still count, and no other would start.
struct CountGuard<'a>(&'a Cell<usize>);

/// A sender that waits for the pool. When this is dropped, the other waiting senders check again.
struct OpeningGuard<'a>(&'a LinkState);

impl<'a> OpeningGuard<'a> {
    fn new(link: &'a LinkState) -> Self {
        link.opening.set(link.opening.get() + 1);
        Self(link)
    }
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get().saturating_sub(1));
        self.0.opened.notify_waiters();
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}
