//! The queue of reload requests between the admin port and the process, which reloads one at a time.

use tokio::sync::{mpsc, oneshot};

use super::dto::{ConfigurationError, Reloaded};

/// Requests that may wait for earlier ones.
const QUEUE: usize = 16;

type Outcome = Result<Reloaded, Vec<ConfigurationError>>;

/// Sends reload requests. The owner of the receiver runs them one after another.
#[derive(Debug, Clone)]
pub struct ReloadSender(mpsc::Sender<ReloadRequest>);

/// A request for a reload. Its sender waits for the outcome.
#[derive(Debug)]
pub struct ReloadRequest {
    by: String,
    answer: oneshot::Sender<Outcome>,
}

impl ReloadSender {
    /// A sender, and the receiver of its requests.
    pub fn channel() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (sender, requests) = mpsc::channel(QUEUE);
        (Self(sender), requests)
    }

    /// Requests a reload and waits for its outcome. `None`: the process is ending.
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
        // The client may have hung up.
        let _gone = self.answer.send(outcome);
    }
}
