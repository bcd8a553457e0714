//! Everything that is built from one configuration. A reload replaces it as a whole.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{StartError, keys_file::KeysFile, shared::Shared};
use crate::{
    abuse::Collector,
    admin::ConfigSnapshot,
    alerts::AlertPlan,
    api_keys::ApiKeys,
    config::model::{self, Config, UserSource},
    history::HistoryPlan,
    identity::{AccessRules, Verifier},
    limit::Policy,
    listener::{SessionKeys, TlsContext, TlsError},
    peaks::{PeakCollector, PeakPlan},
    proxy::{self, Rules},
    telemetry::metrics::Metrics,
    upstream::{DrainTable, SharedUpstream, UpstreamTlsContext},
};

/// One configuration, ready to serve requests.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) config: Arc<Config>,
    pub(super) rules: Arc<Rules>,
    /// The samples of the peaks of its policies.
    peaks: Arc<PeakPlan>,
    /// What its history is told apart by; `None`: none is kept.
    history: Option<Arc<HistoryPlan>>,
    pub(super) alerts: Arc<AlertPlan>,
    /// In the configuration's order.
    pub(super) upstreams: Vec<Arc<SharedUpstream>>,
    /// One for each listener, in the configuration's order. `None`: plain HTTP.
    pub(super) tls: Vec<Option<Arc<TlsContext>>>,
    verifier: Arc<Verifier>,
    /// The endpoints that operators have drained: the same in all generations.
    pub(super) drains: Arc<DrainTable>,
    pub(super) api_keys: Arc<ApiKeys>,
    /// Its keys are not in force before [`Generation::enter_keys`].
    keys_file: Option<Arc<KeysFile>>,
}

impl Generation {
    /// Builds everything for `config`. Unchanged parts of the generation `before` are reused with their connections and
    /// counts, and endpoints keep their health; `before` itself does not change.
    ///
    /// # Errors
    /// Keys can't be read, a name can't be sent in a field, or a thread can't be started.
    pub(super) fn new(
        config: Config,
        policies: Arc<[Policy]>,
        drains: Arc<DrainTable>,
        api_keys: Arc<ApiKeys>,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let same = before.filter(|before| before.config.user == config.user);
        let verifier = match same {
            Some(before) => Arc::clone(&before.verifier),
            None => watching_verifier(&config.user, before)?,
        };
        // Use the keys as they are now, not as they were read up to a second ago.
        verifier.reload_changed_keys();
        let known = before.map_or(&[][..], |before| &before.upstreams);
        let upstream = |upstream: &model::Upstream| -> Result<_, StartError> {
            let before = known.iter().find(|known| known.config.name == upstream.name);
            if let Some(same) = before.filter(|before| before.is_compatible_with(upstream)) {
                // Use the files as they are now, as for the keys.
                same.reload_changed_files();
                return Ok(Arc::clone(same));
            }
            let tls = UpstreamTlsContext::open(upstream)?;
            Ok(SharedUpstream::open(upstream.clone(), tls, &drains, before.map(|before| &**before))?)
        };
        let upstreams = config.upstreams.iter().map(upstream).collect::<Result<_, _>>()?;
        let tls = tls_contexts(&config, before)?;
        let access = Arc::new(AccessRules::open(&config)?);
        access.watch_files()?;
        let peaks = PeakPlan::new(&config, Arc::clone(&policies), before.map(|before| &*before.peaks));
        let plan = |history| Arc::new(HistoryPlan::new(&config, &policies, history));
        let history = config.history.as_ref().map(plan);
        let alerts = Arc::new(AlertPlan::new(&config));
        let rules =
            Rules::new(Arc::clone(&config), policies, Arc::clone(&verifier), access, Arc::clone(&api_keys))?;
        let keys_file = KeysFile::open(&config)?.map(Arc::new);
        Ok(Self {
            config,
            rules: Arc::new(rules),
            peaks: Arc::new(peaks),
            history,
            alerts,
            upstreams,
            tls,
            verifier,
            drains,
            api_keys,
            keys_file,
        })
    }

    /// Lets the keys of its file be valid beside those of the generation `before`: until all workers have the new one,
    /// requests under either need theirs.
    pub(super) fn join_keys(&self, before: &Self) {
        if let Some(file) = &before.keys_file {
            file.retire(&self.api_keys);
        }
        if let Some(file) = &self.keys_file {
            file.join(&self.api_keys);
        }
    }

    /// Lets only the keys of its file be valid, from now on as they change there.
    ///
    /// # Errors
    /// The thread that rereads the file can't be started.
    pub(super) fn enter_keys(&self) -> std::io::Result<()> {
        match &self.keys_file {
            Some(file) => file.apply(&self.api_keys),
            None => {
                self.api_keys.set_file(Vec::new());
                Ok(())
            }
        }
    }

    /// The parts of this configuration that one worker needs.
    pub(super) fn for_worker(
        &self,
        index: usize,
        shared: &Shared,
        collector: &Collector,
        peaks: &PeakCollector,
    ) -> proxy::WorkerConfig {
        let history = shared.history.as_ref().zip(self.history.as_ref());
        proxy::WorkerConfig {
            rules: Arc::clone(&self.rules),
            upstreams: self.upstreams.clone(),
            metrics: shared.metrics.worker(index),
            recorder: collector.recorder(),
            peaks: peaks.recorder(&self.peaks),
            history: history.map(|(history, plan)| history.recorder(plan)),
            alerts: shared.alerts.as_ref().and_then(|alerts| alerts.watch(&self.alerts)),
        }
    }

    /// The keys of the TLS sessions of each listener, for a new process.
    pub(super) fn session_keys(&self) -> Vec<SessionKeys> {
        self.tls_listeners().map(|(listener, tls)| tls.session_keys(listener)).collect()
    }

    /// Accepts TLS sessions of an old process.
    pub(super) fn continue_sessions(&self, sessions: &[SessionKeys]) {
        self.tls_listeners().for_each(|(listener, tls)| tls.continue_sessions(listener, sessions));
    }

    fn tls_listeners(&self) -> impl Iterator<Item = (&model::Listener, &Arc<TlsContext>)> {
        let listeners = self.config.listeners.iter().zip(&self.tls);
        listeners.filter_map(|(listener, tls)| Some((listener, tls.as_ref()?)))
    }

    /// Adds the state of its upstreams and of its key sets to the metrics.
    pub(super) fn watch_sources(&self, metrics: &Metrics) {
        let upstreams = self.upstreams.clone();
        metrics
            .endpoints
            .watch(move || upstreams.iter().flat_map(|upstream| upstream.endpoint_facts()).collect());
        let upstreams = self.upstreams.clone();
        let verifier = Arc::clone(&self.verifier);
        metrics.key_sets.watch(move || verifier.key_set_facts());
        metrics
            .upstream_tls
            .watch(move || upstreams.iter().filter_map(|upstream| upstream.tls_facts()).collect());
    }

    /// The snapshot for the admin port. `loaded` is the time in microseconds since the Unix epoch.
    pub(super) fn snapshot(&self, warnings: Vec<String>, loaded: i64) -> ConfigSnapshot {
        let (hash, decides) = fingerprints(&self.config);
        ConfigSnapshot {
            rules: Arc::clone(&self.rules),
            peaks: Arc::clone(&self.peaks),
            history: self.history.clone(),
            upstreams: self.upstreams.clone(),
            hash,
            decides,
            loaded,
            warnings,
        }
    }
}

/// The TLS of each listener. An unchanged context is reused; its files are read again.
fn tls_contexts(
    config: &Config,
    before: Option<&Generation>,
) -> Result<Vec<Option<Arc<TlsContext>>>, TlsError> {
    let known = |index: usize| before.and_then(|before| before.tls.get(index)?.as_ref());
    let context = |(index, listener): (usize, &model::Listener)| match (&listener.tls, known(index)) {
        (None, _) => Ok(None),
        (Some(settings), before) => {
            TlsContext::new(settings.clone(), listener.http2, before.map(|b| &**b)).map(Arc::new).map(Some)
        }
    };
    config.listeners.iter().enumerate().map(context).collect()
}

/// Its threads end with the last request that uses it.
fn watching_verifier(
    sources: &[UserSource],
    before: Option<&Generation>,
) -> Result<Arc<Verifier>, StartError> {
    let verifier = Arc::new(match before {
        Some(before) => Verifier::replacing(&before.verifier, sources)?,
        None => Verifier::new(sources)?,
    });
    verifier.watch_key_files()?;
    Ok(verifier)
}

/// A hash of all values of a configuration, as JSON with secrets masked, and one of the values that affect requests.
fn fingerprints(config: &Config) -> (String, String) {
    // Routes, of which there may be many, are written once, and one at a time: as values they take a lot of memory.
    let routes = config.routes.iter().map(|route| config.route_values(route).to_string());
    let routes = format!("[{}]", routes.collect::<Vec<_>>().join(","));
    let fingerprint = |values: &Value| {
        let write = |(key, value): (&String, &Value)| match key.as_str() {
            "routes" => format!("\"routes\":{routes}"),
            _ => format!("{}:{value}", Value::from(key.as_str())),
        };
        let entries = values.as_object().into_iter().flatten().map(write).collect::<Vec<_>>();
        let hash = Sha256::digest(format!("{{{}}}", entries.join(",")));
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    };
    let mut values = config.values_with_routes(|_| false);
    let hash = fingerprint(&values);
    Config::retain_decisive(&mut values);
    (hash, fingerprint(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::testing;

    #[test]
    fn a_fingerprint_is_that_of_all_values() {
        let config = testing::config();
        assert!(!config.routes.is_empty());
        let of = |values: &Value| {
            let hash = Sha256::digest(values.to_string());
            hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let mut values = config.values();
        let all = of(&values);
        Config::retain_decisive(&mut values);
        assert_eq!(fingerprints(&config), (all, of(&values)));
    }
}
