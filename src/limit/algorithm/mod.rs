//! The algorithms: pure state × now × cost → verdict. No I/O, no clock; times are integer
//! microseconds, windows half-open (an entry exactly as old as the window is out).

pub mod metadata_list;

/// Which algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    SingleCounter,
    FixedWindow,
    SlidingLog,
    MetadataList,
}

/// So many units in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    /// Units, 1 to 10⁹.
    pub limit: u64,
    /// Microseconds, up to 366 days.
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
}
