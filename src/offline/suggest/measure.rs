//! Measures the peaks of all clients in access logs.

use std::{sync::Arc, time::Duration};

use compact_str::CompactString;
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::{
    SuggestError,
    peaks::KeyPeaks,
    walk::{AdmitAll, Visitor, walk},
};
use crate::{
    config::model::{Algorithm, Config, KeyRecipe, Policy, Rate, RoutePolicy},
    limit::ManualClock,
    offline::{
        access_logs::{LogReader, LoggedRequest, ReadingNotes},
        replay::{ReplayedCheck, ReplayedVerdict},
    },
};

/// Keys, of all scopes together, take some 200 bytes each.
const MAX_KEYS: usize = 10_000_000;
/// Bytes for the times of requests in the longest window, of all keys.
const MAX_BYTES: usize = 2 << 30;
/// The memory of silent clients is freed when this many bytes are used, and then each time when they have doubled.
const FIRST_RELEASE: usize = 16 << 20;

/// The peaks of the keys of one policy.
#[derive(Debug, Default)]
pub(super) struct MeasuredPolicy {
    pub(super) keys: IndexMap<CompactString, KeyPeaks, RandomState>,
    /// Number of requests without a key, since the log does not have its parts.
    pub(super) not_in_log: u64,
}

impl MeasuredPolicy {
    /// Number of requests that were counted.
    pub(super) fn requests(&self) -> u64 {
        self.keys.values().map(|key| key.requests).sum()
    }
}

/// The requests of logs, and the peaks of their clients.
#[derive(Debug)]
pub(super) struct Measured {
    /// For each list of `uses` in [`measure`].
    pub(super) scopes: Vec<MeasuredPolicy>,
    /// The requests that reached a route.
    pub(super) requests: u64,
    /// The times of the first and the last request, in microseconds.
    pub(super) first: i64,
    pub(super) last: i64,
    /// Requests that no policy would have seen: without a route, malformed, or refused before.
    pub(super) refused: u64,
    /// Requests whose route depends on the listener, which no log has.
    pub(super) unknown: u64,
    pub(super) without_host: u64,
    pub(super) notes: ReadingNotes,
}

/// Measures how many requests each key sends at most in any window.
///
/// `uses`: for each scope the routes, by their index, whose requests it counts. The key of a scope is found as that of a
/// policy on these routes is. The last of `windows` is the longest. Memory: see [`KeyPeaks`].
///
/// # Errors
/// A log can't be read, or has too many clients or requests for the memory.
pub(super) async fn measure(
    mut config: Config,
    uses: &[Vec<usize>],
    key: &KeyRecipe,
    windows: &[Duration],
    mut logs: LogReader,
) -> Result<Measured, SuggestError> {
    let tiers = vec![Rate { limit: 1, window: Duration::from_secs(1) }];
    let policy = |nth: usize| {
        let name = format!("measured-{nth}");
        Arc::new(Policy::new(name, Algorithm::SingleCounter, vec![key.clone()], tiers.clone()))
    };
    set_policies(&mut config, (0..uses.len()).map(policy).collect(), uses);
    let mut measuring = Measuring {
        windows: windows.iter().map(|window| window.as_micros() as i64).collect(),
        scopes: uses.iter().map(|_| MeasuredPolicy::default()).collect(),
        time: 0,
        first: None,
        requests: 0,
        refused: 0,
        unknown: 0,
        keys: 0,
        bytes: 0,
        release_at: FIRST_RELEASE,
    };
    let without_host = walk(config, &AdmitAll, &ManualClock::default(), &mut logs, &mut measuring).await?;
    let Measuring { scopes, requests, first, time, refused, unknown, .. } = measuring;
    let (first, last, notes) = (first.unwrap_or(time), time, logs.into_notes());
    Ok(Measured { scopes, requests, first, last, refused, unknown, without_host, notes })
}

/// Gives the routes of `config` these policies, in place of their own. `uses`: the routes of each policy.
pub(super) fn set_policies(config: &mut Config, policies: Vec<Arc<Policy>>, uses: &[Vec<usize>]) {
    config.policies = policies;
    config.bans.clear();
    for (index, route) in config.routes.iter_mut().enumerate() {
        let of_route = uses.iter().enumerate().filter(|(_, routes)| routes.contains(&index));
        route.policies = of_route.map(|(policy, _)| RoutePolicy::unpriced(policy)).collect();
        for variant in route.split.iter_mut().flat_map(|split| &mut split.routes) {
            variant.policies.clone_from(&route.policies);
        }
    }
}

struct Measuring {
    /// In microseconds.
    windows: Vec<i64>,
    scopes: Vec<MeasuredPolicy>,
    /// Of the request.
    time: i64,
    first: Option<i64>,
    requests: u64,
    refused: u64,
    unknown: u64,
    keys: usize,
    /// For the times of requests.
    bytes: usize,
    /// The number of bytes at which those of silent clients are freed.
    release_at: usize,
}

impl Visitor for Measuring {
    fn begin(&mut self, request: &LoggedRequest) {
        self.time = request.time;
        self.first.get_or_insert(request.time);
    }

    fn check(&mut self, ReplayedCheck { policy, decided, .. }: ReplayedCheck<'_>) {
        let Some(scope) = self.scopes.get_mut(policy) else { return };
        let Some(decided) = decided else {
            scope.not_in_log += 1;
            return;
        };
        let index = scope.keys.get_index_of(decided.key).unwrap_or_else(|| {
            self.keys += 1;
            scope.keys.insert_full(decided.key.into(), KeyPeaks::default()).0
        });
        if let Some((_, key)) = scope.keys.get_index_mut(index) {
            self.bytes = self.bytes.saturating_add_signed(key.add(self.time, &self.windows));
        }
    }

    fn end(&mut self, verdict: ReplayedVerdict) -> Result<(), SuggestError> {
        match verdict {
            ReplayedVerdict::Admitted | ReplayedVerdict::ShadowDenied | ReplayedVerdict::Denied => {
                self.requests += 1;
            }
            ReplayedVerdict::Forbidden | ReplayedVerdict::Refused | ReplayedVerdict::Unchecked => {
                self.refused += 1;
            }
            ReplayedVerdict::Unknown => self.unknown += 1,
        }
        if self.keys > MAX_KEYS {
            return Err(SuggestError::TooManyKeys(MAX_KEYS));
        }
        if self.bytes > self.release_at {
            let longest = self.windows.last().copied().unwrap_or(0);
            let keys = self.scopes.iter_mut().flat_map(|scope| scope.keys.values_mut());
            self.bytes = keys.map(|key| key.release(self.time, longest)).sum();
            if self.bytes > MAX_BYTES {
                return Err(SuggestError::TooManyRequests);
            }
            self.release_at = (2 * self.bytes).clamp(FIRST_RELEASE, MAX_BYTES);
        }
        Ok(())
    }
}
