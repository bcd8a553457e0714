//! State that the handlers share, and how they change something.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    task,
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
    /// The last tick; `None` while there are no subscribers to events.
    pub(super) ticks: watch::Sender<Option<Arc<Tick>>>,
    pub(super) history: Mutex<History>,
    /// Tokens typed in at the login page.
    pub(super) login_throttle: TokenThrottle,
    /// Tokens in `Authorization`. Counted apart, so that programs with an outdated token do not
    /// block logins.
    pub(super) bearer_throttle: TokenThrottle,
}

/// Concurrent event streams.
pub(super) const EVENT_STREAMS: usize = 32;
/// Where Redis answers soon, a change is sent to the other instances within this time.
const SHARED_WITHIN: Duration = Duration::from_secs(1);
/// The longest that an operator waits: the commands wait 30 seconds for an answer.
const SHARED_WITHIN_AT_MOST: Duration = Duration::from_secs(20);
/// Round trips that sending a change may take: on its own behalf, and after those of the round before.
const SHARED_ROUND_TRIPS: u32 = 4;
/// How often that is looked at.
const SHARED_POLL: Duration = Duration::from_millis(10);

impl HandlerContext {
    /// `wrong_tokens`: where those are counted.
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
            ticks: watch::Sender::new(None),
            history: Mutex::default(),
            login_throttle: TokenThrottle::new(Arc::clone(&wrong_tokens), &mut ids, "login"),
            bearer_throttle: TokenThrottle::new(wrong_tokens, &mut ids, "bearer"),
        }
    }

    fn shared_within(&self) -> Duration {
        let config = self.state.active_config.snapshot();
        let redis = &config.rules.config().store.redis;
        let timeout = redis.as_ref().map(|redis| redis.timeout).unwrap_or_default();
        (timeout * SHARED_ROUND_TRIPS).clamp(SHARED_WITHIN, SHARED_WITHIN_AT_MOST)
    }

    /// Whether a server of the store that instances share is known not to answer.
    fn is_store_failing(&self) -> bool {
        let facts = self.state.store_facts.shared.as_ref().map(|facts| facts());
        let is_down = |node: &NodeFacts| matches!(node.state, NodeState::Down | NodeState::BreakerOpen);
        facts.is_some_and(|facts| facts.nodes.iter().any(|node| node.primary.is_none() && is_down(node)))
    }

    /// Writes to the audit log that `by` has changed something. `action`: `unblock`, `ban`, `lift`, `reset`,
    /// `drain`, `undrain`, `reload`.
    pub(super) fn audit(&self, by: &Operator, action: &str, target: &str, detail: &str) {
        self.state.audit.write(&by.0, action, target, detail);
    }
}

/// Whether a change reaches the other instances: waits a moment until it `is_sent`, and longer where Redis may take long to
/// answer. Without other instances it is sent at once.
pub(super) async fn is_shared(context: &HandlerContext, is_sent: impl Fn() -> bool) -> bool {
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

/// Runs a change to its end, even if the client hangs up meanwhile: no limit is cleared on one shard of many, or without
/// a line in the audit log.
///
/// # Errors
/// Those of the change.
pub(super) async fn to_completion<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + 'static,
) -> Result<T, Problem> {
    let crashed =
        |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change failed unexpectedly: see the log");
    task::spawn_local(change).await.map_err(crashed)?
}
