//! What a request holds of its limits until it ends: leases, and units that its answer may turn out not to cost.

use http::StatusCode;
use tokio::sync::watch;

/// How far a request has come, as far as what it holds depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    UnderWay,
    /// With this status by the upstream; `None`: by the proxy itself, which never counts.
    Answered(Option<StatusCode>),
}

/// Held by an exchange. What is to be given back is given back when this is dropped, however that comes about; nobody
/// waits for it.
#[derive(Debug)]
pub(super) struct Held(watch::Sender<Stage>);

impl Held {
    /// Beside it, what tells how far the request has come: an error once it has ended.
    pub(super) fn new() -> (Self, watch::Receiver<Stage>) {
        let (sender, receiver) = watch::channel(Stage::UnderWay);
        (Self(sender), receiver)
    }

    /// The head of the answer is known.
    pub(super) fn answered(&self, status: Option<StatusCode>) {
        self.0.send_replace(Stage::Answered(status));
    }
}
