//! `DELETE /v1/bans?key=`: lets somebody in again.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    super::{
        audit::Operator,
        openapi::{Changes, Missing},
        params::Params,
        problem::Problem,
        shapes,
        state::Shared,
        vocabulary,
    },
    list::key,
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Wanted {
    /// Who is let in: `ip:203.0.113.7`, `ip:10.0.0.0/8`, `user:acme`.
    #[param(value_type = vocabulary::BanKey)]
    key: String,
}

/// Lifts the bans by exactly this key on every instance, and forgets how often in a row it was banned.
#[utoipa::path(
    delete,
    path = "/v1/bans",
    operation_id = "lift",
    tag = "bans",
    params(Wanted),
    responses((status = 200, body = shapes::Lifted, description = "it is lifted"), Changes, Missing)
)]
pub(in super::super) async fn lift(
    State(shared): State<Arc<Shared>>,
    by: Operator,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Lifted>, Problem> {
    lifted(&shared, &by, &wanted.key).map(Json)
}

/// Lifts bans; a problem where there is none.
pub(in super::super) fn lifted(
    shared: &Shared,
    by: &Operator,
    text: &str,
) -> Result<shapes::Lifted, Problem> {
    let key = key(shared, text)?;
    let held = !shared.state.bans.by_key(&key).is_empty();
    let bans_lifted = shared.state.bans.lift(&key);
    if !held {
        return Err(Problem::not_found(format!("nobody is banned by {key}")));
    }
    shared.audit(by, "lift", &key.to_string(), "");
    Ok(shapes::Lifted { key: key.to_string(), bans_lifted })
}
