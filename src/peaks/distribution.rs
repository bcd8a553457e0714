//! How close the keys of a limit come to it: quantiles, shares, and the effect of another limit.

use compact_str::CompactString;

use super::sample::SampleView;

/// The peaks of the sampled keys of one limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    /// By peak, the lowest first.
    keys: Vec<SampledKey>,
    /// Keys for each sampled key: 1 if all are sampled.
    weight: f64,
}

/// A key, and the most that it used in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledKey {
    pub key: CompactString,
    pub peak: u64,
}

impl Distribution {
    /// The peaks of the tier at this index.
    pub(super) fn new(view: &SampleView, tier: usize) -> Self {
        let known = view.keys.iter().filter_map(|(key, peaks)| {
            let peak = (*peaks.get(tier)?)?;
            Some(SampledKey { key: key.clone(), peak })
        });
        let mut keys: Vec<SampledKey> = known.collect();
        keys.sort_unstable_by(|one, other| one.peak.cmp(&other.peak).then_with(|| one.key.cmp(&other.key)));
        Self { keys, weight: 1.0 / view.fraction }
    }

    /// The number of sampled keys.
    pub fn sampled(&self) -> usize {
        self.keys.len()
    }

    /// Whether all keys are sampled, so that numbers of keys are exact.
    pub fn is_exact(&self) -> bool {
        self.weight <= 1.0
    }

    /// All keys that this number of sampled keys stands for: an estimate, unless [`Self::is_exact`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is rounded, and not below 0"
    )]
    pub fn keys(&self, sampled: usize) -> u64 {
        (sampled as f64 * self.weight).round() as u64
    }

    /// The share of keys that this number of sampled keys stands for, 0 to 1.
    pub fn share(&self, sampled: usize) -> f64 {
        if self.keys.is_empty() { 0.0 } else { sampled as f64 / self.keys.len() as f64 }
    }

    /// The sampled keys whose peak is above `units`, the lowest first.
    pub fn above(&self, units: u64) -> &[SampledKey] {
        let first = self.keys.partition_point(|key| key.peak <= units);
        self.keys.get(first..).unwrap_or_default()
    }

    /// The lowest number that at least this `share` of keys, 0 to 1, stays within. `None`: there is no key.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of an index")]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let last = self.keys.len().checked_sub(1)?;
        // 99.9 % of 1,000 keys are 999, although 0.999 × 1,000 is a little more.
        let within = (share.clamp(0.0, 1.0) * self.keys.len() as f64 - 1e-9).ceil() as usize;
        self.keys.get(within.saturating_sub(1).min(last)).map(|key| key.peak)
    }
}

#[cfg(test)]
mod tests {
    use compact_str::format_compact;
    use smallvec::smallvec;

    use super::*;

    fn distribution(peaks: &[u64], fraction: f64) -> Distribution {
        let keys =
            peaks.iter().enumerate().map(|(nth, &peak)| (format_compact!("k{nth}"), smallvec![Some(peak)]));
        Distribution::new(&SampleView { keys: keys.collect(), fraction }, 0)
    }

    #[test]
    fn a_quantile_is_the_lowest_number_that_spares_the_share() {
        let thousand: Vec<u64> = (1..=1_000).rev().collect();
        let found = distribution(&thousand, 1.0);
        let quantiles = [0.0, 0.0005, 0.5, 0.9, 0.999, 0.9991, 1.0].map(|share| found.quantile(share));
        assert_eq!(quantiles, [1, 1, 500, 900, 999, 1_000, 1_000].map(Some));
        for share in [0.1, 0.333, 0.75, 0.999] {
            let limit = found.quantile(share).unwrap();
            assert!(found.share(found.above(limit).len()) <= 1.0 - share);
            assert!(found.share(found.above(limit - 1).len()) > 1.0 - share, "and no lower one does");
        }
        assert_eq!(distribution(&[], 1.0).quantile(0.5), None);
    }

    #[test]
    fn a_sampled_key_stands_for_several() {
        let found = distribution(&[5, 10, 10, 20], 0.25);
        assert_eq!((found.sampled(), found.keys(found.sampled()), found.is_exact()), (4, 16, false));
        let above = found.above(9);
        assert_eq!((above.len(), found.keys(above.len()), found.share(above.len())), (3, 12, 0.75));
        assert_eq!(above.last().unwrap().key, "k3");
        assert!(found.above(20).is_empty() && distribution(&[5], 1.0).is_exact());
    }

    #[test]
    fn a_limit_of_which_nothing_is_known_has_no_keys() {
        let view = SampleView { keys: vec![("k".into(), smallvec![Some(3), None])], fraction: 1.0 };
        assert_eq!(Distribution::new(&view, 1).sampled(), 0);
    }
}
