//! The thread that collects samples of the traffic, applies the rules and reports changes.

use std::{
    io, mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::{Instant, SystemTime},
};

use parking_lot::Mutex;

use super::{
    active_warnings::{ActiveWarnings, Timing, WarningChange},
    endpoint_changes::EndpointChanges,
    finding::{OutageKind, Subject},
    health::HealthTracker,
    route_errors::RouteWindows,
    rules::{self, ClientAddressSettings, MemoryInput, RuleInput},
    traffic::{TrafficSample, TrafficSampler, TrafficWindow},
};
use crate::{
    config::model::{AddressHeader, Config, KeyPart},
    telemetry::{Event, Events, metrics::Metrics, time::unix_micros},
};

/// The currently raised warnings, except those that the store reports itself. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct SharedWarnings(Arc<Mutex<RaisedWarnings>>);

#[derive(Debug, Clone, Default)]
struct RaisedWarnings {
    outages: Vec<ActiveOutage>,
    others: Vec<String>,
}

/// An outage whose warning is raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveOutage {
    pub kind: OutageKind,
    /// The name of the route or upstream, the URL of the endpoint, or the address of the Redis server.
    pub name: String,
    /// The text of the warning.
    pub text: String,
    /// When it was first found, in microseconds since the Unix epoch.
    pub since: i64,
}

impl SharedWarnings {
    pub fn outages(&self) -> Vec<ActiveOutage> {
        self.0.lock().outages.clone()
    }

    /// The texts of warnings that are not outages.
    pub fn others(&self) -> Vec<String> {
        self.0.lock().others.clone()
    }

    fn replace(&self, active: &ActiveWarnings, now: Instant) {
        let mut raised = RaisedWarnings::default();
        for (finding, since) in active.raised() {
            let text = finding.text.clone();
            let Some((kind, name)) = finding.subject.outage() else {
                raised.others.push(text);
                continue;
            };
            let ago = i64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(i64::MAX);
            let since = unix_micros(SystemTime::now()).saturating_sub(ago);
            raised.outages.push(ActiveOutage { kind, name: name.to_owned(), text, since });
        }
        *self.0.lock() = raised;
    }
}

/// One sample for each worker: the worker adds to it, the thread takes it.
type WorkerSamples = Mutex<Vec<Arc<Mutex<TrafficSample>>>>;

/// A handle to the diagnostics. The thread ends when it is dropped.
#[derive(Debug)]
pub struct Diagnostics {
    /// `client_address.ipv6_prefix` of the configuration in force.
    ipv6_prefix: Arc<AtomicU8>,
    settings: Arc<Mutex<ClientAddressSettings>>,
    samples: Arc<WorkerSamples>,
    warnings: SharedWarnings,
}

impl Diagnostics {
    /// Starts the thread, which reads the workers' samples and `metrics`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(config: &Config, metrics: Arc<Metrics>, events: Events, timing: Timing) -> io::Result<Self> {
        let diagnostics = Self {
            ipv6_prefix: Arc::new(config.client_address.ipv6_prefix.into()),
            settings: Arc::new(Mutex::new(client_address_settings(config))),
            samples: Arc::default(),
            warnings: SharedWarnings::default(),
        };
        let mut thread = DiagnosticsThread {
            samples: Arc::downgrade(&diagnostics.samples),
            warnings: diagnostics.warnings(),
            settings: Arc::clone(&diagnostics.settings),
            metrics,
            events,
            window: TrafficWindow::default(),
            routes: RouteWindows::default(),
            active: ActiveWarnings::new(timing),
            health: HealthTracker::new(timing.event_pause()),
            endpoint_changes: EndpointChanges::new(timing.event_pause()),
            evicted: [0; 2],
        };
        thread::Builder::new().name("diagnostics".into()).spawn(move || {
            loop {
                thread::sleep(timing.interval());
                let Some(sample) = thread.take_sample() else { return };
                thread.round(sample);
            }
        })?;
        Ok(diagnostics)
    }

    /// Creates the sampler of one more worker.
    pub fn sampler(&self) -> TrafficSampler {
        let sample = Arc::<Mutex<TrafficSample>>::default();
        self.samples.lock().push(Arc::clone(&sample));
        TrafficSampler::new(Arc::clone(&self.ipv6_prefix), sample)
    }

    /// Applies another configuration.
    pub fn reconfigure(&self, config: &Config) {
        self.ipv6_prefix.store(config.client_address.ipv6_prefix, Relaxed);
        *self.settings.lock() = client_address_settings(config);
    }

    /// A handle to the raised warnings.
    pub fn warnings(&self) -> SharedWarnings {
        self.warnings.clone()
    }
}

fn client_address_settings(config: &Config) -> ClientAddressSettings {
    let mut keys = config.policies.iter().flat_map(|policy| &policy.keys).flat_map(|key| &key.0);
    ClientAddressSettings {
        limits_addresses: keys.any(|part| *part == KeyPart::Ip),
        trusts_proxies: !config.trusted_proxies.is_empty(),
        header: match &config.client_address.header {
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => "X-Forwarded-For".to_owned(),
            AddressHeader::Single(name) => name.to_string(),
        },
    }
}

struct DiagnosticsThread {
    samples: Weak<WorkerSamples>,
    warnings: SharedWarnings,
    settings: Arc<Mutex<ClientAddressSettings>>,
    metrics: Arc<Metrics>,
    events: Events,
    window: TrafficWindow,
    routes: RouteWindows,
    active: ActiveWarnings,
    health: HealthTracker,
    endpoint_changes: EndpointChanges,
    /// Evicted limits and evicted evidence at the last round, since the start.
    evicted: [u64; 2],
}

impl DiagnosticsThread {
    /// Takes the samples of all workers since the last call; `None` once the handle is dropped.
    fn take_sample(&self) -> Option<TrafficSample> {
        let mut sum = TrafficSample::default();
        for sample in self.samples.upgrade()?.lock().iter() {
            sum.add(&mem::take(&mut *sample.lock()));
        }
        Some(sum)
    }

    /// Applies the rules once and reports changes since the last round.
    fn round(&mut self, sample: TrafficSample) {
        self.window.push(sample);
        let memory = self.memory();
        let input = RuleInput {
            now: SystemTime::now(),
            traffic: self.window.total(),
            settings: self.settings.lock().clone(),
            connections: self.metrics.connections.read(),
            store: self.metrics.store.read(),
            tls: self.metrics.tls.read(),
            upstream_tls: self.metrics.upstream_tls.read(),
            key_sets: self.metrics.key_sets.read(),
            keys_file_error: self.metrics.keys_file_error.read(),
            history: self.metrics.kept_history.read(),
            alerts: self.metrics.alerts.read(),
            memory,
            routes: self.routes.update(self.metrics.totals().route_outcomes()),
            endpoints: self.metrics.endpoints.read(),
        };
        let now = Instant::now();
        let changes = self.active.update(rules::findings(&input), now);
        self.warnings.replace(&self.active, now);
        changes.into_iter().for_each(|change| self.report(change));
        let moved = self.endpoint_changes.update(&input.endpoints, now);
        for event in self.health.update(&input.store, input.endpoints, now).into_iter().chain(moved) {
            self.events.publish(|| event);
        }
    }

    /// The memory of limits and evidence, and evictions since the last call.
    fn memory(&mut self) -> MemoryInput {
        let (limits, evidence) = (self.metrics.memory.read(), self.metrics.evidence.read());
        let evicted = [limits.evicted, evidence.evicted + self.metrics.abuse_evicted()];
        let before = mem::replace(&mut self.evicted, evicted);
        MemoryInput {
            limits,
            evidence,
            evicted_limits: evicted[0].saturating_sub(before[0]),
            evicted_evidence: evicted[1].saturating_sub(before[1]),
        }
    }

    fn report(&self, WarningChange { finding, is_raised }: WarningChange) {
        let text = finding.text;
        match (&finding.subject, is_raised) {
            // Logged by the store's monitor, by the resolver, or where the keys are fetched.
            (
                Subject::Store(_)
                | Subject::UnavailableStore(_)
                | Subject::History
                | Subject::StaleAddresses { .. }
                | Subject::KeySet(_),
                _,
            ) => {}
            (Subject::FailingRoute(_), true) => tracing::error!("{text}"),
            (Subject::FailingRoute(route), false) => tracing::info!("route {route} no longer fails"),
            (Subject::UnreachableEndpoint { upstream, url }, false) => {
                tracing::info!("endpoint {url} of upstream {upstream} is reachable again");
            }
            (Subject::UnusableUpstream(upstream), false) => {
                tracing::info!("an endpoint of upstream {upstream} takes requests again");
            }
            (Subject::InvalidCertificate(_) | Subject::UnusableUpstream(_), true) => {
                tracing::error!("{text}");
            }
            // Logged where the files are read.
            (Subject::TlsReload(_) | Subject::KeysFile, true)
            | (Subject::CertificateExpiry(_) | Subject::InvalidCertificate(_), false) => {}
            (_, true) => tracing::warn!("{text}"),
            (_, false) => tracing::info!("this is resolved: {text}"),
        }
        self.events.publish(|| Event::Warning { text, is_raised });
    }
}
