//! From the numbers that a script says of a limit to a verdict.

use crate::limit::{
    Policy,
    algorithm::{
        Kind, Level, Standing, Tier, Verdict, concurrency::RETRY_AFTER, gcra::Gcra,
        sliding_counter::SlidingCounter, sliding_log::MAX_COST,
    },
};

/// How many numbers `decide.lua` says of one limit of this policy.
pub(super) fn numbers(policy: &Policy) -> usize {
    of_a_tier(policy.kind) * policy.tiers.len()
}

fn of_a_tier(kind: Kind) -> usize {
    match kind {
        Kind::SingleCounter | Kind::MetadataList | Kind::FixedWindow | Kind::Concurrency => 2,
        Kind::SlidingWindow { .. } | Kind::SlidingLog | Kind::SlidingCounter | Kind::Gcra { .. } => 3,
        Kind::Distinct => 4,
    }
}

/// What the numbers mean for a request of `cost` units. Times are relative to now.
pub(super) fn verdict(policy: &Policy, numbers: &[i64], cost: u64) -> Verdict {
    if policy.kind.counts_members() {
        return of_a_member(policy, numbers, cost);
    }
    let each = numbers.chunks_exact(of_a_tier(policy.kind));
    let standings =
        policy.tiers.iter().zip(each).map(|(tier, numbers)| standing(policy.kind, *tier, numbers, cost));
    Verdict::of(standings, 0, cost)
}

/// Behind what stands of them, the script says whether the member is one of them already.
fn of_a_member(policy: &Policy, numbers: &[i64], cost: u64) -> Verdict {
    let (used, returns, fits, known) = match *numbers {
        [used, oldest, fits, again, ..] => {
            // One that is seen again is the newest then.
            let returns = if again > 0 && cost > 0 { again } else { oldest };
            (used, returns, fits, again > 0)
        }
        [used, renews, ..] => (used, RETRY_AFTER, RETRY_AFTER, renews > 0),
        _ => (0, 0, 0, false),
    };
    let limit = policy.tiers.first().map_or(0, |tier| tier.limit);
    let used = u64::try_from(used).unwrap_or_default();
    Verdict::of_member(Standing { limit, used, returns, fits: Some(fits), patience: 0 }, 0, cost, known)
}

fn standing(kind: Kind, tier: Tier, numbers: &[i64], cost: u64) -> Standing {
    // These two say their state, since their times need more bits than a double has.
    match (kind, numbers) {
        (Kind::Gcra { burst, delay }, &[whole, part, ahead]) => {
            let level = Level { whole: unsigned(whole), part };
            return Gcra { at: ahead, level }.standing(tier, (burst, delay), cost);
        }
        (Kind::SlidingCounter, &[current, previous, passed]) => {
            let (current, previous) = (unsigned(current), unsigned(previous));
            return SlidingCounter { start: passed.saturating_neg(), current, previous }
                .standing(tier, 0, cost);
        }
        _ => {}
    }
    let (used, returns, fits) = match *numbers {
        [used, returns, fits, ..] => (used, returns, fits),
        [used, returns] => (used, returns, returns),
        _ => (0, 0, 0),
    };
    let most = if kind == Kind::SlidingLog { tier.limit.min(MAX_COST) } else { tier.limit };
    Standing {
        limit: tier.limit,
        used: unsigned(used),
        returns,
        fits: (cost <= most).then_some(fits),
        patience: 0,
    }
}

/// Whether units of any tier are used.
pub(super) fn is_touched(policy: &Policy, numbers: &[i64]) -> bool {
    (0..policy.tiers.len()).any(|tier| used(policy, numbers, tier) > 0)
}

/// Units used of a tier.
pub(super) fn used(policy: &Policy, numbers: &[i64], tier: usize) -> u64 {
    let mut each = policy.tiers.iter().zip(numbers.chunks_exact(of_a_tier(policy.kind)));
    each.nth(tier).map_or(0, |(tier, numbers)| standing(policy.kind, *tier, numbers, 0).used)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
