//! Replaces the configuration in force while requests are served.
//!
//! Everything that can fail is done before anything is changed, so an invalid configuration never replaces a valid one.
//! It is done on a separate thread, because reading files from a stalled disk may block: see [`PreparingReload`]. Then
//! each part gets the new configuration in turn. Running requests keep the configuration with which they began.

use std::{fmt::Display, sync::Arc, thread};

use tokio::sync::{mpsc, oneshot};

use super::{
    difference::{Difference, lacks_key_store},
    generation::Generation,
    running::App,
    shared::{Shared, ban_names, recorded_routes},
    workers::WorkerThreads,
};
use crate::{
    abuse::{Collector, UserNaming},
    admin::{
        ReloadRequest,
        dto::{Configuration, ConfigurationError, Reloaded},
    },
    config::model::Config,
    limit::{Clock, Instances, Policy, PolicyIds},
    listener::TlsContexts,
    memory_budget::MemoryBudgets,
    peaks::PeakCollector,
    peers::records::RecordScope,
    telemetry::{Event, diagnostics::Diagnostics, time::rfc3339},
};

/// Why a configuration with a store of API keys is not brought into force.
const NO_KEY_STORE: &str = "api_keys.store: true takes effect only when Tollgate starts, and until then its keys \
                            would get 401: restart Tollgate, or send it SIGUSR2 (docs/upgrade.md)";

/// A loaded configuration with its warnings, or its errors.
pub type Loaded = Result<(Config, Vec<String>), Vec<ConfigurationError>>;

/// Everything that a reload changes, except the workers.
pub(super) struct Reloader {
    pub(super) ids: PolicyIds,
    /// The generation in force.
    pub(super) generation: Generation,
    pub(super) shared: Shared,
    pub(super) collector: Collector,
    pub(super) peaks: PeakCollector,
    pub(super) diagnostics: Diagnostics,
    /// `None` without Redis.
    pub(super) store: Option<ReloadHandles>,
    /// Whether Tollgate was started with an access log.
    pub(super) has_access_log: bool,
    /// The TLS of the listeners in force.
    pub(super) tls: TlsContexts,
}

/// The parts of the shared store that a reload changes.
pub(super) struct ReloadHandles {
    pub(super) scope: RecordScope,
    pub(super) instances: Arc<Instances>,
}

impl App {
    /// Requests for a reload from the admin port. The caller takes the receiver once, and responds to each request with
    /// the result of [`App::reload`].
    pub fn reload_requests(&mut self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.reload_requests.take()
    }

    /// Starts reading a configuration with `load` and preparing it, on a separate thread.
    pub fn prepare_reload(&self, load: impl FnOnce() -> Loaded + Send + 'static) -> PreparingReload {
        let Reloader { ids, generation, has_access_log, .. } = &self.reloader;
        let (ids, generation, has_access_log) = (ids.clone(), generation.clone(), *has_access_log);
        let (done, prepared) = oneshot::channel();
        let prepare = move || {
            let prepared = load().and_then(|(config, warnings)| {
                PreparedReload::new(config, warnings, ids, &generation, has_access_log)
            });
            // The reload was given up, or the process ends.
            let _gone = done.send(prepared);
        };
        // If it can't be spawned, the channel is closed.
        let _thread = thread::Builder::new().name("reload".into()).spawn(prepare);
        PreparingReload(prepared)
    }

    /// Applies the `prepared` configuration. `by`: the name for the audit log. If the configuration is invalid, the one
    /// in force is kept, and the errors are returned. Completes when new requests use it. Running requests and client
    /// connections are not interrupted.
    ///
    /// # Errors
    /// All errors of the configuration.
    pub async fn reload(
        &mut self,
        prepared: PreparationOutcome,
        by: &str,
    ) -> Result<Reloaded, Vec<ConfigurationError>> {
        let Self { reloader, workers, .. } = self;
        match prepared.0 {
            Ok(prepared) => {
                let now = reloader.shared.clock.now();
                let reloaded = reloader.swap(prepared, now, workers).await;
                reloader.announce(&reloaded, by);
                reloader.record(now, None);
                Ok(reloaded)
            }
            Err(errors) => {
                reloader.refuse(errors.iter().map(|error| error.summary().to_owned()).collect(), by);
                for error in &errors {
                    tracing::error!("the configuration was not reloaded: {}", error.summary());
                }
                Err(errors)
            }
        }
    }

    /// Reports that no new process took over at SIGUSR2, like a failed reload: the configuration in force is kept.
    pub fn keep_serving(&self, why: impl Display) {
        self.reloader.refuse(vec![format!("no new process took over: {why}")], "SIGUSR2");
        tracing::error!("no new process took over, and this one goes on serving: {why}");
    }
}

/// A configuration that is being read on a separate thread. Dropping this gives it up.
pub struct PreparingReload(oneshot::Receiver<Result<PreparedReload, Vec<ConfigurationError>>>);

/// A prepared configuration, or its errors.
pub struct PreparationOutcome(Result<PreparedReload, Vec<ConfigurationError>>);

impl PreparingReload {
    /// Completes when [`App::reload`] can be called.
    pub async fn outcome(&mut self) -> PreparationOutcome {
        let crashed = |_| {
            Err(vec![ConfigurationError::of_all("there is no thread to read it on, or it crashed".into())])
        };
        PreparationOutcome((&mut self.0).await.unwrap_or_else(crashed))
    }
}

/// A new configuration that is ready but not in force yet.
struct PreparedReload {
    ids: PolicyIds,
    generation: Generation,
    changed: Vec<String>,
    needs_restart: Vec<String>,
    warnings: Vec<String>,
}

impl PreparedReload {
    /// `before`: the generation in force.
    fn new(
        config: Config,
        warnings: Vec<String>,
        mut ids: PolicyIds,
        before: &Generation,
        has_access_log: bool,
    ) -> Result<Self, Vec<ConfigurationError>> {
        if lacks_key_store(&before.config, &config) {
            return Err(vec![ConfigurationError::of_all(NO_KEY_STORE.to_owned())]);
        }
        let Difference { in_force, changed, needs_restart } =
            Difference::between(&before.config, config, has_access_log);
        let policies = ids.of_config(&in_force);
        let (drains, keys) = (Arc::clone(&before.drains), Arc::clone(&before.api_keys));
        let generation = Generation::new(in_force, policies.into(), drains, keys, Some(before));
        let generation = generation.map_err(|error| vec![ConfigurationError::of_all(error.to_string())])?;
        Ok(Self { ids, generation, changed, needs_restart, warnings })
    }
}

impl Reloader {
    async fn swap(&mut self, prepared: PreparedReload, now: i64, workers: &WorkerThreads) -> Reloaded {
        let PreparedReload { ids, generation, changed, needs_restart, warnings } = prepared;
        let config = &generation.config;
        let policies: &[Policy] = generation.rules.policies();

        self.shared.metrics.reconfigure(config);
        generation.watch_sources(&self.shared.metrics);
        generation.join_keys(&self.generation);
        self.shared.registry.reconfigure(
            policies,
            &ban_names(config),
            &recorded_routes(config),
            UserNaming::new(&config.abuse),
            config.abuse.retain,
        );
        self.shared.bans.set_names(UserNaming::new(&config.abuse));
        let budgets = MemoryBudgets::new(config.store.memory.max_bytes, config.abuse.memory);
        self.shared.registry.set_max_bytes(budgets.evidence);
        self.tls.replace(generation.tls.clone());
        self.shared.body_memory.set_limit(config.body_memory);
        workers.set_connection_limits(&config.client_limits);
        self.diagnostics.reconfigure(config);
        if let Some(alerts) = &self.shared.alerts {
            alerts.reconfigure(&generation.alerts);
        }
        let configured = generation.snapshot(warnings.clone(), now);
        let (hash, decides) = (configured.hash.clone(), configured.decides.clone());
        self.shared.in_force.replace(configured);
        let upstreams = generation.upstreams.iter().zip(&config.upstreams);
        upstreams.for_each(|(upstream, config)| upstream.apply(config));
        workers
            .hand_over(|index| generation.for_worker(index, &self.shared, &self.collector, &self.peaks))
            .await;
        if let Err(error) = generation.enter_keys() {
            tracing::error!("the file of API keys is not reread when it changes: {error}");
        }
        if let Some(store) = &self.store {
            store.scope.set_retain(config.abuse.retain);
            // Denials and slices of the old limits are void.
            if self.generation.config.policies != config.policies {
                store.instances.invalidate();
            }
        }
        (self.ids, self.generation) = (ids, generation);

        let configuration = Configuration { hash, decides, loaded: rfc3339(now), last_reload: None };
        Reloaded { configuration, changed, needs_restart, warnings }
    }

    /// Reports the reload in the audit log, in the log and as an event.
    fn announce(&self, reloaded: &Reloaded, by: &str) {
        let Reloaded { configuration, changed, needs_restart, warnings } = reloaded;
        let what = match changed.as_slice() {
            [] if needs_restart.is_empty() => "nothing has changed".to_owned(),
            [] => format!("nothing has changed yet; after a restart: {}", needs_restart.join("; ")),
            changed => changed.join("; "),
        };
        let detail = format!("configuration reloaded: {what}");
        self.shared.audit.write(by, "reload", &format!("configuration {}", configuration.hash), &detail);
        for line in needs_restart {
            tracing::warn!("this change needs a restart: {line}");
        }
        if !needs_restart.is_empty() {
            tracing::info!("SIGUSR2 restarts Tollgate without dropping connections: docs/upgrade.md");
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.shared.events.publish(|| Event::Reloaded {
            configuration_hash: configuration.hash.clone(),
            changed: changed.clone(),
        });
    }

    /// Reports in the audit log and as an event why the configuration in force is kept.
    fn refuse(&self, errors: Vec<String>, by: &str) {
        let first = errors.first().cloned().unwrap_or_default();
        let mut detail = first.clone();
        match errors.len().saturating_sub(1) {
            0 => {}
            1 => detail += " (and 1 more error)",
            more => detail += &format!(" (and {more} more errors)"),
        }
        let target = format!("configuration {}", self.shared.in_force.snapshot().hash);
        self.shared.audit.write(by, "not_reloaded", &target, &detail);
        self.shared.events.publish(|| Event::NotReloaded { errors });
        self.record(self.shared.clock.now(), Some(first));
    }

    /// Updates the metrics and the status. `error`: the first error, if the configuration in force is kept.
    fn record(&self, now: i64, error: Option<String>) {
        self.shared.metrics.record_reload(error.is_none());
        self.shared.in_force.reloaded(rfc3339(now), error);
    }
}
