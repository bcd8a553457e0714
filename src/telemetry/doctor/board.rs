//! The warnings that hold: each comes up once and goes once, however often it is found meanwhile.

use std::time::{Duration, Instant};

use super::{
    pace::Pace,
    rules::{Finding, Subject},
};

/// What holds, and what may come to.
#[derive(Debug)]
pub(super) struct Board {
    pace: Pace,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    finding: Finding,
    first: Instant,
    last: Instant,
    is_raised: bool,
}

/// A warning came up, or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) finding: Finding,
    pub(super) is_raised: bool,
}

impl Board {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, entries: Vec::new() }
    }

    /// Takes what is found now; gives what has changed.
    pub(super) fn update(&mut self, findings: Vec<Finding>, now: Instant) -> Vec<Change> {
        for finding in findings {
            match self.entries.iter_mut().find(|entry| entry.finding.subject == finding.subject) {
                Some(entry) => (entry.finding.text, entry.last) = (finding.text, now),
                None => self.entries.push(Entry { finding, first: now, last: now, is_raised: false }),
            }
        }
        let mut changes = Vec::new();
        for entry in &mut self.entries {
            let is_due = now.duration_since(entry.first) >= incubation(&entry.finding.subject, self.pace);
            if !entry.is_raised && entry.last == now && is_due {
                entry.is_raised = true;
                changes.push(Change { finding: entry.finding.clone(), is_raised: true });
            }
        }
        let pace = self.pace;
        self.entries.retain(|entry| {
            let well = now.duration_since(entry.last);
            let limit =
                if entry.is_raised { convalescence(&entry.finding.subject, pace) } else { Duration::ZERO };
            let stays = well.is_zero() || well < limit;
            if !stays && entry.is_raised {
                changes.push(Change { finding: entry.finding.clone(), is_raised: false });
            }
            stays
        });
        changes
    }

    /// The warnings that hold, but for those that the store tells itself.
    pub(super) fn texts(&self) -> Vec<String> {
        let own = |entry: &&Entry| entry.is_raised && !matches!(entry.finding.subject, Subject::Store(_));
        self.entries.iter().filter(own).map(|entry| entry.finding.text.clone()).collect()
    }
}

/// How long something has to hold before it is said. Traffic is counted over a minute anyway.
fn incubation(subject: &Subject, pace: Pace) -> Duration {
    match subject {
        // Instances are renewed one after the other.
        Subject::Configurations | Subject::Versions => pace.minute(),
        _ => Duration::ZERO,
    }
}

/// How long something has to be well before that is said.
fn convalescence(subject: &Subject, pace: Pace) -> Duration {
    match subject {
        Subject::Store(_) => Duration::ZERO,
        Subject::Configurations | Subject::Versions => pace.beat() * 2,
        _ => pace.convalescence(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn finding(subject: &Subject, text: &str) -> Vec<Finding> {
        vec![Finding { subject: subject.clone(), text: text.to_owned() }]
    }

    fn raised(changes: &[Change]) -> Vec<bool> {
        changes.iter().map(|change| change.is_raised).collect()
    }

    #[test]
    fn a_warning_comes_up_once_and_goes_when_it_was_well_for_a_while() {
        let (mut board, start) = (Board::new(Pace::of(MINUTE)), Instant::now());
        let subject = Subject::PrivateClients;
        assert_eq!(raised(&board.update(finding(&subject, "a"), start)), [true]);
        assert_eq!(board.update(finding(&subject, "b"), start + MINUTE), []);
        assert_eq!(board.texts(), ["b"]);
        // It comes and goes: nothing is said of that.
        assert_eq!(board.update(vec![], start + MINUTE * 2), []);
        assert_eq!(board.update(finding(&subject, "c"), start + MINUTE * 3), []);
        assert_eq!(board.update(vec![], start + MINUTE * 7), []);
        assert_eq!(board.texts(), ["c"]);
        assert_eq!(raised(&board.update(vec![], start + MINUTE * 8)), [false]);
        assert_eq!(board.texts(), [""; 0]);
        assert_eq!(board.update(vec![], start + MINUTE * 9), []);
    }

    #[test]
    fn what_a_renewal_brings_about_has_a_minute() {
        let (mut board, start) = (Board::new(Pace::of(MINUTE)), Instant::now());
        let subject = Subject::Configurations;
        assert_eq!(board.update(finding(&subject, "a"), start), []);
        assert_eq!(board.update(vec![], start + MINUTE / 2), []);
        // It begins anew.
        assert_eq!(board.update(finding(&subject, "a"), start + MINUTE), []);
        assert_eq!(board.texts(), [""; 0]);
        assert_eq!(raised(&board.update(finding(&subject, "a"), start + MINUTE * 2)), [true]);
        assert_eq!(raised(&board.update(vec![], start + MINUTE * 3)), [false]);
    }

    #[test]
    fn what_the_store_says_comes_and_goes_with_it() {
        let (mut board, start) = (Board::new(Pace::of(MINUTE)), Instant::now());
        let subject = Subject::Store("a".into());
        assert_eq!(raised(&board.update(finding(&subject, "a"), start)), [true]);
        assert_eq!(board.texts(), [""; 0], "it is told from the store as it stands");
        assert_eq!(raised(&board.update(vec![], start + Duration::from_secs(1))), [false]);
    }
}
