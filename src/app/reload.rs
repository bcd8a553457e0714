//! Replaces the configuration in force while requests are served.
//!
//! Everything that can fail is done before anything is changed, so an invalid configuration never replaces a valid one.
//! Then each part gets the new configuration in turn. Running requests keep the one they began with.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    App,
    difference::Difference,
    generation::Generation,
    shared::{Shared, ban_names},
    workers::Workers,
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
    memory::MemoryBudgets,
    peers::records::Scope,
    telemetry::{Event, diagnostics::Diagnostics, time::rfc3339},
};

/// A loaded configuration with its warnings, or its errors.
pub type Loaded = Result<(Config, Vec<String>), Vec<ConfigurationError>>;

/// Everything that a reload changes, except for the workers.
pub(super) struct Reloader {
    pub(super) ids: PolicyIds,
    /// The generation in force.
    pub(super) generation: Generation,
    pub(super) shared: Shared,
    pub(super) collector: Collector,
    pub(super) diagnostics: Diagnostics,
    /// `None` without Redis.
    pub(super) store: Option<ReloadHandles>,
    /// Whether Tollgate was started with an access log.
    pub(super) has_access_log: bool,
    /// Of the listeners in force.
    pub(super) tls: TlsContexts,
}

/// What a reload changes of the shared store.
pub(super) struct ReloadHandles {
    pub(super) scope: Scope,
    pub(super) instances: Arc<Instances>,
}

impl App {
    /// Requests for a reload from the admin port. The caller takes the receiver once, and answers each request with the
    /// result of [`App::reload`].
    pub fn reload_requests(&mut self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.reload_requests.take()
    }

    /// Applies the configuration that was `loaded` for `by`, its name in the audit log. If it is invalid, the one in force
    /// stays, and the errors are returned. Completes when new requests use it. Running requests and client connections
    /// are not interrupted.
    ///
    /// # Errors
    /// All errors of the configuration.
    pub async fn reload(&mut self, loaded: Loaded, by: &str) -> Result<Reloaded, Vec<ConfigurationError>> {
        let Self { reloader, workers, .. } = self;
        let now = reloader.shared.clock.now();
        let prepared = loaded.and_then(|(config, warnings)| Ok((reloader.prepare(&config)?, warnings)));
        let reloaded = match prepared {
            Ok((prepared, warnings)) => {
                let reloaded = reloader.swap(prepared, warnings, now, workers).await;
                reloader.announce(&reloaded, by);
                Ok(reloaded)
            }
            Err(errors) => Err(reloader.refuse(errors)),
        };
        let error = reloaded.as_ref().err().and_then(|errors| errors.first());
        reloader.shared.in_force.reloaded(rfc3339(now), error.map(|error| error.summary().to_owned()));
        reloaded
    }
}

/// A new configuration that is ready, and not yet in force.
struct PreparedReload {
    generation: Generation,
    changed: Vec<String>,
    needs_restart: Vec<String>,
}

impl Reloader {
    fn prepare(&mut self, config: &Config) -> Result<PreparedReload, Vec<ConfigurationError>> {
        let Difference { in_force, changed, needs_restart } =
            Difference::between(&self.generation.config, config, self.has_access_log);
        let policies = self.ids.policies(in_force.policies.iter().map(Arc::as_ref));
        let generation = Generation::new(in_force, policies.into(), Some(&self.generation));
        let generation = generation.map_err(|error| vec![ConfigurationError::of_all(error.to_string())])?;
        Ok(PreparedReload { generation, changed, needs_restart })
    }

    async fn swap(
        &mut self,
        prepared: PreparedReload,
        warnings: Vec<String>,
        now: i64,
        workers: &Workers,
    ) -> Reloaded {
        let PreparedReload { generation, changed, needs_restart } = prepared;
        let config = &generation.config;
        let policies: &[Policy] = generation.rules.policies();

        self.shared.metrics.reconfigure(config);
        generation.watch_endpoints(&self.shared.metrics);
        self.shared.registry.reconfigure(
            policies,
            &ban_names(config),
            UserNaming::new(&config.abuse),
            config.abuse.retain,
        );
        let budgets = MemoryBudgets::new(config.store.memory.max_bytes, config.abuse.memory);
        self.shared.registry.set_max_bytes(budgets.evidence);
        self.tls.replace(generation.tls.clone());
        workers.set_max_connections(config.client_limits.connections);
        self.diagnostics.reconfigure(config);
        let configured = generation.snapshot(warnings.clone(), now);
        let (hash, decides) = (configured.hash.clone(), configured.decides.clone());
        self.shared.in_force.replace(configured);
        workers.hand_over(|index| generation.for_worker(index, &self.shared.metrics, &self.collector)).await;
        if let Some(store) = &self.store {
            store.scope.set_retain(config.abuse.retain);
            // Denials and slices of the old limits are void.
            if self.generation.config.policies != config.policies {
                store.instances.invalidate();
            }
        }
        self.generation = generation;

        let configuration = Configuration { hash, decides, loaded: rfc3339(now), last_reload: None };
        Reloaded { configuration, changed, needs_restart, warnings }
    }

    /// Reports the reload in the audit log, in the log, and as an event.
    fn announce(&self, reloaded: &Reloaded, by: &str) {
        let Reloaded { configuration, changed, needs_restart, warnings } = reloaded;
        let what = if changed.is_empty() { "nothing has changed".to_owned() } else { changed.join("; ") };
        let detail = format!("configuration reloaded: {what}");
        self.shared.audit.write(by, "reload", &format!("configuration {}", configuration.hash), &detail);
        for line in needs_restart {
            tracing::warn!("needs a restart: {line}");
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

    fn refuse(&self, errors: Vec<ConfigurationError>) -> Vec<ConfigurationError> {
        for error in &errors {
            tracing::error!("the configuration was not reloaded: {}", error.summary());
        }
        self.shared.events.publish(|| Event::NotReloaded {
            errors: errors.iter().map(|error| error.summary().to_owned()).collect(),
        });
        errors
    }
}
