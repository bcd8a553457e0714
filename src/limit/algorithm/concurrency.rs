//! `concurrency`: limits how many requests are in flight. Each request holds a lease. The lease ends when its token is
//! refunded, or expires when it is not renewed in time. A limit of 1 is a lock.

use super::{Member, Tier, Verdict, members::Members, verdict::TierStatus};

/// The `retry_after` of a denial, in microseconds. A fixed value, since the end of a lease cannot be predicted.
pub const RETRY_AFTER: i64 = 1_000_000;

/// The tokens of the leases, each with its expiry in microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Concurrency(Members);

impl Concurrency {
    /// The verdict for a request with this `token` at the time `now`. Changes nothing. Any cost above 0 counts as one
    /// lease.
    pub fn read(&self, tier: Tier, now: i64, cost: u64, token: Member) -> Verdict {
        let renews = self
            .0
            .time_of(token)
            .is_some_and(|expires_at| expires_at > now && expires_at <= latest_expiry(tier, now));
        let (used, frees_at) = (self.used(tier, now), now.saturating_add(RETRY_AFTER));
        let status = TierStatus { limit: tier.limit, used, frees_at, fits_at: Some(frees_at), max_delay: 0 };
        Verdict::from_member(status, now, cost, renews)
    }

    /// Grants or renews a lease that a read has admitted. Returns whether leases from the future were discarded.
    pub fn write(&mut self, tier: Tier, now: i64, token: Member) -> bool {
        let latest = latest_expiry(tier, now);
        let discards = self.0.newest().is_some_and(|newest| newest > latest);
        self.0.retain_between(now, latest);
        self.0.set(token, now.saturating_add(tier.window));
        discards
    }

    /// Ends the lease of this token, and no other.
    pub fn refund(&mut self, token: Member) {
        self.0.remove(token);
    }

    /// Leases held `now`.
    pub fn used(&self, tier: Tier, now: i64) -> u64 {
        self.0.count_between(now, latest_expiry(tier, now))
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// When the state expires: from then on it counts nothing.
    pub fn expires_at(&self) -> i64 {
        self.0.newest().unwrap_or(i64::MIN)
    }
}

/// The latest valid expiry: two lease lengths from now. A lease that expires later was granted by a clock that has been
/// set back since. One length is the lease's own; the other is the most that a clock may go back, as in the other
/// algorithms.
fn latest_expiry(tier: Tier, now: i64) -> i64 {
    now.saturating_add(tier.window.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Tier = Tier { limit: 2, window: 1_000 };

    fn after(writes: &[(i64, Member)]) -> Concurrency {
        let mut state = Concurrency::default();
        for &(now, token) in writes {
            assert!(state.read(TIER, now, 1, token).admitted, "{token} at {now}");
            state.write(TIER, now, token);
        }
        state
    }

    #[test]
    fn leases_beyond_the_limit_are_denied() {
        let state = after(&[(100, 1), (200, 2)]);
        let denied = state.read(TIER, 300, 1, 3);
        assert_eq!((denied.admitted, denied.remaining), (false, 0));
        assert_eq!((denied.retry_after, denied.reset), (Some(RETRY_AFTER), RETRY_AFTER));
        assert_eq!(Concurrency::default().read(TIER, 0, 0, 1).reset, 0, "nothing is used");
    }

    #[test]
    fn a_lease_expires_after_its_length_and_not_before() {
        let state = after(&[(100, 1), (200, 2)]);
        assert!(!state.read(TIER, 1_099, 1, 3).admitted);
        assert!(state.read(TIER, 1_100, 1, 3).admitted);
        assert_eq!((state.used(TIER, 1_100), state.used(TIER, 1_200)), (1, 0));
        assert_eq!(state.expires_at(), 1_200);
    }

    #[test]
    fn a_lease_that_is_held_is_renewed_even_where_the_limit_was_lowered() {
        let mut state = after(&[(100, 1), (200, 2)]);
        let lowered = Tier { limit: 1, ..TIER };
        let renewed = state.read(lowered, 1_000, 1, 1);
        assert_eq!((renewed.admitted, renewed.remaining, renewed.retry_after), (true, 0, Some(0)));
        state.write(lowered, 1_000, 1);
        assert_eq!(state.used(TIER, 1_999), 1, "the other has expired");
        assert_eq!(state.used(TIER, 2_000), 0);
    }

    #[test]
    fn an_expired_lease_is_not_renewed_but_granted_anew() {
        let mut state = after(&[(100, 1), (200, 2)]);
        state.write(TIER, 1_100, 3);
        assert!(!state.read(TIER, 1_100, 1, 1).admitted);
        assert_eq!(state.0.len(), 2, "a write removes what has expired");
    }

    #[test]
    fn a_lease_is_given_back_by_its_token_alone() {
        let mut state = after(&[(100, 1), (200, 2)]);
        state.refund(3);
        assert!(!state.read(TIER, 300, 1, 3).admitted);
        state.refund(1);
        state.refund(1);
        assert_eq!(state.used(TIER, 300), 1);
        assert!(state.read(TIER, 300, 1, 3).admitted);
    }

    #[test]
    fn leases_of_a_clock_that_was_set_back_are_discarded() {
        let mut state = after(&[(5_000, 1), (5_001, 2)]);
        assert!(!state.read(TIER, 4_001, 1, 3).admitted);
        assert_eq!(state.used(TIER, 4_000), 1, "the second would hold for more than twice its length");
        assert!(state.read(TIER, 4_000, 1, 3).admitted);
        assert!(state.write(TIER, 4_000, 3), "a discard is reported");
        assert!(!state.write(TIER, 4_000, 3));
        assert_eq!(state.used(TIER, 4_001), 2, "the second is gone");
    }

    #[test]
    fn any_cost_is_one_lease() {
        assert!(Concurrency::default().read(TIER, 0, u64::MAX, 1).admitted);
        let state = after(&[(100, 1), (200, 2)]);
        assert!(state.read(TIER, 300, 0, 3).admitted, "a read of cost 0 takes no lease");
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        for now in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut state = Concurrency::default();
            state.write(TIER, now, 1);
            for later in [i64::MIN, now, i64::MAX] {
                let _ = (state.read(TIER, later, u64::MAX, 2), state.used(TIER, later), state.expires_at());
                state.clone().write(TIER, later, 3);
            }
        }
    }
}
