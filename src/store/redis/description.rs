//! A policy as a batch describes it to the script.

use smallvec::SmallVec;

use crate::limit::{
    Policy, PolicyId,
    algorithm::{Kind, Tier, gcra, sliding_log::MAX_COST},
};

/// One of another configuration, or an override, may have the same ID.
#[derive(Debug)]
pub(super) struct PolicyDescription {
    id: PolicyId,
    kind: Kind,
    tiers: SmallVec<[Tier; 3]>,
    keep: usize,
    flags: u64,
    slowest_tier: Tier,
}

impl PolicyDescription {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            id: policy.id,
            kind: policy.kind,
            tiers: policy.tiers.iter().copied().collect(),
            keep: policy.record.keep,
            flags: flags(policy),
            slowest_tier: policy.slowest_tier(),
        }
    }

    pub(super) fn matches(&self, policy: &Policy) -> bool {
        self.id == policy.id
            && self.kind == policy.kind
            && self.tiers[..] == policy.tiers[..]
            && self.keep == policy.record.keep
            && self.flags == flags(policy)
            && self.slowest_tier == policy.slowest_tier()
    }

    /// By which number the script knows its algorithm.
    pub(super) fn algorithm(&self) -> u64 {
        self.kind.description().number
    }

    /// 1: a shadow policy; 2: what it denies is counted; 3: both.
    pub(super) fn flags(&self) -> u64 {
        self.flags & 3
    }

    /// What the algorithm takes: see its file in `lua/`.
    pub(super) fn numbers(&self) -> SmallVec<[u64; 8]> {
        let window = |tier: &Tier| u64::try_from(tier.window).unwrap_or(1);
        let mut numbers: SmallVec<[u64; 8]> =
            self.tiers.iter().flat_map(|tier| [tier.limit, window(tier)]).collect();
        match self.kind {
            Kind::SlidingLog => numbers.extend([MAX_COST, self.flags >> 2]),
            // A list of nothing would be no list: the newest request is kept, if only to count.
            Kind::MetadataList => numbers.push(self.keep.max(1) as u64),
            Kind::Gcra { burst, delay } => {
                for tier in &self.tiers {
                    let max_delay = gcra::max_delay(*tier, delay);
                    let allowance = gcra::allowance(*tier, max_delay);
                    let unsigned = |number| u64::try_from(number).unwrap_or_default();
                    numbers.extend([burst, unsigned(max_delay), allowance.whole, unsigned(allowance.part)]);
                    numbers.push(self.slowest_tier.limit);
                }
            }
            Kind::SlidingWindow { buckets } => numbers.push(u64::from(buckets)),
            // The others go by their tiers alone.
            _ => {}
        }
        numbers
    }
}

/// Behind those that the driver knows, 4: what was taken may be refunded.
fn flags(policy: &Policy) -> u64 {
    u64::from(policy.is_shadow) | u64::from(policy.count_denied) << 1 | u64::from(policy.may_refund()) << 2
}
