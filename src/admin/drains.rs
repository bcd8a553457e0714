//! `/v1/drains`: lists the endpoints that operators have drained, drains an endpoint, and undrains it.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    context::{HandlerContext, is_shared},
    dto::{self, schema},
    extract::{JsonBody, NoParams, Operator, Query, checked_reason},
    openapi::{BodyErrors, ConflictError, NotFoundError, ReadErrors, WriteErrors},
    problem::Problem,
};
use crate::{
    config::model::endpoint_name,
    telemetry::time::rfc3339,
    upstream::{EndpointDrain, EndpointId, SharedUpstream},
};

/// Lists the endpoints that operators have drained on all instances.
#[utoipa::path(
    get,
    path = "/v1/drains",
    operation_id = "drains",
    tag = "upstreams",
    responses((status = 200, body = dto::Drains, description = "the endpoints that operators have drained"), ReadErrors)
)]
pub(super) async fn list(
    State(context): State<Arc<HandlerContext>>,
    _: Query<NoParams>,
) -> Json<dto::Drains> {
    Json(drains_dto(&context))
}

pub(super) fn drains_dto(context: &HandlerContext) -> dto::Drains {
    let upstreams = &context.state.active_config.snapshot().upstreams;
    let drains = context.state.drains.all();
    dto::Drains { drains: drains.iter().map(|drain| drain_dto(drain, upstreams)).collect() }
}

/// Drains an endpoint on every instance: it takes no new requests until it is undrained, over reloads and restarts.
/// Requests and tunnels in flight go on. The last endpoint of an upstream that takes requests is drained only if
/// `force` is set: from then on each request to the upstream gets 503.
#[utoipa::path(
    post,
    path = "/v1/drains",
    operation_id = "drain",
    tag = "upstreams",
    request_body(
        content = dto::NewDrain,
        description = "which endpoint to drain, and why",
        example = json!({"upstream": "api", "endpoint": "http://10.0.0.5:3000", "reason": "a new disk"})
    ),
    responses(
        (status = 201, body = dto::Drained, description = "the endpoint is now drained"),
        (status = 200, body = dto::Drained, description = "an operator had drained it before; the new reason replaced the earlier one"),
        WriteErrors,
        BodyErrors,
        NotFoundError,
        ConflictError
    )
)]
pub(super) async fn create(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    JsonBody(new): JsonBody<dto::NewDrain>,
) -> Result<(StatusCode, Json<dto::Drained>), Problem> {
    let dto::NewDrain { upstream, endpoint, reason, force } = new;
    checked_reason(&reason)?;
    let upstreams = &context.state.active_config.snapshot().upstreams;
    let (found, endpoint) = find(upstreams, &upstream, &endpoint)?;
    let in_use = found.endpoints_in_use();
    if !force && !in_use.is_empty() && in_use.iter().all(|in_use| *in_use == endpoint.url) {
        return Err(Problem::last_endpoint(&endpoint));
    }
    let drain = EndpointDrain { endpoint, since: context.state.clock.now(), reason, by: by.0.clone() };
    let replaced = context.state.drains.drain(drain.clone());
    let replaced = replaced.map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?;
    context.audit(&by, "drain", &drain.endpoint.to_string(), &drain.reason);
    if found.endpoints_in_use().is_empty() {
        tracing::warn!(
            "all endpoints of upstream {upstream} are drained: each request to it gets 503 until one is undrained"
        );
    }
    let status = if replaced { StatusCode::OK } else { StatusCode::CREATED };
    let shared = is_shared(&context, || context.state.drains.is_sent(&drain.endpoint)).await;
    Ok((status, Json(dto::Drained { drain: drain_dto(&drain, upstreams), shared })))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UndrainQuery {
    /// The name of the upstream.
    #[param(value_type = schema::UpstreamName)]
    upstream: String,
    /// The URL of the endpoint, as in `endpoints`.
    #[param(value_type = schema::EndpointUrl)]
    endpoint: String,
}

/// Undrains an endpoint that an operator has drained, on every instance.
#[utoipa::path(
    delete,
    path = "/v1/drains",
    operation_id = "undrain",
    tag = "upstreams",
    params(UndrainQuery),
    responses(
        (status = 200, body = dto::Undrained, description = "it takes requests again"),
        WriteErrors,
        NotFoundError
    )
)]
pub(super) async fn remove(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    Query(UndrainQuery { upstream, endpoint }): Query<UndrainQuery>,
) -> Result<Json<dto::Undrained>, Problem> {
    let upstreams = &context.state.active_config.snapshot().upstreams;
    let found = find(upstreams, &upstream, &endpoint);
    // An endpoint that is no longer configured may still be drained.
    let endpoint = match &found {
        Ok((_, endpoint)) => endpoint.clone(),
        Err(_) => EndpointId { upstream, url: endpoint_name(&endpoint) },
    };
    let by_configuration =
        found.as_ref().is_ok_and(|(upstream, _)| upstream.is_drained_by_configuration(&endpoint.url));
    if context.state.drains.undrain(&endpoint).is_none() {
        let EndpointId { upstream, url } = &endpoint;
        return Err(match (found, by_configuration) {
            (Err(unknown), _) => unknown,
            (Ok(_), true) => Problem::new(
                StatusCode::NOT_FOUND,
                format!(
                    "endpoint {url} of upstream {upstream} is drained by `drain: true` in the configuration: remove it there"
                ),
            ),
            (Ok(_), false) => {
                Problem::not_found(format!("endpoint {url} of upstream {upstream} is not drained"))
            }
        });
    }
    context.audit(&by, "undrain", &endpoint.to_string(), "");
    let shared = is_shared(&context, || context.state.drains.is_sent(&endpoint)).await;
    let EndpointId { upstream, url } = endpoint;
    let drained_by_configuration = by_configuration;
    Ok(Json(dto::Undrained { upstream, endpoint: url, drained_by_configuration, shared }))
}

/// The upstream of this name, and its endpoint with this URL.
fn find<'a>(
    upstreams: &'a [Arc<SharedUpstream>],
    name: &str,
    url: &str,
) -> Result<(&'a SharedUpstream, EndpointId), Problem> {
    let Some(upstream) = upstreams.iter().find(|upstream| upstream.config.name == name) else {
        let names = listed(upstreams.iter().map(|upstream| upstream.config.name.clone()).collect());
        let name = name.escape_debug();
        return Err(Problem::not_found(format!("no upstream is named {name}; the upstreams are {names}")));
    };
    let (urls, wanted) = (upstream.endpoint_urls(), endpoint_name(url));
    if !urls.contains(&wanted) {
        let (url, urls) = (url.escape_debug(), listed(urls));
        return Err(Problem::not_found(format!(
            "upstream {name} has no endpoint {url}; its endpoints are {urls}"
        )));
    }
    Ok((upstream, EndpointId { upstream: name.to_owned(), url: wanted }))
}

/// `a, b and 3 more`
fn listed(mut names: Vec<String>) -> String {
    const SHOWN: usize = 10;
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let names = names.join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

fn drain_dto(drain: &EndpointDrain, upstreams: &[Arc<SharedUpstream>]) -> dto::Drain {
    let EndpointDrain { endpoint: EndpointId { upstream, url }, since, reason, by } = drain;
    dto::Drain {
        configured: find(upstreams, upstream, url).is_ok(),
        upstream: upstream.clone(),
        endpoint: url.clone(),
        since: rfc3339(*since),
        reason: reason.clone(),
        by: by.clone(),
    }
}
