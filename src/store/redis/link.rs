//! One worker's link to Redis. It is self-clocking: an idle link sends a request at once; requests that come while a batch is in
//! flight are gathered into the next batch.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bb8_redis::bb8::{Pool, PooledConnection, RunError};
use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::{
    sync::oneshot::{self, Receiver},
    task,
    time::{Instant, timeout_at},
};

use super::{
    batch::{Batch, DecisionReply},
    connection::{Manager, Server},
    failure::Failure,
    script,
};
use crate::{
    limit::{Breaker, Check, Clock},
    telemetry::metrics::{StoreFailure, StoreMetrics},
};

/// How often a batch loads the script, at most.
const MAX_LOADS: usize = 3;

/// What a link needs to know.
pub(super) struct LinkConfig {
    pub(super) prefix: String,
    /// For a decision, including the time in the queue.
    pub(super) timeout: Duration,
    /// The most connections. Each has one batch in flight.
    pub(super) connections: u32,
    pub(super) breaker: Arc<Breaker>,
    pub(super) metrics: Arc<StoreMetrics>,
    /// The clock; `None`: Redis' own.
    pub(super) clock: Option<Arc<dyn Clock>>,
}

/// The link. Belongs to one thread.
#[derive(Clone)]
pub(super) struct Link(Rc<Inner>);

struct Inner {
    config: LinkConfig,
    pool: Pool<Manager>,
    queue: RefCell<VecDeque<Batch>>,
    /// Tasks that send batches, each with a connection of its own.
    senders: Cell<u32>,
    /// When the last batch was sent.
    sent: Cell<Instant>,
}

impl Link {
    pub(super) fn new(server: Server, config: LinkConfig) -> Self {
        let pool = Pool::builder()
            .max_size(config.connections)
            // Only a connection that was idle for a while is really tested.
            .test_on_check_out(true)
            // The breaker's probe finds out when Redis is back.
            .retry_connection(false)
            .connection_timeout(Duration::from_secs(1).max(config.timeout))
            .max_lifetime(None)
            .idle_timeout(None)
            .build_unchecked(Manager(server));
        let (queue, senders, sent) = (RefCell::default(), Cell::new(0), Cell::new(Instant::now()));
        Self(Rc::new(Inner { config, pool, queue, senders, sent }))
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0.config.prefix
    }

    /// Decides over one request. At most one of its checks may be on the same limit. Answers within the timeout.
    pub(super) async fn decide(&self, checks: &[Check<'_>]) -> DecisionReply {
        self.wait(|batch, prefix| batch.add(prefix, checks)).await
    }

    /// What [`Link::decide`] would answer. Changes nothing. Answers within the timeout.
    pub(super) async fn look(&self, checks: &[Check<'_>]) -> DecisionReply {
        let mut batch = Batch::new(Instant::now() + self.timeout());
        let answer = batch.look(self.prefix(), checks);
        self.0.queue.borrow_mut().push_back(batch);
        self.0.wake();
        answer.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// Refunds what checks took at the time `at`. Answers within the timeout.
    pub(super) async fn refund(&self, checks: &[Check<'_>], at: i64) -> DecisionReply {
        self.wait(|batch, prefix| batch.refund(prefix, checks, at)).await
    }

    async fn wait(&self, add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>) -> DecisionReply {
        let answer = self.0.enqueue(add);
        self.0.wake();
        answer.await.unwrap_or_else(|_| Err(Failure::abandoned()))
    }

    /// A connection for other commands, which the pool may have to open.
    pub(super) async fn connection(&self) -> Result<PooledConnection<'_, Manager>, Failure> {
        self.0.checkout().await
    }

    pub(super) fn timeout(&self) -> Duration {
        self.0.config.timeout
    }
}

impl Inner {
    fn enqueue(
        &self,
        add: impl FnOnce(&mut Batch, &str) -> Receiver<DecisionReply>,
    ) -> Receiver<DecisionReply> {
        let mut queue = self.queue.borrow_mut();
        if queue.back().is_none_or(Batch::is_full) {
            queue.push_back(Batch::new(Instant::now() + self.config.timeout));
        }
        // The queue is not empty.
        match queue.back_mut() {
            Some(batch) => add(batch, &self.config.prefix),
            None => oneshot::channel().1,
        }
    }

    /// Ensures that a sender task sends what waits. One connection serves as long as it keeps up, since large batches cost
    /// less. A second one helps when a full batch waits, or when the batch in flight has used a tenth of the timeout.
    fn wake(self: &Rc<Self>) {
        let senders = self.senders.get();
        let is_behind = || {
            self.queue.borrow().front().is_some_and(Batch::is_full)
                || self.sent.get().elapsed() > self.config.timeout / 10
        };
        if senders == 0 || senders < self.config.connections && is_behind() {
            self.senders.set(senders + 1);
            task::spawn_local(Rc::clone(self).send());
        }
    }

    /// The sender task: sends batch after batch until none waits.
    async fn send(self: Rc<Self>) {
        let _guard = SenderGuard(&self.senders);
        let mut connection = None;
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(batch) = next else { break };
            let (size, begun) = (batch.len(), Instant::now());
            self.sent.set(begun);
            let reply = if self.config.breaker.is_open() {
                Err(Failure::breaker_open())
            } else if begun >= batch.deadline {
                // Its requests have timed out: it would take units that no request gets.
                Err(Failure::overdue())
            } else {
                let reply = self.call(&mut connection, &batch);
                timeout_at(batch.deadline, reply).await.unwrap_or_else(|_| Err(Failure::timeout()))
            };
            let _given_up = connection.take_if(|connection| connection.is_broken());
            let outcome = batch.answer(reply);
            self.report(&outcome, size, begun);
            task::yield_now().await;
        }
    }

    async fn call<'a>(
        &'a self,
        checked_out: &mut Option<PooledConnection<'a, Manager>>,
        batch: &Batch,
    ) -> Result<Value, Failure> {
        let connection = match checked_out {
            Some(connection) => connection,
            None => checked_out.insert(self.checkout().await?),
        };
        let command = batch.command(script::DECIDE.get_hash(), self.now());
        let mut reply = connection.ask(&command).await;
        // The script was unknown, so nothing ran. Once may not be enough if scripts are flushed repeatedly.
        for _ in 0..MAX_LOADS {
            if !reply.as_ref().is_err_and(is_unknown_script) {
                break;
            }
            connection.load(&script::DECIDE).await?;
            reply = connection.ask(&command).await;
        }
        Ok(reply?)
    }

    async fn checkout(&self) -> Result<PooledConnection<'_, Manager>, Failure> {
        let begun = Instant::now();
        loop {
            let connection = self.pool.get().await.map_err(|error| match error {
                RunError::User(error) => error.into(),
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
        let LinkConfig { breaker, metrics, .. } = &self.config;
        match outcome {
            Ok(discarded) => {
                breaker.succeeded();
                metrics.answered(size, begun.elapsed(), *discarded);
            }
            Err(failure) => {
                metrics.failed(failure.kind);
                if failure.kind == StoreFailure::OutOfMemory {
                    breaker.succeeded();
                } else if failure.trips_the_breaker() && breaker.failed() {
                    tracing::warn!(error = %failure.reason(), "Redis is unavailable: policies follow their on_store_error");
                }
            }
        }
    }
}

/// Counts a sender task for as long as it lives. Without it, a task that panicked would still count, and no other would start.
struct SenderGuard<'a>(&'a Cell<u32>);

impl Drop for SenderGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
