//! Requests for a reload: handlers send them, and the process answers one after another.

use tokio::sync::{mpsc, oneshot};

use super::dto::{ConfigurationError, Reloaded};

/// Reloads that may wait for those before them.
const QUEUE: usize = 16;

type Outcome = Result<Reloaded, Vec<ConfigurationError>>;

/// Requests reloads. The receiver's owner does them one after another.
#[derive(Debug, Clone)]
pub struct ReloadSender(mpsc::Sender<ReloadRequest>);

/// A request for a reload, whose sender waits for the outcome.
#[derive(Debug)]
pub struct ReloadRequest {
    by: String,
    answer: oneshot::Sender<Outcome>,
}

impl ReloadSender {
    /// A sender, and the requests that have to be answered.
    pub fn channel() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (sender, requests) = mpsc::channel(QUEUE);
        (Self(sender), requests)
    }

    /// Waits for the outcome. `None` if the process is ending.
    pub(super) async fn request(&self, by: String) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.0.send(ReloadRequest { by, answer }).await.ok()?;
        answered.await.ok()
    }
}

impl ReloadRequest {
    /// The operator, as the audit log names it.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Sends the outcome.
    pub fn answer(self, outcome: Outcome) {
        // The client may have gone.
        let _gone = self.answer.send(outcome);
    }
}
