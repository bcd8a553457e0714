//! `tollgate replay`: which clients the policies would have limited, according to access logs of any proxy.
//!
//! [`replay`] makes `proxy::replay` decide on each request and counts the decisions in a [`Report`].

mod report;

use std::sync::Arc;

pub use report::{LimitedKey, PolicyReport, Report};

use report::ReplayCounts;

use crate::{
    access_logs::{LogReader, ReadError},
    config::model::Config,
    identity::{AccessRules, UnusableAddresses, UnusableKeys, Verifier},
    limit::{ManualClock, Unavailable},
    proxy::{
        Rules,
        replay::{Replay, policies},
    },
    store::memory::MemoryStore,
};

/// Number of requests after which expired limits are swept; the budget is twice the number of new ones.
const SWEEP_EVERY: u64 = 100_000;
const SWEEP_BUDGET: usize = 200_000;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Log(#[from] ReadError),
    #[error(transparent)]
    Addresses(#[from] UnusableAddresses),
    #[error(transparent)]
    Keys(#[from] UnusableKeys),
    #[error("the name of a policy cannot be sent in a header: {0}")]
    Name(#[from] http::header::InvalidHeaderValue),
    #[error(transparent)]
    Store(#[from] Unavailable),
    /// A local error: too many open files, or the output is closed.
    #[error(transparent)]
    Local(#[from] std::io::Error),
}

/// Applies the policies of `config` to all requests of `logs`, with initially empty limits in memory.
///
/// # Errors
/// A log can't be read, or no log contains a request.
pub async fn replay(config: Config, mut logs: LogReader) -> Result<Report, ReplayError> {
    let policies = policies(&config);
    let access = Arc::new(AccessRules::open(&config)?);
    // Logs contain no tokens.
    let verifier = Arc::new(Verifier::new(&[])?);
    let rules = Rules::new(Arc::new(config), policies.into(), verifier, access, Arc::default())?;
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(usize::MAX, Arc::clone(&clock) as _);
    let mut replay = Replay::new(&rules, &store, &clock);
    let mut counts = ReplayCounts::new(rules.policies());
    while let Some(request) = logs.next_request()? {
        let time = request.time;
        let verdict = replay.decide(request, |check| counts.count_check(check, time)).await?;
        if counts.count_request(time, verdict).is_multiple_of(SWEEP_EVERY) {
            store.sweep(SWEEP_BUDGET);
        }
    }
    let has_hosts = rules.config().routes.iter().any(|route| !route.hosts.is_empty());
    let without_host = if has_hosts { replay.without_host() } else { 0 };
    Ok(counts.report(logs.into_notes(), without_host, |policy| replay.unknown_conditions(policy)))
}
