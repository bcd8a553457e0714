//! `/v1/alerts`: the messages to webhooks, and a test of these.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    context::HandlerContext,
    dto::{self, schema},
    extract::{Operator, Query},
    openapi::{LookupErrors, UnavailableError},
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    alerts::Alerts,
    history::{AlertState, KeptAlert},
    telemetry::time::rfc3339,
};

fn kept(context: &HandlerContext) -> Result<&Arc<Alerts>, Problem> {
    let none = || {
        Problem::not_found(
            "there are no alerts: set `history` and `alerts` in proxy.yaml, and restart Tollgate",
        )
    };
    context.state.alerts.as_ref().ok_or_else(none)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertsQuery {
    /// Messages per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    cursor: Option<String>,
}

/// Lists the messages that all instances have sent to webhooks, newest first.
#[utoipa::path(
    get,
    path = "/v1/alerts",
    operation_id = "alerts",
    tag = "history",
    params(AlertsQuery),
    responses((status = 200, body = dto::Alerts, description = "one page of messages"), LookupErrors, UnavailableError)
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<AlertsQuery>,
) -> Result<Json<dto::Alerts>, Problem> {
    let alerts = kept(&context)?;
    let limit = page_size(query.limit)?;
    let after = decode_cursor(query.cursor.as_deref(), Some::<(i64, String, String)>)?;
    // Reads one more, to know whether there is another page.
    let mut found = alerts.list(after, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let cursor = last.map(|alert| encode_cursor(&(alert.created, &alert.id, &alert.webhook)));
    Ok(Json(dto::Alerts { alerts: found.into_iter().map(dto::Alert::from).collect(), cursor }))
}

impl From<KeptAlert> for dto::Alert {
    fn from(alert: KeptAlert) -> Self {
        let KeptAlert {
            id,
            created,
            policy,
            subject,
            limit,
            share,
            used,
            receiver,
            state,
            attempts,
            result,
            ..
        } = alert;
        let state = match state {
            AlertState::Waiting => "waiting",
            AlertState::Delivered => "delivered",
            AlertState::GivenUp => "given_up",
        };
        Self {
            id,
            time: rfc3339(created.saturating_mul(1_000_000)),
            policy,
            subject,
            share: f64::from(share) / 100.0,
            used,
            limit,
            to: receiver,
            state: state.to_owned(),
            attempts,
            result: (!result.is_empty()).then_some(result),
        }
    }
}

/// Sends a message to each webhook that says it is a test.
#[utoipa::path(
    post,
    path = "/v1/alerts/test",
    operation_id = "testAlerts",
    tag = "history",
    responses((status = 200, body = dto::TestedAlerts, description = "what each webhook replied"), LookupErrors)
)]
pub(super) async fn test(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
) -> Result<Json<dto::TestedAlerts>, Problem> {
    let tested = kept(&context)?.test().await;
    if tested.is_empty() {
        return Err(Problem::not_found(
            "the configuration that runs has no `alerts`: set them in proxy.yaml, and reload",
        ));
    }
    context.audit(&by, "test_alerts", &format!("{} webhooks", tested.len()), "a test was sent");
    let webhook = |tested: crate::alerts::TestedWebhook| {
        let (status, error) = match tested.reply {
            Ok(status) => (Some(status), None),
            Err(reason) => (None, Some(reason)),
        };
        let milliseconds = u64::try_from(tested.took.as_millis()).unwrap_or(u64::MAX);
        dto::TestedWebhook { to: tested.receiver, policies: tested.policies, status, error, milliseconds }
    };
    Ok(Json(dto::TestedAlerts { webhooks: tested.into_iter().map(webhook).collect() }))
}
