//! `GET /v1/audit`: changes by operators and by rules.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{
    context::HandlerContext,
    dto::{self, schema},
    extract::Query,
    openapi::ReadErrors,
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    abuse::{self, AuditEntry},
    telemetry::time::rfc3339,
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Only changes by operators, or by rules.
    #[param(inline)]
    pub(super) by: Option<AuditAuthor>,
    /// Entries per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// The author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuditAuthor {
    /// By the admin port, or by a signal.
    Operator,
    /// A rule of `bans`.
    Rule,
}

impl AuditAuthor {
    /// The name in the query.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Rule => "rule",
        }
    }
}

impl From<AuditAuthor> for abuse::Author {
    fn from(author: AuditAuthor) -> Self {
        match author {
            AuditAuthor::Operator => Self::Operator,
            AuditAuthor::Rule => Self::Rule,
        }
    }
}

/// Lists the changes on all instances with their authors, newest first: the last thousand by operators, and as many by
/// rules.
#[utoipa::path(
    get,
    path = "/v1/audit",
    operation_id = "audit",
    tag = "in force",
    params(AuditQuery),
    responses((status = 200, body = dto::Audit, description = "one page of entries"), ReadErrors)
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<dto::Audit>, Problem> {
    page(&context, &query).map(Json)
}

/// A page of the audit log.
pub(super) fn page(context: &HandlerContext, query: &AuditQuery) -> Result<dto::Audit, Problem> {
    let limit = page_size(query.limit)?;
    let after = decode_cursor(query.cursor.as_deref(), Some::<(i64, u64)>)?;
    // Reads one more, to know whether there is another page.
    let mut entries = context.state.audit.entries(query.by.map(abuse::Author::from), after, limit + 1);
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| has_more);
    let cursor = last.map(|entry| encode_cursor(&(entry.time, entry.id)));
    Ok(dto::Audit { entries: entries.into_iter().map(dto::AuditEntry::from).collect(), cursor })
}

impl From<AuditEntry> for dto::AuditEntry {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { time, by, action, target, detail, instance, .. } = entry;
        Self { time: rfc3339(time), by, action, target, detail, instance }
    }
}
