//! The active warnings: each is raised once and cleared once, however often it is found in between.

use std::{
    env,
    time::{Duration, Instant},
};

use super::finding::{Finding, Subject};

/// Samples per minute.
pub(super) const SAMPLES: u32 = 60;
/// Minutes without a finding after which most warnings are cleared.
const CLEAR_MINUTES: u32 = 5;

/// The length of a minute for the diagnostics. Tests shorten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    minute: Duration,
}

impl Timing {
    /// A real minute, unless tests set `TOLLGATE_DOCTOR_MINUTE_MS`.
    pub fn from_environment() -> Self {
        let millis = env::var("TOLLGATE_DOCTOR_MINUTE_MS").ok().and_then(|text| text.parse().ok());
        Self::new(Duration::from_millis(millis.unwrap_or(60_000)))
    }

    /// `minute` is at least 60 ms.
    pub(super) fn new(minute: Duration) -> Self {
        Self { minute: minute.max(Duration::from_millis(60)) }
    }

    /// Time between two samples.
    pub(super) fn interval(self) -> Duration {
        self.minute / SAMPLES
    }

    /// Minimum time between two events about the same endpoint, name or file, so that a flapping one does not bury
    /// other events.
    pub(super) fn event_pause(self) -> Duration {
        self.minute / 6
    }

    /// Time that a finding must persist before its warning is raised; zero for traffic, which is a count over a minute.
    fn raise_after(self, subject: &Subject) -> Duration {
        match subject {
            // A rolling update replaces instances one after the other.
            Subject::Configurations | Subject::Versions => self.minute,
            // A single DNS failure does no harm.
            Subject::StaleAddresses { .. } => self.minute / 2,
            // Two rounds must find it: an endpoint may flap, and a store is unknown at first.
            Subject::UnreachableEndpoint { .. }
            | Subject::UnusableUpstream(_)
            | Subject::FewEndpoints(_)
            | Subject::UnavailableStore(_) => self.interval(),
            _ => Duration::ZERO,
        }
    }

    /// Time that a finding must be absent before its warning is cleared.
    fn clear_after(self, subject: &Subject) -> Duration {
        match subject {
            Subject::Store(_)
            | Subject::UnreachableEndpoint { .. }
            | Subject::UnusableUpstream(_)
            | Subject::FewEndpoints(_)
            | Subject::UnavailableStore(_)
            | Subject::CertificateExpiry(_)
            | Subject::InvalidCertificate(_)
            | Subject::TlsReload(_)
            | Subject::KeySet(_)
            | Subject::KeysFile
            | Subject::History
            | Subject::HistorySpool
            | Subject::HistoryClock
            | Subject::HistoryMonth(_)
            | Subject::Alerts(_)
            | Subject::AlertsFault
            | Subject::StaleAddresses { .. } => Duration::ZERO,
            Subject::Configurations | Subject::Versions => self.interval() * 2,
            Subject::FailingRoute(_) => self.interval() * 5,
            _ => self.minute * CLEAR_MINUTES,
        }
    }
}

/// The raised warnings, and findings that have not persisted long enough yet.
#[derive(Debug)]
pub(super) struct ActiveWarnings {
    timing: Timing,
    entries: Vec<WarningEntry>,
}

#[derive(Debug)]
struct WarningEntry {
    finding: Finding,
    first_found: Instant,
    last_found: Instant,
    is_raised: bool,
}

/// A warning was raised, or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarningChange {
    pub(super) finding: Finding,
    pub(super) is_raised: bool,
}

impl ActiveWarnings {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, entries: Vec::new() }
    }

    /// Takes all findings of one round; returns the warnings that this raises or clears.
    pub(super) fn update(&mut self, findings: Vec<Finding>, now: Instant) -> Vec<WarningChange> {
        for finding in findings {
            match self.entries.iter_mut().find(|entry| entry.finding.subject == finding.subject) {
                Some(entry) => (entry.finding.text, entry.last_found) = (finding.text, now),
                None => {
                    let entry = WarningEntry { finding, first_found: now, last_found: now, is_raised: false };
                    self.entries.push(entry);
                }
            }
        }
        let timing = self.timing;
        let mut changes = Vec::new();
        for entry in &mut self.entries {
            let persisted = now.duration_since(entry.first_found);
            let is_due = persisted >= timing.raise_after(&entry.finding.subject);
            if !entry.is_raised && entry.last_found == now && is_due {
                entry.is_raised = true;
                changes.push(WarningChange { finding: entry.finding.clone(), is_raised: true });
            }
        }
        self.entries.retain(|entry| {
            let absent = now.duration_since(entry.last_found);
            let limit =
                if entry.is_raised { timing.clear_after(&entry.finding.subject) } else { Duration::ZERO };
            let is_kept = absent.is_zero() || absent < limit;
            if !is_kept && entry.is_raised {
                changes.push(WarningChange { finding: entry.finding.clone(), is_raised: false });
            }
            is_kept
        });
        changes
    }

    /// The raised warnings and when each was first found, except those that the store reports itself.
    pub(super) fn raised(&self) -> impl Iterator<Item = (&Finding, Instant)> {
        let own =
            |entry: &&WarningEntry| entry.is_raised && !matches!(entry.finding.subject, Subject::Store(_));
        self.entries.iter().filter(own).map(|entry| (&entry.finding, entry.first_found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn finding(subject: &Subject, text: &str) -> Vec<Finding> {
        vec![Finding { subject: subject.clone(), text: text.to_owned() }]
    }

    fn texts(warnings: &ActiveWarnings) -> Vec<&str> {
        warnings.raised().map(|(finding, _)| finding.text.as_str()).collect()
    }

    fn raised(changes: &[WarningChange]) -> Vec<bool> {
        changes.iter().map(|change| change.is_raised).collect()
    }

    #[test]
    fn a_warning_is_raised_once_and_cleared_after_five_minutes_without_a_finding() {
        let (mut warnings, start) = (ActiveWarnings::new(Timing::new(MINUTE)), Instant::now());
        let subject = Subject::PrivateClients;
        assert_eq!(raised(&warnings.update(finding(&subject, "a"), start)), [true]);
        assert_eq!(warnings.update(finding(&subject, "b"), start + MINUTE), []);
        assert_eq!(texts(&warnings), ["b"]);
        // A finding that flaps changes nothing.
        assert_eq!(warnings.update(vec![], start + MINUTE * 2), []);
        assert_eq!(warnings.update(finding(&subject, "c"), start + MINUTE * 3), []);
        assert_eq!(warnings.update(vec![], start + MINUTE * 7), []);
        assert_eq!(texts(&warnings), ["c"]);
        assert_eq!(raised(&warnings.update(vec![], start + MINUTE * 8)), [false]);
        assert_eq!(texts(&warnings), [""; 0]);
        assert_eq!(warnings.update(vec![], start + MINUTE * 9), []);
    }

    #[test]
    fn a_rolling_update_has_a_minute_before_a_warning_is_raised() {
        let (mut warnings, start) = (ActiveWarnings::new(Timing::new(MINUTE)), Instant::now());
        let subject = Subject::Configurations;
        assert_eq!(warnings.update(finding(&subject, "a"), start), []);
        assert_eq!(warnings.update(vec![], start + MINUTE / 2), []);
        // The minute begins anew.
        assert_eq!(warnings.update(finding(&subject, "a"), start + MINUTE), []);
        assert_eq!(texts(&warnings), [""; 0]);
        assert_eq!(raised(&warnings.update(finding(&subject, "a"), start + MINUTE * 2)), [true]);
        assert_eq!(raised(&warnings.update(vec![], start + MINUTE * 3)), [false]);
    }

    #[test]
    fn warnings_of_the_store_are_raised_and_cleared_with_its_own() {
        let (mut warnings, start) = (ActiveWarnings::new(Timing::new(MINUTE)), Instant::now());
        let subject = Subject::Store("a".into());
        assert_eq!(raised(&warnings.update(finding(&subject, "a"), start)), [true]);
        assert_eq!(texts(&warnings), [""; 0], "the store lists it itself");
        assert_eq!(raised(&warnings.update(vec![], start + Duration::from_secs(1))), [false]);
    }
}
