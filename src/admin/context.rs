//! State that the handlers share, and helpers for changes: audit, delivery to other instances, completion.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::{
    sync::{self, Semaphore, watch},
    task::{self, JoinError},
    time::{self, Instant},
};

use super::{
    AdminState, dto::Tick, extract::Operator, peer_reader::PeerReader, problem::Problem,
    store_client::StoreClient, token_throttle::TokenThrottle,
};
use crate::{
    limit::PolicyIds,
    telemetry::metrics::{History, NodeFacts, NodeState},
};

/// Shared by all handlers.
pub(super) struct HandlerContext {
    pub(super) state: AdminState,
    pub(super) store: StoreClient,
    pub(super) peers: PeerReader,
    /// Permits for event streams.
    pub(super) streams: Arc<Semaphore>,
    /// Held by the import of API keys that runs.
    pub(super) import_turn: Arc<sync::Mutex<()>>,
    /// The last tick; `None` while there are no subscribers to events.
    pub(super) ticks: watch::Sender<Option<Arc<Tick>>>,
    pub(super) history: Mutex<History>,
    /// Limits wrong tokens on the login page.
    pub(super) login_throttle: TokenThrottle,
    /// Limits wrong tokens in `Authorization`. Separate, so that programs with an outdated token do not block logins.
    pub(super) bearer_throttle: TokenThrottle,
}

/// Concurrent event streams.
pub(super) const EVENT_STREAMS: usize = 32;
/// The shortest wait until a change is sent to the other instances. Redis replies within it unless it is slow.
const SHARED_WITHIN: Duration = Duration::from_secs(1);
/// The longest wait: the commands wait 30 seconds for a response.
const SHARED_WITHIN_AT_MOST: Duration = Duration::from_secs(20);
/// Round trips until a change is sent, at most: the previous batch's, then its own.
const SHARED_ROUND_TRIPS: u32 = 4;
/// Interval of checking whether a change was sent.
const SHARED_POLL: Duration = Duration::from_millis(10);

impl HandlerContext {
    /// `wrong_tokens`: the store that counts wrong tokens.
    pub(super) fn new(
        state: AdminState,
        store: StoreClient,
        peers: PeerReader,
        wrong_tokens: StoreClient,
    ) -> Self {
        let (wrong_tokens, mut ids) = (Arc::new(wrong_tokens), PolicyIds::default());
        Self {
            state,
            store,
            peers,
            streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            import_turn: Arc::default(),
            ticks: watch::Sender::new(None),
            history: Mutex::default(),
            login_throttle: TokenThrottle::new(Arc::clone(&wrong_tokens), &mut ids, "login"),
            bearer_throttle: TokenThrottle::new(wrong_tokens, &mut ids, "bearer"),
        }
    }

    /// The longest wait until a change is sent, by the configured timeout of Redis.
    fn shared_within(&self) -> Duration {
        let config = self.state.active_config.snapshot();
        let redis = &config.rules.config().store.redis;
        let timeout = redis.as_ref().map(|redis| redis.timeout).unwrap_or_default();
        (timeout * SHARED_ROUND_TRIPS).clamp(SHARED_WITHIN, SHARED_WITHIN_AT_MOST)
    }

    /// Whether a primary of the shared store is known to be down.
    fn is_store_failing(&self) -> bool {
        let facts = self.state.store_facts.shared.as_ref().map(|facts| facts());
        let is_down = |node: &NodeFacts| matches!(node.state, NodeState::Down | NodeState::BreakerOpen);
        facts.is_some_and(|facts| facts.nodes.iter().any(|node| node.primary.is_none() && is_down(node)))
    }

    /// Writes to the audit log that `by` has changed something. `action`: `unblock`, `ban`, `lift`, `reset`,
    /// `drain`, `undrain`, `reload`, `create_key` and the others of keys.
    pub(super) fn audit(&self, by: &Operator, action: &str, target: &str, detail: &str) {
        self.state.audit.write(&by.0, action, target, detail);
    }
}

/// Waits until a change `is_sent` to the other instances, and longer if the timeout of Redis is long. `false`: it was
/// not sent in time. Without other instances it counts as sent at once.
pub(super) async fn is_shared(context: &HandlerContext, mut is_sent: impl FnMut() -> bool) -> bool {
    let (begun, within) = (Instant::now(), context.shared_within());
    while !is_sent() {
        let waited = begun.elapsed();
        if waited >= within || waited >= SHARED_WITHIN && context.is_store_failing() {
            return false;
        }
        time::sleep(SHARED_POLL).await;
    }
    true
}

/// Runs a change to its end, even if the client hangs up: otherwise limits could be cleared on only some shards, or
/// without a line in the audit log.
///
/// # Errors
/// The change failed or panicked.
pub(super) async fn to_completion<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + 'static,
) -> Result<T, Problem> {
    task::spawn_local(change).await.map_err(crashed)?
}

/// A task panicked.
pub(super) fn crashed(_: JoinError) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change failed unexpectedly: see the log")
}
