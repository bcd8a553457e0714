//! `GET /v1/events`: what happens, as server-sent events, for as long as somebody listens.

mod stream;
#[cfg(test)]
mod tests;
mod told;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{
        Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::Stream;
use http::StatusCode;

use super::{
    openapi::{Away, Refusals},
    params::{Nothing, Params},
    problem::Problem,
    server::Ending,
    state::Shared,
};

/// Streams at a time.
pub(super) const STREAMS: usize = 32;
/// Without an event, so that nobody between takes the connection for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What happens, as server-sent events: `limited`, `unblocked`, `banned`, `lifted`, `reloaded`, `not_reloaded`, `health`,
/// `warning`, and every two seconds how things stand as `tick`. Whoever reads too slowly is told how many passed by as
/// `missed`.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "events",
    tag = "events",
    responses(
        (
            status = 200,
            body = String,
            content_type = "text/event-stream",
            description = "a stream that does not end: the name of each event, its time in microseconds as `id`, and \
                one line of JSON; the data of `tick` is a `Tick`",
            example = "event: unblocked\nid: 1783080001250000\ndata: {\"address\":\"203.0.113.7\"}\n\n"
        ),
        Refusals,
        Away
    )
)]
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(ending): Extension<Ending>,
    _: Params<Nothing>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let Ok(place) = Arc::clone(&shared.streams).try_acquire_owned() else {
        let detail = format!("{STREAMS} listen already: end one of them, or try again later");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let heartbeat = KeepAlive::new().interval(HEARTBEAT).text("heartbeat");
    Ok(Sse::new(stream::stream(&shared, ending, place)).keep_alive(heartbeat))
}
