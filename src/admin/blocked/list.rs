//! `GET /v1/blocked`: addresses limited now or lately.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    super::{
        Configured, openapi::Refusals, params::Params, problem::Problem, shapes, state::Shared, vocabulary,
    },
    cursor,
};
use crate::{
    abuse::{self, Client, Sort, Walk, bans::HAND},
    telemetry::time::rfc3339,
};

/// Addresses a page, unless asked otherwise, and at most.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Wanted {
    /// Held back by this policy; `ban` is one by hand, `bans.NAME` one by a ladder.
    #[param(min_length = 1, example = "per-ip")]
    pub(in super::super) policy: Option<String>,
    /// Within this prefix.
    #[param(value_type = Option<vocabulary::Prefix>)]
    pub(in super::super) prefix: Option<String>,
    /// Limited still, or no longer.
    pub(in super::super) active: Option<bool>,
    /// How many users were behind it.
    #[param(inline)]
    pub(in super::super) hint: Option<Hint>,
    /// By what they are sorted: the greatest first, or by address.
    #[serde(default)]
    #[param(inline)]
    pub(in super::super) sort: Sort,
    /// Addresses a page, 100 unless asked otherwise.
    #[param(minimum = 1, maximum = 1000)]
    pub(in super::super) limit: Option<usize>,
    /// Where the page begins, as the one before it said.
    #[param(value_type = Option<vocabulary::Cursor>)]
    pub(in super::super) cursor: Option<String>,
}

/// What is said of an address by how many users were behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum Hint {
    /// None that is known.
    None,
    One,
    Many,
}

/// Addresses limited now or lately, a page of them.
#[utoipa::path(
    get,
    path = "/v1/blocked",
    operation_id = "blocked",
    tag = "limited clients",
    params(Wanted),
    responses(
        (
            status = 200,
            body = shapes::Blocked,
            description = "a page of them",
            links(
                ("evidence" = (operation_id = "evidence", parameters(("ip" = "$response.body#/blocked/0/address")))),
                ("unblock" = (operation_id = "unblock", parameters(("ip" = "$response.body#/blocked/0/address")))),
                ("next" = (operation_id = "blocked", parameters(("cursor" = "$response.body#/cursor"))))
            )
        ),
        Refusals
    )
)]
pub(in super::super) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Blocked>, Problem> {
    listed(&shared, &wanted).await.map(Json)
}

/// A page of the list.
pub(in super::super) async fn listed(shared: &Shared, wanted: &Wanted) -> Result<shapes::Blocked, Problem> {
    let state = &shared.state;
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::bad_request(format!("limit must be 1 to {MAX_LIMIT}")));
    }
    let mut walk = Walk::new(wanted.read(&state.in_force.now())?, limit);
    shared.desk.refresh().await;
    let now = state.clock.now();
    while state.registry.step(&mut walk, now) {
        // Others who ask have their turn: among a million addresses it may take a while to find those that are wanted.
        tokio::task::yield_now().await;
    }
    let (clients, next) = walk.page();
    let cursor = next.map(|place| cursor::cursor(wanted.sort, place));
    Ok(shapes::Blocked { blocked: clients.iter().map(told).collect(), cursor })
}

impl Wanted {
    fn read(&self, configured: &Configured) -> Result<abuse::Wanted, Problem> {
        let policy = self.policy.as_deref().map(|name| {
            let unknown = || Problem::bad_request(format!("there is no policy {}", name.escape_debug()));
            // What bans deny is listed by their rules' names.
            let is_ban = name == HAND || name.starts_with("bans.");
            let is_known = is_ban || configured.policy_named(name).is_some();
            is_known.then(|| name.into()).ok_or_else(unknown)
        });
        let prefix = self.prefix.as_deref().map(|text| {
            let malformed = || format!("not an address or a prefix: {}", text.escape_debug());
            abuse::parse(text).ok_or_else(|| Problem::bad_request(malformed()))
        });
        let after = self.cursor.as_deref().map(|cursor| {
            let malformed = "the cursor is not one that this list gave, or was given for another sort";
            cursor::read(self.sort, cursor).ok_or_else(|| Problem::bad_request(malformed))
        });
        Ok(abuse::Wanted {
            sort: self.sort,
            after: after.transpose()?,
            policy: policy.transpose()?,
            prefix: prefix.transpose()?,
            is_active: self.active,
            users: self.hint.map(|hint| match hint {
                Hint::None => (0, 0),
                Hint::One => (1, 1),
                Hint::Many => (2, u64::MAX),
            }),
        })
    }
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
        distinct_users: usize::try_from(client.users).unwrap_or(usize::MAX),
        hint: hint.to_owned(),
    }
}
