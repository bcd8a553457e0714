//! `tollgate replay`: which clients the policies would have limited, according to access logs of any proxy.
//!
//! [`replay`] decides on each request, in the order of arrival. A `ReplayTally` counts the decisions,
//! and becomes a [`Report`]. With a second configuration, `VerdictChanges` notes where the two decide differently.

mod changes;
mod decide;
mod html;
mod report;
mod tally;

use std::sync::Arc;

pub use changes::{ChangedClient, ReplayComparison};
pub(super) use decide::{Replay, ReplayedCheck, ReplayedVerdict, policies};
pub use html::page;
pub use report::{Closeness, LimitedKey, Minute, PolicyReport, Report, Timeline, TimelineBar};

use changes::VerdictChanges;
use tally::ReplayTally;

use crate::{
    config::model::Config,
    identity::{AccessRules, UnusableAddresses, UnusableKeys, Verifier},
    limit::{ManualClock, Unavailable},
    offline::access_logs::{LogReader, LoggedRequest, ReadError, ReadingNotes},
    proxy::Rules,
    store::memory::MemoryStore,
};

/// Number of requests after which expired limits are swept; the budget is twice the number of new ones.
pub(super) const SWEEP_EVERY: u64 = 100_000;
pub(super) const SWEEP_BUDGET: usize = 200_000;

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

/// Applies the policies of `config` to all requests of `logs`, with initially empty limits in memory. `other`: another
/// configuration to compare with, and its name.
///
/// # Errors
/// A log can't be read, or no log contains a request.
pub async fn replay(
    config: Config,
    other: Option<(String, Config)>,
    mut logs: LogReader,
) -> Result<Report, ReplayError> {
    let setup = Setup::new(config)?;
    let mut run = ReplayRun::new(&setup);
    let other = other.map(|(name, config)| Ok::<_, ReplayError>((name, Setup::new(config)?))).transpose()?;
    let mut compared =
        other.as_ref().map(|(name, setup)| (name, ReplayRun::new(setup), VerdictChanges::default()));
    while let Some(request) = logs.next_request()? {
        if let Some((_, other, changes)) = &mut compared {
            let again = other.decide(request.clone()).await?;
            changes.add(&request, run.decide(request.clone()).await?, again);
        } else {
            run.decide(request).await?;
        }
    }
    let notes = logs.into_notes();
    let mut report = run.report(&notes);
    report.comparison =
        compared.map(|(name, other, changes)| changes.comparison(name, &report, other.report(&notes)));
    Ok(report)
}

/// The rules for requests of logs under `config`.
///
/// # Errors
/// A file of addresses or keys, or the name of a policy, can't be used.
pub(super) fn rules(config: Config) -> Result<Rules, ReplayError> {
    let policies = policies(&config);
    let access = Arc::new(AccessRules::open(&config)?);
    // Logs contain no tokens.
    let verifier = Arc::new(Verifier::new(&[])?);
    Ok(Rules::new(Arc::new(config), policies.into(), verifier, access, Arc::default())?)
}

/// A configuration, prepared for a replay with empty limits.
struct Setup {
    rules: Rules,
    store: MemoryStore,
    clock: Arc<ManualClock>,
}

impl Setup {
    fn new(config: Config) -> Result<Self, ReplayError> {
        let rules = rules(config)?;
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(usize::MAX, Arc::clone(&clock) as _);
        Ok(Self { rules, store, clock })
    }
}

/// A replay in progress, and its counts.
struct ReplayRun<'s> {
    setup: &'s Setup,
    replay: Replay<'s, MemoryStore>,
    tally: ReplayTally,
}

/// The verdict on a request.
#[derive(Debug, Clone, Copy)]
struct Decided {
    verdict: ReplayedVerdict,
    /// The index of the last policy that denies it.
    denied_by: Option<usize>,
}

impl<'s> ReplayRun<'s> {
    fn new(setup: &'s Setup) -> Self {
        let Setup { rules, store, clock } = setup;
        Self { setup, replay: Replay::new(rules, store, clock), tally: ReplayTally::new(rules.policies()) }
    }

    async fn decide(&mut self, request: LoggedRequest) -> Result<Decided, ReplayError> {
        let time = request.time;
        let (tally, mut denied_by) = (&mut self.tally, None);
        let verdict = self
            .replay
            .decide(request, |check| {
                if check.decided.is_some_and(|decided| !decided.is_admitted) {
                    denied_by = Some(check.policy);
                }
                tally.add_check(&check);
            })
            .await?;
        if tally.add_request(time, verdict).is_multiple_of(SWEEP_EVERY) {
            self.setup.store.sweep(SWEEP_BUDGET);
        }
        Ok(Decided { verdict, denied_by })
    }

    fn report(self, notes: &ReadingNotes) -> Report {
        let mut report = self.tally.report(notes);
        for (index, policy) in report.policies.iter_mut().enumerate() {
            policy.unknown_conditions = self.replay.unknown_conditions(index);
            policy.unknown_costs = self.replay.unknown_costs(index);
        }
        if self.setup.rules.config().routes.iter().any(|route| !route.hosts.is_empty()) {
            report.without_host = self.replay.without_host();
        }
        report
    }
}
