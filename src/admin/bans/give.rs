//! `POST /v1/bans`: shuts somebody out.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;

use super::{
    super::{
        audit::Operator,
        body::Body,
        openapi::{Bodies, Changes},
        problem::Problem,
        shapes,
        state::Shared,
    },
    list::{key, told},
};
use crate::telemetry::time;

const SECOND: i64 = 1_000_000;
/// Microseconds.
const LASTS: std::ops::RangeInclusive<i64> = SECOND..=366 * 86_400 * SECOND;
/// Characters of a reason.
const REASON: usize = 256;

/// Shuts out an address, a prefix or a user on every instance, in the place of what ban there is for the key.
#[utoipa::path(
    post,
    path = "/v1/bans",
    operation_id = "ban",
    tag = "bans",
    request_body(
        content = shapes::NewBan,
        description = "who is shut out, for how long, and why",
        example = json!({"key": "ip:203.0.113.7", "for": "1h", "reason": "scraping"})
    ),
    responses(
        (
            status = 201,
            body = shapes::Ban,
            description = "nobody was banned by this key before",
            links(
                ("lift" = (operation_id = "lift", parameters(("key" = "$response.body#/key")))),
                ("find" = (operation_id = "bans", parameters(("key" = "$response.body#/key"))))
            )
        ),
        (status = 200, body = shapes::Ban, description = "it takes the place of another"),
        Changes,
        Bodies
    )
)]
pub(in super::super) async fn give(
    State(shared): State<Arc<Shared>>,
    by: Operator,
    Body(wanted): Body<shapes::NewBan>,
) -> Result<(StatusCode, Json<shapes::Ban>), Problem> {
    let (ban, is_new) = ban(&shared, &by, &wanted)?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(ban)))
}

/// Bans, and says whether nobody was banned by this key before.
pub(in super::super) fn ban(
    shared: &Shared,
    by: &Operator,
    wanted: &shapes::NewBan,
) -> Result<(shapes::Ban, bool), Problem> {
    let key = key(shared, &wanted.key)?;
    let lasts = time::read(&wanted.lasts).filter(|lasts| LASTS.contains(lasts)).ok_or_else(|| {
        let what = wanted.lasts.escape_debug();
        Problem::bad_request(format!("for is how long the ban lasts, 1s to 366d, not {what}"))
    })?;
    let reason = &wanted.reason;
    if reason.chars().any(char::is_control) || reason.chars().count() > REASON {
        let detail = format!("a reason has {REASON} characters at most, and no control characters");
        return Err(Problem::bad_request(detail));
    }
    let (ban, replaced) = shared.state.bans.give(key, lasts, reason.clone(), by.0.clone());
    let mut detail = format!("for {}", time::duration(lasts));
    if !reason.is_empty() {
        detail += &format!(": {reason}");
    }
    shared.audit(by, "ban", &ban.key.to_string(), &detail);
    Ok((told(&ban), !replaced))
}
