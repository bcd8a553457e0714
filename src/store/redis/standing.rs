//! From the numbers that a script says of a limit to a verdict.

use crate::limit::{
    Policy,
    algorithm::{Kind, Standing, Verdict, sliding_log::MAX_COST},
};

/// How many numbers `decide.lua` says of one limit of this policy.
pub(super) fn numbers(policy: &Policy) -> usize {
    match policy.kind {
        Kind::SingleCounter | Kind::MetadataList => 2,
        Kind::FixedWindow => 2 * policy.tiers.len(),
        Kind::SlidingLog => 3,
    }
}

/// What the numbers mean for a request of `cost` units. Times are relative to now.
pub(super) fn verdict(policy: &Policy, numbers: &[i64], cost: u64) -> Verdict {
    let each = numbers.len() / policy.tiers.len().max(1);
    let standings = policy.tiers.iter().zip(numbers.chunks_exact(each.max(1))).map(|(tier, numbers)| {
        let (used, returns, fits) = match *numbers {
            [used, returns, fits, ..] => (used, returns, fits),
            [used, returns] => (used, returns, returns),
            _ => (0, 0, 0),
        };
        let most = if policy.kind == Kind::SlidingLog { tier.limit.min(MAX_COST) } else { tier.limit };
        Standing {
            limit: tier.limit,
            used: u64::try_from(used).unwrap_or_default(),
            returns,
            fits: (cost <= most).then_some(fits),
        }
    });
    Verdict::of(standings, 0, cost)
}

/// Whether units of any tier are used.
pub(super) fn is_touched(policy: &Policy, numbers: &[i64]) -> bool {
    (0..policy.tiers.len()).any(|tier| used(policy, numbers, tier) > 0)
}

/// Units used of a tier.
pub(super) fn used(policy: &Policy, numbers: &[i64], tier: usize) -> u64 {
    let each = numbers.len() / policy.tiers.len().max(1);
    numbers.get(tier * each).and_then(|&used| u64::try_from(used).ok()).unwrap_or_default()
}
