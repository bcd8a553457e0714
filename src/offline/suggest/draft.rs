//! A policy while its limits and overrides are found.

use std::{sync::Arc, time::Duration};

use compact_str::CompactString;
use http::Method;
use ipnet::IpNet;

use super::{
    distribution::{Knee, PeakDistribution},
    evidence::{Appearance, KeyEvidence},
    limits::{is_estimated, limit, needed},
    measure::MeasuredPolicy,
    peaks::KeyPeaks,
    verify::Verified,
};
use crate::config::model::{
    Algorithm, Condition, DEFAULT_BUCKETS, KeyPart, KeyRecipe, Override, Policy, Rate,
};

/// More addresses with limits of their own are for a person to judge.
const MAX_OVERRIDES: usize = 20;

/// A policy that may still get overrides.
pub(super) struct PolicyDraft {
    pub(super) name: String,
    pub(super) route: String,
    pub(super) methods: Vec<Method>,
    /// The routes that it is for, by their index.
    pub(super) uses: Vec<usize>,
    pub(super) key: KeyRecipe,
    pub(super) scope: MeasuredPolicy,
    /// In ascending order.
    pub(super) windows: Vec<Duration>,
    /// For each window.
    pub(super) peaks: Vec<PeakDistribution>,
    pub(super) knees: Vec<Option<Knee>>,
    pub(super) limits: Vec<u64>,
    pub(super) overrides: Vec<SharedAddress>,
}

/// An address that many people share, with limits of its own.
pub(super) struct SharedAddress {
    pub(super) key: CompactString,
    pub(super) address: IpNet,
    /// For each window.
    pub(super) limits: Vec<u64>,
}

impl PolicyDraft {
    /// The policy for the clients of `scope`, whose keys have a peak for each window, and behind these one for each
    /// [`counted_time`](super::limits::counted_time). It spares all clients below a knee, or without one the share `spare`.
    /// `is_spread`: the requests of a second were spread over it.
    pub(super) fn new(
        name: String,
        (route, methods, uses): (String, Vec<Method>, Vec<usize>),
        (key, windows): (&KeyRecipe, &[Duration]),
        scope: MeasuredPolicy,
        spare: f64,
        is_spread: bool,
    ) -> Self {
        let mut of_window = vec![Vec::with_capacity(scope.keys.len()); windows.len()];
        for key in scope.keys.values() {
            for (peaks, peak) in of_window.iter_mut().zip(key.peaks()) {
                peaks.push(peak);
            }
        }
        let peaks: Vec<_> = of_window.into_iter().map(PeakDistribution::new).collect();
        let knees: Vec<_> = peaks.iter().map(PeakDistribution::knee).collect();
        let of_window = |(nth, (peaks, knee)): (usize, (&PeakDistribution, &Option<Knee>))| {
            let spared = knee.map_or_else(|| peaks.quantile(spare), |knee| knee.below);
            let spared_keys = scope.keys.values().filter(|key| key.peak(nth) <= spared);
            let counted = spared_keys.map(|key| key.peak(windows.len() + nth)).max().unwrap_or(0);
            let is_short = is_spread && windows.get(nth).is_some_and(|window| is_estimated(*window));
            limit(spared, counted, knee.map(|knee| knee.above), is_short)
        };
        let limits = peaks.iter().zip(&knees).enumerate().map(of_window).collect();
        let (key, windows) = (key.clone(), windows.to_vec());
        Self { name, route, methods, uses, key, scope, windows, peaks, knees, limits, overrides: Vec::new() }
    }

    /// For each window the tier of the policy, or `None` if it needs none.
    pub(super) fn tiers(&self, limits: &[u64]) -> Vec<Option<Rate>> {
        let all: Vec<_> = self.windows.iter().copied().zip(limits.iter().copied()).collect();
        needed(&all).into_iter().map(|tier| tier.map(|(window, limit)| Rate { limit, window })).collect()
    }

    /// The limits of this key.
    fn limits_of(&self, key: &str) -> &[u64] {
        self.overrides.iter().find(|other| other.key == key).map_or(&self.limits, |other| &other.limits)
    }

    /// Whether a peak of this key is above a limit.
    fn is_above(&self, key: &str, peaks: &KeyPeaks) -> bool {
        self.limits_of(key).iter().zip(peaks.peaks()).any(|(&limit, peak)| u64::from(peak) > limit)
    }

    /// The keys with a peak above a limit, the farthest above first.
    pub(super) fn above(&self) -> Vec<(&CompactString, &KeyPeaks)> {
        let mut above: Vec<_> =
            self.scope.keys.iter().filter(|(key, peaks)| self.is_above(key, peaks)).collect();
        let excess = |peaks: &KeyPeaks| {
            let ratios =
                self.limits.iter().zip(peaks.peaks()).map(|(&limit, peak)| f64::from(peak) / limit as f64);
            ratios.fold(0.0, f64::max)
        };
        above.sort_by(|a, b| excess(b.1).total_cmp(&excess(a.1)).then_with(|| a.0.cmp(b.0)));
        above
    }

    /// The policy.
    pub(super) fn policy(&self) -> Policy {
        let algorithm = Algorithm::SlidingWindow { buckets: DEFAULT_BUCKETS };
        let tiers = |limits: &[u64]| self.tiers(limits).into_iter().flatten().collect::<Vec<_>>();
        let mut policy = Policy::new(&self.name, algorithm, vec![self.key.clone()], tiers(&self.limits));
        let overrides = self.overrides.iter().map(|other| Override {
            condition: Condition::Address(other.address),
            tiers: tiers(&other.limits).into_iter().map(Into::into).collect(),
            algorithm,
        });
        policy.overrides = overrides.collect();
        policy
    }

    /// Gives addresses that many people share limits of their own. Returns whether there are any that had none.
    pub(super) fn spare_shared(&mut self, verified: &Verified) -> bool {
        let known = self.overrides.len();
        self.overrides.extend(self.shared(verified));
        self.overrides.len() > known
    }

    /// The addresses above a limit that many people share.
    fn shared(&self, verified: &Verified) -> Vec<SharedAddress> {
        if self.key.0 != [KeyPart::Ip] {
            return Vec::new();
        }
        let is_shared = |key: &str| {
            let evidence = verified.evidence.get(key);
            evidence.is_some_and(|evidence: &KeyEvidence| evidence.appearance() == Appearance::Shared)
        };
        let room = MAX_OVERRIDES.saturating_sub(self.overrides.len());
        let shared = self.above().into_iter().filter(|(key, _)| is_shared(key)).filter_map(|(key, peaks)| {
            let text = key.strip_prefix("ip:")?;
            let address =
                text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)))?;
            let limits = self.limits.iter().enumerate().map(|(nth, &general)| {
                let counted = peaks.peak(self.windows.len() + nth);
                limit(peaks.peak(nth), counted, None, false).max(general)
            });
            let limits = limits.collect();
            Some(SharedAddress { key: key.clone(), address, limits })
        });
        shared.take(room).collect()
    }

    /// The policy as the configuration of a replay has it.
    pub(super) fn shared_policy(&self) -> Arc<Policy> {
        Arc::new(self.policy())
    }
}
