//! State shared by the whole process: the clock, metrics, events, limited clients, bans, the configuration in force.

use std::{io, sync::Arc};

use super::generation::Generation;
use crate::{
    abuse::{
        AuditEntry, AuditLog, ClientRegistry, RecordedRoute, UserNaming,
        bans::{BanTable, LadderRule, MANUAL},
    },
    admin::ActiveConfig,
    alerts::Alerts,
    api_keys::ApiKeys,
    config::model::{Config, CountedResponses, Route, RoutePolicy},
    history::{History, NewEvent},
    limit::{Clock, Policy, WallClock},
    memory_budget::{MemoryBudgets, format_bytes},
    proxy::BodyMemory,
    telemetry::{
        Event, Events,
        metrics::{AlertFacts, BanFacts, BudgetFacts, EvidenceFacts, KeptHistoryFacts, Metrics},
    },
    upstream::DrainTable,
};

/// State shared by the whole process.
pub(super) struct Shared {
    /// The ID of this instance.
    pub(super) instance: String,
    pub(super) clock: WallClock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Events,
    pub(super) registry: Arc<ClientRegistry>,
    pub(super) bans: Arc<BanTable>,
    /// For bodies that are read before a decision.
    pub(super) body_memory: Arc<BodyMemory>,
    pub(super) drains: Arc<DrainTable>,
    pub(super) api_keys: Arc<ApiKeys>,
    pub(super) audit: Arc<AuditLog>,
    /// `None`: none is kept.
    pub(super) history: Option<Arc<History>>,
    /// `None` without a history.
    pub(super) alerts: Option<Arc<Alerts>>,
    pub(super) in_force: Arc<ActiveConfig>,
    /// Memory budgets of limits and evidence, in bytes, at the start.
    pub(super) budgets: MemoryBudgets,
}

impl Shared {
    /// Creates the state at startup, with the first configuration in force and the `warnings` about it.
    pub(super) fn new(
        generation: &Generation,
        metrics: Arc<Metrics>,
        events: Events,
        warnings: Vec<String>,
        history: Option<Arc<History>>,
    ) -> io::Result<Self> {
        let config = &*generation.config;
        // A restarted process has a new ID, so its earlier records belong to another instance.
        let instance = format!("{:016x}", fastrand::u64(..));
        let clock = WallClock;
        let budgets = MemoryBudgets::new(config.store.memory.max_bytes, config.abuse.memory);
        announce_budgets(&budgets);
        let registry = registry(config, generation.rules.policies(), &metrics, &events);
        let registry = registry.with_ban_names(&ban_names(config)).with_max_bytes(budgets.evidence);
        let registry = Arc::new(registry);
        watch_evidence(&registry, &metrics);
        let is_shared = config.store.redis.is_some();
        let (bans, audit) = open_bans(&instance, clock, &events, &metrics, is_shared);
        bans.set_names(UserNaming::new(&config.abuse));
        let alerts = history.as_ref().map(|history| {
            Alerts::start(Arc::clone(history), Arc::clone(&generation.alerts), instance.clone(), clock)
        });
        let alerts = alerts.transpose()?;
        let in_force = Arc::new(ActiveConfig::new(generation.snapshot(warnings, clock.now())));
        let drains = Arc::clone(&generation.drains);
        let api_keys = Arc::clone(&generation.api_keys);
        let body_memory = Arc::new(BodyMemory::new(config.body_memory));
        Ok(Self {
            instance,
            clock,
            metrics,
            events,
            registry,
            bans,
            body_memory,
            drains,
            api_keys,
            audit,
            history,
            alerts,
            in_force,
            budgets,
        })
    }

    /// Shows the state of the alerts.
    pub(super) fn watch_alerts(&self) {
        let Some(alerts) = &self.alerts else { return };
        let alerts = Arc::downgrade(alerts);
        self.metrics
            .alerts
            .watch(move || alerts.upgrade().map_or_else(AlertFacts::default, |alerts| alerts.facts()));
    }

    /// Keeps changes and events in the history, and shows its state. Entries of the audit log are not kept twice.
    pub(super) fn keep_history(&self) {
        let Some(history) = &self.history else { return };
        self.metrics.kept_history.watch({
            let history = Arc::downgrade(history);
            move || history.upgrade().map_or_else(KeptHistoryFacts::default, |history| history.facts())
        });
        self.audit.keep_with({
            let history = Arc::clone(history);
            move |entry| {
                let AuditEntry { id, time, by, action, target, detail, instance } = entry.clone();
                history.record_event(NewEvent {
                    time,
                    id: format!("{id:016x}"),
                    instance,
                    by,
                    action,
                    target,
                    detail,
                });
            }
        });
        let (history, instance, clock) = (Arc::clone(history), self.instance.clone(), self.clock);
        self.events.keep_with(move |event| {
            let Some((action, target, detail)) = kept_event(event) else { return };
            history.record_event(NewEvent {
                time: clock.now(),
                id: format!("{:016x}", fastrand::u64(..)),
                instance: instance.clone(),
                by: "tollgate".to_owned(),
                action: action.to_owned(),
                target,
                detail,
            });
        });
    }
}

/// The action, the target and the detail of an event that is kept. Others are in the audit log, or are denials.
fn kept_event(event: &Event) -> Option<(&'static str, String, String)> {
    match event {
        Event::Health { what, is_healthy, why } => {
            let action = if *is_healthy { "healthy" } else { "unhealthy" };
            Some((action, what.clone(), why.clone()))
        }
        Event::Endpoints(change) => {
            let detail = format!("{} now, {} added, {} removed", change.count, change.added, change.removed);
            Some(("endpoints", format!("upstream {} {}", change.upstream, change.source), detail))
        }
        Event::Incident(incident) => {
            let action = match (incident.is_attack, incident.is_over) {
                (true, false) => "attack",
                (true, true) => "attack_over",
                (false, false) => "refusals",
                (false, true) => "refusals_over",
            };
            Some((action, format!("incident {}", incident.id), incident.text.clone()))
        }
        Event::Warning { text, is_raised } => {
            let action = if *is_raised { "warning" } else { "warning_over" };
            Some((action, String::new(), text.clone()))
        }
        _ => None,
    }
}

/// Logs the memory budgets of limits and evidence, and the available memory.
fn announce_budgets(budgets: &MemoryBudgets) {
    let [limits, evidence] = [budgets.limits, budgets.evidence].map(|bytes| format_bytes(bytes as u64));
    match &budgets.available {
        Some(available) => tracing::info!(
            "limits may take {limits} and evidence {evidence} of {} ({available})",
            format_bytes(available.bytes)
        ),
        None => tracing::info!("limits may take {limits} of memory, and evidence {evidence}"),
    }
}

fn watch_evidence(registry: &Arc<ClientRegistry>, metrics: &Metrics) {
    let incidents = Arc::downgrade(registry);
    metrics.incidents.watch(move || {
        let registry = incidents.upgrade();
        let open = registry.map(|registry| registry.incidents().open_by_kind(WallClock.now()));
        open.into_iter().flatten().map(|(kind, open)| (kind.name(), open)).collect()
    });
    // Weak, because the registry has a reference to the metrics.
    let registry = Arc::downgrade(registry);
    metrics.evidence.watch(move || {
        let usage = registry.upgrade().map(|registry| registry.usage());
        usage.map_or_else(EvidenceFacts::default, |usage| EvidenceFacts {
            clients: usage.clients as u64,
            bytes: BudgetFacts { held: usage.bytes as u64, budget: usage.max_bytes as u64 },
            evicted: usage.dropped_evidence,
        })
    });
}

/// The routes, in the order of their indexes in records.
pub(super) fn recorded_routes(config: &Config) -> Vec<RecordedRoute> {
    let guards_logins = |policy: &RoutePolicy| {
        let Some(policy) = config.policies.get(policy.policy) else { return false };
        let counts =
            |count: &CountedResponses| [401, 403].iter().any(|status| count.statuses.contains(*status));
        policy.count.as_ref().is_some_and(counts) || policy.value.is_some()
    };
    let route = |route: &Route| RecordedRoute {
        name: route.name.as_str().into(),
        guards_logins: route.policies.iter().any(guards_logins),
    };
    config.routes.iter().map(route).collect()
}

/// Creates the registry of limited clients.
fn registry(config: &Config, policies: &[Policy], metrics: &Arc<Metrics>, events: &Events) -> ClientRegistry {
    let registry = ClientRegistry::new(policies, config.abuse.retain, Arc::clone(metrics))
        .with_routes(&recorded_routes(config))
        .with_naming(UserNaming::new(&config.abuse))
        .with_events(events.clone());
    if config.store.redis.is_some() { registry } else { registry.without_peers() }
}

/// The names of bans, in the order of their indexes in records.
pub(super) fn ban_names(config: &Config) -> Vec<String> {
    let rules = LadderRule::from_config(config.bans.iter().map(Arc::as_ref));
    rules.iter().map(|rule| &*rule.name).chain([MANUAL]).map(str::to_owned).collect()
}

/// Creates an empty ban table and an empty audit log. `instance`: the ID of this instance. `is_shared`: whether changes
/// are sent to other instances.
fn open_bans(
    instance: &str,
    clock: WallClock,
    events: &Events,
    metrics: &Arc<Metrics>,
    is_shared: bool,
) -> (Arc<BanTable>, Arc<AuditLog>) {
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let audit = Arc::new(AuditLog::new(Arc::clone(&clock), instance, is_shared));
    let bans = BanTable::new(clock, events.clone(), Arc::clone(&audit), Arc::clone(metrics), is_shared);
    let bans = Arc::new(bans);
    let gauge = Arc::downgrade(&bans);
    metrics.active_bans.watch(move || {
        let [enforced, shadow] = gauge.upgrade().map_or([0; 2], |bans| bans.totals());
        BanFacts { enforced, shadow }
    });
    (bans, audit)
}
