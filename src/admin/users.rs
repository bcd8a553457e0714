//! `GET /v1/users/{user}`: the addresses that a user was limited from.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    context::HandlerContext,
    dto,
    extract::{NoParams, Query, UserParam},
    openapi::LookupErrors,
    problem::Problem,
};
use crate::{
    abuse::{self, UserAddress},
    telemetry::time::rfc3339,
};

/// Lists the addresses that a user was limited from. The user is given by its ID or, if IDs are hashed, by the hash.
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
            body = dto::User,
            description = "the addresses that the user was limited from",
            links(("evidence" = (operation_id = "evidence", parameters(("ip" = "$response.body#/addresses/0/address")))))
        ),
        LookupErrors
    )
)]
pub(super) async fn user(
    State(context): State<Arc<HandlerContext>>,
    UserParam(user): UserParam,
    _: Query<NoParams>,
) -> Result<Json<dto::User>, Problem> {
    addresses_of(&context, &user).await.map(Json)
}

/// From where a user was limited, as far as this instance and all others know.
pub(super) async fn addresses_of(context: &HandlerContext, user: &str) -> Result<dto::User, Problem> {
    let state = &context.state;
    let Some(written) = state.registry.names().stored_name_of_input(user) else {
        return Err(Problem::not_found("users are not recorded, because abuse.users is off"));
    };
    let others = context.peers.user(&written).await;
    let found = state.registry.addresses_of_user(&written, &others, state.clock.now());
    if found.is_empty() {
        return Err(Problem::not_found(format!("{} was not limited recently", user.escape_debug())));
    }
    let address_dto = |UserAddress { address, denied, last }: UserAddress| dto::UserAddress {
        address: abuse::shown(address).to_string(),
        denied,
        last: rfc3339(last),
    };
    Ok(dto::User { user: written.into_owned(), addresses: found.into_iter().map(address_dto).collect() })
}
