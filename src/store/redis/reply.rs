//! Decodes the script's numbers of one limit into a verdict. The head of each algorithm's Lua file has their order.

use crate::limit::{
    Policy,
    algorithm::{
        Kind, Level, Tier, TierStatus, Verdict, concurrency::RETRY_AFTER, gcra::Gcra,
        sliding_counter::SlidingCounter, sliding_log::MAX_COST,
    },
};

/// Numbers in the script's reply for one limit of this policy.
pub(super) fn width(policy: &Policy) -> usize {
    policy.kind.description().reply_width * policy.tiers.len()
}

/// The verdict for a request of `cost` units. Times are relative to now.
pub(super) fn verdict(policy: &Policy, numbers: &[i64], cost: u64) -> Verdict {
    if policy.kind.counts_members() {
        return member_verdict(policy, numbers, cost);
    }
    let each = numbers.chunks_exact(policy.kind.description().reply_width);
    let statuses =
        policy.tiers.iter().zip(each).map(|(tier, numbers)| status(policy.kind, *tier, numbers, cost));
    Verdict::from_tiers(statuses, 0, cost)
}

/// The verdict of an algorithm that counts members. The last number says whether the member is counted already.
fn member_verdict(policy: &Policy, numbers: &[i64], cost: u64) -> Verdict {
    let (used, frees_at, fits_at, known) = match *numbers {
        [used, oldest, fits_at, again, ..] => {
            // A value that is seen again becomes the newest, so another one is the oldest.
            let frees_at = if again > 0 && cost > 0 { again } else { oldest };
            (used, frees_at, fits_at, again > 0)
        }
        [used, renews, ..] => (used, RETRY_AFTER, RETRY_AFTER, renews > 0),
        _ => (0, 0, 0, false),
    };
    let limit = policy.tiers.first().map_or(0, |tier| tier.limit);
    let used = u64::try_from(used).unwrap_or_default();
    Verdict::from_member(
        TierStatus { limit, used, frees_at, fits_at: Some(fits_at), max_delay: 0 },
        0,
        cost,
        known,
    )
}

fn status(kind: Kind, tier: Tier, numbers: &[i64], cost: u64) -> TierStatus {
    // These two reply with their state, since their times need more bits than a double has.
    match (kind, numbers) {
        (Kind::Gcra { burst, delay }, &[whole, part, ahead]) => {
            let level = Level { whole: unsigned(whole), part };
            return Gcra { at: ahead, level }.status(tier, (burst, delay), cost);
        }
        (Kind::SlidingCounter, &[current, previous, passed]) => {
            let (current, previous) = (unsigned(current), unsigned(previous));
            return SlidingCounter { start: passed.saturating_neg(), current, previous }
                .status(tier, 0, cost);
        }
        _ => {}
    }
    let (used, frees_at, fits_at) = match *numbers {
        [used, frees_at, fits_at, ..] => (used, frees_at, fits_at),
        [used, frees_at] => (used, frees_at, frees_at),
        _ => (0, 0, 0),
    };
    let most = if kind == Kind::SlidingLog { tier.limit.min(MAX_COST) } else { tier.limit };
    TierStatus {
        limit: tier.limit,
        used: unsigned(used),
        frees_at,
        fits_at: (cost <= most).then_some(fits_at),
        max_delay: 0,
    }
}

/// By how much the limit's own time is ahead of `now`, in microseconds: the clock was set back. `numbers` are those of a
/// request that it has admitted.
pub(super) fn ahead(policy: &Policy, numbers: &[i64], now: i64) -> i64 {
    let each = numbers.chunks_exact(policy.kind.description().reply_width);
    let each = policy.tiers.iter().enumerate().zip(each).map(|((index, tier), numbers)| {
        match (policy.kind, numbers) {
            (Kind::Concurrency, _) => 0,
            (Kind::SlidingCounter, &[_, _, passed]) => passed.saturating_neg(),
            (Kind::CalendarWindow, &[_, left]) if let Some(calendar) = policy.calendar(index) => {
                calendar.bounds(now).start(now.saturating_add(left)).saturating_sub(now)
            }
            (_, &[_, left]) => left - tier.window,
            (_, &[_, _, ahead, ..]) => ahead,
            _ => 0,
        }
    });
    each.fold(0, i64::max)
}

/// Whether units of any tier are used.
pub(super) fn is_used(policy: &Policy, numbers: &[i64]) -> bool {
    (0..policy.tiers.len()).any(|tier| used(policy, numbers, tier) > 0)
}

/// Units used of a tier.
pub(super) fn used(policy: &Policy, numbers: &[i64], tier: usize) -> u64 {
    let mut each = policy.tiers.iter().zip(numbers.chunks_exact(policy.kind.description().reply_width));
    each.nth(tier).map_or(0, |(tier, numbers)| status(policy.kind, *tier, numbers, 0).used)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
