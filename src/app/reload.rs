//! Another configuration takes the place of the one in force, while requests are served.
//!
//! Everything that may fail is done before anything is changed, so that a wrong configuration never replaces a good one.
//! Then each part is told in turn; requests under way keep what they began with.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{App, bans, difference::Difference, generation::Generation};
use crate::{
    abuse::{AuditLog, Collector, Names, Registry},
    admin::{
        ActiveConfig, ReloadRequest,
        dto::{Configuration, ConfigurationError, Reloaded},
    },
    config::model::Config,
    limit::{Clock, Instances, Policy, PolicyIds, SystemClock},
    listener::{ConnectionLimit, WorkerUpdate},
    peers::records::Scope,
    proxy,
    telemetry::{Event, Events, diagnostics::Diagnostics, metrics::Metrics, time::rfc3339},
};

/// How long workers may take to go by another configuration. They do once what they are at has been done, which no request
/// delays.
const HANDOVER: Duration = Duration::from_secs(5);

/// A configuration as it was read, with what may not be meant in it; or what is wrong with it.
pub type Loaded = Result<(Config, Vec<String>), Vec<ConfigurationError>>;

/// Whatever goes by the configuration, to be told of another.
pub(super) struct Parts {
    pub(super) ids: PolicyIds,
    pub(super) generation: Generation,
    pub(super) in_force: Arc<ActiveConfig>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) registry: Arc<Registry>,
    pub(super) collector: Collector,
    pub(super) slots: Arc<ConnectionLimit>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) events: Events,
    pub(super) clock: SystemClock,
    /// One a worker.
    pub(super) renewals: Vec<mpsc::UnboundedSender<WorkerUpdate>>,
    /// Where instances share their limits.
    pub(super) elsewhere: Option<Elsewhere>,
    pub(super) diagnostics: Diagnostics,
    /// Whether there is an access log.
    pub(super) is_logged: bool,
}

/// What of the store that instances share goes by the configuration.
pub(super) struct Elsewhere {
    pub(super) scope: Scope,
    pub(super) instances: Arc<Instances>,
}

impl App {
    /// Those who ask for a reload at the admin port. To be taken once; whoever has it answers with what
    /// [`App::reload`] gives.
    pub fn reload_requests(&mut self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.reload_requests.take()
    }

    /// Goes by the configuration that was `loaded` for `by`, as the audit list names him, unless something is wrong with it: then the one in force stays, and the
    /// errors are given back. Ready once new requests go by it. No request is broken off, and no connection of a client
    /// closed.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub async fn reload(&mut self, loaded: Loaded, by: &str) -> Result<Reloaded, Vec<ConfigurationError>> {
        let parts = &mut self.parts;
        let now = parts.clock.now();
        let prepared = loaded.and_then(|(config, warnings)| Ok((parts.prepare(config)?, warnings)));
        let reloaded = match prepared {
            Ok((prepared, warnings)) => {
                let reloaded = parts.swap(prepared, warnings, now).await;
                parts.tell(&reloaded, by);
                Ok(reloaded)
            }
            Err(errors) => Err(parts.refuse(errors)),
        };
        let error = reloaded.as_ref().err().and_then(|errors| errors.first());
        parts.in_force.reloaded(rfc3339(now), error.map(|error| error.summary().to_owned()));
        reloaded
    }
}

/// Another configuration, of which nothing is in force yet.
struct Prepared {
    generation: Generation,
    changed: Vec<String>,
    needs_restart: Vec<String>,
}

impl Parts {
    fn prepare(&mut self, config: Config) -> Result<Prepared, Vec<ConfigurationError>> {
        let Difference { in_force, changed, needs_restart } =
            Difference::between(&self.generation.config, config, self.is_logged);
        let policies = self.ids.policies(in_force.policies.iter().map(Arc::as_ref));
        let generation = Generation::new(in_force, policies.into(), Some(&self.generation));
        let generation = generation.map_err(|error| vec![ConfigurationError::of_all(error.to_string())])?;
        Ok(Prepared { generation, changed, needs_restart })
    }

    async fn swap(&mut self, prepared: Prepared, warnings: Vec<String>, now: i64) -> Reloaded {
        let Prepared { generation, changed, needs_restart } = prepared;
        let config = &generation.config;
        let policies: &[Policy] = generation.rules.policies();

        self.metrics.reconfigure(config);
        generation.watch_endpoints(&self.metrics);
        self.registry.reconfigure(
            policies,
            &bans::names(config),
            Names::new(&config.abuse),
            config.abuse.retain,
        );
        self.slots.set_limit(config.client_limits.connections);
        self.diagnostics.reconfigure(config);
        let configured = generation.snapshot(warnings.clone(), now);
        let (hash, decides) = (configured.hash.clone(), configured.decides.clone());
        self.in_force.replace(configured);
        self.renew(&generation).await;
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.scope.set_retain(config.abuse.retain);
            // What was denied or taken beforehand under other limits holds no longer.
            if self.generation.config.policies != config.policies {
                elsewhere.instances.invalidate();
            }
        }
        self.generation = generation;

        let configuration = Configuration { hash, decides, loaded: rfc3339(now), last_reload: None };
        Reloaded { configuration, changed, needs_restart, warnings }
    }

    /// In the audit list, in the log, and to whoever watches.
    fn tell(&self, reloaded: &Reloaded, by: &str) {
        let Reloaded { configuration, changed, needs_restart, warnings } = reloaded;
        let what = if changed.is_empty() { "nothing has changed".to_owned() } else { changed.join("; ") };
        let detail = format!("the configuration was read again: {what}");
        self.audit.write(by, "reload", &format!("configuration {}", configuration.hash), &detail);
        for line in needs_restart {
            tracing::warn!("needs a restart: {line}");
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.events.publish(|| Event::Reloaded {
            configuration_hash: configuration.hash.clone(),
            changed: changed.clone(),
        });
    }

    /// Brings it to every worker, and waits until new requests go by it.
    async fn renew(&self, generation: &Generation) {
        let mut waiting = Vec::new();
        for (index, renewals) in self.renewals.iter().enumerate() {
            let (applied, renewed) = oneshot::channel();
            let config = self.of_worker(generation, index);
            if renewals.send(WorkerUpdate { config, applied }).is_ok() {
                waiting.push(renewed);
            }
        }
        let all = futures_util::future::join_all(waiting);
        if timeout(HANDOVER, all).await.is_err() {
            tracing::warn!("a worker is late to go by the new configuration");
        }
    }

    /// What one worker goes by.
    pub(super) fn of_worker(&self, generation: &Generation, index: usize) -> proxy::WorkerConfig {
        proxy::WorkerConfig {
            rules: Arc::clone(&generation.rules),
            upstreams: generation.upstreams.clone(),
            metrics: self.metrics.worker(index),
            recorder: self.collector.recorder(),
        }
    }

    fn refuse(&self, errors: Vec<ConfigurationError>) -> Vec<ConfigurationError> {
        for error in &errors {
            tracing::error!("the configuration stays as it was: {}", error.summary());
        }
        self.events.publish(|| Event::NotReloaded {
            errors: errors.iter().map(|error| error.summary().to_owned()).collect(),
        });
        errors
    }
}
