//! Which samples a configuration needs: one for each route, policy and override.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use compact_str::CompactString;
use parking_lot::Mutex;

use super::{
    demand::DemandTally,
    distribution::Distribution,
    hourly_max::hour,
    key_name,
    sample::{KeySample, SampleView},
};
use crate::{
    config::model::Config,
    limit::{
        Policy,
        algorithm::{Kind, Tier},
    },
};

/// Samples of a configuration, at most. Beyond them, the last routes have none.
const MAX_SAMPLES: usize = 16_384;

/// The policies of a route, and the number of the first sample of each. The samples of a policy's variants follow each
/// other.
type RouteSamples = Box<[(usize, usize)]>;

/// The samples of one configuration. Samples of limits that a reload keeps are shared with the configuration before.
#[derive(Debug)]
pub struct PeakPlan {
    policies: Arc<[Policy]>,
    /// By the route's index.
    routes: Box<[RouteSamples]>,
    samples: Box<[PlannedSample]>,
    /// Hashes keys: the same for all configurations of the process, and unknown to clients.
    pub(super) hasher: foldhash::quality::RandomState,
    /// Hides values in the names of keys.
    secret: u64,
    /// Bytes of the samples of all plans.
    held: Arc<AtomicUsize>,
}

/// The subject of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleName {
    /// The route's index.
    pub route: usize,
    /// The policy's index.
    pub policy: usize,
    /// Which of [`Policy::variants`].
    pub variant: usize,
}

#[derive(Debug)]
struct PlannedSample {
    name: SampleName,
    identity: SampleIdentity,
    shared: Arc<SharedSample>,
}

/// A sample goes on under another configuration if all of this is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SampleIdentity {
    route: String,
    policy: String,
    /// The condition of an override.
    condition: Option<String>,
    shape: String,
    kind: Kind,
    tiers: Vec<Tier>,
}

/// A sample, and the facts about it that workers need.
#[derive(Debug)]
struct SharedSample {
    /// See [`KeySample::threshold`].
    threshold: AtomicU64,
    /// `None`: no key was added yet.
    sample: Mutex<Option<Box<KeySample>>>,
    /// The bytes of this sample that are part of `held`.
    bytes: AtomicUsize,
    held: Arc<AtomicUsize>,
}

impl SharedSample {
    fn new(held: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self {
            threshold: AtomicU64::new(u64::MAX),
            sample: Mutex::default(),
            bytes: AtomicUsize::new(0),
            held: Arc::clone(held),
        })
    }

    /// Changes the sample, and publishes its threshold and its size.
    fn change(&self, change: impl FnOnce(&mut KeySample)) {
        let mut sample = self.sample.lock();
        let sample = sample.get_or_insert_default();
        change(sample);
        self.threshold.store(sample.threshold(), Relaxed);
        let bytes = sample.bytes();
        let before = self.bytes.swap(bytes, Relaxed);
        self.held.fetch_add(bytes, Relaxed);
        self.held.fetch_sub(before, Relaxed);
    }
}

impl Drop for SharedSample {
    fn drop(&mut self) {
        self.held.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

impl PeakPlan {
    /// The samples of `config`. `policies`: in its order. `before`: the plan of the configuration before.
    pub fn new(config: &Config, policies: Arc<[Policy]>, before: Option<&Self>) -> Self {
        let held = before.map(|before| Arc::clone(&before.held)).unwrap_or_default();
        let known = before.map_or(&[][..], |before| &before.samples);
        let mut known: HashMap<&SampleIdentity, &Arc<SharedSample>> =
            known.iter().map(|planned| (&planned.identity, &planned.shared)).collect();
        let mut samples: Vec<PlannedSample> = Vec::new();
        let mut routes = Vec::with_capacity(config.routes.len());
        for (index, route) in config.routes.iter().enumerate() {
            let mut of_route = Vec::new();
            for policy in route.all_policies() {
                let Some(limits) = policies.get(policy) else { continue };
                if samples.len() + 1 + limits.overrides.len() > MAX_SAMPLES {
                    break;
                }
                of_route.push((policy, samples.len()));
                for (variant, limits) in limits.variants().enumerate() {
                    let name = SampleName { route: index, policy, variant };
                    let condition = name.condition(&policies);
                    let identity = SampleIdentity {
                        route: route.name.clone(),
                        policy: limits.name.clone(),
                        condition,
                        shape: limits.shape.clone(),
                        kind: limits.kind,
                        tiers: limits.tiers.clone(),
                    };
                    // Two with the same names have a sample each.
                    let shared = known.remove(&identity).map(Arc::clone);
                    let shared = shared.unwrap_or_else(|| SharedSample::new(&held));
                    samples.push(PlannedSample { name, identity, shared });
                }
            }
            routes.push(of_route.into_boxed_slice());
        }
        let hasher = before.map(|before| before.hasher.clone()).unwrap_or_default();
        let secret = before.map_or_else(|| fastrand::u64(..), |before| before.secret);
        Self { policies, routes: routes.into(), samples: samples.into(), hasher, secret, held }
    }

    /// The number of the sample of a decision; `None`: there is none.
    #[inline]
    pub(super) fn sample(&self, name: SampleName) -> Option<u32> {
        let of_route = self.routes.get(name.route)?;
        let &(_, first) = of_route.iter().find(|&&(policy, _)| policy == name.policy)?;
        u32::try_from(first + name.variant).ok()
    }

    /// See [`KeySample::threshold`].
    #[inline]
    pub(super) fn threshold(&self, sample: u32) -> u64 {
        self.samples.get(sample as usize).map_or(0, |planned| planned.shared.threshold.load(Relaxed))
    }

    /// Adds the decisions of a moment on one key.
    pub(super) fn add(&self, sample: u32, hash: u64, key: &CompactString, tally: DemandTally) {
        let Some(PlannedSample { name, shared, .. }) = self.samples.get(sample as usize) else { return };
        if let Some(limits) = name.limits(&self.policies) {
            shared.change(|sample| sample.add(hash, || key_name::shown(key, self.secret), limits, tally));
        }
    }

    /// Halves the largest samples until all of them take at most `max_bytes`.
    pub(super) fn fit(&self, max_bytes: usize) {
        while self.held.load(Relaxed) > max_bytes {
            let largest = self.samples.iter().max_by_key(|planned| planned.shared.bytes.load(Relaxed));
            let Some(PlannedSample { shared, .. }) = largest else { return };
            let before = shared.bytes.load(Relaxed);
            shared.change(|sample| sample.shrink(sample.len() / 2));
            if shared.bytes.load(Relaxed) >= before {
                return;
            }
        }
    }

    /// Removes entries older than 24 hours from all samples. `now`: in microseconds since the Unix epoch.
    pub(super) fn expire(&self, now: i64) {
        for PlannedSample { shared, .. } in &self.samples {
            if shared.sample.lock().is_some() {
                shared.change(|sample| sample.enter_hour(hour(now)));
            }
        }
    }

    /// Bytes of all samples, including those of configurations whose last requests have not ended.
    pub fn bytes(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The peaks of each limit of the policy at this index in the 24 hours before `now`, in microseconds since the Unix
    /// epoch: by route, in the configuration's order, then by variant, then by tier.
    pub fn distributions(&self, policy: usize, now: i64) -> Vec<(SampleName, usize, Distribution)> {
        let of_policy = self.samples.iter().filter(|planned| planned.name.policy == policy);
        let distributions = of_policy.flat_map(|PlannedSample { name, shared, .. }| {
            let view = shared.sample.lock().as_ref().map(|sample| sample.view(hour(now)));
            let view = view.unwrap_or(SampleView { keys: Vec::new(), fraction: 1.0 });
            let tiers = name.limits(&self.policies).map_or(0, |limits| limits.tiers.len());
            (0..tiers).map(|tier| (*name, tier, Distribution::new(&view, tier))).collect::<Vec<_>>()
        });
        distributions.collect()
    }
}

impl SampleName {
    /// The policy, or the override, whose limits were applied.
    pub fn limits(self, policies: &[Policy]) -> Option<&Policy> {
        policies.get(self.policy)?.variants().nth(self.variant)
    }

    /// The condition of the override, as operators see it.
    pub fn condition(self, policies: &[Policy]) -> Option<String> {
        let (condition, _) = policies.get(self.policy)?.overrides.get(self.variant.checked_sub(1)?)?;
        Some(condition.shown())
    }
}

#[cfg(test)]
mod tests {
    use compact_str::format_compact;

    use super::{
        super::{collector::MAX_BYTES, sample::MAX_KEYS},
        *,
    };
    use crate::{config::model, telemetry::testing};

    const NOW: i64 = 1_783_080_000_000_000;

    /// A plan with this many routes, each with one policy.
    fn plan(routes: usize, limit: u64, before: Option<&PeakPlan>) -> PeakPlan {
        let mut config = testing::config();
        let route = config.routes.remove(0);
        config.routes =
            (0..routes).map(|nth| model::Route { name: format!("r{nth}"), ..route.clone() }).collect();
        let mut policies = Policy::all(config.policies.iter().map(Arc::as_ref));
        policies[0].tiers[0].limit = limit;
        PeakPlan::new(&config, policies.into(), before)
    }

    fn add(plan: &PeakPlan, sample: u32, hash: u64, key: &str) {
        let tally = DemandTally { tier: 0, used: 3, admitted: 1, denied: 2, time: NOW };
        if hash < plan.threshold(sample) {
            plan.add(sample, hash, &key.into(), tally);
        }
    }

    #[test]
    fn random_keys_on_many_routes_take_bounded_memory_and_are_still_counted() {
        let plan = plan(300, 9, None);
        let mut random = fastrand::Rng::with_seed(11);
        let mut most = 0;
        for round in 0..1_000 {
            for route in 0..300 {
                // Keys as long as they get.
                let key = format_compact!("ip:2001:db8::/64+path:/{}{:0>170}", round, route);
                add(&plan, route, random.u64(..), &key);
            }
            plan.fit(MAX_BYTES);
            most = most.max(plan.bytes());
        }
        assert!(most <= MAX_BYTES && most > MAX_BYTES / 2, "{most}");
        let counted = plan.distributions(0, NOW);
        assert_eq!(counted.len(), 300);
        for (name, _, found) in counted {
            let (sampled, keys) = (found.sampled(), found.keys(found.sampled()));
            assert!(sampled > 30, "{name:?}: {sampled}");
            assert!((keys as f64 / 1_000.0 - 1.0).abs() < 0.6, "{name:?}: {keys} of {sampled}");
        }
        let held = Arc::clone(&plan.held);
        drop(plan);
        assert_eq!(held.load(Relaxed), 0);
    }

    #[test]
    fn one_sample_has_no_more_keys_than_its_share() {
        let plan = plan(1, 9, None);
        let mut random = fastrand::Rng::with_seed(1);
        for nth in 0..200_000 {
            add(&plan, 0, random.u64(..), &format_compact!("user:{nth}"));
        }
        assert!(plan.bytes() < 1 << 20, "{}", plan.bytes());
        let (_, _, found) = plan.distributions(0, NOW).remove(0);
        assert_eq!(found.sampled(), MAX_KEYS);
        assert!((found.keys(MAX_KEYS) as f64 / 200_000.0 - 1.0).abs() < 0.1);
        assert_eq!(found.quantile(0.5), Some(5));
    }

    #[test]
    fn limits_that_stay_keep_their_samples() {
        let first = plan(2, 9, None);
        add(&first, 0, 7, "user:ann");
        add(&first, 1, 7, "user:ann");
        let same = plan(1, 9, Some(&first));
        drop(first);
        let sampled = |plan: &PeakPlan| {
            plan.distributions(0, NOW).iter().map(|(.., found)| found.sampled()).collect::<Vec<_>>()
        };
        assert_eq!(sampled(&same), [1]);
        let one = same.bytes();
        let changed = plan(1, 10, Some(&same));
        assert_eq!((sampled(&changed), changed.bytes()), (vec![0], one));
        drop(same);
        assert_eq!(changed.bytes(), 0);
    }

    #[test]
    fn the_number_of_samples_is_bounded() {
        let plan = plan(MAX_SAMPLES + 5, 9, None);
        assert_eq!(plan.samples.len(), MAX_SAMPLES);
        let name = |route| SampleName { route, policy: 0, variant: 0 };
        assert_eq!(plan.sample(name(MAX_SAMPLES - 1)), u32::try_from(MAX_SAMPLES - 1).ok());
        assert_eq!(plan.sample(name(MAX_SAMPLES)), None);
    }
}
