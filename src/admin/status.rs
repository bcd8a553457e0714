//! `GET /v1/status`: the state of the process.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Json, extract::State};

use super::{
    AdminState, ProcessFacts, ProcessPhase, StoreFactsSources,
    context::HandlerContext,
    dto::{
        ClientCa, Configuration, KeySetStatus, ListenerTls, MemoryBudget, MemoryStatus, Outage,
        ServedCertificate, SharedStore, Status, StoreNode, StoreStatus, UpstreamStatus,
    },
    extract::{NoParams, Query},
    openapi::ReadErrors,
};
use crate::telemetry::{
    diagnostics,
    metrics::{
        BudgetFacts, CertificateFacts, EndpointFacts, EndpointState, KeySetFacts, MemoryFacts, NodeFacts,
        StoreFacts, TlsFacts,
    },
    time::{format_duration, rfc3339, unix_micros},
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

pub(super) fn status_dto(state: &AdminState) -> Status {
    let config = state.active_config.snapshot();
    let ProcessFacts { listeners, workers, started, available_memory } = &state.facts;
    let now = state.clock.now();
    let uptime = now.saturating_sub(*started).max(0);
    let phase = state.readiness.phase();
    let (memory, shared) = state.store_facts.read();
    let evidence = state.metrics.evidence.read();
    // Warnings about the configuration, the shared store, and problems found since the start.
    let of_store = shared.as_ref().map_or(&[][..], |shared| &shared.warnings);
    let (outages, found) = (state.warnings.outages(), state.warnings.others());
    let configuration = Configuration {
        hash: config.hash.clone(),
        decides: config.decides.clone(),
        loaded: rfc3339(config.loaded),
        last_reload: state.active_config.last_reload(),
    };
    let about_outages = outages.iter().map(|outage| &outage.text);
    let of_reload = configuration.reload_warning();
    let others = of_reload.iter().chain(&config.warnings).chain(of_store).chain(&found);
    let warnings = about_outages.chain(others).cloned().collect();
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(*started),
        // To the second.
        uptime: format_duration(uptime - uptime % 1_000_000),
        ready: phase == ProcessPhase::Ready && config.rules.unread_key_sets().is_empty(),
        draining: phase == ProcessPhase::Draining,
        configuration,
        store: StoreStatus {
            topology: shared.as_ref().map_or("memory", |shared| shared.topology.name()).to_owned(),
            keys: memory.keys,
            evicted: memory.evicted,
            shared: shared.map(SharedStore::from),
        },
        workers: *workers,
        listeners: listeners.iter().map(ToString::to_string).collect(),
        tls: state.metrics.tls.read().into_iter().map(|facts| listener_tls(facts, now)).collect(),
        key_sets: state.metrics.key_sets.read().into_iter().map(KeySetStatus::from).collect(),
        memory: MemoryStatus {
            available_bytes: *available_memory,
            limits: memory_budget(memory.bytes, memory.evicted),
            evidence: memory_budget(evidence.bytes, evidence.evicted),
        },
        upstreams: upstreams(&state.metrics.endpoints.read()),
        outages: outages.into_iter().map(Outage::from).collect(),
        warnings,
    }
}

impl From<diagnostics::ActiveOutage> for Outage {
    fn from(outage: diagnostics::ActiveOutage) -> Self {
        let diagnostics::ActiveOutage { kind, name, text, since } = outage;
        Self { kind: kind.name().to_owned(), name, since: rfc3339(since), text }
    }
}

/// `endpoints` are grouped by upstream.
fn upstreams(endpoints: &[EndpointFacts]) -> Vec<UpstreamStatus> {
    let now = SystemTime::now();
    let of_one = endpoints.chunk_by(|one, next| one.upstream == next.upstream);
    let status = |endpoints: &[EndpointFacts]| {
        let problems = |endpoint: &EndpointFacts| -> Vec<String> {
            endpoint.problems(now).into_iter().map(|problem| format!("{} {problem}", endpoint.url)).collect()
        };
        UpstreamStatus {
            name: endpoints.first().map(|endpoint| endpoint.upstream.clone()).unwrap_or_default(),
            endpoints: endpoints.len(),
            healthy: endpoints.iter().filter(|endpoint| endpoint.state() == EndpointState::Healthy).count(),
            problems: endpoints.iter().flat_map(problems).collect(),
        }
    };
    of_one.map(status).collect()
}

fn memory_budget(bytes: BudgetFacts, evicted: u64) -> MemoryBudget {
    MemoryBudget { held_bytes: bytes.held, budget_bytes: bytes.budget, evicted }
}

/// `now` is the time in microseconds since the Unix epoch.
fn listener_tls(facts: TlsFacts, now: i64) -> ListenerTls {
    let now = UNIX_EPOCH + Duration::from_micros(u64::try_from(now).unwrap_or_default());
    let TlsFacts { addresses, certificates, client_ca } = facts;
    ListenerTls {
        addresses,
        certificates: certificates.into_iter().map(|served| certificate(served, now)).collect(),
        client_ca: client_ca.map(|served| ClientCa {
            file: served.file.display().to_string(),
            loaded: time(served.loaded),
            reload_error: served.reload_error,
        }),
    }
}

fn certificate(served: CertificateFacts, now: SystemTime) -> ServedCertificate {
    let CertificateFacts { file, info, loaded, reload_error } = served;
    ServedCertificate {
        file: file.display().to_string(),
        names: info.names.clone(),
        subject: info.subject.clone(),
        issuer: info.issuer.clone(),
        key_type: info.key_type.clone(),
        fingerprint: info.fingerprint.clone(),
        not_before: time(info.not_before),
        not_after: time(info.not_after),
        state: info.validity(now).name().to_owned(),
        days_left: info.days_left(now),
        loaded: time(loaded),
        reload_error,
    }
}

fn time(time: SystemTime) -> String {
    rfc3339(unix_micros(time))
}

impl From<KeySetFacts> for KeySetStatus {
    fn from(facts: KeySetFacts) -> Self {
        let KeySetFacts { source, keys, fetched, usable_until, error, fetches: _ } = facts;
        Self { source, keys, fetched: fetched.map(time), usable_until: usable_until.map(time), error }
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

/// `None` for an empty text, which is not known yet.
fn known(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
