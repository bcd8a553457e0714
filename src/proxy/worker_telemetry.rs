//! The counters, log and traces of a worker's requests.

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::HeaderName;

use super::rules::Rules;
use crate::{
    abuse::{UserNaming, bans::MANUAL},
    config::model::UserSource,
    history::HistoryRecorder,
    limit::{Clock, WallClock},
    telemetry::{Throttle, access_log::WorkerLog, metrics::WorkerMetrics, traces::Tracer},
    tls::CertificateField,
};

/// How long wall time is derived from one reading.
const ANCHOR: Duration = Duration::from_millis(10);

/// The counters, log and traces of a worker's requests, under one configuration.
#[derive(Debug)]
pub(super) struct WorkerTelemetry {
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) access_log: Rc<WorkerLog>,
    /// Sums what is used. `None`: no history is kept.
    pub(super) history: Option<HistoryRecorder>,
    /// The clock for logged times.
    pub(super) clock: WallClock,
    /// A moment, and wall time then.
    anchor: Cell<(Instant, i64)>,
    /// The names of routes, by index.
    pub(super) routes: Vec<String>,
    /// The names of everything that may deny a request, by index: policies, then ban rules, then bans by operators,
    /// `deny` and `allow`.
    pub(super) policies: Vec<String>,
    /// `None`: requests are not traced.
    pub(super) tracer: Option<Tracer>,
    /// The field that carries the request's ID.
    pub(super) request_id: HeaderName,
    /// How subjects of certificates are logged if they name the users.
    pub(super) subject_names: UserNaming,
    /// How long a client may be silent between two requests.
    pub(super) idle_timeout: Duration,
    /// Limits the warnings about upstreams that fail.
    pub(super) upstream_warnings: Throttle,
    /// Limits the warnings about responses that do not tell their cost.
    pub(super) cost_warnings: Throttle,
    /// Limits the messages about clients that are too slow.
    pub(super) cut_off_messages: Throttle,
}

/// The parts of a worker's telemetry that are kept from one configuration to the next.
pub(super) struct WorkerSinks {
    pub(super) access_log: Rc<WorkerLog>,
    /// Of one configuration alone.
    pub(super) history: Option<HistoryRecorder>,
    pub(super) tracer: Option<Tracer>,
    pub(super) clock: WallClock,
}

impl WorkerTelemetry {
    /// Counts in `metrics` and writes to `sinks`, with the names of `rules`.
    pub(super) fn new(rules: &Rules, metrics: Arc<WorkerMetrics>, sinks: WorkerSinks) -> Self {
        let WorkerSinks { access_log, history, tracer, clock } = sinks;
        let config = &rules.config;
        let policies = config.policies.iter().map(|policy| policy.name.clone());
        let bans = rules.bans.iter().map(|rule| rule.name.to_string());
        Self {
            metrics,
            access_log,
            history,
            tracer,
            clock,
            anchor: Cell::new((Instant::now(), clock.now())),
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            policies: policies.chain(bans).chain([MANUAL, "deny", "allow"].map(str::to_owned)).collect(),
            request_id: config.request_id.clone(),
            subject_names: match config.user.contains(&UserSource::Tls(CertificateField::Subject)) {
                true => rules.names.clone(),
                false => UserNaming::default(),
            },
            idle_timeout: config.client_limits.idle_timeout,
            upstream_warnings: Throttle::default(),
            cost_warnings: Throttle::default(),
            cut_off_messages: Throttle::default(),
        }
    }

    /// Wall time at `instant`, in microseconds since the Unix epoch. In a flood, the clock is not read for each request.
    pub(super) fn wall_time(&self, instant: Instant) -> i64 {
        let (anchor, time) = self.anchor.get();
        match instant.checked_duration_since(anchor).filter(|since| *since < ANCHOR) {
            Some(since) => time + i64::from(since.subsec_micros()),
            None => {
                let time = self.clock.at(instant);
                self.anchor.set((instant, time));
                time
            }
        }
    }
}
