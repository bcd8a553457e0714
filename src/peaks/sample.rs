//! A uniform sample of the keys of one policy and route in the last 24 hours.
//!
//! A key is in the sample if its hash is below a threshold. While there are more than [`MAX_KEYS`] of them, the threshold
//! falls: the keys with the smallest hashes stay (bottom-k). Clients do not know the seed of the hash, so they can't
//! choose who is in the sample.
//!
//! A threshold may rise again in a new hour, once keys have expired. Keys that were beyond the threshold of an earlier
//! hour are not known of that hour, so only the lowest threshold of the last 24 hours counts for what is shown.

use std::collections::{BTreeMap, VecDeque};

use compact_str::CompactString;

use super::{
    demand::{DemandTally, KeyDemand, LimitPeaks},
    hourly_max::{HOURS, hour},
};
use crate::{limit::Policy, memory_budget::heap};

/// Keys in a sample, at most.
pub(super) const MAX_KEYS: usize = 2_048;

/// The sample.
#[derive(Debug, Default)]
pub(super) struct KeySample {
    /// By hash.
    keys: BTreeMap<u64, SampleEntry>,
    /// The hours of the last 24 in which keys were added, and their thresholds.
    thresholds: VecDeque<(i64, u64)>,
    /// Bytes of the entries beside the tree.
    heap: usize,
}

#[derive(Debug)]
struct SampleEntry {
    name: CompactString,
    demand: KeyDemand,
}

/// The keys in use in the last 24 hours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SampleView {
    /// Each sampled key, with its peaks.
    pub(super) keys: Vec<(CompactString, LimitPeaks)>,
    /// Sampled keys of all keys: 1 if all are sampled.
    pub(super) fraction: f64,
}

impl KeySample {
    /// Keys whose hash is not below this number are not in the sample.
    pub(super) fn threshold(&self) -> u64 {
        self.thresholds.back().map_or(u64::MAX, |&(_, threshold)| threshold)
    }

    /// Adds the decisions of a moment on the key with this hash. `name` is called if the key is new.
    pub(super) fn add(
        &mut self,
        hash: u64,
        name: impl FnOnce() -> CompactString,
        policy: &Policy,
        tally: DemandTally,
    ) {
        self.enter_hour(hour(tally.time));
        if hash >= self.threshold() {
            return;
        }
        let entry = self.keys.entry(hash).or_insert_with(|| {
            let name = name();
            self.heap += heap::text(&name);
            SampleEntry { name, demand: KeyDemand::default() }
        });
        let before = entry.demand.heap_bytes();
        entry.demand.add(policy, tally);
        self.heap = (self.heap + entry.demand.heap_bytes()).saturating_sub(before);
        if self.keys.len() > MAX_KEYS {
            self.shrink(MAX_KEYS);
        }
    }

    /// Keeps the `keys` with the smallest hashes.
    pub(super) fn shrink(&mut self, keys: usize) {
        let mut lowest = None;
        while self.keys.len() > keys {
            let Some((hash, entry)) = self.keys.pop_last() else { break };
            self.heap = self.heap.saturating_sub(entry.heap_bytes());
            lowest = Some(hash);
        }
        if let (Some(lowest), Some((_, threshold))) = (lowest, self.thresholds.back_mut()) {
            *threshold = lowest;
        }
    }

    /// Begins the hour `now`, if it is a new one: removes entries older than 24 hours, and takes twice the keys if
    /// there is room for them.
    pub(super) fn enter_hour(&mut self, now: i64) {
        let Some(&(last, threshold)) = self.thresholds.back() else {
            self.thresholds.push_back((now, u64::MAX));
            return;
        };
        if now <= last {
            return;
        }
        self.thresholds.retain(|&(hour, _)| hour > now - HOURS);
        self.keys.retain(|_, entry| !entry.demand.expire(now));
        self.heap = self.keys.values().map(SampleEntry::heap_bytes).sum();
        let rises = self.keys.len() <= MAX_KEYS / 2;
        self.thresholds.push_back((now, if rises { threshold.saturating_mul(2) } else { threshold }));
    }

    /// The keys in use in the 24 hours that end with the hour `now`.
    pub(super) fn view(&self, now: i64) -> SampleView {
        let counted = self.thresholds.iter().filter(|&&(hour, _)| hour > now - HOURS);
        let threshold = counted.map(|&(_, threshold)| threshold).min().unwrap_or(u64::MAX);
        let peaks = self.keys.range(..threshold).map(|(_, entry)| (&entry.name, entry.demand.peaks(now)));
        let in_use = peaks.filter(|(_, peaks)| peaks.iter().any(Option::is_some));
        let fraction = if threshold == u64::MAX { 1.0 } else { threshold as f64 / u64::MAX as f64 };
        SampleView { keys: in_use.map(|(name, peaks)| (name.clone(), peaks)).collect(), fraction }
    }

    /// Keys in memory.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.keys.len() * heap::tree_entry(size_of::<(u64, SampleEntry)>())
            + self.heap
            + heap::array::<(i64, u64)>(self.thresholds.capacity())
            + heap::block(size_of::<Self>())
    }
}

impl SampleEntry {
    fn heap_bytes(&self) -> usize {
        heap::text(&self.name) + self.demand.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        time::Duration,
    };

    use compact_str::format_compact;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        config::model::{self, Algorithm},
        limit::PolicyId,
    };

    const HOUR: i64 = 3_600_000_000;
    /// At the beginning of an hour.
    const NOW: i64 = 1_783_080_000_000_000;

    fn policy() -> Policy {
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let tiers = vec![model::Rate { limit: 100, window: Duration::from_secs(60) }];
        Policy::new(&model::Policy::new("p", Algorithm::FixedWindow, keys, tiers), PolicyId(0))
    }

    fn add(sample: &mut KeySample, policy: &Policy, hash: u64, used: u64, time: i64) {
        let tally = DemandTally { tier: 0, used, admitted: 1, denied: 0, time };
        sample.add(hash, || format_compact!("k{hash}"), policy, tally);
    }

    fn peaks(view: &SampleView) -> HashMap<String, u64> {
        view.keys.iter().map(|(name, peaks)| (name.to_string(), peaks[0].unwrap())).collect()
    }

    proptest! {
        /// While all keys fit, the sample is exact.
        #[test]
        fn few_keys_are_all_known(
            uses in prop::collection::vec((0_u64..200, 1_u64..500, 0_i64..60), 1..500),
        ) {
            let (policy, mut sample) = (policy(), KeySample::default());
            let mut sorted = uses;
            sorted.sort_by_key(|&(_, _, hour)| hour);
            for &(key, used, hour) in &sorted {
                add(&mut sample, &policy, key.wrapping_mul(0x9E37_79B9_7F4A_7C15), used, NOW + hour * HOUR);
            }
            let last = sorted.last().unwrap().2;
            let mut expected: HashMap<String, u64> = HashMap::new();
            for &(key, used, _) in sorted.iter().filter(|&&(_, _, hour)| hour > last - 24) {
                let name = format!("k{}", key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let most = expected.entry(name).or_default();
                *most = (*most).max(used);
            }
            let view = sample.view(hour(NOW) + last);
            prop_assert_eq!(view.fraction, 1.0);
            prop_assert_eq!(peaks(&view), expected);
        }
    }

    #[test]
    fn of_many_keys_those_with_the_smallest_hashes_are_known() {
        let (policy, mut sample) = (policy(), KeySample::default());
        let mut random = fastrand::Rng::with_seed(7);
        let hashes: HashSet<u64> = (0..100_000).map(|_| random.u64(..)).collect();
        for &hash in &hashes {
            add(&mut sample, &policy, hash, hash % 100 + 1, NOW);
        }
        let mut smallest: Vec<u64> = hashes.into_iter().collect();
        smallest.sort_unstable();
        let view = sample.view(hour(NOW));
        let expected: HashMap<String, u64> =
            smallest[..MAX_KEYS].iter().map(|hash| (format!("k{hash}"), hash % 100 + 1)).collect();
        assert_eq!(peaks(&view), expected);
        let estimate = view.keys.len() as f64 / view.fraction;
        assert!((estimate / 100_000.0 - 1.0).abs() < 0.1, "{estimate}");
    }

    #[test]
    fn the_threshold_rises_when_keys_expire_and_counts_a_day_later() {
        let (policy, mut sample) = (policy(), KeySample::default());
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            add(&mut sample, &policy, random.u64(..), 5, NOW);
        }
        let low = sample.threshold();
        // Then there are 500 keys.
        let few: Vec<u64> = (0..500).map(|_| random.u64(..)).collect();
        let mut estimates = Vec::new();
        for passed in 1..60 {
            for &hash in &few {
                add(&mut sample, &policy, hash, 5, NOW + passed * HOUR);
            }
            let view = sample.view(hour(NOW) + passed);
            estimates.push((view.keys.len(), view.keys.len() as f64 / view.fraction));
        }
        assert!(sample.threshold() > low * 8);
        // As long as the flood counts, keys are as many as then; afterwards it is exact again.
        assert!((estimates[22].1 / 20_500.0 - 1.0).abs() < 0.1, "{:?}", estimates[22]);
        assert_eq!(*estimates.last().unwrap(), (500, 500.0));
    }

    #[test]
    fn a_sample_that_shrinks_stays_uniform_and_frees_memory() {
        let (policy, mut sample) = (policy(), KeySample::default());
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..MAX_KEYS {
            let hash = random.u64(..);
            let tally = DemandTally { tier: 0, used: 1, admitted: 1, denied: 0, time: NOW };
            sample.add(hash, || "header:x-a-long-name=a-long-value-of-a-client".into(), &policy, tally);
        }
        let before = sample.bytes();
        sample.shrink(MAX_KEYS / 2);
        assert!(sample.bytes() < before * 6 / 10, "{} of {before}", sample.bytes());
        let view = sample.view(hour(NOW));
        let estimate = view.keys.len() as f64 / view.fraction;
        assert!((estimate / MAX_KEYS as f64 - 1.0).abs() < 0.1, "{estimate}");
    }
}
