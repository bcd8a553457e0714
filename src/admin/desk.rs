//! Where handlers ask the store and the archive of limited clients.
//!
//! The futures of these may be tied to one thread, and axum's handlers may not: so they send what they
//! want to know to a task that stays, one for each of the two, and wait for its answer.

use std::{net::IpAddr, sync::Arc};

use http::request;
use ipnet::IpNet;
use tokio::sync::{mpsc, oneshot};

use crate::{
    abuse::{
        Whereabouts,
        bans::{Bans, Key},
    },
    limit::{Cleared, Clock, Peek, Policy, StoreAdmin, Unavailable},
    proxy::{
        Rules,
        explain::{Explanation, explain},
    },
};

/// Questions that may wait; whoever asks more waits to ask.
const QUEUE: usize = 64;

pub(super) type Answer<T> = oneshot::Sender<Result<T, Unavailable>>;

/// For the store.
pub(super) enum Question {
    Peek { policies: Arc<[Policy]>, policy: usize, variant: usize, identifier: String, answer: Answer<Peek> },
    Reset { policies: Arc<[Policy]>, identifier: String, answer: Answer<Vec<Cleared>> },
    Clear { policies: Vec<Policy>, identifier: String, answer: Answer<Vec<Cleared>> },
    Explain { rules: Arc<Rules>, request: Box<request::Parts>, peer: IpAddr, answer: Answer<Explanation> },
}

/// For the archive.
pub(super) enum Errand {
    /// Bring what has changed.
    Refresh { answer: Answer<()> },
    /// Bring this client.
    LookUp { address: IpNet, answer: Answer<()> },
    /// From where this user was denied, as he is written down.
    User { written: String, answer: Answer<Whereabouts> },
    /// Forget this client everywhere.
    Forget { address: IpNet, answer: Answer<()> },
    /// How many bans there are by this key.
    Bans { key: Key, answer: Answer<u64> },
}

/// Asks the store and the archive from anywhere.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    store: mpsc::Sender<Question>,
    archive: mpsc::Sender<Errand>,
}

impl Desk {
    /// A desk, what [`serve`] takes, and what an [`Archivist`](super::archivist::Archivist) does.
    pub(super) fn open() -> (Self, mpsc::Receiver<Question>, mpsc::Receiver<Errand>) {
        let (store, questions) = mpsc::channel(QUEUE);
        let (archive, errands) = mpsc::channel(QUEUE);
        (Self { store, archive }, questions, errands)
    }

    /// [`Store::peek`] for one of `policies` by its index, and by that of [`Policy::variants`].
    pub(super) async fn peek(
        &self,
        policies: &Arc<[Policy]>,
        policy: usize,
        variant: usize,
        identifier: &str,
    ) -> Result<Peek, Unavailable> {
        let (policies, identifier) = (Arc::clone(policies), identifier.to_owned());
        ask(&self.store, |answer| Question::Peek { policies, policy, variant, identifier, answer }).await
    }

    /// [`Store::reset`] for these policies.
    pub(super) async fn reset(
        &self,
        policies: &Arc<[Policy]>,
        identifier: &str,
    ) -> Result<Vec<Cleared>, Unavailable> {
        let (policies, identifier) = (Arc::clone(policies), identifier.to_owned());
        ask(&self.store, |answer| Question::Reset { policies, identifier, answer }).await
    }

    /// [`Store::clear`] for these policies.
    pub(super) async fn clear(
        &self,
        policies: Vec<Policy>,
        identifier: &str,
    ) -> Result<Vec<Cleared>, Unavailable> {
        let identifier = identifier.to_owned();
        ask(&self.store, |answer| Question::Clear { policies, identifier, answer }).await
    }

    /// What would become of a request from `peer` under these rules.
    pub(super) async fn explain(
        &self,
        rules: &Arc<Rules>,
        request: request::Parts,
        peer: IpAddr,
    ) -> Result<Explanation, Unavailable> {
        let (rules, request) = (Arc::clone(rules), Box::new(request));
        ask(&self.store, |answer| Question::Explain { rules, request, peer, answer }).await
    }

    /// Brings what other instances hold of limited clients, as far as it can be had.
    pub(super) async fn refresh(&self) {
        let result = ask(&self.archive, |answer| Errand::Refresh { answer }).await;
        told_from_memory(&result);
    }

    /// Brings what other instances hold of one client, as far as it can be had.
    pub(super) async fn look_up(&self, address: IpNet) {
        let result = ask(&self.archive, |answer| Errand::LookUp { address, answer }).await;
        told_from_memory(&result);
    }

    /// From where other instances have denied a user, as far as it can be had.
    pub(super) async fn user(&self, written: &str) -> Whereabouts {
        let written = written.to_owned();
        let result = ask(&self.archive, |answer| Errand::User { written, answer }).await;
        result.inspect_err(untold).unwrap_or_default()
    }

    /// Has every instance forget a client, but for this one's own registry.
    pub(super) async fn forget(&self, address: IpNet) -> Result<(), Unavailable> {
        ask(&self.archive, |answer| Errand::Forget { address, answer }).await
    }

    /// How many bans all instances know by exactly this key, as far as it can be had.
    pub(super) async fn bans(&self, key: &Key) -> u64 {
        let key = key.clone();
        ask(&self.archive, |answer| Errand::Bans { key, answer }).await.inspect_err(untold).unwrap_or(0)
    }
}

async fn ask<Q, T>(
    questions: &mpsc::Sender<Q>,
    question: impl FnOnce(Answer<T>) -> Q,
) -> Result<T, Unavailable> {
    let gone = || Unavailable::Abandoned("the admin port is closing");
    let (answer, answered) = oneshot::channel();
    questions.send(question(answer)).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

/// Without the others, an operator is told what is known here.
fn told_from_memory(result: &Result<(), Unavailable>) {
    if let Err(error) = result {
        untold(error);
    }
}

fn untold(error: &Unavailable) {
    tracing::debug!(%error, "what other instances know can't be read");
}

/// Answers until every desk is gone.
pub(super) async fn serve<S: StoreAdmin>(
    store: S,
    bans: Arc<Bans>,
    clock: Arc<dyn Clock>,
    mut questions: mpsc::Receiver<Question>,
) {
    while let Some(question) = questions.recv().await {
        // Whoever asked may have gone: then nobody wants the answer.
        match question {
            Question::Peek { policies, policy, variant, identifier, answer } => {
                let peek = match policies.get(policy).and_then(|policy| policy.variants().nth(variant)) {
                    Some(policy) => store.peek(policy, &identifier).await,
                    None => Err(Unavailable::Abandoned("there is no such policy")),
                };
                let _gone = answer.send(peek);
            }
            Question::Reset { policies, identifier, answer } => {
                let _gone = answer.send(store.reset(&policies, &identifier).await);
            }
            Question::Clear { policies, identifier, answer } => {
                let _gone = answer.send(store.clear(&policies, &identifier).await);
            }
            Question::Explain { rules, request, peer, answer } => {
                let explained = explain(&rules, &store, &bans, &request, peer, clock.now()).await;
                let _gone = answer.send(Ok(explained));
            }
        }
    }
}
