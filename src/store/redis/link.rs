//! One worker's link to a server. It is self-clocking: an idle link sends a request at once; requests that come while a batch is
//! in flight are gathered into the next batch.
//!
//! Where round trips are long, several batches are in flight, one behind the other on the same connection. The server runs
//! them in the order in which they were sent. If the connection breaks, all of them fail.

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
use tokio::{
    sync::{Notify, oneshot::Receiver},
    task,
    time::{Instant, timeout_at},
};

use super::{
    batch::{Batch, DecisionReply, Scope},
    connection::{Connection, Manager},
    failure::{Failure, is_unknown_script, refuses_any_slots},
    script,
    topology::{Node, Topology},
};
use crate::{
    limit::{Check, Clock, Taken},
    telemetry::metrics::{StoreFailure, StoreMetrics},
};

/// How often a batch loads the script, at most.
const MAX_LOADS: usize = 3;
/// On how many connections a batch is sent that the other side has closed meanwhile: as many as were idle may be.
const MAX_ENDED: usize = 4;
/// The most batches in flight on one connection.
const MAX_IN_FLIGHT: usize = 32;
/// A batch waits for the one before it no longer than this part of the timeout. What is left of the timeout is for the round
/// trip.
const PATIENCE: u32 = 20;

/// What a link needs to know.
pub(super) struct LinkConfig {
    pub(super) prefix: String,
    /// For a decision, including the time in the queue.
    pub(super) timeout: Duration,
    /// The most connections.
    pub(super) connections: u32,
    pub(super) metrics: Arc<StoreMetrics>,
    /// The clock; `None`: Redis' own.
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) topology: Arc<Topology>,
    pub(super) rounds: Rounds,
}

/// The rounds in which the links of one worker send. All links send their batches at once, and then wait for all answers, which
/// bring more requests. If each link went by its own answers, the batches to the nodes of a cluster would be small, and
/// small batches cost more.
#[derive(Default)]
pub(super) struct Rounds {
    /// Batches of this round in flight.
    in_flight: Cell<usize>,
    /// Links with requests that wait for the next round.
    waiting: RefCell<Vec<Rc<Inner>>>,
}

impl Rounds {
    /// Begins a batch that the next round waits for. `None`: another link waits for the next round already, which must not be put
    /// off by a link that always has something to send.
    fn begin(&self) -> Option<RoundGuard<'_>> {
        if !self.waiting.borrow().is_empty() {
            return None;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        Some(RoundGuard(self))
    }

    /// Whether a link has to wait for the next round, which then starts it.
    fn must_wait(&self, link: &Rc<Inner>) -> bool {
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

/// A batch in flight that the next round waits for, until this is dropped.
struct RoundGuard<'a>(&'a Rounds);

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

/// The link. Belongs to one thread.
#[derive(Clone)]
pub(super) struct Link(Rc<Inner>);

pub(super) struct Inner {
    config: Rc<LinkConfig>,
    node: Arc<Node>,
    pool: Pool<Manager>,
    /// Connections in use.
    in_use: RefCell<Vec<SharedConnection>>,
    /// Senders that wait for the pool to give them a connection, and those that wait for them.
    opening: Cell<u32>,
    opened: Notify,
    queue: RefCell<VecDeque<Batch>>,
    /// Tasks that send batches. Each has one in flight.
    senders: Cell<usize>,
    /// When the last batch was sent.
    sent: Cell<Instant>,
    /// Whether the last batch was answered in time for a round: the next one waits for this link.
    is_prompt: Cell<bool>,
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
        // One belongs to the list.
        Rc::strong_count(&self.0) - 1
    }
}

impl Link {
    pub(super) fn new(node: Arc<Node>, config: Rc<LinkConfig>) -> Self {
        let pool = Pool::builder()
            .max_size(config.connections)
            // The others are opened with the first.
            .min_idle(config.connections)
            // Only a connection that was idle for a while is really tested.
            .test_on_check_out(true)
            // The breaker's probe finds out when Redis is back.
            .retry_connection(false)
            .connection_timeout(Duration::from_secs(1).max(config.timeout))
            .max_lifetime(None)
            .idle_timeout(None)
            .build_unchecked(Manager(node.server.clone()));
        Self(Rc::new(Inner {
            config,
            node,
            pool,
            in_use: RefCell::default(),
            opening: Cell::new(0),
            opened: Notify::new(),
            queue: RefCell::default(),
            senders: Cell::new(0),
            sent: Cell::new(Instant::now()),
            is_prompt: Cell::new(true),
        }))
    }

    /// Opens the connections, so that the first requests need not wait for them. To be called in a runtime.
    pub(super) fn warm_up(&self) {
        let pool = self.0.pool.clone();
        tokio::spawn(async move {
            // If that fails, requests find out why.
            let _opened = pool.get().await;
        });
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    /// Decides over one request. At most one of its checks may be on the same limit. Answers within the timeout.
    pub(super) async fn decide(&self, scope: Scope, checks: &[Check<'_>]) -> DecisionReply {
        self.wait(scope, |batch, prefix| batch.add(prefix, checks)).await
    }

    /// What [`Link::decide`] would answer. Changes nothing. Answers within the timeout.
    pub(super) async fn look(&self, scope: Scope, checks: &[Check<'_>]) -> DecisionReply {
        let mut batch = Batch::new(scope, Instant::now() + self.0.config.timeout);
        let answer = batch.look(&self.0.config.prefix, checks);
        self.0.queue.borrow_mut().push_back(batch);
        self.0.wake();
        answer.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// Refunds what was taken. Answers within the timeout.
    pub(super) async fn refund(&self, scope: Scope, taken: &[Taken<'_>]) -> DecisionReply {
        self.wait(scope, |batch, prefix| batch.refund(prefix, taken)).await
    }

    async fn wait(
        &self,
        scope: Scope,
        add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>,
    ) -> DecisionReply {
        let answer = self.0.enqueue(scope, add);
        self.0.wake();
        answer.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// A connection for other commands, which the pool may have to open.
    pub(super) async fn connection(&self) -> Result<PooledConnection<'static, Manager>, Failure> {
        self.0.checkout().await
    }
}

impl Inner {
    fn enqueue(
        &self,
        scope: Scope,
        add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>,
    ) -> Receiver<DecisionReply> {
        let mut queue = self.queue.borrow_mut();
        let open = queue.iter_mut().rev().find(|batch| batch.scope == scope && !batch.is_full());
        if let Some(batch) = open {
            return add(batch, &self.config.prefix);
        }
        let mut batch = Batch::new(scope, Instant::now() + self.config.timeout);
        let answer = add(&mut batch, &self.config.prefix);
        queue.push_back(batch);
        answer
    }

    /// Ensures that a sender task sends what waits. One batch in flight is enough as long as its reply comes soon, since
    /// large batches cost less.
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

    /// Whether what is queued has to wait for the next round. A full batch has nothing to wait for.
    fn must_wait(self: &Rc<Self>) -> bool {
        let is_small = self.queue.borrow().front().is_some_and(|batch| !batch.is_full());
        is_small && self.config.rounds.must_wait(self)
    }

    fn start_sender(self: &Rc<Self>) {
        self.senders.set(self.senders.get() + 1);
        task::spawn_local(Rc::clone(self).send());
    }

    /// Until when a batch waits for the one that was sent last.
    fn patience_ends(&self) -> Instant {
        self.sent.get() + self.config.timeout / PATIENCE
    }

    /// The sender task: sends batch after batch until none waits.
    async fn send(self: Rc<Self>) {
        let _guard = SenderGuard(&self.senders);
        let mut connection = None;
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(batch) = next else { break };
            let (size, begun) = (batch.len(), Instant::now());
            let mut round = None;
            self.sent.set(begun);
            let reply = if self.node.breaker.is_open() {
                Err(Failure::breaker_open())
            } else if begun >= batch.deadline {
                // Its requests have timed out: it would take units that no request gets.
                Err(Failure::overdue())
            } else {
                round = if self.is_prompt.get() { self.config.rounds.begin() } else { None };
                let mut reply = pin!(self.call(&mut connection, &batch));
                let in_time = timeout_at(self.patience_ends().min(batch.deadline), &mut reply).await;
                self.is_prompt.set(in_time.is_ok());
                match in_time {
                    Ok(reply) => reply,
                    Err(_) => {
                        // What has been gathered meanwhile does not wait any longer, here and on other links.
                        round = None;
                        if !self.queue.borrow().is_empty() {
                            self.wake();
                        }
                        timeout_at(batch.deadline, reply).await.unwrap_or_else(|_| Err(Failure::timeout()))
                    }
                }
            };
            if connection.as_ref().is_some_and(SharedConnection::is_broken) {
                self.release(connection.take());
            }
            let outcome = batch.answer(reply);
            self.report(&outcome, size, begun);
            // The requests that follow the answers join in the next round.
            task::yield_now().await;
            drop(round);
            if self.senders.get() == 1 && self.must_wait() {
                break;
            }
        }
        self.release(connection);
    }

    /// Sends a batch on `connection`, or on one that is opened. Where the other side has closed it before a byte was written,
    /// nothing was sent, and the batch goes out once more on another.
    async fn call(&self, connection: &mut Option<SharedConnection>, batch: &Batch) -> Result<Value, Failure> {
        for _ in 0..MAX_ENDED {
            if connection.as_ref().is_some_and(SharedConnection::is_broken) {
                self.release(connection.take());
            }
            let shared = match connection {
                Some(shared) => shared,
                None => connection.insert(self.share_connection().await?),
            };
            let written = shared.0.written();
            let reply = self.call_on(&shared.0, batch).await;
            if reply.is_ok() || !shared.0.has_ended() || shared.0.written() != written {
                return reply;
            }
        }
        Err(Failure::unreachable("the server closes connections before anything is sent"))
    }

    async fn call_on(&self, connection: &Connection, batch: &Batch) -> Result<Value, Failure> {
        let command = batch.command(&script::HASH, self.now());
        let asking = || (batch.scope == Scope::Importing).then(|| redis::cmd("ASKING"));
        let mut reply = match asking() {
            Some(asking) => connection.ask_after(vec![asking], &command).await,
            None => connection.ask(&command).await,
        };
        // The script was unknown, so nothing ran. Once may not be enough if scripts are flushed repeatedly.
        for _ in 0..MAX_LOADS {
            if !reply.as_ref().is_err_and(is_unknown_script) {
                break;
            }
            let before = [script::load_command()].into_iter().chain(asking()).collect();
            reply = connection.ask_after(before, &command).await;
        }
        reply.map_err(|error| {
            let has_any_slots = batch.scope == Scope::AnySlots;
            if has_any_slots && refuses_any_slots(&error) {
                self.node.set_takes_any_slots(false);
            }
            Failure::of_node(error, &self.node.address, has_any_slots)
        })
    }

    /// A connection to send on: a new one while there are few, else the one with the fewest batches in flight.
    async fn share_connection(&self) -> Result<SharedConnection, Failure> {
        if let Some(shared) = self.shared_connection() {
            return Ok(shared);
        }
        // Those that the pool has none for would wait there until the others have nothing to send.
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

    /// The connection with the fewest batches in flight, unless there may be a new one.
    fn shared_connection(&self) -> Option<SharedConnection> {
        self.in_use.borrow_mut().retain(|connection| !connection.is_broken());
        let in_use = self.in_use.borrow();
        // No batch waits for a connection to be opened while there is one.
        let is_shared =
            in_use.len() >= self.config.connections as usize || self.pool.state().idle_connections == 0;
        in_use.iter().min_by_key(|connection| connection.users()).filter(|_| is_shared).cloned()
    }

    /// A sender is done with its connection. The last gives it back to the pool.
    fn release(&self, connection: Option<SharedConnection>) {
        drop(connection);
        self.in_use.borrow_mut().retain(|connection| connection.users() > 0 && !connection.is_broken());
    }

    async fn checkout(&self) -> Result<PooledConnection<'static, Manager>, Failure> {
        let begun = Instant::now();
        loop {
            let connection = self.pool.get_owned().await.map_err(|error| match error {
                RunError::User(error) => Failure::of_opening(error),
                RunError::TimedOut => Failure::timeout(),
            })?;
            // The pool may hand out a connection that failed to open for an earlier caller. Then try again.
            if !connection.failed_before(begun) {
                return Ok(connection);
            }
        }
    }

    fn now(&self) -> Option<i64> {
        self.config.clock.as_ref().map(|clock| clock.now())
    }

    fn report(&self, outcome: &Result<u64, Failure>, size: usize, begun: Instant) {
        let (LinkConfig { metrics, topology, .. }, breaker) = (&*self.config, &self.node.breaker);
        match outcome {
            Ok(discarded) => {
                breaker.succeeded();
                self.node.decisions.fetch_add(size as u64, Relaxed);
                metrics.replied(size, begun.elapsed(), *discarded);
            }
            // The node answers, and its requests go elsewhere.
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

/// Counts a sender task for as long as it lives. Without it, a task that panicked would still count, and no other would start.
struct SenderGuard<'a>(&'a Cell<usize>);

/// A sender that waits for the pool. Others look again once it has got its connection, or none.
struct OpeningGuard<'a>(&'a Inner);

impl<'a> OpeningGuard<'a> {
    fn new(link: &'a Inner) -> Self {
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

impl Drop for SenderGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}
