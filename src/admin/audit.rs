//! What was changed through the admin port, or by rules, and by whom.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Json,
    extract::{FromRequestParts, State},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{openapi::Refusals, params::Params, problem::Problem, shapes, state::Shared, vocabulary};
use crate::{
    abuse::{AuditEntry, ENTRIES},
    telemetry::time::rfc3339,
};

/// Entries a page, unless asked otherwise.
const LIMIT: usize = 100;

/// Who asks: the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who asks, as the audit list names him: `operator at 127.0.0.1`.
#[derive(Debug, Clone)]
pub(super) struct Operator(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<Peer>();
        Ok(Self(peer.map_or_else(|| "operator".to_owned(), |Peer(address)| format!("operator at {address}"))))
    }
}

impl Shared {
    /// Writes down that `by` has changed something. `action`: `unblock`, `ban`, `lift`, `reset`, `reload`.
    pub(super) fn audit(&self, by: &Operator, action: &str, target: &str, detail: &str) {
        self.state.audit.write(&by.0, action, target, detail);
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Entries a page, 100 unless asked otherwise.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the page begins, as the one before it said.
    #[param(value_type = Option<vocabulary::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// Who changed what, on all instances, the newest first: the last thousand changes.
#[utoipa::path(
    get,
    path = "/v1/audit",
    operation_id = "audit",
    tag = "in force",
    params(Wanted),
    responses((status = 200, body = shapes::Audit, description = "a page of the list"), Refusals)
)]
pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    Params(wanted): Params<Wanted>,
) -> Result<Json<shapes::Audit>, Problem> {
    listed(&shared, &wanted).map(Json)
}

/// The page that is wanted.
pub(super) fn listed(shared: &Shared, wanted: &Wanted) -> Result<shapes::Audit, Problem> {
    page(shared, wanted.limit.unwrap_or(LIMIT), wanted.cursor.as_deref())
}

/// A page of the list, behind the cursor of the one before it.
pub(super) fn page(shared: &Shared, limit: usize, cursor: Option<&str>) -> Result<shapes::Audit, Problem> {
    if !(1..=ENTRIES).contains(&limit) {
        return Err(Problem::bad_request(format!("limit must be 1 to {ENTRIES}")));
    }
    let after = cursor.map(|cursor| {
        let malformed = || Problem::bad_request("the cursor is not one that this list gave");
        read(cursor).ok_or_else(malformed)
    });
    let mut entries = shared.state.audit.entries(after.transpose()?, limit + 1);
    let goes_on = entries.len() > limit;
    entries.truncate(limit);
    let cursor = entries.last().filter(|_| goes_on).map(cursor_behind);
    Ok(shapes::Audit { entries: entries.into_iter().map(told).collect(), cursor })
}

fn told(entry: AuditEntry) -> shapes::AuditEntry {
    let AuditEntry { time, by, action, target, detail, instance, .. } = entry;
    shapes::AuditEntry { time: rfc3339(time), by, action, target, detail, instance }
}

fn cursor_behind(entry: &AuditEntry) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", entry.time, entry.id))
}

fn read(cursor: &str) -> Option<(i64, u64)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (time, id) = text.split_once(' ')?;
    time.parse().ok().zip(id.parse().ok())
}
