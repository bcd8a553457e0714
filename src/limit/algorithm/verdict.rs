//! Combines the status of each tier into the verdict of a check.

/// A limit of units per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    /// Units, 1 to 10⁹.
    pub limit: u64,
    /// Microseconds, 1 ms to 366 days. Of a calendar window: its usual length, by which tiers are ordered and nothing is
    /// computed.
    pub window: i64,
}

/// The outcome of one check for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub admitted: bool,
    /// Index of the tightest tier. If the check denies: of the denying tier that frees up last.
    pub tier: usize,
    /// That tier's limit.
    pub limit: u64,
    /// Units left of that tier.
    pub remaining: u64,
    /// Microseconds until the next units of that tier are free again; 0 if none are used.
    pub reset: i64,
    /// Microseconds until the same request would be admitted, if no other arrived in between. `Some(0)` if it is
    /// admitted; `None` if it never will be, since its cost is above a limit.
    pub retry_after: Option<i64>,
    /// Microseconds by which an admitted request is to be delayed.
    pub delay: i64,
    /// The request's member is counted already: it takes nothing new.
    pub renews: bool,
}

/// The status of one tier for one request.
#[derive(Debug, Clone, Copy)]
pub struct TierStatus {
    pub limit: u64,
    /// Units taken before the request.
    pub used: u64,
    /// When the next units are free again, counting those of the request if it is admitted.
    pub frees_at: i64,
    /// When the request fits, if it does not fit now; `None` if it never will.
    pub fits_at: Option<i64>,
    /// The longest delay, in microseconds, for which the request may wait until it fits.
    pub max_delay: i64,
}

impl TierStatus {
    fn verdict(self, tier: usize, now: i64, cost: u64) -> Verdict {
        let after = self.used.saturating_add(cost);
        let wait = self.fits_at.map(|at| if after <= self.limit { 0 } else { until(at, now) });
        let may_wait = self.max_delay > 0 && wait.is_some_and(|wait| wait <= self.max_delay);
        let admitted = wait.is_some() && after <= self.limit || may_wait;
        let used = if admitted { after } else { self.used };
        Verdict {
            admitted,
            tier,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: if used == 0 { 0 } else { until(self.frees_at, now) },
            // A later request may be delayed by up to `max_delay`, so it may arrive that much earlier.
            retry_after: if admitted {
                Some(0)
            } else {
                wait.map(|wait| wait.saturating_sub(self.max_delay))
            },
            delay: if admitted { wait.unwrap_or(0) } else { 0 },
            renews: false,
        }
    }
}

fn until(at: i64, now: i64) -> i64 {
    at.saturating_sub(now).max(0)
}

impl Verdict {
    /// The verdict over all tiers, in their order. There must be at least one. The check admits iff every tier does.
    pub fn from_tiers(tiers: impl Iterator<Item = TierStatus>, now: i64, cost: u64) -> Self {
        let verdicts = tiers.enumerate().map(|(tier, status)| status.verdict(tier, now, cost));
        verdicts.reduce(Self::tighter_of).unwrap_or(Self::UNKNOWN)
    }

    /// The verdict of an algorithm that counts members, each once. A `known` member takes nothing more, and is admitted
    /// even if the limit was lowered below the used units.
    pub fn from_member(status: TierStatus, now: i64, cost: u64, known: bool) -> Self {
        let verdict = status.verdict(0, now, u64::from(cost > 0 && !known));
        if known { Self { admitted: true, retry_after: Some(0), renews: true, ..verdict } } else { verdict }
    }

    /// The verdict shown to clients: a denial before an admission. Of two denials, the one that frees up last. Of two
    /// admissions, the one with the least remaining, then the one with the later reset.
    fn tighter_of(self, other: Self) -> Self {
        let other_is_tighter = match (self.admitted, other.admitted) {
            (true, true) => (other.remaining, -other.reset) < (self.remaining, -self.reset),
            (false, false) => other.frees() > self.frees(),
            (admitted, _) => admitted,
        };
        if other_is_tighter { other } else { self }
    }

    fn frees(&self) -> i64 {
        self.retry_after.unwrap_or(i64::MAX)
    }

    /// The verdict of a check that was not decided, and so does not deny. Nothing is known about the limit, and nothing
    /// is shown to clients.
    pub const UNKNOWN: Self = Self {
        admitted: true,
        tier: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset: 0,
        retry_after: Some(0),
        delay: 0,
        renews: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(limit: u64, used: u64, frees_at: i64) -> TierStatus {
        TierStatus { limit, used, frees_at, fits_at: Some(frees_at), max_delay: 0 }
    }

    #[test]
    fn the_tier_with_the_least_left_is_reported() {
        let verdict = Verdict::from_tiers([status(10, 2, 50), status(9, 4, 90)].into_iter(), 40, 1);
        assert_eq!((verdict.admitted, verdict.tier, verdict.limit), (true, 1, 9));
        assert_eq!((verdict.remaining, verdict.reset, verdict.retry_after), (4, 50, Some(0)));
    }

    #[test]
    fn of_equally_tight_tiers_the_slower_is_reported() {
        let verdict = Verdict::from_tiers([status(5, 1, 50), status(6, 2, 90)].into_iter(), 0, 1);
        assert_eq!((verdict.tier, verdict.reset), (1, 90));
    }

    #[test]
    fn of_denying_tiers_the_one_that_frees_last_is_reported() {
        let tiers = [status(5, 5, 90), status(5, 5, 50), status(9, 1, 990)];
        let verdict = Verdict::from_tiers(tiers.into_iter(), 10, 1);
        assert_eq!((verdict.admitted, verdict.tier, verdict.retry_after), (false, 0, Some(80)));
        assert_eq!((verdict.remaining, verdict.reset), (0, 80));
    }

    #[test]
    fn a_tier_that_never_fits_frees_after_all_others() {
        let never = TierStatus { fits_at: None, ..status(2, 0, 10) };
        let verdict = Verdict::from_tiers([status(5, 5, 90), never].into_iter(), 0, 3);
        assert_eq!((verdict.tier, verdict.retry_after, verdict.remaining, verdict.reset), (1, None, 2, 0));
    }

    #[test]
    fn a_lowered_limit_leaves_nothing_and_no_less() {
        assert_eq!(Verdict::from_tiers([status(3, 7, 10)].into_iter(), 0, 1).remaining, 0);
    }
}
