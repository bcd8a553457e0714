//! `/v1/customers`: the customers of API keys, with their plans, their limits and what they have used.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{Json, extract::State};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    context::{HandlerContext, to_completion},
    dto::{self, schema},
    extract::{CustomerParam, IfMatch, JsonBody, Operator, Query},
    held_limits::Holder,
    history::{UsageQuery, question},
    key_changes::{self, ChangeAuthor, WithoutReply},
    keys::{check_names, is_valid, search, warnings},
    openapi::{BodyErrors, NotFoundError, ReadErrors, RefusedError, UnavailableError, WriteErrors},
    paging::{decode_cursor, encode_cursor, page_size},
    problem::Problem,
};
use crate::{
    api_keys::{
        ApiKey, KeyStore,
        operations::{self, KeyChange},
        record::check_name,
    },
    history::{Month, UsageRow},
    telemetry::time::rfc3339,
};

/// Keys that are looked at.
const MAX_KEYS: usize = 200_000;
/// Customers whose limits are read at once.
const AT_ONCE: usize = 32;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CustomersQuery {
    /// Only this customer.
    #[param(value_type = Option<schema::KeyName>)]
    pub(super) customer: Option<String>,
    /// Only customers with a key of this plan.
    #[param(value_type = Option<schema::KeyName>)]
    pub(super) plan: Option<String>,
    /// Customers per page; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `cursor` of the previous page.
    #[param(value_type = Option<schema::Cursor>)]
    pub(super) cursor: Option<String>,
}

/// Lists the customers of valid API keys, in the order of their names, with their limits and what they have used.
#[utoipa::path(
    get,
    path = "/v1/customers",
    operation_id = "customers",
    tag = "keys",
    params(CustomersQuery),
    responses((status = 200, body = dto::Customers, description = "one page of customers"), ReadErrors, UnavailableError)
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<CustomersQuery>,
) -> Result<Json<dto::Customers>, Problem> {
    page(&context, &query).await.map(Json)
}

/// A page of customers.
pub(super) async fn page(
    context: &HandlerContext,
    query: &CustomersQuery,
) -> Result<dto::Customers, Problem> {
    check_names(query.customer.as_deref(), query.plan.as_deref())?;
    let limit = page_size(query.limit)?;
    let after: Option<String> = decode_cursor(query.cursor.as_deref(), Some)?;
    let now = context.state.clock.now();
    let is_wanted = |key: &ApiKey| {
        is_valid(key, now)
            && query.customer.as_ref().is_none_or(|customer| key.customer == *customer)
            && after.as_ref().is_none_or(|after| key.customer.as_str() > after.as_str())
    };
    let (keys, _) = search(&context.state.api_keys, None, MAX_KEYS, is_wanted).await;
    let mut by_name: BTreeMap<&str, Vec<&Arc<ApiKey>>> = BTreeMap::new();
    for key in &keys {
        by_name.entry(&key.customer).or_default().push(key);
    }
    if let Some(plan) = &query.plan {
        by_name.retain(|_, keys| keys.iter().any(|key| key.plan.as_deref() == Some(plan)));
    }
    let has_more = by_name.len() > limit;
    let of_page: Vec<(&str, Vec<&Arc<ApiKey>>)> = by_name.into_iter().take(limit).collect();
    let (month, used) = used_this_month(context, query.customer.as_deref()).await?;
    let denied = match &context.state.history {
        Some(history) => history.last_denials(now.div_euclid(60_000_000) - 1_440).await?,
        None => HashMap::new(),
    };
    let read = async |(name, keys): (&str, Vec<&Arc<ApiKey>>)| {
        let mut customer = limits(context, name, &keys).await?;
        if month.is_some() {
            let row = used.get(name).cloned().unwrap_or_default();
            customer.requests = Some(row.counts.requests);
            customer.denied = Some(row.counts.denied);
            customer.units =
                row.units.into_iter().map(|(policy, units)| dto::UsedUnits { policy, units }).collect();
        }
        customer.last_denied = denied.get(name).map(|time| rfc3339(*time));
        Ok::<_, Problem>(customer)
    };
    let last = of_page.last().filter(|_| has_more).map(|(name, _)| encode_cursor(name));
    let reads: Vec<_> = of_page.into_iter().map(read).collect();
    let read: Vec<Result<dto::Customer, Problem>> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    Ok(dto::Customers {
        customers: read.into_iter().collect::<Result<_, _>>()?,
        month: month.map(|month| month.to_string()),
        cursor: last,
    })
}

/// The limits that hold for a customer, under each plan of its keys.
async fn limits(
    context: &HandlerContext,
    name: &str,
    keys: &[&Arc<ApiKey>],
) -> Result<dto::Customer, Problem> {
    let mut by_plan: BTreeMap<Option<&str>, &Arc<ApiKey>> = BTreeMap::new();
    for key in keys {
        by_plan.entry(key.plan.as_deref()).or_insert(key);
    }
    let config = context.state.active_config.snapshot();
    let mut all = dto::Limits::default();
    for key in by_plan.values() {
        let holder = Holder::customer(Arc::clone(key));
        for policy in config.policies().iter().filter(|policy| holder.key().is_keyed(policy)) {
            holder.read(context, policy, false, &mut all).await?;
        }
    }
    all.limits.dedup();
    all.unlimited.dedup();
    let share = |limit: &dto::LimitUsage| limit.used.saturating_mul(100) / limit.limit.max(1);
    Ok(dto::Customer {
        name: name.to_owned(),
        plans: by_plan.keys().flatten().map(|plan| (*plan).to_owned()).collect(),
        keys: keys.len(),
        share: all.limits.iter().map(share).max(),
        limits: all.limits,
        unlimited: all.unlimited,
        ..dto::Customer::default()
    })
}

/// What each customer has used this month, if history is kept.
async fn used_this_month(
    context: &HandlerContext,
    customer: Option<&str>,
) -> Result<(Option<Month>, HashMap<String, UsageRow>), Problem> {
    let Some(history) = &context.state.history else { return Ok((None, HashMap::new())) };
    let query = UsageQuery { customer: customer.map(str::to_owned), ..UsageQuery::default() };
    let (question, _) = question(context, &query)?;
    let month = question.month();
    let answer = history.usage(question).await?;
    let rows = answer.rows.into_iter().filter(|row| !row.is_late);
    Ok((month, rows.map(|row| (row.keys.first().cloned().unwrap_or_default(), row)).collect()))
}

/// Sets the plan of all keys of a customer that Tollgate keeps. Keys in the file keep their plans, and are named.
#[utoipa::path(
    put,
    path = "/v1/customers/{customer}/plan",
    operation_id = "move_customer",
    tag = "keys",
    params(("customer" = schema::KeyName, Path, description = "the name of the customer")),
    request_body(content = dto::CustomerPlan, description = "the plan", example = json!({"plan": "pro"})),
    responses(
        (status = 200, body = dto::MovedCustomer, description = "the keys that have the plan now"),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        RefusedError,
        UnavailableError
    )
)]
pub(super) async fn set_plan(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    CustomerParam(customer): CustomerParam,
    JsonBody(dto::CustomerPlan { plan }): JsonBody<dto::CustomerPlan>,
) -> Result<Json<dto::MovedCustomer>, Problem> {
    if let Some(plan) = &plan {
        check_name("plan", plan).map_err(|reason| Problem::wrong_field("plan", &reason))?;
    }
    let now = context.state.clock.now();
    let is_wanted = |key: &ApiKey| is_valid(key, now) && key.customer == customer;
    let (keys, _) = search(&context.state.api_keys, None, MAX_KEYS, is_wanted).await;
    if keys.is_empty() {
        let detail = format!("no valid key is of customer {}", customer.escape_debug());
        return Err(Problem::not_found(detail));
    }
    let registry = &context.state.api_keys;
    if registry.store() == KeyStore::None {
        return Err(Problem::refused(
            "all keys are in the file: change their plans there, or keep keys here (api_keys.store)",
        ));
    }
    to_completion(async move {
        let mut moved = dto::MovedCustomer {
            customer: customer.clone(),
            plan: plan.clone(),
            shared: true,
            ..dto::MovedCustomer::default()
        };
        let mut from: Vec<String> = Vec::new();
        let change = KeyChange { plan: Some(plan.as_deref().map(Into::into)), ..KeyChange::default() };
        let author = ChangeAuthor { by: &by, action: "move_customer", without_reply: WithoutReply::NotMade };
        let mut failed = None;
        for key in &keys {
            let id = key.id.to_string();
            if context.state.api_keys.is_in_file(&id) {
                moved.in_file.push(id);
            } else if key.plan.as_deref() == plan.as_deref() {
                moved.unchanged.push(id);
            } else {
                let operation = |key: &ApiKey| operations::change(key, change.clone(), now);
                match key_changes::change(&context, &id, &IfMatch(None), author, operation).await {
                    Ok(made) => {
                        let name = key.plan.as_deref().unwrap_or("none").to_owned();
                        if !from.contains(&name) {
                            from.push(name);
                        }
                        moved.warnings = warnings(
                            context.state.active_config.snapshot().rules.config(),
                            std::slice::from_ref(&made.key),
                        );
                        moved.shared &= made.is_shared;
                        moved.changed.push(id);
                    }
                    Err(problem) => {
                        failed = Some((id, problem));
                        break;
                    }
                }
            }
        }
        if !moved.changed.is_empty() {
            let to = plan.as_deref().unwrap_or("none");
            let detail = format!("plan {} to {to}: keys {}", from.join(", "), moved.changed.join(", "));
            context.audit(&by, "move_customer", &format!("customer:{customer}"), &detail);
        }
        match failed {
            None => Ok(Json(moved)),
            Some((id, problem)) if moved.changed.is_empty() => {
                Err(Problem::new(problem.status(), format!("key {id}: {}", problem.detail())))
            }
            Some((id, problem)) => Err(Problem::new(
                problem.status(),
                format!(
                    "{} of {} keys have the plan now; key {id} could not be changed: {}. Do it again",
                    moved.changed.len(),
                    keys.len(),
                    problem.detail()
                ),
            )),
        }
    })
    .await
}
