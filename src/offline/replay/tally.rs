//! The counts of a replay in progress.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
};

use compact_str::CompactString;
use foldhash::fast::FixedState;
use http::header::USER_AGENT;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    decide::{ReplayedCheck, ReplayedVerdict},
    report::{Closeness, LimitedKey, Minute, PolicyReport, Report, Timeline, TimelineBar},
};
use crate::{
    abuse::LoggedClient,
    limit::Policy,
    offline::access_logs::{LoggedProgress, ReadingNotes},
    telemetry::time::{format_duration, rfc3339},
};

/// Keys of a policy whose requests are observed for the hint, from their first denial on; or from a response of 401 or 403,
/// of which there may be fewer.
const OBSERVED_KEYS: usize = 50_000;
const SUSPECTS: usize = 10_000;
/// Users of a key that are named.
const NAMED_USERS: usize = 3;
/// A minute and a second, in microseconds.
const MINUTE: i64 = 60_000_000;
const SECOND: i64 = 1_000_000;
/// Most bars of a timeline.
const BARS: usize = 200;
/// The lengths of a bar in seconds, each a multiple of the one before. Longer ones are twice as long.
const STEPS: [i64; 10] = [1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800];

/// The decisions so far.
#[derive(Debug)]
pub(super) struct ReplayTally {
    first: Option<i64>,
    last: i64,
    requests: u64,
    denied: u64,
    shadow_denied: u64,
    forbidden: u64,
    refused: u64,
    unchecked: u64,
    unknown: u64,
    bars: Bars,
    policies: Vec<PolicyTally>,
}

#[derive(Debug)]
struct PolicyTally {
    report: PolicyReport,
    /// All keys, by their hashes: there may be many millions, of which few are denied.
    keys: HashMap<u64, KeyUse, FixedState>,
    /// Keys that are denied or observed.
    notable: HashMap<CompactString, NotableKey, FixedState>,
    /// How many of them were observed before they were denied.
    suspects: usize,
    minute: MinuteTally,
}

/// The requests of one key.
#[derive(Debug, Clone, Copy, Default)]
struct KeyUse {
    requests: u32,
    /// The most that it used of its limit, in thousandths.
    peak: u16,
    is_denied: bool,
    is_notable: bool,
}

#[derive(Debug, Default)]
struct NotableKey {
    /// 0: `first` and `last` are unset.
    denied: u64,
    first: i64,
    last: i64,
    /// `None`: too many keys are observed.
    client: Option<Box<LoggedClient>>,
    users: SmallVec<[CompactString; NAMED_USERS]>,
}

/// The minute in progress, and the worst of the previous ones.
#[derive(Debug, Default)]
struct MinuteTally {
    current: MinuteCount,
    worst: MinuteCount,
}

#[derive(Debug, Clone, Copy, Default)]
struct MinuteCount {
    minute: i64,
    denied: u64,
    requests: u64,
}

impl ReplayTally {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let tally = |policy: &Policy| PolicyTally {
            report: PolicyReport {
                policy: policy.name.clone(),
                mode: if policy.is_shadow { "shadow" } else { "enforce" },
                ..PolicyReport::default()
            },
            keys: HashMap::default(),
            notable: HashMap::default(),
            suspects: 0,
            minute: MinuteTally::default(),
        };
        Self {
            first: None,
            last: 0,
            requests: 0,
            denied: 0,
            shadow_denied: 0,
            forbidden: 0,
            refused: 0,
            unchecked: 0,
            unknown: 0,
            bars: Bars::default(),
            policies: policies.iter().map(tally).collect(),
        }
    }

    /// Adds the decision of one policy.
    pub(super) fn add_check(&mut self, check: &ReplayedCheck<'_>) {
        if let Some(policy) = self.policies.get_mut(check.policy) {
            policy.add(check);
        }
    }

    /// Adds the verdict on a request at `time`. Returns the number of requests so far.
    pub(super) fn add_request(&mut self, time: i64, verdict: ReplayedVerdict) -> u64 {
        self.first.get_or_insert(time);
        self.last = time;
        self.requests += 1;
        let bar = self.bars.at(time);
        bar.requests += 1;
        match verdict {
            ReplayedVerdict::Admitted => {}
            ReplayedVerdict::ShadowDenied => {
                self.shadow_denied += 1;
                bar.shadow_denied += 1;
            }
            ReplayedVerdict::Denied => {
                self.denied += 1;
                bar.denied += 1;
            }
            ReplayedVerdict::Forbidden => self.forbidden += 1,
            ReplayedVerdict::Refused => self.refused += 1,
            ReplayedVerdict::Unchecked => self.unchecked += 1,
            ReplayedVerdict::Unknown => self.unknown += 1,
        }
        self.requests
    }

    /// The report, without what only the replay knows.
    pub(super) fn report(self, notes: &ReadingNotes) -> Report {
        let mut keys: Vec<LimitedKey> = Vec::new();
        let policies = self.policies.into_iter().map(|policy| policy.report(&mut keys)).collect();
        keys.sort_by(|a, b| {
            (Reverse(a.denied), &a.key, &a.policy).cmp(&(Reverse(b.denied), &b.key, &b.policy))
        });
        Report {
            requests: self.requests + notes.not_http,
            first: self.first.map(rfc3339),
            last: self.first.map(|_| rfc3339(self.last)),
            denied: self.denied,
            shadow_denied: self.shadow_denied,
            forbidden: self.forbidden,
            refused: self.refused + notes.not_http,
            unchecked: self.unchecked,
            unknown: self.unknown,
            unreadable: notes.unreadable.clone(),
            without_requests: notes.without_requests.clone(),
            broken_off: notes.broken_off.clone(),
            late: notes.late,
            without_host: 0,
            spread: notes.is_spread,
            timeline: self.bars.timeline(),
            policies,
            keys,
            comparison: None,
        }
    }
}

impl PolicyTally {
    fn add(&mut self, check: &ReplayedCheck<'_>) {
        let ReplayedCheck { request, line, user, .. } = *check;
        let Some(decided) = check.decided else {
            self.report.not_in_log += 1;
            return;
        };
        self.report.checked += 1;
        self.report.delayed += u64::from(decided.is_delayed);
        self.minute.add(request.time, decided.is_admitted);
        let has_response = decided.is_admitted && request.progress == LoggedProgress::Responded;
        let status = has_response.then_some(request.status.http);
        let key = self.keys.entry(xxh3_64(decided.key.as_bytes())).or_default();
        key.requests = key.requests.saturating_add(1);
        if decided.is_admitted {
            let share = (decided.used * 1_000).checked_div(decided.limit).unwrap_or_default();
            key.peak = key.peak.max(u16::try_from(share).unwrap_or(u16::MAX));
            key.is_notable |= status.is_some_and(|status| matches!(status.as_u16(), 401 | 403));
            if !key.is_notable {
                return;
            }
        } else {
            self.report.denied += 1;
            self.report.denied_keys += u64::from(!key.is_denied);
            (key.is_denied, key.is_notable) = (true, true);
        }
        let is_suspect = decided.is_admitted;
        let is_full = match is_suspect {
            true => self.suspects >= SUSPECTS,
            false => self.notable.len() >= OBSERVED_KEYS + self.suspects,
        };
        let notable = match self.notable.entry(decided.key.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_suspect && is_full => return,
            Entry::Vacant(new) => {
                self.suspects += usize::from(is_suspect);
                let client = (!is_full).then(Box::default);
                new.insert(NotableKey { client, ..NotableKey::default() })
            }
        };
        if !decided.is_admitted {
            notable.first = if notable.denied == 0 { request.time } else { notable.first };
            (notable.denied, notable.last) = (notable.denied + 1, request.time);
        }
        if let Some(client) = notable.client.as_mut().filter(|_| !decided.is_admitted || status.is_some()) {
            let agent = request.request.headers.get(USER_AGENT).map(|agent| xxh3_64(agent.as_bytes()));
            let hash = user.map(|user| xxh3_64_with_seed(user.as_bytes(), 1));
            client.add(&line, request.time, status, (hash, agent));
        }
        if let Some(user) = user
            && notable.users.len() < NAMED_USERS
            && !notable.users.iter().any(|known| known == user)
        {
            notable.users.push(user.into());
        }
    }

    fn report(self, limited: &mut Vec<LimitedKey>) -> PolicyReport {
        let Self { mut report, keys, notable, minute, suspects: _ } = self;
        report.closeness = closeness(keys.values());
        report.worst_minute = minute.worst();
        let denied = notable.into_iter().filter(|(_, key)| key.denied > 0);
        limited.extend(denied.map(|(key, notable)| {
            let NotableKey { denied, first, last, client, users } = notable;
            let requests = keys.get(&xxh3_64(key.as_bytes())).map_or(0, |of| of.requests.into());
            let hint = client.as_ref().map(|client| client.hint());
            LimitedKey {
                key: key.into(),
                policy: report.policy.clone(),
                mode: report.mode,
                requests,
                denied,
                first: rfc3339(first),
                last: rfc3339(last),
                hint: hint.as_ref().map(|(hint, _)| hint.name()),
                reasons: hint.map(|(_, reasons)| reasons),
                users: client.as_ref().map_or(0, |client| client.users()),
                named_users: users.into_iter().map(Into::into).collect(),
                agents: client.as_ref().map_or(0, |client| client.agents()),
            }
        }));
        report
    }
}

/// How many keys came how close to their limit.
fn closeness<'k>(keys: impl Iterator<Item = &'k KeyUse>) -> Closeness {
    let mut closeness = Closeness::default();
    for key in keys {
        closeness.keys += 1;
        let count = match key.peak {
            _ if key.is_denied => &mut closeness.denied,
            0..=250 => &mut closeness.to_25,
            251..=500 => &mut closeness.to_50,
            501..=750 => &mut closeness.to_75,
            751..=900 => &mut closeness.to_90,
            _ => &mut closeness.to_100,
        };
        *count += 1;
    }
    closeness
}

impl MinuteTally {
    fn add(&mut self, time: i64, is_admitted: bool) {
        let minute = time.div_euclid(MINUTE);
        if minute != self.current.minute {
            self.worst = self.worst.worse_of(self.current);
            self.current = MinuteCount { minute, ..MinuteCount::default() };
        }
        self.current.requests += 1;
        self.current.denied += u64::from(!is_admitted);
    }

    /// The minute with the most denials. `None`: there were none.
    fn worst(&self) -> Option<Minute> {
        let MinuteCount { minute, denied, requests } = self.worst.worse_of(self.current);
        (denied > 0).then(|| Minute { minute: rfc3339(minute * MINUTE), requests, denied })
    }
}

impl MinuteCount {
    fn worse_of(self, other: Self) -> Self {
        if (other.denied, other.requests) > (self.denied, self.requests) { other } else { self }
    }
}

/// The requests over time, in bars that grow as the log gets longer.
#[derive(Debug)]
struct Bars {
    /// The length of a bar, in seconds.
    step: i64,
    /// The number of the first bar since the Unix epoch.
    first: i64,
    bars: Vec<TimelineBar>,
}

impl Default for Bars {
    fn default() -> Self {
        Self { step: STEPS[0], first: 0, bars: Vec::new() }
    }
}

impl Bars {
    /// The bar of `time`, in microseconds, which is never before the previous one.
    fn at(&mut self, time: i64) -> &mut TimelineBar {
        let second = time.div_euclid(SECOND);
        if self.bars.is_empty() {
            self.first = second.div_euclid(self.step);
        }
        let mut index = second.div_euclid(self.step) - self.first;
        while index >= BARS as i64 {
            self.grow();
            index = second.div_euclid(self.step) - self.first;
        }
        let index = usize::try_from(index).unwrap_or_default();
        if index >= self.bars.len() {
            self.bars.resize(index + 1, TimelineBar::default());
        }
        &mut self.bars[index]
    }

    /// Makes the bars longer.
    fn grow(&mut self) {
        let step = STEPS.into_iter().find(|step| *step > self.step).unwrap_or(self.step * 2);
        let first = (self.first * self.step).div_euclid(step);
        let mut bars: Vec<TimelineBar> = Vec::new();
        for (nth, bar) in self.bars.iter().enumerate() {
            let index = ((self.first + nth as i64) * self.step).div_euclid(step) - first;
            bars.resize(usize::try_from(index).unwrap_or_default() + 1, TimelineBar::default());
            if let Some(longer) = bars.last_mut() {
                longer.requests += bar.requests;
                longer.denied += bar.denied;
                longer.shadow_denied += bar.shadow_denied;
            }
        }
        (self.step, self.first, self.bars) = (step, first, bars);
    }

    fn timeline(self) -> Timeline {
        Timeline {
            first: rfc3339(self.first * self.step * SECOND),
            step: format_duration(self.step * SECOND),
            bars: self.bars,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_and_keep_their_counts() {
        let mut bars = Bars::default();
        let start = 1_783_080_003 * SECOND;
        for second in 0..1_000 {
            bars.at(start + second * SECOND).requests += 1;
        }
        bars.at(start + 999 * SECOND).denied += 3;
        assert_eq!((bars.step, bars.bars.len()), (15, 67));
        assert_eq!(bars.bars[0].requests, 12, "from 12:00:03 to 12:00:15");
        assert_eq!(bars.bars.iter().map(|bar| bar.requests).sum::<u64>(), 1_000);
        assert_eq!(bars.bars[66].denied, 3);
        // A single time that is wrong by decades.
        bars.at(start * 2).requests += 1;
        assert!(bars.bars.len() <= BARS);
        assert_eq!(bars.bars.iter().map(|bar| bar.requests).sum::<u64>(), 1_001);
    }

    #[test]
    fn the_minute_with_most_denials_is_the_worst() {
        let mut tally = MinuteTally::default();
        for (minute, requests, denied) in [(10, 100, 0), (11, 5, 2), (12, 50, 3), (13, 1, 0)] {
            (0..requests).for_each(|nth| tally.add(minute * MINUTE + nth, nth >= denied));
        }
        let worst = tally.worst().unwrap();
        assert_eq!(
            (worst.minute.as_str(), worst.requests, worst.denied),
            ("1970-01-01T00:12:00.000Z", 50, 3)
        );
    }
}
