//! What is built of one configuration, and gives way to another's on a reload.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::StartError;
use crate::{
    admin::ConfigSnapshot,
    config::model::{self, Config, UserSource},
    identity::Verifier,
    limit::Policy,
    proxy::Rules,
    telemetry::metrics::Metrics,
    upstream::SharedUpstream,
};

/// One configuration, ready to serve requests.
pub(super) struct Generation {
    pub(super) config: Arc<Config>,
    pub(super) rules: Arc<Rules>,
    /// In the configuration's order.
    pub(super) upstreams: Vec<Arc<SharedUpstream>>,
    verifier: Arc<Verifier>,
}

impl Generation {
    /// Builds everything that `config` asks for. What stays as it was in the one `before` is taken over from there, with its
    /// connections and its counts; nothing of that one changes.
    ///
    /// # Errors
    /// Keys can't be read, a name can't be sent in a field, there is no thread left.
    pub(super) fn new(
        config: Config,
        policies: Arc<[Policy]>,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let same = before.filter(|before| before.config.user == config.user);
        let verifier = match same {
            Some(before) => Arc::clone(&before.verifier),
            None => watching(&config.user)?,
        };
        // As clients are asked for now, not as they may have been read a second ago.
        verifier.reload_changed_keys();
        let known = before.map_or(&[][..], |before| &before.upstreams);
        let upstream = |upstream: &model::Upstream| {
            let same = known.iter().find(|known| known.config == *upstream);
            same.map_or_else(|| SharedUpstream::new(upstream.clone()), Arc::clone)
        };
        let upstreams = config.upstreams.iter().map(upstream).collect();
        let rules = Arc::new(Rules::new(Arc::clone(&config), policies, Arc::clone(&verifier))?);
        Ok(Self { config, rules, upstreams, verifier })
    }

    /// Has how its endpoints stand told among what is counted.
    pub(super) fn watch_endpoints(&self, metrics: &Metrics) {
        let upstreams = self.upstreams.clone();
        metrics.watch_endpoints(move || {
            upstreams.iter().flat_map(|upstream| upstream.endpoint_facts()).collect()
        });
    }

    /// What the admin port shows of it. `loaded`: when, in microseconds since the Unix epoch.
    pub(super) fn told(&self, warnings: Vec<String>, loaded: i64) -> ConfigSnapshot {
        ConfigSnapshot {
            rules: Arc::clone(&self.rules),
            upstreams: self.upstreams.clone(),
            hash: fingerprint(&*self.config),
            decides: decides(&self.config),
            loaded,
            warnings,
        }
    }
}

/// Ends with the last request that goes by it.
fn watching(sources: &[UserSource]) -> Result<Arc<Verifier>, StartError> {
    let verifier = Arc::new(Verifier::new(sources)?);
    verifier.watch_key_files()?;
    Ok(verifier)
}

/// Tells apart what two configurations decide over requests. Where an instance serves, and what it writes, is its own.
fn decides(config: &Config) -> String {
    // Without `..`: whatever comes new has to be one or the other.
    let Config {
        listeners: _,
        admin: _,
        workers: _,
        trusted_proxies,
        client_address,
        request_id,
        user,
        store,
        policies,
        bans,
        abuse,
        upstreams,
        routes,
        client_limits,
        reply_headers,
        forwarded,
        access_log: _,
        log: _,
        tracing: _,
        shutdown: _,
        source: _,
    } = config;
    let who = (trusted_proxies, client_address, request_id, user);
    let what = (store, policies, bans, abuse, client_limits);
    fingerprint(&(who, what, (upstreams, routes, reply_headers, forwarded)))
}

/// Tells two of a kind apart; what is secret is masked before.
fn fingerprint(of: &impl fmt::Debug) -> String {
    let hash = Sha256::digest(format!("{of:?}"));
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
