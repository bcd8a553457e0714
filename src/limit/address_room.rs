//! The client addresses that are far from their limits, as known to one worker: the other limits of their requests need
//! not wait for these.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use compact_str::CompactString;

use super::{Check, PolicyId, algorithm::Verdict};

/// How long a decision of the store is used.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Most limits kept. Requests of other addresses wait for their own limits first.
const MAX_LIMITS: usize = 10_000;

/// Limits of addresses that were less than half used at the store's last decision. Belongs to one worker.
#[derive(Debug)]
pub(super) struct AddressRoom {
    limits: HashMap<(PolicyId, CompactString), Room, foldhash::fast::RandomState>,
    /// When old limits were last removed.
    swept: Instant,
}

#[derive(Debug)]
struct Room {
    /// The units that may be taken until half of the limit is used.
    units: u64,
    asked: Instant,
}

impl AddressRoom {
    pub(super) fn new() -> Self {
        Self { limits: HashMap::default(), swept: Instant::now() }
    }

    /// Takes the units of these checks. Returns whether all of their limits are less than half used then. Shadow
    /// policies deny nothing.
    pub(super) fn take<'a>(&mut self, checks: impl Iterator<Item = &'a Check<'a>>, now: Instant) -> bool {
        let mut is_taken = true;
        for check in checks.filter(|check| !check.policy.is_shadow) {
            let room = self.limits.get_mut(&(check.policy.id, check.identifier.clone()));
            let room = room.filter(|room| {
                now.saturating_duration_since(room.asked) < MAX_AGE && room.units >= check.cost
            });
            match room {
                Some(room) => room.units -= check.cost,
                None => is_taken = false,
            }
        }
        is_taken
    }

    /// Records the store's `verdict` on a `check`, for which it was called at the time `asked`.
    pub(super) fn note(&mut self, check: &Check<'_>, verdict: &Verdict, asked: Instant) {
        let half = verdict.limit.div_ceil(2);
        let limit = (check.policy.id, check.identifier.clone());
        if *verdict == Verdict::UNKNOWN || !verdict.admitted || verdict.remaining <= half {
            self.limits.remove(&limit);
            return;
        }
        if self.limits.len() >= MAX_LIMITS && asked.saturating_duration_since(self.swept) >= MAX_AGE {
            self.limits.retain(|_, room| asked.saturating_duration_since(room.asked) < MAX_AGE);
            self.swept = asked;
        }
        if self.limits.len() < MAX_LIMITS || self.limits.contains_key(&limit) {
            self.limits.insert(limit, Room { units: verdict.remaining - half, asked });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::model::{self, Algorithm, KeyPart, KeyRecipe, Rate},
        limit::{Policy, algorithm::Detail},
    };

    fn policy() -> Policy {
        let tiers = vec![Rate { limit: 10, window: Duration::from_secs(60) }];
        let config =
            model::Policy::new("p", Algorithm::FixedWindow, vec![KeyRecipe(vec![KeyPart::Ip])], tiers);
        Policy::new(&config, PolicyId(1))
    }

    fn check<'a>(policy: &'a Policy, identifier: &str, cost: u64) -> Check<'a> {
        Check { policy, identifier: identifier.into(), cost, detail: Detail::None }
    }

    fn admitted(remaining: u64) -> Verdict {
        Verdict { admitted: true, limit: 10, remaining, ..Verdict::UNKNOWN }
    }

    #[test]
    fn a_limit_has_room_until_half_of_it_is_used() {
        let (policy, now) = (policy(), Instant::now());
        let mut room = AddressRoom::new();
        let checks = |cost| [check(&policy, "ip:1", cost)];
        assert!(!room.take(checks(1).iter(), now), "nothing is known");
        room.note(&checks(1)[0], &admitted(8), now);
        assert!(!room.take(checks(4).iter(), now));
        assert!(room.take(checks(2).iter(), now) && room.take(checks(1).iter(), now));
        assert!(!room.take(checks(1).iter(), now), "what was asked for meanwhile counts");
        for remaining in [5, 0] {
            room.note(&checks(1)[0], &admitted(8), now);
            room.note(&checks(1)[0], &admitted(remaining), now);
            assert!(!room.take(checks(1).iter(), now));
        }
        room.note(&checks(1)[0], &admitted(8), now);
        assert!(!room.take([check(&policy, "ip:1", 1), check(&policy, "ip:2", 1)].iter(), now));
        room.note(&checks(1)[0], &admitted(8), now);
        assert!(!room.take(checks(1).iter(), now + MAX_AGE), "it may be used up by now");
    }

    #[test]
    fn remembered_limits_are_bounded() {
        let (policy, now) = (policy(), Instant::now());
        let mut room = AddressRoom::new();
        for address in 0..2 * MAX_LIMITS {
            room.note(&check(&policy, &format!("ip:{address}"), 1), &admitted(9), now);
        }
        assert_eq!(room.limits.len(), MAX_LIMITS);
        let later = now + 2 * MAX_AGE;
        room.note(&check(&policy, "ip:new", 1), &admitted(9), later);
        assert_eq!(room.limits.len(), 1);
        assert!(room.take([check(&policy, "ip:new", 1)].iter(), later));
    }
}
