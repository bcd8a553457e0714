//! Webhooks that are told that somebody has used a share of a limit.
//!
//! 1. A worker compares each decision with the shares (`watch`), and hands over what was reached, once for each window.
//! 2. A thread notes it in the history's database, under an ID that all instances would give it, so that one of them sends
//!    it; and it sends what is due, until it has arrived or an hour is over (`sender`).
//!
//! The messages follow Standard Webhooks (`message`).

mod message;
mod sender;
mod watch;
mod webhook;

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{runtime, sync::mpsc};

pub use self::watch::{AlertPlan, AlertWatch, DecidedLimit};
use self::{
    message::test_body,
    sender::{Sender, SenderState},
    watch::Reached,
    webhook::Webhook,
};
use crate::{
    history::{History, HistoryError, KeptAlert},
    limit::{Clock, WallClock},
    telemetry::metrics::AlertFacts,
};

/// What was reached and waits to be noted.
const QUEUE: usize = 10_000;

/// The alerts of this process: its thread, and the questions to it.
pub struct Alerts {
    history: Arc<History>,
    plan: Arc<Mutex<Arc<AlertPlan>>>,
    reached: mpsc::Sender<Reached>,
    state: Arc<Mutex<SenderState>>,
    clock: WallClock,
}

/// What a webhook replied to a test.
#[derive(Debug, Clone)]
pub struct TestedWebhook {
    /// `https://hooks.example.com`
    pub receiver: String,
    /// The policies that it is told about.
    pub policies: Vec<String>,
    /// The reply; `Err`: why the message was not taken.
    pub reply: Result<String, String>,
    pub took: Duration,
}

impl Alerts {
    /// Starts the thread, with the alerts of the first configuration. `instance`: the ID of this one.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(
        history: Arc<History>,
        plan: Arc<AlertPlan>,
        instance: String,
        clock: WallClock,
    ) -> io::Result<Arc<Self>> {
        let (reached, received) = mpsc::channel(QUEUE);
        let (plan, state) = (Arc::new(Mutex::new(plan)), Arc::default());
        let sender = Sender::new(
            Arc::clone(&history),
            Arc::clone(&plan),
            received,
            Arc::clone(&state),
            instance,
            clock,
        );
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        // It ends with the process: what it has not sent, another instance or the next process sends.
        thread::Builder::new().name("alerts".into()).spawn(move || runtime.block_on(sender.run()))?;
        Ok(Arc::new(Self { history, plan, reached, state, clock }))
    }

    /// A worker's end of it under the configuration of `plan`; `None`: there are no alerts.
    pub fn watch(&self, plan: &Arc<AlertPlan>) -> Option<AlertWatch> {
        (!plan.is_empty()).then(|| AlertWatch::new(Arc::clone(plan), self.reached.clone()))
    }

    /// Sends to the webhooks of `plan` from now on.
    pub fn reconfigure(&self, plan: &Arc<AlertPlan>) {
        *self.plan.lock() = Arc::clone(plan);
    }

    /// Sends a message to each webhook that says it is a test. Empty: there are none.
    pub async fn test(&self) -> Vec<TestedWebhook> {
        let plan = Arc::clone(&self.plan.lock());
        let id = format!("msg_{:032x}", fastrand::u128(..));
        let now = self.clock.now();
        let test = async |webhook: &Arc<Webhook>| {
            let begun = Instant::now();
            let sent = webhook.send(&id, now.div_euclid(1_000_000), test_body(webhook, now)).await;
            TestedWebhook {
                receiver: webhook.receiver.clone(),
                policies: webhook.policies.clone(),
                reply: sent.map(|status| status.to_string()).map_err(|failure| failure.reason),
                took: begun.elapsed(),
            }
        };
        join_all(plan.webhooks().iter().map(test)).await
    }

    /// The messages that all instances have sent, newest first. `after`: the place of the last one that is known.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn list(
        &self,
        after: Option<(i64, String, String)>,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, HistoryError> {
        self.history.alerts(after, limit).await
    }

    /// Waits until all that was reached is noted in the database, at most for `limit`. To be called when the last request has
    /// ended.
    pub fn finish(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let is_noted = || self.reached.capacity() == QUEUE && self.state.lock().pending == 0;
        while !is_noted() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The state of the thread, for metrics and warnings.
    pub fn facts(&self) -> AlertFacts {
        let state = self.state.lock();
        let plan = Arc::clone(&self.plan.lock());
        let failing = plan.webhooks().iter().filter_map(|webhook| {
            let failure = state.failing.get(&webhook.id)?;
            Some((webhook.receiver.clone(), failure.clone()))
        });
        AlertFacts {
            is_on: !plan.is_empty(),
            delivered: state.delivered,
            given_up: state.given_up,
            dropped: state.dropped,
            dropped_now: state.dropped_now,
            fault: state.fault.clone(),
            failing: failing.collect(),
        }
    }
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerts").finish_non_exhaustive()
    }
}
