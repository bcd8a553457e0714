//! The encoding of a policy: the numbers that describe it to the script.

use smallvec::SmallVec;

use crate::limit::{
    Calendar, Policy, PolicyId,
    algorithm::{DetailKind, Kind, Tier, gcra, metadata_list, sliding_log::MAX_COST},
};

/// The description of a policy for the script. A policy of another configuration, or an override, may have the same ID.
#[derive(Debug)]
pub(super) struct PolicyDescription {
    id: PolicyId,
    kind: Kind,
    tiers: SmallVec<[Tier; 3]>,
    keep: usize,
    flags: u64,
    slowest_tier: Tier,
    /// As [`Policy::calendars`].
    calendars: Vec<Option<Calendar>>,
}

impl PolicyDescription {
    /// `is_cluster`: then any policy may have refunds, since another node may deny.
    pub(super) fn new(policy: &Policy, is_cluster: bool) -> Self {
        Self {
            id: policy.id,
            kind: policy.kind,
            tiers: policy.tiers.iter().copied().collect(),
            keep: policy.record.keep,
            flags: if is_cluster { flags(policy) | REFUNDABLE } else { flags(policy) },
            slowest_tier: policy.slowest_tier(),
            calendars: policy.calendars.clone(),
        }
    }

    pub(super) fn matches(&self, policy: &Policy) -> bool {
        self.id == policy.id
            && self.kind == policy.kind
            && self.tiers[..] == policy.tiers[..]
            && self.keep == policy.record.keep
            && self.flags == flags(policy) | self.flags & REFUNDABLE
            && self.slowest_tier == policy.slowest_tier()
    }

    /// The number of its algorithm in the script.
    pub(super) fn algorithm(&self) -> u64 {
        let kind = if self.is_counter() { Kind::SingleCounter } else { self.kind };
        kind.description().number
    }

    /// Whether it is one window with one count, which needs no loops over tiers.
    fn is_counter(&self) -> bool {
        match self.kind {
            Kind::SingleCounter => true,
            Kind::FixedWindow => self.tiers.len() == 1,
            _ => false,
        }
    }

    /// Whether its limits have a detail.
    pub(super) fn has_detail(&self) -> bool {
        self.kind.description().detail != DetailKind::None
    }

    /// Whether it never denies.
    pub(super) fn is_shadow(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Bit 1: a shadow policy. Bit 2: `count_denied`. Bit 3: `on_store_error: deny`.
    pub(super) fn flags(&self) -> u64 {
        self.flags % REFUNDABLE
    }

    /// The numbers after the flags: `policy` in the head of the algorithm's file in `lua/`.
    pub(super) fn numbers(&self) -> SmallVec<[u64; 8]> {
        let window = |tier: &Tier| u64::try_from(tier.window).unwrap_or(1);
        let mut numbers: SmallVec<[u64; 8]> =
            self.tiers.iter().flat_map(|tier| [tier.limit, window(tier)]).collect();
        match self.kind {
            Kind::SingleCounter | Kind::FixedWindow if self.is_counter() => {
                numbers.push(u64::from(self.kind == Kind::FixedWindow));
            }
            Kind::SlidingLog => numbers.extend([MAX_COST, self.flags / REFUNDABLE]),
            // Redis has no empty lists: the newest element is kept, if only for the count.
            Kind::MetadataList { retain } => {
                let slice =
                    metadata_list::slice(self.tiers[0], retain).filter(|_| self.keep > 0).unwrap_or(0);
                numbers.extend([self.keep.max(1) as u64, u64::try_from(slice).unwrap_or(0)]);
            }
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
            Kind::CalendarWindow => return self.calendar_numbers(),
            // The others need only their tiers.
            _ => {}
        }
        numbers
    }

    fn calendar_numbers(&self) -> SmallVec<[u64; 8]> {
        let mut numbers: SmallVec<[u64; 8]> = SmallVec::from_slice(&[self.tiers.len() as u64]);
        for (tier, calendar) in self.tiers.iter().zip(&self.calendars) {
            let window = if calendar.is_some() { 0 } else { tier.window };
            numbers.extend([tier.limit, u64::try_from(window).unwrap_or(1)]);
        }
        numbers
    }

    /// Whether some windows are the calendar's.
    pub(super) fn has_calendar(&self) -> bool {
        !self.calendars.is_empty()
    }

    /// The numbers after [`PolicyDescription::numbers`]: for each tier with windows of the calendar, the beginnings of
    /// the windows about the time `about`, in microseconds.
    pub(super) fn window_bounds(&self, about: i64) -> SmallVec<[i64; 5]> {
        self.calendars.iter().flatten().flat_map(|calendar| calendar.bounds(about).0).collect()
    }
}

/// Units may be refunded.
const REFUNDABLE: u64 = 8;

/// The driver's flags, and [`REFUNDABLE`].
fn flags(policy: &Policy) -> u64 {
    let refundable = if policy.may_refund() { REFUNDABLE } else { 0 };
    let fails = policy.fails_without_store();
    u64::from(policy.is_shadow) | u64::from(policy.count_denied) << 1 | u64::from(fails) << 2 | refundable
}
