//! Takes the requests of access logs through the steps of a request, by the same functions as `replay` and `serve`.

use smallvec::smallvec;

use crate::{
    config::model::Config,
    limit::{Check, Decision, DecisionSource, ManualClock, Store, Taken, Unavailable, algorithm::Verdict},
    offline::{
        access_logs::{LogReader, LoggedRequest},
        replay::{Replay, ReplayError, ReplayedCheck, ReplayedVerdict, rules},
    },
};

/// Sees the requests of logs.
pub(super) trait Visitor {
    /// The next request.
    fn begin(&mut self, request: &LoggedRequest);

    /// The decision of a policy on it.
    fn check(&mut self, check: ReplayedCheck<'_>);

    /// The decision of all of them. Called last.
    ///
    /// # Errors
    /// There is no memory for more.
    fn end(&mut self, verdict: ReplayedVerdict) -> Result<(), super::SuggestError>;
}

/// Has the policies of `config` decide on each request of `logs`. `store` is empty, and uses `clock`. Returns whether a
/// route has `hosts`, and the number of requests whose host the log does not have.
///
/// # Errors
/// A log can't be read, or no log contains a request.
pub(super) async fn walk<S: Store>(
    config: Config,
    store: &S,
    clock: &ManualClock,
    logs: &mut LogReader,
    visitor: &mut impl Visitor,
) -> Result<u64, super::SuggestError> {
    let rules = rules(config)?;
    let mut replay = Replay::new(&rules, store, clock);
    while let Some(request) = logs.next_request().map_err(ReplayError::from)? {
        visitor.begin(&request);
        let verdict =
            replay.decide(request, |check| visitor.check(check)).await.map_err(ReplayError::from)?;
        visitor.end(verdict)?;
    }
    let has_hosts = rules.config().routes.iter().any(|route| !route.hosts.is_empty());
    Ok(if has_hosts { replay.without_host() } else { 0 })
}

/// A store without state, which admits every request: its checks tell the route and the keys of each.
pub(super) struct AdmitAll;

impl Store for AdmitAll {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        Ok(Decision {
            admitted: true,
            source: DecisionSource::Store,
            time: 0,
            verdicts: smallvec![Verdict::UNKNOWN; checks.len()],
            parts: None,
        })
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        self.decide(checks).await
    }

    async fn settle(&self, _taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        Ok(())
    }
}
