//! Where handlers ask the store.
//!
//! A store's futures may be tied to one thread, and axum's handlers may not: so they send what they want
//! to know to a task that stays, and wait for its answer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::limit::{Cleared, Peek, Policy, Store, Unavailable};

/// Questions that may wait; whoever asks more waits to ask.
const QUEUE: usize = 64;

type Answer<T> = oneshot::Sender<Result<T, Unavailable>>;

pub(super) enum Question {
    Peek { policy: usize, identifier: String, answer: Answer<Peek> },
    Reset { identifier: String, answer: Answer<Vec<Cleared>> },
}

/// Asks the store from anywhere.
#[derive(Debug, Clone)]
pub(super) struct Desk(mpsc::Sender<Question>);

impl Desk {
    /// A desk, and what [`serve`] takes.
    pub(super) fn open() -> (Self, mpsc::Receiver<Question>) {
        let (sender, questions) = mpsc::channel(QUEUE);
        (Self(sender), questions)
    }

    /// [`Store::peek`] for a policy by its index.
    pub(super) async fn peek(&self, policy: usize, identifier: &str) -> Result<Peek, Unavailable> {
        let identifier = identifier.to_owned();
        self.ask(|answer| Question::Peek { policy, identifier, answer }).await
    }

    /// [`Store::reset`] for all policies.
    pub(super) async fn reset(&self, identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        let identifier = identifier.to_owned();
        self.ask(|answer| Question::Reset { identifier, answer }).await
    }

    async fn ask<T>(&self, question: impl FnOnce(Answer<T>) -> Question) -> Result<T, Unavailable> {
        let gone = || Unavailable("the admin port is closing".to_owned());
        let (answer, answered) = oneshot::channel();
        self.0.send(question(answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Answers until every desk is gone.
pub(super) async fn serve<S: Store>(
    store: S,
    policies: Arc<[Policy]>,
    mut questions: mpsc::Receiver<Question>,
) {
    while let Some(question) = questions.recv().await {
        // Whoever asked may have gone: then nobody wants the answer.
        match question {
            Question::Peek { policy, identifier, answer } => {
                let peek = match policies.get(policy) {
                    Some(policy) => store.peek(policy, &identifier).await,
                    None => Err(Unavailable("there is no such policy".to_owned())),
                };
                let _gone = answer.send(peek);
            }
            Question::Reset { identifier, answer } => {
                let _gone = answer.send(store.reset(&policies, &identifier).await);
            }
        }
    }
}
