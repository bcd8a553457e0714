//! How the process stands.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    AdminState, ProcessFacts, ProcessPhase, StoreFactsSources,
    context::HandlerContext,
    dto::{Configuration, SharedStore, Status, StoreNode, StoreStatus},
    extract::{NoParams, Query},
    openapi::ReadErrors,
};
use crate::telemetry::{
    metrics::{MemoryFacts, NodeFacts, StoreFacts},
    time::{format_duration, rfc3339},
};

/// Shows the status of the process: version, configuration, store and warnings.
#[utoipa::path(
    get,
    path = "/v1/status",
    operation_id = "status",
    tag = "in force",
    responses((status = 200, body = Status, description = "the status of the process"), ReadErrors)
)]
pub(super) async fn status(State(context): State<Arc<HandlerContext>>, _: Query<NoParams>) -> Json<Status> {
    Json(status_dto(&context.state))
}

/// How the process stands now.
pub(super) fn status_dto(state: &AdminState) -> Status {
    let config = state.active_config.snapshot();
    let ProcessFacts { listeners, workers, started } = &state.facts;
    let uptime = state.clock.now().saturating_sub(*started).max(0);
    let phase = state.readiness.phase();
    let (memory, shared) = state.store_facts.read();
    // Of the configuration, of the store that instances share, and what else was found since the start.
    let of_store = shared.as_ref().map_or(&[][..], |shared| &shared.warnings);
    let warnings = config.warnings.iter().chain(of_store).cloned().chain(state.warnings.list()).collect();
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(*started),
        // To the second.
        uptime: format_duration(uptime - uptime % 1_000_000),
        ready: phase == ProcessPhase::Ready,
        draining: phase == ProcessPhase::Draining,
        configuration: Configuration {
            hash: config.hash.clone(),
            decides: config.decides.clone(),
            loaded: rfc3339(config.loaded),
            last_reload: state.active_config.last_reload(),
        },
        store: StoreStatus {
            topology: shared.as_ref().map_or("memory", |shared| shared.topology.name()).to_owned(),
            keys: memory.keys,
            evicted: memory.evicted,
            shared: shared.map(SharedStore::from),
        },
        workers: *workers,
        listeners: listeners.iter().map(ToString::to_string).collect(),
        warnings,
    }
}

impl StoreFactsSources {
    fn read(&self) -> (MemoryFacts, Option<StoreFacts>) {
        ((self.memory)(), self.shared.as_ref().map(|facts| facts()))
    }
}

impl From<StoreFacts> for SharedStore {
    fn from(facts: StoreFacts) -> Self {
        Self {
            role: known(facts.role),
            version: known(facts.version),
            latency: facts.latency.map(|micros| format_duration(i64::try_from(micros).unwrap_or(i64::MAX))),
            breaker: if facts.breaker_open { "open" } else { "closed" }.to_owned(),
            instances: facts.instances,
            nodes: facts.nodes.into_iter().map(StoreNode::from).collect(),
        }
    }
}

impl From<NodeFacts> for StoreNode {
    fn from(facts: NodeFacts) -> Self {
        let range =
            |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
        Self {
            address: facts.address,
            role: facts.role.map(|role| role.name().to_owned()),
            primary: facts.primary,
            slots: facts.slots.into_iter().map(range).collect(),
            state: facts.state.name().to_owned(),
            failure: facts.failure,
            latency_us: facts.latency,
            lag_bytes: facts.lag,
            decisions: facts.decisions,
            decisions_per_second: facts.decisions_per_second,
            version: known(facts.version),
        }
    }
}

/// What is empty is not known yet.
fn known(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
