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

/// Where handlers ask for a reload. They are done one after another, by whoever has the other end.
#[derive(Debug, Clone)]
pub struct Reloads(mpsc::Sender<ReloadRequest>);

/// Somebody asks for a reload, and waits.
#[derive(Debug)]
pub struct ReloadRequest {
    by: String,
    answer: oneshot::Sender<Outcome>,
}

impl Reloads {
    /// Where to ask, and what has to be answered.
    pub fn channel() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (asked, requests) = mpsc::channel(QUEUE);
        (Self(asked), requests)
    }

    async fn ask(&self, by: String) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.0.send(ReloadRequest { by, answer }).await.ok()?;
        answered.await.ok()
    }
}

impl ReloadRequest {
    /// Who asks, as the audit list names him.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Tells what came of it.
    pub fn answer(self, outcome: Outcome) {
        // Whoever asked may have gone.
        let _gone = self.answer.send(outcome);
    }
}

/// Reads the configuration again, and puts it into force: what has changed. Where it has errors, they are told each with its
/// place, and the one in force stays.
#[utoipa::path(
    post,
    path = "/v1/reload",
    operation_id = "reload",
    tag = "in force",
    responses((status = 200, body = Reloaded, description = "what has changed"), WriteErrors, UnavailableError, ConfigErrors)
)]
pub(super) async fn reload(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    _: Query<NoParams>,
) -> Result<Json<Reloaded>, Problem> {
    match context.state.reloads.ask(by.0).await {
        Some(Ok(reloaded)) => Ok(Json(reloaded)),
        Some(Err(errors)) => Err(Problem::misconfigured(errors)),
        None => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Tollgate is ending")),
    }
}
