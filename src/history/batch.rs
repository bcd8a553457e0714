//! What a process adds to the history at once: sums of a few seconds, under a number of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{
    plan::{HistoryPlan, OTHER},
    recorder::{
        DenialSample, DenialTally, DeniedBy, QUARTER, RequestCounts, TickTallies, UsageOwner, masked_to,
    },
};
use crate::abuse::shown;

/// The version of [`Batch`] in spools. A batch of another version is not read.
const VERSION: u8 = 1;
/// Rows of denials in a minute. Further ones are counted by network, and then all together.
const MAX_DENIALS: usize = 10_000;
const MAX_NETWORKS: usize = 12_000;
/// Values that usage of a day is told apart by. Further ones are counted together.
const MAX_VALUES: usize = 1_000;

/// What a process adds to the history at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Batch {
    version: u8,
    /// When the process began to serve, in seconds since the Unix epoch.
    pub(super) started: i64,
    /// All that it served before this time was handed over with this batch, or before. In seconds since the Unix epoch.
    pub(super) watermark: i64,
    /// Whether it is the last batch of its process.
    pub(super) has_ended: bool,
    /// In which days are told apart.
    pub(super) zones: Vec<String>,
    pub(super) usage: Vec<UsageRow>,
    pub(super) denials: Vec<DenialRow>,
    pub(super) events: Vec<EventRow>,
}

/// Whose usage it is, and what it was for. Empty texts: none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) customer: CompactString,
    pub(super) user: CompactString,
    pub(super) plan: CompactString,
    pub(super) route: CompactString,
    pub(super) value: CompactString,
}

/// What was used in a quarter of an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsageRow {
    /// Of the Unix epoch.
    pub(super) quarter: i64,
    pub(super) series: Series,
    pub(super) counts: RequestCounts,
    /// By policy.
    pub(super) units: Vec<(CompactString, u64)>,
}

/// Who was denied in a minute, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DenialRow {
    /// Since the Unix epoch.
    pub(super) minute: i64,
    /// An address, or a network.
    pub(super) address: CompactString,
    pub(super) cause: Cause,
    pub(super) count: u64,
    /// In microseconds since the Unix epoch.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) sample: DenialSample,
}

/// Whose requests were denied, by what, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Cause {
    pub(super) series: Series,
    /// `limit`, `ban`, `deny`, `allow`, `credential`, `unidentified`.
    pub(super) kind: CompactString,
    /// The policy or the ban rule. Empty for others.
    pub(super) policy: CompactString,
    /// `60/1m`
    pub(super) limit: CompactString,
    pub(super) method: CompactString,
}

/// Something that happened, or was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// In microseconds since the Unix epoch.
    pub time: i64,
    /// The same on all instances.
    pub id: String,
    pub instance: String,
    pub by: String,
    pub action: String,
    pub target: String,
    pub detail: String,
}

impl Batch {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and texts: this can't fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// `None`: it is of another version, or damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.first() == Some(&VERSION)).then(|| postcard::from_bytes(bytes).ok())?
    }
}

/// Requests, and units by policy.
#[derive(Debug, Default)]
struct UsageSum {
    counts: RequestCounts,
    units: Vec<(CompactString, u64)>,
}

/// How many requests were denied, from when to when, and one of them.
#[derive(Debug)]
struct DenialSum {
    count: u64,
    first: i64,
    last: i64,
    sample: DenialSample,
}

/// What was used and denied since the last batch.
#[derive(Debug, Default)]
pub(super) struct Sums {
    zones: Vec<String>,
    /// By quarter of an hour.
    usage: HashMap<(i64, Series), UsageSum>,
    /// By minute and address.
    denials: HashMap<(i64, CompactString, Cause), DenialSum>,
    events: Vec<EventRow>,
    /// The minute whose rows of denials are counted, and those that it has had.
    minute: i64,
    rows: HashSet<(CompactString, Cause)>,
    /// The day whose values are known.
    day: i64,
    values: HashSet<CompactString>,
}

impl Sums {
    pub(super) fn add_tick(&mut self, tick: TickTallies) {
        let TickTallies { plan, quarter, usage, denials } = tick;
        if self.zones.len() != plan.zones.len() || !self.zones.iter().eq(plan.zone_names()) {
            for name in plan
                .zone_names()
                .filter(|name| !self.zones.iter().any(|known| known == name))
                .collect::<Vec<_>>()
            {
                self.zones.push(name.to_owned());
            }
        }
        for tally in usage {
            let series = self.series(&plan, &tally.owner, quarter * QUARTER);
            let UsageSum { counts, units } = self.usage.entry((quarter, series)).or_default();
            counts.add(&tally.counts);
            for (policy, more) in tally.units {
                let Some(policy) = plan.policies.get(policy as usize) else { continue };
                match units.iter_mut().find(|(known, _)| *known == policy.name) {
                    Some((_, sum)) => *sum = sum.saturating_add(more),
                    None => units.push((policy.name.clone(), more)),
                }
            }
        }
        for tally in denials {
            self.add_denial(&plan, tally);
        }
    }

    pub(super) fn add_event(&mut self, event: EventRow) {
        self.events.push(event);
    }

    fn series(&mut self, plan: &HistoryPlan, owner: &UsageOwner, seconds: i64) -> Series {
        let (key, names) = (owner.key.as_ref(), owner.names());
        Series {
            customer: key
                .filter(|_| plan.counts_customers)
                .map(|key| key.customer.clone())
                .unwrap_or_default(),
            user: names.user,
            plan: key.and_then(|key| key.plan.clone()).unwrap_or_default(),
            route: owner.route.and_then(|route| plan.routes.get(route as usize).cloned()).unwrap_or_default(),
            value: self.known_value(&names.value, seconds),
        }
    }

    /// The value, if there are not too many: clients may make them up.
    fn known_value(&mut self, value: &CompactString, seconds: i64) -> CompactString {
        let day = seconds.div_euclid(86_400);
        if day != self.day {
            self.day = day;
            self.values.clear();
        }
        if value.is_empty() || self.values.contains(value) {
            return value.clone();
        }
        if self.values.len() >= MAX_VALUES {
            return CompactString::const_new(OTHER);
        }
        self.values.insert(value.clone());
        value.clone()
    }

    fn add_denial(&mut self, plan: &Arc<HistoryPlan>, tally: DenialTally) {
        let DenialTally { key, count, first, last, sample, .. } = tally;
        let minute = first.div_euclid(60_000_000);
        if minute > self.minute {
            self.minute = minute;
            self.rows.clear();
        }
        let customer = key.owner.key.as_ref();
        let (kind, policy, limit) = named_cause(plan, key.by);
        let series = Series {
            customer: customer.map(|key| key.customer.clone()).unwrap_or_default(),
            user: key.owner.names().user,
            plan: customer.and_then(|key| key.plan.clone()).unwrap_or_default(),
            route: key
                .owner
                .route
                .and_then(|route| plan.routes.get(route as usize).cloned())
                .unwrap_or_default(),
            value: CompactString::default(),
        };
        let mut cause =
            Cause { series, kind: kind.into(), policy, limit, method: key.method.as_str().into() };
        let mut address = shown(key.network);
        let known = self.rows.len();
        if !self.rows.contains(&(address.clone(), cause.clone())) && known >= MAX_DENIALS {
            let is_full = known >= MAX_NETWORKS;
            let bits = match (is_full, key.network.addr().is_ipv4()) {
                (true, _) => 0,
                (false, true) => 24,
                (false, false) => 48,
            };
            address = shown(masked_to(key.network.addr(), bits));
            cause.series.user = CompactString::default();
            if is_full {
                cause.series.customer = CompactString::default();
                cause.series.plan = CompactString::default();
            }
        }
        self.rows.insert((address.clone(), cause.clone()));
        let row = self.denials.entry((minute, address, cause)).or_insert_with(|| DenialSum {
            count: 0,
            first,
            last,
            sample,
        });
        row.count += count;
        row.first = row.first.min(first);
        row.last = row.last.max(last);
    }

    /// Whether there is nothing to add.
    pub(super) fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.denials.is_empty() && self.events.is_empty()
    }

    /// Takes what there is as a batch.
    pub(super) fn take(&mut self, started: i64, watermark: i64, has_ended: bool) -> Batch {
        let mut usage: Vec<UsageRow> = std::mem::take(&mut self.usage)
            .into_iter()
            .map(|((quarter, series), UsageSum { counts, units })| UsageRow {
                quarter,
                series,
                counts,
                units,
            })
            .collect();
        usage.sort_unstable_by(|one, other| (one.quarter, &one.series).cmp(&(other.quarter, &other.series)));
        let mut denials: Vec<DenialRow> = std::mem::take(&mut self.denials)
            .into_iter()
            .map(|((minute, address, cause), DenialSum { count, first, last, sample })| DenialRow {
                minute,
                address,
                cause,
                count,
                first,
                last,
                sample,
            })
            .collect();
        denials.sort_unstable_by(|one, other| {
            (one.minute, &one.address, &one.cause).cmp(&(other.minute, &other.address, &other.cause))
        });
        let events = std::mem::take(&mut self.events);
        Batch {
            version: VERSION,
            started,
            watermark,
            has_ended,
            zones: self.zones.clone(),
            usage,
            denials,
            events,
        }
    }
}

/// The kind, the policy and the limit of a cause, by their names.
fn named_cause(plan: &HistoryPlan, by: DeniedBy) -> (&'static str, CompactString, CompactString) {
    let none = CompactString::default;
    let policy = |index: u32| plan.policies.get(index as usize);
    match by {
        DeniedBy::Limit { policy: index, variant, tier } => {
            let policy = policy(index);
            let limits = policy.and_then(|policy| policy.limits.get(usize::from(variant)));
            let limit = limits.and_then(|limits| limits.get(usize::from(tier))).cloned();
            ("limit", policy.map(|policy| policy.name.clone()).unwrap_or_default(), limit.unwrap_or_default())
        }
        DeniedBy::Unidentified { policy: index } => {
            ("unidentified", policy(index).map(|policy| policy.name.clone()).unwrap_or_default(), none())
        }
        DeniedBy::Ban { rule } => ("ban", plan.bans.get(rule as usize).cloned().unwrap_or_default(), none()),
        DeniedBy::Deny => ("deny", none(), none()),
        DeniedBy::Allow => ("allow", none(), none()),
        DeniedBy::Credential => ("credential", none(), none()),
    }
}
