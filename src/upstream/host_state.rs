//! The state of a host that all workers share: its load, and whether it gets requests.

use std::{
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use super::atomic_instant::AtomicInstant;
use crate::{
    config::model::{HealthCheck, OutlierDetection, format_duration},
    telemetry::metrics::EndpointState,
};

/// How long an unreachable host is left out while there are others. One request a second tests whether it is back, and
/// is sent elsewhere if it is not.
pub(super) const UNREACHABLE_TIME: Duration = Duration::from_secs(1);

/// The longest ejection, as a multiple of the first.
const MAX_EJECTION: u32 = 10;

/// Reasons not to send requests to a host, as bits.
const UNREACHABLE: u8 = 1;
const EJECTED: u8 = 2;
const UNHEALTHY: u8 = 4;
/// With [`UNHEALTHY`]: the last probe got no connection.
const UNREACHABLE_BY_PROBES: u8 = 8;
/// It represents a name without an address. Such a host is replaced once there is an address.
const UNRESOLVED: u8 = 16;

/// How fit a host is for the next request, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has no known fault.
    Usable,
    /// It is ejected, or fails its probes. It gets requests if too few hosts are usable.
    Suspect,
    /// No connection to it could be opened, or it has no address. It gets requests if no other host can be reached.
    Unreachable,
}

/// The state of a host that all workers share. They see each change at once.
#[derive(Debug, Default)]
pub struct HostState {
    /// Requests in flight.
    in_flight: AtomicUsize,
    /// Requests since the start.
    requests: AtomicU64,
    /// Requests that failed because of the host.
    errors: AtomicU64,
    /// Probes that failed.
    probe_failures: AtomicU64,
    /// The reasons not to send it requests. Mostly none, and then a request loads only this field.
    faults: AtomicU8,
    /// Requests that failed in a row.
    failures: AtomicU32,
    unreachable_until: AtomicInstant,
    /// The end of the current test by a request whether it is reachable again.
    trial_until: AtomicInstant,
    ejected_until: AtomicInstant,
    /// When it came into use, or came back. None: in use from the start.
    back_since: AtomicInstant,
    /// How often it was ejected or became unreachable.
    ejections: AtomicU64,
    detail: Mutex<HostDetail>,
}

/// Details that only changes need.
#[derive(Debug, Default)]
struct HostDetail {
    /// Why no connection could be opened, why it was ejected, and why its last probe failed.
    unreachable: String,
    ejected: String,
    unhealthy: String,
    /// When the ejection began.
    ejected_since: Option<Instant>,
    /// When the last ejection ended.
    back_since: Option<Instant>,
    /// The length of the last ejection, as a multiple of the first.
    multiple: u32,
    /// When a connection last broke before the response.
    broken: Option<Instant>,
    /// `None`: it was not probed yet.
    last_probe: Option<ProbesInARow>,
    last_change: Option<HostChange>,
}

/// Probes in a row with the same result.
#[derive(Debug, Clone, Copy)]
struct ProbesInARow {
    is_success: bool,
    count: u32,
}

/// A change of a host: it gets no more requests, or gets them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    pub time: SystemTime,
    /// Whether it gets requests again, as far as `by` is concerned.
    pub is_healthy: bool,
    /// The change and its reason, as the end of a sentence that begins with the host.
    pub reason: String,
    pub by: ChangedBy,
}

/// The cause of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedBy {
    /// A request that opened a connection, or could not.
    Connection,
    /// Outlier detection.
    Outlier,
    /// A probe.
    Probe,
}

impl ChangedBy {
    /// The name in the admin API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Outlier => "outlier",
            Self::Probe => "probe",
        }
    }
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeFailure {
    pub(super) reason: String,
    /// Whether no connection could be opened.
    pub(super) is_unreachable: bool,
}

impl HostState {
    /// The state of a new host.
    pub(super) fn new(is_resolved: bool) -> Self {
        let faults = AtomicU8::new(if is_resolved { 0 } else { UNRESOLVED });
        Self { faults, ..Self::default() }
    }

    /// Counts a request that starts; [`HostState::request_ended`] must follow.
    pub(super) fn request_started(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Counts a request that is sent to the host, or for which no connection could be opened.
    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Requests since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Counts a request that failed because of the host.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Requests since the start that failed because of the host.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Probes since the start that failed.
    pub fn probe_failures(&self) -> u64 {
        self.probe_failures.load(Relaxed)
    }

    /// How fit the host is for a request now.
    #[inline]
    pub fn standing(&self, now: Instant) -> Standing {
        match self.faults.load(Relaxed) {
            0 => Standing::Usable,
            faults => self.standing_with(faults, now),
        }
    }

    #[cold]
    fn standing_with(&self, faults: u8, now: Instant) -> Standing {
        let is_unreachable = faults & UNREACHABLE != 0
            && (self.unreachable_until.is_after(now) || self.trial_until.is_after(now));
        if is_unreachable || faults & (UNREACHABLE_BY_PROBES | UNRESOLVED) != 0 {
            Standing::Unreachable
        } else if faults & UNHEALTHY != 0 || self.is_ejected(now) {
            Standing::Suspect
        } else {
            Standing::Usable
        }
    }

    /// Whether it is ejected for failed requests.
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.is_after(now)
    }

    /// Whether it has no known fault. A new host counts as healthy.
    pub fn is_healthy(&self) -> bool {
        self.faults.load(Relaxed) == 0
    }

    /// The error that keeps requests away. `None`: there is none.
    pub fn error(&self) -> Option<String> {
        let faults = self.faults.load(Relaxed);
        let detail = self.detail.lock();
        let of = |fault, reason: &String| (faults & fault != 0).then(|| reason.clone());
        of(UNREACHABLE, &detail.unreachable)
            .or_else(|| of(UNHEALTHY, &detail.unhealthy))
            .or_else(|| of(EJECTED, &detail.ejected))
    }

    /// Its state, never drained: endpoints are drained, not hosts.
    pub fn status(&self) -> EndpointState {
        match self.faults.load(Relaxed) {
            0 => EndpointState::Healthy,
            faults if faults & UNRESOLVED != 0 => EndpointState::Unresolved,
            faults if faults & UNREACHABLE != 0 => EndpointState::Unreachable,
            faults if faults & UNHEALTHY != 0 => EndpointState::Unhealthy,
            _ => EndpointState::Ejected,
        }
    }

    /// How often it was ejected or became unreachable.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// Requests that failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures.load(Relaxed)
    }

    /// Its last change. `None`: there was none.
    pub fn last_change(&self) -> Option<HostChange> {
        self.detail.lock().last_change.clone()
    }

    fn set(&self, fault: u8) -> bool {
        self.faults.fetch_or(fault, Relaxed) & fault == 0
    }

    fn clear(&self, fault: u8) -> bool {
        let before = self.faults.fetch_and(!fault, Relaxed);
        if before != 0 && before & !fault == 0 {
            self.came_back(Instant::now());
        }
        before & fault != 0
    }
}

/// Slow start.
impl HostState {
    /// Notes that it is in use, again or for the first time.
    pub(super) fn came_back(&self, now: Instant) {
        self.back_since.set(now);
    }

    /// Since when it is in use without a break. `None`: from the start.
    pub(super) fn in_use_since(&self) -> Option<Instant> {
        self.back_since.get().max(self.ejected_until.get()).max(self.unreachable_until.get())
    }
}

/// Connections.
impl HostState {
    /// A connection to it was opened.
    pub(super) fn connected(&self) -> Option<HostChange> {
        match self.faults.load(Relaxed) & (UNREACHABLE | UNREACHABLE_BY_PROBES) {
            0 => None,
            _ => self.reached(&mut self.detail.lock(), ChangedBy::Connection),
        }
    }

    fn reached(&self, detail: &mut HostDetail, by: ChangedBy) -> Option<HostChange> {
        self.unreachable_until.clear();
        self.trial_until.clear();
        self.clear(UNREACHABLE_BY_PROBES);
        self.clear(UNREACHABLE).then(|| detail.changed(true, "can be reached again".to_owned(), by))
    }

    /// Whether a request that has picked this host may be sent to it. If the host was unreachable, one request at a
    /// time tests whether it is back, for at most `within`: several would all wait in vain.
    #[inline]
    pub(super) fn admits(&self, now: Instant, within: Duration) -> bool {
        self.faults.load(Relaxed) & UNREACHABLE == 0 || self.begins_trial(now, within)
    }

    #[cold]
    fn begins_trial(&self, now: Instant, within: Duration) -> bool {
        // It was picked although it is left out: no other host can be reached, so each request tries.
        self.unreachable_until.is_after(now)
            || self.trial_until.is_after(now)
            || self.trial_until.set_if_over(now, now + within.max(UNREACHABLE_TIME))
    }

    /// No connection to it could be opened.
    pub(super) fn mark_unreachable(&self, error: String, now: Instant) -> Option<HostChange> {
        let mut detail = self.detail.lock();
        self.unreachable_until.set(now + UNREACHABLE_TIME);
        self.trial_until.clear();
        let change = self.set(UNREACHABLE).then(|| {
            self.ejections.fetch_add(1, Relaxed);
            let reason = format!("cannot be reached, and gets no requests while others can: {error}");
            detail.changed(false, reason, ChangedBy::Connection)
        });
        detail.unreachable = error;
        change
    }
}

/// Outcomes of requests.
impl HostState {
    /// Whether a success would change nothing, as is mostly the case.
    #[inline]
    pub(super) fn is_untroubled(&self) -> bool {
        self.faults.load(Relaxed) == 0 && self.failures.load(Relaxed) == 0
    }

    /// It responded, perhaps over an older connection: it may still accept no new one.
    pub(super) fn responded(&self, now: Instant) -> Option<HostChange> {
        if self.faults.load(Relaxed) & UNREACHABLE == 0 || self.unreachable_until.is_after(now) {
            return None;
        }
        self.reached(&mut self.detail.lock(), ChangedBy::Connection)
    }

    /// A request that began at `began` succeeded. It ends an ejection only if it began after that.
    pub(super) fn succeeded(&self, began: Instant, now: Instant) -> Option<HostChange> {
        self.failures.store(0, Relaxed);
        if self.faults.load(Relaxed) & EJECTED == 0 {
            return None;
        }
        let mut detail = self.detail.lock();
        let is_later = detail.ejected_since.is_some_and(|since| began > since);
        is_later
            .then(|| self.end_ejection(&mut detail, now, "is no longer ejected: it responds again"))
            .flatten()
    }

    /// A request failed. Returns the number of failures in a row. `None`: failures do not count now.
    pub(super) fn failed(&self, now: Instant) -> Option<u32> {
        // Not for requests from before the ejection, nor for those sent only because no other host was left.
        let counts = !self.is_ejected(now);
        counts.then(|| self.failures.fetch_add(1, Relaxed).saturating_add(1))
    }

    /// Whether a connection that broke under a request which began at `began` counts: several that break together count
    /// once.
    pub(super) fn counts_broken(&self, began: Instant, now: Instant) -> bool {
        let broken = &mut self.detail.lock().broken;
        let counts = broken.is_none_or(|before| began > before);
        if counts {
            *broken = Some(now);
        }
        counts
    }

    /// Resets the count of failures.
    pub(super) fn forget_failures(&self) {
        self.failures.store(0, Relaxed);
    }

    /// Ejects the host, for longer than the last time unless it has worked since.
    pub(super) fn eject(&self, settings: &OutlierDetection, reason: String, now: Instant) -> HostChange {
        let mut detail = self.detail.lock();
        let quiet = detail.back_since.map_or(Duration::ZERO, |back| now.saturating_duration_since(back));
        let forgotten = (quiet.as_micros() / settings.eject.as_micros().max(1)).min(u128::from(MAX_EJECTION));
        // In range: at most ten.
        let multiple = detail.multiple.saturating_sub(forgotten as u32) + 1;
        detail.multiple = multiple.min(MAX_EJECTION);
        let length = settings.eject.saturating_mul(detail.multiple);
        self.forget_failures();
        self.ejected_until.set(now + length);
        self.set(EJECTED);
        self.ejections.fetch_add(1, Relaxed);
        detail.ejected_since = Some(now);
        let text = format!("is ejected for {}: {reason}", format_duration(length));
        detail.ejected = reason;
        detail.changed(false, text, ChangedBy::Outlier)
    }

    /// The end of its ejection, if it is ejected.
    pub(super) fn ejected_until(&self) -> Option<Instant> {
        self.ejected_until.get()
    }

    /// Ends its ejection if the time is over.
    pub(super) fn settle(&self, now: Instant) -> Option<HostChange> {
        if self.faults.load(Relaxed) & EJECTED == 0 || self.is_ejected(now) {
            return None;
        }
        self.end_ejection(&mut self.detail.lock(), now, "is no longer ejected: the time is over")
    }

    /// Ends its ejection early. `why`: the end of a sentence.
    pub(super) fn readmit(&self, now: Instant, why: &str) -> Option<HostChange> {
        self.end_ejection(&mut self.detail.lock(), now, &format!("is no longer ejected: {why}"))
    }

    fn end_ejection(&self, detail: &mut HostDetail, now: Instant, reason: &str) -> Option<HostChange> {
        // The ejection may have ended in the meantime.
        if !self.clear(EJECTED) {
            return None;
        }
        self.forget_failures();
        let until = self.ejected_until.get().map_or(now, |until| until.min(now));
        detail.back_since = Some(until);
        detail.ejected_since = None;
        self.ejected_until.clear();
        Some(detail.changed(true, reason.to_owned(), ChangedBy::Outlier))
    }
}

/// Results of probes.
impl HostState {
    /// Notes the result of a probe. The first one alone decides.
    pub(super) fn probed(
        &self,
        result: Result<(), ProbeFailure>,
        settings: &HealthCheck,
    ) -> Option<HostChange> {
        let mut detail = self.detail.lock();
        let is_success = result.is_ok();
        let count = match detail.last_probe {
            Some(last) if last.is_success == is_success => last.count.saturating_add(1),
            _ => 1,
        };
        let is_first = detail.last_probe.is_none();
        detail.last_probe = Some(ProbesInARow { is_success, count });
        let probes = |what: &str| match count {
            1 => format!("a probe {what}"),
            _ => format!("{count} probes in a row {what}"),
        };
        match result {
            Ok(()) => {
                let reached = self.reached(&mut detail, ChangedBy::Probe);
                let is_healthy = (is_first || count >= settings.healthy) && self.clear(UNHEALTHY);
                let healthy = is_healthy.then(|| {
                    let reason = format!("is healthy again: {}", probes("succeeded"));
                    detail.changed(true, reason, ChangedBy::Probe)
                });
                healthy.or(reached)
            }
            Err(ProbeFailure { reason, is_unreachable }) => {
                self.probe_failures.fetch_add(1, Relaxed);
                let is_unhealthy = (is_first || count >= settings.unhealthy) && self.set(UNHEALTHY);
                if is_unreachable && self.faults.load(Relaxed) & UNHEALTHY != 0 {
                    self.set(UNREACHABLE_BY_PROBES);
                } else {
                    self.clear(UNREACHABLE_BY_PROBES);
                }
                let change = is_unhealthy.then(|| {
                    let which = if count > 1 { ", the last" } else { "" };
                    let reason = format!("is unhealthy: {}{which}: {reason}", probes("failed"));
                    detail.changed(false, reason, ChangedBy::Probe)
                });
                detail.unhealthy = format!("{}: {reason}", probes("failed"));
                change
            }
        }
    }
}

/// Changes of the checks.
impl HostState {
    /// It is probed with other settings from now on: the first probe alone decides. `is_probed`: whether it is probed
    /// at all.
    pub(super) fn checks_changed(&self, is_probed: bool) -> Option<HostChange> {
        let mut detail = self.detail.lock();
        detail.last_probe = None;
        if is_probed {
            return None;
        }
        self.clear(UNREACHABLE_BY_PROBES);
        let reason = "is no longer unhealthy: it is not checked any more";
        self.clear(UNHEALTHY).then(|| detail.changed(true, reason.to_owned(), ChangedBy::Probe))
    }
}

impl HostDetail {
    fn changed(&mut self, is_healthy: bool, reason: String, by: ChangedBy) -> HostChange {
        let change = HostChange { time: SystemTime::now(), is_healthy, reason, by };
        self.last_change = Some(change.clone());
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::Probe;

    const SETTINGS: OutlierDetection =
        OutlierDetection { failures: 5, eject: Duration::from_secs(30), at_most: 0.5 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn eject(host: &HostState, now: Instant) -> Duration {
        host.eject(&SETTINGS, "5 failures".to_owned(), now);
        let until = host.ejected_until().unwrap();
        let length = until.saturating_duration_since(now);
        // Up to the next millisecond: the time is kept in microseconds.
        Duration::from_millis(u64::try_from(length.as_micros().div_ceil(1_000)).unwrap())
    }

    fn failure(reason: &str) -> Result<(), ProbeFailure> {
        Err(ProbeFailure { reason: reason.to_owned(), is_unreachable: false })
    }

    fn checks(healthy: u32, unhealthy: u32) -> HealthCheck {
        HealthCheck { probe: Probe::Tcp, interval: seconds(5), timeout: seconds(1), healthy, unhealthy }
    }

    #[test]
    fn a_host_that_can_t_be_reached_is_left_out_for_a_second_and_down_until_it_is() {
        let (host, now) = (HostState::default(), Instant::now());
        assert_eq!((host.standing(now), host.status()), (Standing::Usable, EndpointState::Healthy));
        assert!(host.mark_unreachable("nobody listens".into(), now).is_some_and(|change| !change.is_healthy));
        assert_eq!(host.mark_unreachable("it is silent".into(), now), None, "it was");
        assert_eq!((host.standing(now), host.status()), (Standing::Unreachable, EndpointState::Unreachable));
        assert_eq!(host.standing(now + UNREACHABLE_TIME), Standing::Usable);
        assert_eq!((host.error().as_deref(), host.ejections()), (Some("it is silent"), 1));
        // A response over an older connection.
        assert_eq!((host.responded(now), host.succeeded(now, now)), (None, None));
        assert_eq!(host.standing(now), Standing::Unreachable);
        assert!(host.connected().is_some_and(|change| change.is_healthy));
        assert_eq!((host.standing(now), host.error()), (Standing::Usable, None));
        assert_eq!(host.connected(), None);
    }

    #[test]
    fn one_request_at_a_time_finds_out_whether_a_host_is_back() {
        let (host, now) = (HostState::default(), Instant::now());
        assert!(host.admits(now, seconds(5)) && host.admits(now, seconds(5)), "nothing is known against it");
        host.mark_unreachable("it is silent".into(), now);
        assert!(host.admits(now, seconds(5)), "it is left out: who chooses it all the same may");
        let later = now + UNREACHABLE_TIME;
        assert_eq!(host.standing(later), Standing::Usable);
        assert!(host.admits(later, seconds(5)));
        assert_eq!(host.standing(later), Standing::Unreachable, "until that one knows");
        assert_eq!(host.standing(later + seconds(4)), Standing::Unreachable);
        assert_eq!(host.standing(later + seconds(5)), Standing::Usable, "it never told");
        assert!(host.admits(later + seconds(5), seconds(5)));
        host.mark_unreachable("it is silent".into(), later + seconds(6));
        assert_eq!(host.standing(later + seconds(7)), Standing::Usable, "a second after it failed");
        assert!(host.admits(later + seconds(7), seconds(5)) && host.connected().is_some());
        assert_eq!(host.standing(later + seconds(7)), Standing::Usable);
    }

    #[test]
    fn other_checks_decide_anew() {
        let (host, checks) = (HostState::default(), checks(2, 3));
        host.probed(failure("500"), &checks);
        assert_eq!(host.checks_changed(true), None);
        assert_eq!(host.status(), EndpointState::Unhealthy, "until the first of them");
        assert!(host.probed(Ok(()), &checks).is_some_and(|change| change.is_healthy));
        host.checks_changed(true);
        host.probed(failure("500"), &checks);
        assert!(host.checks_changed(false).is_some_and(|change| change.is_healthy));
        assert!(host.is_healthy());
    }

    #[test]
    fn ejections_grow_and_are_forgotten() {
        let (host, mut now) = (HostState::default(), Instant::now());
        for times in 1..=12 {
            let length = eject(&host, now);
            assert_eq!(length, seconds(30) * times.min(10), "ejection {times}");
            assert_eq!(host.standing(now), Standing::Suspect);
            now += length;
            assert_eq!(host.standing(now), Standing::Usable);
            assert!(host.settle(now).is_some_and(|change| change.is_healthy));
            assert_eq!(host.settle(now), None);
        }
        now += seconds(30 * 4);
        assert_eq!(eject(&host, now), seconds(30) * 7, "ten, less four, and one");
        host.readmit(now, "too few hosts are left");
        now += seconds(3_600);
        assert_eq!(eject(&host, now), seconds(30));
    }

    #[test]
    fn only_a_request_from_after_the_ejection_ends_it() {
        let (host, now) = (HostState::default(), Instant::now());
        eject(&host, now);
        assert_eq!(host.failed(now), None, "it is ejected already");
        assert_eq!(host.succeeded(now - seconds(1), now), None);
        assert_eq!(host.standing(now), Standing::Suspect);
        let change = host.succeeded(now + seconds(1), now + seconds(2)).unwrap();
        assert_eq!((change.is_healthy, change.by), (true, ChangedBy::Outlier));
        assert_eq!(host.standing(now), Standing::Usable);
    }

    #[test]
    fn connections_that_break_together_count_once() {
        let (host, now) = (HostState::default(), Instant::now());
        assert!(host.counts_broken(now, now + seconds(1)));
        assert!(!host.counts_broken(now, now + seconds(1)));
        assert!(host.counts_broken(now + seconds(2), now + seconds(2)));
    }

    #[test]
    fn the_first_probe_decides_alone_and_later_ones_in_a_row() {
        let (host, checks, now) = (HostState::default(), checks(2, 3), Instant::now());
        assert_eq!(host.probed(Ok(()), &checks), None);
        assert_eq!(host.probed(failure("500"), &checks), None);
        assert_eq!(host.probed(failure("500"), &checks), None);
        assert_eq!(host.probed(Ok(()), &checks), None, "the row is broken");
        assert_eq!(host.probed(failure("500"), &checks), None);
        assert_eq!(host.probed(failure("501"), &checks), None);
        let change = host.probed(failure("502"), &checks).unwrap();
        assert_eq!(change.reason, "is unhealthy: 3 probes in a row failed, the last: 502");
        assert_eq!((host.standing(now), host.status()), (Standing::Suspect, EndpointState::Unhealthy));
        assert_eq!(host.probed(failure("503"), &checks), None);
        assert_eq!(host.error().unwrap(), "4 probes in a row failed: 503");
        assert_eq!(host.probed(Ok(()), &checks), None);
        assert_eq!(host.standing(now), Standing::Suspect);
        let change = host.probed(Ok(()), &checks).unwrap();
        assert_eq!(change.reason, "is healthy again: 2 probes in a row succeeded");
        assert_eq!((host.standing(now), host.last_change()), (Standing::Usable, Some(change)));

        let new = HostState::default();
        let change = new.probed(failure("500"), &checks).unwrap();
        assert_eq!(change.reason, "is unhealthy: a probe failed: 500");
    }

    #[test]
    fn a_host_that_no_probe_can_connect_to_is_the_last_choice_until_anybody_can() {
        let (host, checks, now) = (HostState::default(), checks(2, 1), Instant::now());
        let refused = ProbeFailure { reason: "refused".into(), is_unreachable: true };
        assert!(host.probed(Err(refused.clone()), &checks).is_some());
        assert_eq!(host.standing(now), Standing::Unreachable);
        assert_eq!(host.connected(), None, "the probes decide");
        assert_eq!(host.standing(now), Standing::Suspect);
        host.probed(Err(refused), &checks);
        assert_eq!(host.standing(now), Standing::Unreachable);
        host.probed(Ok(()), &checks);
        assert_eq!(host.standing(now), Standing::Suspect);
        host.probed(Ok(()), &checks);
        assert_eq!(host.standing(now), Standing::Usable);
    }
}
