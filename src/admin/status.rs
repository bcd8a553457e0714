//! How the process stands.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    AdminState, ConfigSnapshot, ProcessPhase,
    context::HandlerContext,
    dto::{Configuration, SharedStore, Status, StoreStatus},
    extract::{NoParams, Query},
    openapi::ReadErrors,
};
use crate::telemetry::{
    metrics::{Metrics, StoreFacts},
    time::{format_duration, rfc3339},
};

/// How the process stands: version, configuration, store, and what an operator should know.
#[utoipa::path(
    get,
    path = "/v1/status",
    operation_id = "status",
    tag = "in force",
    responses((status = 200, body = Status, description = "how it stands"), ReadErrors)
)]
pub(super) async fn status(State(context): State<Arc<HandlerContext>>, _: Query<NoParams>) -> Json<Status> {
    Json(told(&context.state))
}

/// How it stands now.
pub(super) fn told(state: &AdminState) -> Status {
    let configured = state.in_force.snapshot();
    let started = i64::try_from(state.metrics.started().as_micros()).unwrap_or(i64::MAX);
    let uptime = state.clock.now().saturating_sub(started).max(0);
    let phase = state.readiness.phase();
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(started),
        // To the second.
        uptime: format_duration(uptime - uptime % 1_000_000),
        ready: phase == ProcessPhase::Ready,
        draining: phase == ProcessPhase::Draining,
        configuration: Configuration {
            hash: configured.hash.clone(),
            decides: configured.decides.clone(),
            loaded: rfc3339(configured.loaded),
            last_reload: state.in_force.last_reload(),
        },
        store: store(&state.metrics),
        workers: state.metrics.workers(),
        listeners: state.facts.listeners.iter().map(ToString::to_string).collect(),
        warnings: warnings(state, &configured),
    }
}

/// Of the configuration, of the store that instances share as it stands now, and of what else was found.
fn warnings(state: &AdminState, configured: &ConfigSnapshot) -> Vec<String> {
    let store = state.metrics.store().map(|store| store.warnings).unwrap_or_default();
    configured.warnings.iter().cloned().chain(store).chain(state.warnings.list()).collect()
}

fn store(metrics: &Metrics) -> StoreStatus {
    let (memory, shared) = (metrics.memory(), metrics.store().map(shared));
    let topology = if shared.is_some() { "redis" } else { "memory" };
    StoreStatus { topology: topology.to_owned(), keys: memory.keys, evicted: memory.evicted, shared }
}

fn shared(facts: StoreFacts) -> SharedStore {
    let known = |text: String| Some(text).filter(|text| !text.is_empty());
    SharedStore {
        role: known(facts.role),
        version: known(facts.version),
        latency: facts.latency.map(|micros| format_duration(i64::try_from(micros).unwrap_or(i64::MAX))),
        breaker: if facts.breaker_open { "open" } else { "closed" }.to_owned(),
        instances: facts.instances,
    }
}
