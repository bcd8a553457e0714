//! From how each tier stands to what a check says.

/// So many units in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    /// Units, 1 to 10⁹.
    pub limit: u64,
    /// Microseconds, 1 ms to 366 days.
    pub window: i64,
}

/// What one check says to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub admitted: bool,
    /// Index of the tightest tier; where the check denies, of the denying tier that frees last.
    pub tier: usize,
    /// That tier's limit.
    pub limit: u64,
    /// Units left of that tier.
    pub remaining: u64,
    /// Microseconds until that tier gives units back; 0 where none are used.
    pub reset: i64,
    /// Microseconds until the same request would be admitted if no one else came in between: `Some(0)`
    /// where it is admitted, `None` where it never will be (its cost is above a limit).
    pub retry_after: Option<i64>,
    /// Microseconds that an admitted request has to wait for its place.
    pub delay: i64,
}

/// How one tier stands towards a request.
#[derive(Debug, Clone, Copy)]
pub struct TierStanding {
    pub limit: u64,
    /// Units taken before the request.
    pub used: u64,
    /// When units come back next, counting those of the request if it is admitted.
    pub returns: i64,
    /// When the request fits, should it not fit now; `None` where it never will.
    pub fits: Option<i64>,
    /// Microseconds that it may be held for until it fits.
    pub max_delay: i64,
}

impl TierStanding {
    fn verdict(self, tier: usize, now: i64, cost: u64) -> Verdict {
        let after = self.used.saturating_add(cost);
        let wait = self.fits.map(|at| if after <= self.limit { 0 } else { until(at, now) });
        let may_wait = self.max_delay > 0 && wait.is_some_and(|wait| wait <= self.max_delay);
        let admitted = wait.is_some() && after <= self.limit || may_wait;
        let used = if admitted { after } else { self.used };
        Verdict {
            admitted,
            tier,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: if used == 0 { 0 } else { until(self.returns, now) },
            // Once its place is near enough, it may wait for it.
            retry_after: if admitted {
                Some(0)
            } else {
                wait.map(|wait| wait.saturating_sub(self.max_delay))
            },
            delay: if admitted { wait.unwrap_or(0) } else { 0 },
        }
    }
}

fn until(at: i64, now: i64) -> i64 {
    at.saturating_sub(now).max(0)
}

impl Verdict {
    /// The verdict over all tiers, in their order, of which there must be one at least. The check
    /// admits iff every tier does.
    pub fn of(tiers: impl Iterator<Item = TierStanding>, now: i64, cost: u64) -> Self {
        let verdicts = tiers.enumerate().map(|(tier, standing)| standing.verdict(tier, now, cost));
        verdicts.reduce(Self::tighter).unwrap_or(Self::UNKNOWN)
    }

    /// The verdict where members are counted, each once. One that is `known` takes nothing more, and is admitted even
    /// where the limit was lowered below what is used.
    pub fn of_member(standing: TierStanding, now: i64, cost: u64, known: bool) -> Self {
        let verdict = standing.verdict(0, now, u64::from(cost > 0 && !known));
        if known { Self { admitted: true, retry_after: Some(0), ..verdict } } else { verdict }
    }

    /// The one that decides what a client is told: a denial before an admission; of denials the one
    /// that frees last, of admissions the one with the least left, or else with the longest to wait.
    fn tighter(self, other: Self) -> Self {
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

    /// That of a check which was not held against its limit, and does not stand in the way: nothing is
    /// known of it, and nothing is to be told.
    pub const UNKNOWN: Self = Self {
        admitted: true,
        tier: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset: 0,
        retry_after: Some(0),
        delay: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(limit: u64, used: u64, returns: i64) -> TierStanding {
        TierStanding { limit, used, returns, fits: Some(returns), max_delay: 0 }
    }

    #[test]
    fn the_tier_with_the_least_left_is_told() {
        let verdict = Verdict::of([standing(10, 2, 50), standing(9, 4, 90)].into_iter(), 40, 1);
        assert_eq!((verdict.admitted, verdict.tier, verdict.limit), (true, 1, 9));
        assert_eq!((verdict.remaining, verdict.reset, verdict.retry_after), (4, 50, Some(0)));
    }

    #[test]
    fn of_equally_tight_tiers_the_slower_is_told() {
        let verdict = Verdict::of([standing(5, 1, 50), standing(6, 2, 90)].into_iter(), 0, 1);
        assert_eq!((verdict.tier, verdict.reset), (1, 90));
    }

    #[test]
    fn of_denying_tiers_the_one_that_frees_last_is_told() {
        let tiers = [standing(5, 5, 90), standing(5, 5, 50), standing(9, 1, 990)];
        let verdict = Verdict::of(tiers.into_iter(), 10, 1);
        assert_eq!((verdict.admitted, verdict.tier, verdict.retry_after), (false, 0, Some(80)));
        assert_eq!((verdict.remaining, verdict.reset), (0, 80));
    }

    #[test]
    fn what_never_fits_frees_after_everything_else() {
        let never = TierStanding { fits: None, ..standing(2, 0, 10) };
        let verdict = Verdict::of([standing(5, 5, 90), never].into_iter(), 0, 3);
        assert_eq!((verdict.tier, verdict.retry_after, verdict.remaining, verdict.reset), (1, None, 2, 0));
    }

    #[test]
    fn a_lowered_limit_leaves_nothing_and_no_less() {
        assert_eq!(Verdict::of([standing(3, 7, 10)].into_iter(), 0, 1).remaining, 0);
    }
}
