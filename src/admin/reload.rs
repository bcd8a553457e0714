//! `POST /v1/reload`: reads the configuration again.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use tokio::sync::{mpsc, oneshot};

use super::{
    context::HandlerContext,
    dto::{ConfigurationError, Reloaded},
    extract::{NoParams, Operator, Query},
    openapi::{ConfigErrors, UnavailableError, WriteErrors},
    problem::Problem,
};

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
    async fn request(&self, by: String) -> Option<Outcome> {
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

/// Reloads the configuration, and lists what has changed. If it has errors, they are listed with their places, and the
/// running configuration stays.
#[utoipa::path(
    post,
    path = "/v1/reload",
    operation_id = "reload",
    tag = "in force",
    responses((status = 200, body = Reloaded, description = "what was changed"), WriteErrors, UnavailableError, ConfigErrors)
)]
pub(super) async fn reload(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    _: Query<NoParams>,
) -> Result<Json<Reloaded>, Problem> {
    match context.state.reloads.request(by.0).await {
        Some(Ok(reloaded)) => Ok(Json(reloaded)),
        Some(Err(errors)) => Err(Problem::misconfigured(errors)),
        None => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Tollgate is shutting down")),
    }
}
