//! State that the handlers share, and how they change something.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    task, time,
};

use super::{
    AdminState, dto::Tick, events::STREAMS, extract::Operator, peer_reader::PeerReader, problem::Problem,
    store_client::StoreClient, token_throttle::TokenThrottle,
};
use crate::{limit::PolicyIds, telemetry::metrics::History};

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

/// Where Redis answers, a change is sent to the other instances within this time.
const SHARED_WITHIN: Duration = Duration::from_secs(1);
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
            streams: Arc::new(Semaphore::new(STREAMS)),
            ticks: watch::Sender::new(None),
            history: Mutex::default(),
            login_throttle: TokenThrottle::new(Arc::clone(&wrong_tokens), &mut ids, "login"),
            bearer_throttle: TokenThrottle::new(wrong_tokens, &mut ids, "bearer"),
        }
    }

    /// Writes to the audit log that `by` has changed something. `action`: `unblock`, `ban`, `lift`, `reset`,
    /// `drain`, `undrain`, `reload`.
    pub(super) fn audit(&self, by: &Operator, action: &str, target: &str, detail: &str) {
        self.state.audit.write(&by.0, action, target, detail);
    }
}

/// Whether a change reaches the other instances: waits a moment until it `is_sent`. Without other instances it is sent at once.
pub(super) async fn is_shared(is_sent: impl Fn() -> bool) -> bool {
    let wait = async {
        while !is_sent() {
            time::sleep(SHARED_POLL).await;
        }
    };
    time::timeout(SHARED_WITHIN, wait).await.is_ok()
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
