//! A policy as the stores see it: an algorithm with its tiers, and its names.

use std::{collections::HashMap, sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Calendar, GrpcOutcome, ResponseStatus};
use crate::{
    config::model::{self, CalendarUnit, Window, format_concurrency},
    limit::algorithm::{DetailKind, Kind, LimitRule, Tier, WindowBounds},
};

/// Identifies a policy's name and shape in the memory store's keys. Two policies have the same ID iff they have the
/// same name and shape, so that a policy whose algorithm or windows change starts with new counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId(pub u32);

/// Assigns an ID to each name and shape, for the lifetime of the process: a policy that a new configuration keeps
/// continues with its counts.
#[derive(Debug, Default, Clone)]
pub struct PolicyIds(HashMap<(String, String), PolicyId>);

impl PolicyIds {
    /// All policies of a configuration, in its order, with their overrides in them.
    pub fn policies<'a>(&mut self, configs: impl IntoIterator<Item = &'a model::Policy>) -> Vec<Policy> {
        configs.into_iter().map(|config| self.with_id(config)).collect()
    }

    /// As [`Self::policies`], with the prices of the configuration's routes.
    pub fn of_config(&mut self, config: &model::Config) -> Vec<Policy> {
        let mut policies = self.policies(config.policies.iter().map(Arc::as_ref));
        for (policy, most) in policies.iter_mut().zip(config.max_costs()) {
            policy.max_cost = most.unwrap_or(policy.max_cost);
            for (_, variant) in &mut policy.overrides {
                variant.max_cost = policy.max_cost;
            }
        }
        policies
    }

    fn with_id(&mut self, config: &model::Policy) -> Policy {
        let mut policy = Policy::new(config, PolicyId(0));
        policy.id = self.id_of(&policy);
        for (_, variant) in &mut policy.overrides {
            variant.id = self.id_of(variant);
        }
        policy
    }

    fn id_of(&mut self, policy: &Policy) -> PolicyId {
        let next = PolicyId(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        *self.0.entry((policy.name.clone(), policy.shape.clone())).or_insert(next)
    }
}

/// The parts of a policy that a store needs, and those that clients are shown.
#[derive(Debug, Clone)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    pub kind: Kind,
    /// Never empty. Ordered by window, shortest first.
    pub tiers: Vec<Tier>,
    /// The window of the calendar of each tier; `None` for one of constant length. Empty for other kinds.
    pub calendars: Vec<Option<Calendar>>,
    /// The lowest first-tier limit among the policy and its overrides that share these counts.
    pub lowest_limit: u64,
    /// The algorithm and its windows, without the limits: `fw.1s.1m.1h`. With windows of the calendar, also the time zone
    /// and the day on which months begin: `fw.month.Europe-Berlin.1`. Units other than requests come last: `fw.1d.bytes`.
    pub shape: String,
    /// The recipes of its keys. Each key is limited separately.
    pub keys: Vec<model::KeyRecipe>,
    /// The action for a request that lacks a part of the key.
    pub missing: model::Missing,
    /// `distinct`: the value that is counted.
    pub value: Option<model::KeyRecipe>,
    /// The values of requests that its keys, `value` and overrides name.
    pub value_names: Vec<String>,
    /// A shadow policy counts and reports, but never denies.
    pub is_shadow: bool,
    /// Whether requests that this policy denies are counted as well.
    pub count_denied: bool,
    /// The responses that count. The units of a request are refunded if its response is not one of them.
    pub count: Option<model::CountedResponses>,
    /// The cost on routes that set no price.
    pub cost: model::Cost,
    /// The most units that a request takes, on any route.
    pub max_cost: u64,
    /// Whether CORS preflights are counted.
    pub preflight: bool,
    /// Whether descriptors are charged past the limit, and may give units back.
    pub overdraw: bool,
    /// The units of a quota slice, which an instance takes at once and spends alone; 0 without slices.
    pub slice: u64,
    /// The requests it does not apply to.
    pub exempt: Vec<model::Condition>,
    /// The same policy with other limits, for some requests. The first that matches applies.
    pub overrides: Vec<(model::Condition, Self)>,
    /// The plans that it does not limit, unless one of the overrides matches.
    pub unlimited: Vec<model::Condition>,
    /// The fallback while the store is away.
    pub on_store_error: model::OnStoreError,
    /// The evidence to record.
    pub record: model::RecordedFields,
    /// A name for each tier: the policy's own where there is one tier, else `login-1s`.
    pub quota_names: Vec<String>,
}

/// A condition, and the limits of requests that meet it, with their place among [`Policy::variants`], or the condition again:
/// they are not limited.
pub type Candidate<'p> = (Option<&'p model::Condition>, Result<(usize, &'p Policy), &'p model::Condition>);

impl Policy {
    /// All policies of a single configuration: see [`PolicyIds::policies`].
    pub fn all<'a>(configs: impl IntoIterator<Item = &'a model::Policy>) -> Vec<Self> {
        PolicyIds::default().policies(configs)
    }

    /// The policy that `config` describes. The caller must ensure that `id` is used for this name and shape alone. The
    /// overrides get the same `id`; the caller must change it if the shape differs.
    pub fn new(config: &model::Policy, id: PolicyId) -> Self {
        let mut policy = Self::with_limits(config, config.algorithm, &config.tiers, id);
        let variant = |other: &model::Override| {
            let variant = Self::with_limits(config, other.algorithm, &other.tiers, id);
            (other.condition.clone(), variant)
        };
        policy.overrides = config.overrides.iter().map(variant).collect();
        policy.set_lowest_limits();
        policy
    }

    fn with_limits(
        config: &model::Policy,
        algorithm: model::Algorithm,
        tiers: &[model::Quota],
        id: PolicyId,
    ) -> Self {
        let mut rates = tiers.to_vec();
        rates.sort_by_key(|rate| rate.window.length());
        let quota_names = match rates.as_slice() {
            [_] => vec![config.name.clone()],
            several => several.iter().map(|rate| format!("{}-{}", config.name, rate.window)).collect(),
        };
        let tiers: Vec<Tier> = rates.iter().map(tier).collect();
        let has_calendar = rates.iter().any(|rate| rate.window.calendar().is_some());
        let kind = if has_calendar { Kind::CalendarWindow } else { kind(algorithm, config.record) };
        let calendar = |rate: &model::Quota| Some(Calendar::new(rate.window.calendar()?, &config.calendar));
        let calendars = if has_calendar { rates.iter().map(calendar).collect() } else { Vec::new() };
        Self {
            id,
            name: config.name.clone(),
            kind,
            // A slice is void after a constant time.
            slice: if has_calendar { 0 } else { slice(config.slice, tiers[0].limit) },
            lowest_limit: tiers[0].limit,
            tiers,
            calendars,
            shape: shape(kind, &rates, config),
            keys: config.keys.clone(),
            missing: config.missing,
            value: config.value.clone(),
            value_names: value_names(config),
            is_shadow: config.mode == model::Mode::Shadow,
            count_denied: config.count_denied,
            count: config.count.clone(),
            cost: config.cost.clone(),
            max_cost: config.cost.max(),
            preflight: config.preflight,
            overdraw: config.overdraw,
            exempt: config.exempt.clone(),
            overrides: Vec::new(),
            unlimited: config.unlimited.clone(),
            on_store_error: config.on_store_error,
            record: config.record,
            quota_names,
        }
    }

    fn set_lowest_limits(&mut self) {
        let limits: Vec<(String, u64)> =
            self.variants().map(|of| (of.shape.clone(), of.tiers[0].limit)).collect();
        let lowest_limit =
            |shape: &str| limits.iter().filter(|(of, _)| of == shape).map(|(_, limit)| *limit).min();
        self.lowest_limit = lowest_limit(&self.shape).unwrap_or(self.lowest_limit);
        for (_, variant) in &mut self.overrides {
            variant.lowest_limit = lowest_limit(&variant.shape).unwrap_or(variant.lowest_limit);
        }
    }

    /// The tier with the lowest limit among the policies that share these counts. A bucket drains slowest by this tier,
    /// which determines the lifetime of the state.
    pub fn slowest_tier(&self) -> Tier {
        let tier = self.tiers[0];
        Tier { limit: self.lowest_limit.min(tier.limit), ..tier }
    }

    /// Calls `decide` with the algorithm and the tiers, as they apply at the time `now`, in microseconds.
    #[inline]
    pub fn with_rule<T>(&self, now: i64, decide: impl FnOnce(LimitRule<'_>) -> T) -> T {
        let rule = LimitRule { kind: self.kind, tiers: &self.tiers, bounds: &[] };
        if self.kind != Kind::CalendarWindow {
            return decide(rule);
        }
        let bounds: SmallVec<[WindowBounds; 2]> = self.bounds(now).collect();
        decide(LimitRule { bounds: &bounds, ..rule })
    }

    /// The windows of each tier about the time `now`. Of a policy with windows of the calendar.
    fn bounds(&self, now: i64) -> impl Iterator<Item = WindowBounds> {
        self.tiers.iter().zip(&self.calendars).map(move |(tier, calendar)| match calendar {
            Some(calendar) => calendar.bounds(now),
            None => WindowBounds::constant(tier.window, now),
        })
    }

    /// When the window of its first tier begins and ends that holds the time `now`. A window that slides counts as one that
    /// does not.
    pub fn window(&self, now: i64) -> [i64; 2] {
        let WindowBounds([_, start, end, ..]) = match self.calendar(0) {
            Some(calendar) => calendar.bounds(now),
            None => WindowBounds::constant(self.tiers[0].window, now),
        };
        [start, end]
    }

    /// The calendar of the tier `index`, if its windows are the calendar's.
    pub fn calendar(&self, index: usize) -> Option<&Calendar> {
        self.calendars.get(index)?.as_ref()
    }

    /// The same policy, in which a request is denied instead of waiting.
    pub fn undelayed(&self) -> Self {
        let mut policy = self.clone();
        let variants = policy.overrides.iter_mut().map(|(_, variant)| &mut variant.kind);
        for kind in variants.chain([&mut policy.kind]) {
            if let Kind::Gcra { delay, .. } = kind {
                *delay = 0;
            }
        }
        policy
    }

    /// Whether its limits record who made the requests, so that a check needs an entry.
    pub fn keeps_entries(&self) -> bool {
        self.kind.description().detail == DetailKind::Entry
    }

    /// Whether requests fail while the store can't decide. A shadow policy never denies, with or without the store.
    pub fn fails_without_store(&self) -> bool {
        self.on_store_error == model::OnStoreError::Deny && !self.is_shadow
    }

    /// Whether the units of a request may be refunded.
    pub fn may_refund(&self) -> bool {
        self.count.is_some() || self.kind == Kind::Concurrency || self.cost.of_response().is_some()
    }

    /// Whether its units are bytes of responses.
    pub fn counts_bytes(&self) -> bool {
        self.cost.of_response().is_some_and(|cost| cost.measure == model::Measure::Bytes)
    }

    /// The most units that a request can be admitted with.
    pub fn most_admissible(&self) -> u64 {
        let lowest = self.tiers.iter().map(|tier| tier.limit).min().unwrap_or_default();
        match self.kind {
            Kind::Gcra { burst, .. } => burst,
            _ => lowest,
        }
    }

    /// Whether a request with this response is counted; `None` if that is not known yet. A lease does not depend on the
    /// response: it ends with its request.
    pub fn counts(&self, response: ResponseStatus) -> Option<bool> {
        let Some(count) = self.count.as_ref().filter(|_| self.kind != Kind::Concurrency) else {
            return Some(true);
        };
        if count.statuses.contains(response.http.as_u16()) {
            return Some(true);
        }
        match response.grpc {
            _ if count.grpc_statuses.is_empty() => Some(false),
            GrpcOutcome::Pending => None,
            GrpcOutcome::Known(status) => {
                Some(status.is_some_and(|status| count.grpc_statuses.contains(&status)))
            }
        }
    }

    /// The name of its algorithm in proxy.yaml.
    pub fn algorithm(&self) -> &'static str {
        self.kind.description().name
    }

    /// Its limits as people read them: `100/1s`, `1000/month (Europe/Berlin)`; for `concurrency`, `2 at a time`.
    pub fn limits(&self) -> impl Iterator<Item = String> {
        let window = |tier: &Tier| Duration::from_micros(u64::try_from(tier.window).unwrap_or_default());
        self.tiers.iter().enumerate().map(move |(index, tier)| match (self.kind, self.calendar(index)) {
            (Kind::Concurrency, _) => format_concurrency(tier.limit),
            (_, Some(calendar)) => format!("{}/{calendar}", tier.limit),
            _ => model::Rate { limit: tier.limit, window: window(tier) }.to_string(),
        })
    }

    /// The limits for a request that meets the conditions for which `is_met` is true, with their place among
    /// [`Self::variants`].
    ///
    /// # Errors
    /// The request is not limited, because of this condition.
    #[inline]
    pub fn applicable(
        &self,
        is_met: impl Fn(&model::Condition) -> bool,
    ) -> Result<(usize, &Self), &model::Condition> {
        self.candidates().find(|(of, _)| of.is_none_or(&is_met)).map_or(Ok((0, self)), |(_, found)| found)
    }

    /// What [`Self::applicable`] returns, by the condition that a request has to meet. The first that it meets counts; the
    /// last has none.
    #[inline]
    pub fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        let exempt = self.exempt.iter().map(|of| (Some(of), Err(of)));
        let overrides =
            self.overrides.iter().enumerate().map(|(nth, (of, limits))| (Some(of), Ok((nth + 1, limits))));
        let unlimited = self.unlimited.iter().map(|of| (Some(of), Err(of)));
        exempt.chain(overrides).chain(unlimited).chain([(None, Ok((0, self)))])
    }

    /// The policy itself and its overrides.
    pub fn variants(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.overrides.iter().map(|(_, variant)| variant))
    }
}

/// The names of the values that a policy asks for, each once.
fn value_names(config: &model::Policy) -> Vec<String> {
    let mut names: Vec<String> = config.value_names().map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn kind(algorithm: model::Algorithm, record: model::RecordedFields) -> Kind {
    match algorithm {
        model::Algorithm::SingleCounter => Kind::SingleCounter,
        model::Algorithm::FixedWindow => Kind::FixedWindow,
        model::Algorithm::MetadataList => Kind::MetadataList { retain: micros(record.retain) },
        model::Algorithm::SlidingWindow { buckets } => Kind::SlidingWindow { buckets },
        model::Algorithm::SlidingLog => Kind::SlidingLog,
        model::Algorithm::SlidingCounter => Kind::SlidingCounter,
        model::Algorithm::Gcra { burst, delay } => Kind::Gcra { burst, delay: micros(delay) },
        model::Algorithm::Concurrency => Kind::Concurrency,
        model::Algorithm::Distinct => Kind::Distinct,
    }
}

fn tier(rate: &model::Quota) -> Tier {
    Tier { limit: rate.limit, window: micros(rate.window.length()).max(1) }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The units of a slice, rounded down: an instance never takes more than its share.
fn slice(share: f64, limit: u64) -> u64 {
    (share * limit as f64) as u64
}

fn shape(kind: Kind, rates: &[model::Quota], config: &model::Policy) -> String {
    let mut shape = String::from(kind.description().shape);
    // A different number of buckets is a different state.
    if let Kind::SlidingWindow { buckets } = kind
        && buckets != model::DEFAULT_BUCKETS
    {
        shape.push_str(&buckets.to_string());
    }
    for rate in rates {
        shape.push('.');
        shape.push_str(&rate.window.to_string());
    }
    if kind == Kind::CalendarWindow {
        shape.push('.');
        shape.push_str(&config.calendar.time_zone.name().replace('/', "-"));
        if rates.iter().any(|rate| rate.window == Window::Calendar(CalendarUnit::Month)) {
            shape.push_str(&format!(".{}", config.calendar.reset_day));
        }
    }
    if let Some(unit) = unit(config) {
        shape.push('.');
        shape.push_str(&unit.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-"));
    }
    shape
}

/// The unit that a policy counts; `None` for requests, or points that the configuration gives them. Another unit is
/// another state: a count of bytes read as one of requests would deny clients for a whole window.
fn unit(config: &model::Policy) -> Option<String> {
    Some(match (&config.value, &config.cost) {
        (Some(value), _) => value.to_string(),
        (None, model::Cost::Fixed(_)) => return None,
        (None, model::Cost::Header { name, .. }) => name.to_string(),
        (None, model::Cost::Response(cost)) => match &cost.measure {
            model::Measure::Bytes => "bytes".to_owned(),
            model::Measure::Sum(numbers) => {
                let sources: Vec<_> = numbers.iter().map(|number| number.source.to_string()).collect();
                sources.join("-")
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(algorithm: model::Algorithm, tiers: &[(u64, u64)]) -> Policy {
        let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
        let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let config = model::Policy::new("login", algorithm, keys, tiers.iter().map(rate).collect());
        Policy::new(&config, PolicyId(7))
    }

    #[test]
    fn shapes_name_the_algorithm_and_its_windows_in_the_largest_exact_unit() {
        use model::Algorithm::{
            Concurrency, Distinct, FixedWindow, Gcra, MetadataList, SingleCounter, SlidingCounter,
            SlidingLog, SlidingWindow,
        };
        for (algorithm, millis, shape) in [
            (Gcra { burst: 7, delay: Duration::ZERO }, 1_000, "gcra.1s"),
            (Gcra { burst: 9, delay: Duration::from_secs(1) }, 1_000, "gcra.1s"),
            (SlidingCounter, 60_000, "sx.1m"),
            (SlidingWindow { buckets: 10 }, 1_000, "sw.1s"),
            (SlidingWindow { buckets: 20 }, 1_000, "sw20.1s"),
            (Distinct, 600_000, "di.10m"),
            (Concurrency, 60_000, "cc.1m"),
            (SingleCounter, 10_000, "sc.10s"),
            (FixedWindow, 3_600_000, "fw.1h"),
            (SlidingLog, 1_000, "sl.1s"),
            (MetadataList, 60_000, "ml.1m"),
            (SlidingLog, 90_000, "sl.90s"),
            (SlidingLog, 250, "sl.250ms"),
            (SlidingLog, 366 * 86_400_000, "sl.366d"),
        ] {
            assert_eq!(policy(algorithm, &[(5, millis)]).shape, shape);
        }
        assert_eq!(model::format_duration(Duration::from_micros(1_500)), "1500us");
    }

    #[test]
    fn shapes_name_the_calendar() {
        let quota = |text: &str| {
            let (limit, window) = text.split_once('/').unwrap();
            let unit = CalendarUnit::ALL.into_iter().find(|(name, _)| *name == window);
            let minute = Window::Length(Duration::from_secs(60));
            let window = unit.map_or(minute, |(_, unit)| Window::Calendar(unit));
            model::Quota { limit: limit.parse().unwrap(), window }
        };
        let shape = |zone: &str, reset_day, limits: &[&str]| {
            let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
            let tiers: Vec<_> = limits.iter().map(|text| quota(text)).collect();
            let calendar = model::Calendar { time_zone: model::TimeZone::named(zone).unwrap(), reset_day };
            let new = model::Policy::new("p", model::Algorithm::FixedWindow, keys, tiers);
            let policy = Policy::new(&model::Policy { calendar, ..new }, PolicyId(0));
            (policy.shape.clone(), policy.limits().collect::<Vec<_>>().join(" "), policy.algorithm())
        };
        assert_eq!(
            shape("Europe/Berlin", 1, &["9/month"]),
            ("fw.month.Europe-Berlin.1".to_owned(), "9/month (Europe/Berlin)".to_owned(), "fixed_window")
        );
        assert_eq!(
            shape("America/Port-au-Prince", 15, &["9/month", "2/1m", "5/day"]),
            (
                "fw.1m.day.month.America-Port-au-Prince.15".to_owned(),
                "2/1m 5/day (America/Port-au-Prince) 9/month (America/Port-au-Prince, from day 15)"
                    .to_owned(),
                "fixed_window"
            )
        );
        assert_eq!(shape("UTC", 15, &["9/week"]).0, "fw.week.UTC");
        assert_eq!(shape("Asia/Tokyo", 15, &["9/1m"]).0, "fw.1m");
    }

    #[test]
    fn shapes_name_units_other_than_requests() {
        let shape = |settings: &str| {
            let yaml = format!(
                "upstreams: {{ u: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}\n\
                 trusted_proxies: [127.0.0.1]\nuser: [{{ header: x-user }}]\n\
                 routes: [{{ path: /*, upstream: u, policies: [p] }}]\n\
                 policies: {{ p: {{ key: ip, limit: 100/1d, {settings} }} }}"
            );
            let config = crate::config::parse("proxy.yaml", &yaml, &crate::config::SystemLookup).unwrap();
            Policy::all(config.policies.iter().map(AsRef::as_ref)).remove(0).shape
        };
        for (settings, expected) in [
            ("algorithm: fixed_window", "fw.1d"),
            ("algorithm: fixed_window, cost: 5", "fw.1d"),
            ("algorithm: fixed_window, cost: { header: x-cost, max: 9 }", "fw.1d.x-cost"),
            ("algorithm: fixed_window, cost: { response: bytes, reserve: 1 }", "fw.1d.bytes"),
            ("algorithm: gcra, cost: { response: openai, reserve: 1 }", "gcra.1d.openai"),
            (
                "algorithm: gcra, cost: { response: [{ json: a.b }, { header: x-c, times: 2 }], reserve: 1 }",
                "gcra.1d.a-b-x-c",
            ),
            ("algorithm: distinct, value: user", "di.1d.user"),
            ("algorithm: distinct, value: header:x-id", "di.1d.header-x-id"),
        ] {
            assert_eq!(shape(settings), expected);
        }
    }

    #[test]
    fn an_algorithm_has_the_name_that_proxy_yaml_has_for_it() {
        let record = model::RecordedFields { keep: 1, retain: Duration::MAX };
        let configured = model::Algorithm::ALL.map(|(name, algorithm)| (name, kind(algorithm, record)));
        let described = Kind::ALL.map(|kind| (kind.description().name, kind));
        assert_eq!(configured, described[..configured.len()]);
        assert_eq!(described[configured.len()..], [("fixed_window", Kind::CalendarWindow)]);
    }

    #[test]
    fn a_name_and_shape_keeps_its_id_from_one_configuration_to_the_next() {
        let keys = || vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
        let of = |name: &str, algorithm, limit, seconds| {
            let window = Duration::from_secs(seconds);
            model::Policy::new(name, algorithm, keys(), vec![model::Rate { limit, window }])
        };
        let mut ids = PolicyIds::default();
        let mut given = |configs: &[model::Policy]| {
            ids.policies(configs).into_iter().map(|policy| policy.id.0).collect::<Vec<_>>()
        };
        let (log, counter) = (model::Algorithm::SlidingLog, model::Algorithm::SingleCounter);
        assert_eq!(given(&[of("a", log, 10, 1), of("b", log, 10, 1)]), [0, 1]);
        assert_eq!(given(&[of("b", log, 99, 1), of("c", log, 10, 1)]), [1, 2], "its limit is no part of it");
        assert_eq!(given(&[of("b", counter, 99, 1), of("b", log, 99, 2)]), [3, 4]);
        assert_eq!(given(&[of("a", log, 10, 1)]), [0], "it was away, and is known");
    }

    #[test]
    fn only_a_metadata_list_keeps_entries() {
        use model::Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingLog};
        let keeps = |algorithm| policy(algorithm, &[(5, 1_000)]).keeps_entries();
        let all = [SingleCounter, FixedWindow, SlidingLog, MetadataList];
        assert_eq!(all.map(keeps), [false, false, false, true]);
    }

    #[test]
    fn tiers_are_named_where_there_are_several() {
        let one = policy(model::Algorithm::SlidingLog, &[(100, 1_000)]);
        assert_eq!(one.quota_names, ["login"]);
        assert_eq!(one.tiers, [Tier { limit: 100, window: 1_000_000 }]);

        let several = policy(model::Algorithm::FixedWindow, &[(240, 3_600_000), (10, 1_000), (120, 60_000)]);
        assert_eq!(several.shape, "fw.1s.1m.1h");
        assert_eq!(several.quota_names, ["login-1s", "login-1m", "login-1h"]);
        assert_eq!(several.tiers.iter().map(|tier| tier.limit).collect::<Vec<_>>(), [10, 120, 240]);
    }
}
