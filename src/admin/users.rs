//! `GET /v1/users/{user}`: the addresses that a user was limited from.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
};
use http::request::Parts;

use super::{
    openapi::LookUps,
    params::{Nothing, Params},
    problem::Problem,
    shapes,
    state::Shared,
};
use crate::{
    abuse::{self, Sighting},
    telemetry::time::rfc3339,
};

/// The user whom the path names, by his name or as he is written down.
pub(super) struct User(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The addresses that a user was limited from, by his name or, where names are hashed, by the hash.
#[utoipa::path(
    get,
    path = "/v1/users/{user}",
    operation_id = "user",
    tag = "limited clients",
    params((
        "user" = String,
        Path,
        min_length = 1,
        description = "`acme`, or `hmac:0123456789abcdef`",
        example = "acme"
    )),
    responses(
        (
            status = 200,
            body = shapes::User,
            description = "the addresses",
            links(("evidence" = (operation_id = "evidence", parameters(("ip" = "$response.body#/addresses/0/address")))))
        ),
        LookUps
    )
)]
pub(super) async fn user(
    State(shared): State<Arc<Shared>>,
    User(user): User,
    _: Params<Nothing>,
) -> Result<Json<shapes::User>, Problem> {
    whereabouts(&shared, &user).await.map(Json)
}

/// From where a user was limited, as far as this instance and all others know.
pub(super) async fn whereabouts(shared: &Shared, user: &str) -> Result<shapes::User, Problem> {
    let state = &shared.state;
    let Some(written) = state.registry.names().meant(user) else {
        return Err(Problem::not_found("no users are written down: abuse.users is off"));
    };
    let others = shared.desk.user(&written).await;
    let found = state.registry.user(&written, &others, state.clock.now());
    if found.is_empty() {
        return Err(Problem::not_found(format!("{} was not limited lately", user.escape_debug())));
    }
    let told = |Sighting { address, denied, last }: Sighting| shapes::UserAddress {
        address: abuse::shown(address).to_string(),
        denied,
        last: rfc3339(last),
    };
    Ok(shapes::User { user: written.into_owned(), addresses: found.into_iter().map(told).collect() })
}
