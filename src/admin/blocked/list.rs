//! `GET /v1/blocked`: addresses limited now or lately.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    super::{openapi::LookUps, params::Params, problem::Problem, shapes, state::Shared},
    cursor::Sort,
};
use crate::{
    abuse::{self, Client, bans::HAND},
    telemetry::time::rfc3339,
};

/// Addresses a page, unless asked otherwise, and at most.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Wanted {
    /// Held back by this policy.
    pub(in super::super) policy: Option<String>,
    /// Within this prefix.
    pub(in super::super) prefix: Option<String>,
    #[serde(default)]
    #[param(inline)]
    pub(in super::super) sort: Sort,
    /// Addresses a page, 100 unless asked otherwise.
    #[param(minimum = 1, maximum = 1000)]
    pub(in super::super) limit: Option<usize>,
    /// Where the page begins, as the one before it said.
    pub(in super::super) cursor: Option<String>,
}

/// Addresses limited now or lately, a page of them.
#[utoipa::path(get, path = "/v1/blocked", params(Wanted), responses((status = 200, body = shapes::Blocked), LookUps))]
pub(in super::super) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Blocked>, Problem> {
    listed(&shared, &wanted).await.map(Json)
}

/// A page of the list.
pub(in super::super) async fn listed(shared: &Shared, wanted: &Wanted) -> Result<shapes::Blocked, Problem> {
    let state = &shared.state;
    let configured = state.in_force.now();
    let policy = wanted.policy.as_deref().map(|name| {
        let unknown = || Problem::bad_request(format!("there is no policy {}", name.escape_debug()));
        // What bans deny is listed by their rules' names.
        let is_ban = name == HAND || name.starts_with("bans.");
        configured.policy_named(name).map(|_| name).or(is_ban.then_some(name)).ok_or_else(unknown)
    });
    let prefix = wanted.prefix.as_deref().map(|text| {
        let malformed = || format!("not an address or a prefix: {}", text.escape_debug());
        abuse::parse(text).ok_or_else(|| Problem::bad_request(malformed()))
    });
    let after = wanted.cursor.as_deref().map(|cursor| {
        let malformed = "the cursor is not one that this list gave, or was given for another sort";
        wanted.sort.read(cursor).ok_or_else(|| Problem::bad_request(malformed))
    });
    let (policy, prefix, after) = (policy.transpose()?, prefix.transpose()?, after.transpose()?);
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::bad_request(format!("limit must be 1 to {MAX_LIMIT}")));
    }

    shared.desk.refresh().await;
    let mut clients = state.registry.clients(state.clock.now(), |client| {
        policy.is_none_or(|policy| client.policies.iter().any(|name| **name == *policy))
            && prefix.is_none_or(|prefix| prefix.contains(&client.address))
            && after.is_none_or(|after| wanted.sort.place(client) > after)
    });
    clients.sort_by_key(|client| wanted.sort.place(client));
    let more = clients.len() > limit;
    clients.truncate(limit);
    let cursor = clients.last().filter(|_| more).map(|last| wanted.sort.cursor(wanted.sort.place(last)));
    let blocked = clients.iter().map(told).collect();
    Ok(shapes::Blocked { blocked, cursor })
}

/// One address as lists and evidence tell it.
pub(super) fn told(client: &Client) -> shapes::BlockedAddress {
    let hint = match client.users {
        0 => "no user known",
        1 => "one user",
        _ => "many users: shared address or stuffing",
    };
    shapes::BlockedAddress {
        address: client.shown.to_string(),
        policies: client.policies.iter().map(ToString::to_string).collect(),
        first: rfc3339(client.first),
        last: rfc3339(client.last),
        until: rfc3339(client.until),
        denied: client.denied,
        distinct_users: client.users,
        hint: hint.to_owned(),
    }
}
