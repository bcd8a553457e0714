//! `GET /v1/bans`: who is shut out.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    super::{openapi::Refusals, params::Params, problem::Problem, shapes, state::Shared, vocabulary},
    cursor,
};
use crate::{
    abuse::{
        self,
        bans::{Ban, Bans, Key},
    },
    telemetry::time::rfc3339,
};

/// Bans a page, unless asked otherwise, and at most.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Wanted {
    /// Of this key alone.
    #[param(value_type = Option<vocabulary::BanKey>)]
    pub(in super::super) key: Option<String>,
    /// Of addresses and prefixes within this prefix.
    #[param(value_type = Option<vocabulary::Prefix>)]
    pub(in super::super) prefix: Option<String>,
    /// Bans a page, 100 unless asked otherwise.
    #[param(minimum = 1, maximum = 1000)]
    pub(in super::super) limit: Option<usize>,
    /// Where the page begins, as the one before it said.
    #[param(value_type = Option<vocabulary::Cursor>)]
    pub(in super::super) cursor: Option<String>,
}

/// Who is shut out, a page of them: the one that ends last first.
#[utoipa::path(
    get,
    path = "/v1/bans",
    operation_id = "bans",
    tag = "bans",
    params(Wanted),
    responses(
        (
            status = 200,
            body = shapes::Bans,
            description = "a page of those that hold",
            links(("lift" = (operation_id = "lift", parameters(("key" = "$response.body#/bans/0/key")))))
        ),
        Refusals
    )
)]
pub(in super::super) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Bans>, Problem> {
    page(&shared, &wanted).map(Json)
}

/// A page of the bans that hold.
pub(in super::super) fn page(shared: &Shared, wanted: &Wanted) -> Result<shapes::Bans, Problem> {
    let state = &shared.state;
    let key = wanted.key.as_deref().map(|text| key(shared, text)).transpose()?;
    let prefix = wanted.prefix.as_deref().map(|text| {
        let malformed = || format!("not an address or a prefix: {}", text.escape_debug());
        abuse::parse(text).ok_or_else(|| Problem::bad_request(malformed()))
    });
    let after = wanted.cursor.as_deref().map(|text| {
        cursor::read(text).ok_or_else(|| Problem::bad_request("the cursor is not one that this list gave"))
    });
    let (prefix, after) = (prefix.transpose()?, after.transpose()?);
    let limit = wanted.limit.unwrap_or(LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::bad_request(format!("limit must be 1 to {MAX_LIMIT}")));
    }
    let found = state.bans.page(after, limit, |ban| {
        key.as_ref().is_none_or(|key| ban.key == *key)
            && prefix.is_none_or(|prefix| matches!(&ban.key, Key::Address(net) if prefix.contains(net)))
    });
    let last = found.bans.last().filter(|_| found.goes_on);
    let cursor = last.map(|last| cursor::write(&Bans::place(last)));
    Ok(shapes::Bans { bans: found.bans.iter().map(|ban| told(ban)).collect(), cursor })
}

/// The key that an operator means.
pub(super) fn key(shared: &Shared, text: &str) -> Result<Key, Problem> {
    Key::parse(text, shared.state.in_force.now().ipv6_prefix())
        .map_err(|error| Problem::bad_request(error.to_string()))
}

/// As the admin port tells of a ban.
pub(in super::super) fn told(ban: &Ban) -> shapes::Ban {
    shapes::Ban {
        key: ban.key.to_string(),
        since: rfc3339(ban.since),
        until: rfc3339(ban.until),
        reason: ban.reason.clone(),
        by: ban.by.clone(),
        level: ban.level,
        mode: if ban.is_shadow { "shadow" } else { "enforce" }.to_owned(),
    }
}
