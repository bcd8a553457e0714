//! What is on the screen: made of what the admin port told, and of what keys asked for.

use std::time::Instant;

use super::{
    super::client::Failure,
    asker::{Change, Job, Learned, Told},
    history::History,
    rates::Rates,
    snapshot::Snapshot,
};
use crate::{abuse::Sort, admin::dto::Evidence};

#[derive(Debug)]
pub(super) struct App {
    /// Where the admin port is, as it was asked for.
    pub(super) admin: String,
    pub(super) latest: Option<Snapshot>,
    pub(super) rates: Rates,
    pub(super) history: History,
    pub(super) sort: Sort,
    /// The address that keys are about: its place in the list, which it keeps when the list is sorted anew.
    pub(super) selected: usize,
    /// The address that is looked at closely.
    pub(super) opened: Option<Opened>,
    /// What is to be confirmed.
    pub(super) question: Option<Change>,
    pub(super) is_help: bool,
    pub(super) is_paused: bool,
    /// What came of the last change.
    pub(super) notice: Option<String>,
    /// Why it is not known how things stand.
    pub(super) trouble: Option<String>,
    /// When the latest was told.
    told: Option<Instant>,
    /// It was asked, and not told yet.
    is_asked: bool,
}

/// An address, and what is known of it: nothing yet, its evidence, or why there is none.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) address: String,
    pub(super) evidence: Option<Result<Evidence, String>>,
    /// Records above the first one that is shown.
    pub(super) scrolled: usize,
}

impl App {
    pub(super) fn new(admin: String) -> Self {
        Self {
            admin,
            latest: None,
            rates: Rates::default(),
            history: History::default(),
            sort: Sort::Denied,
            selected: 0,
            opened: None,
            question: None,
            is_help: false,
            is_paused: false,
            notice: None,
            trouble: None,
            told: None,
            is_asked: false,
        }
    }

    /// The address that keys are about.
    pub(super) fn address(&self) -> Option<&str> {
        match (&self.opened, &self.latest) {
            (Some(opened), _) => Some(&opened.address),
            (None, Some(latest)) => latest.blocked.get(self.selected).map(|blocked| blocked.address.as_str()),
            (None, None) => None,
        }
    }

    /// What to ask once a second; nothing while the last answer is waited for, or time stands still.
    pub(super) fn tick(&mut self) -> Option<Job> {
        if self.is_paused || self.is_asked { None } else { Some(self.look()) }
    }

    /// Asks how things stand.
    pub(super) fn look(&mut self) -> Job {
        self.is_asked = true;
        Job::Look { sort: self.sort, address: self.opened.as_ref().map(|opened| opened.address.clone()) }
    }

    /// Takes what was told at `now`, and says what to ask next.
    ///
    /// # Errors
    /// What asking again does not heal.
    pub(super) fn hear(&mut self, told: Told, now: Instant) -> Result<Option<Job>, Failure> {
        match told {
            Told::Stands { snapshot, evidence } => {
                self.is_asked = false;
                self.stands(*snapshot, now);
                self.learn(evidence.map(|learned| *learned));
                Ok(None)
            }
            Told::Changed(text) => {
                self.notice = Some(text);
                Ok(Some(self.look()))
            }
            Told::NoLook(failure) => {
                self.is_asked = false;
                self.trouble = Some(curable(failure)?);
                self.rates = Rates::default();
                self.history.note(None);
                Ok(None)
            }
            Told::NoChange(failure) => {
                self.notice = Some(curable(failure)?);
                Ok(None)
            }
        }
    }

    fn stands(&mut self, snapshot: Snapshot, now: Instant) {
        let elapsed = self.told.map(|before| now.saturating_duration_since(before));
        self.rates = match (&self.latest, elapsed) {
            (Some(before), Some(elapsed)) => Rates::between(before, &snapshot, elapsed),
            _ => Rates::default(),
        };
        self.history.note(self.rates.total);
        let selected = self.latest.as_ref().and_then(|latest| latest.blocked.get(self.selected));
        let again = selected.and_then(|of| snapshot.blocked.iter().position(|now| now.address == of.address));
        let last = snapshot.blocked.len().saturating_sub(1);
        self.selected = again.unwrap_or(self.selected).min(last);
        (self.latest, self.told, self.trouble) = (Some(snapshot), Some(now), None);
    }

    fn learn(&mut self, told: Option<Learned>) {
        if let (Some(opened), Some((address, evidence))) = (&mut self.opened, told)
            && opened.address == address
        {
            let last = evidence.as_ref().map_or(0, |evidence| evidence.records.len().saturating_sub(1));
            opened.scrolled = opened.scrolled.min(last);
            opened.evidence = Some(evidence);
        }
    }
}

/// Why there is no answer, where there may be one soon.
fn curable(failure: Failure) -> Result<String, Failure> {
    match failure {
        Failure::Unauthorized(_) | Failure::WrongToken(_) | Failure::Url(_) | Failure::Token => Err(failure),
        other => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::testing, *};

    fn stands(snapshot: Snapshot) -> Told {
        Told::Stands { snapshot: Box::new(snapshot), evidence: None }
    }

    #[test]
    fn it_is_asked_once_at_a_time_and_not_while_it_is_paused() {
        let mut app = App::new(String::new());
        assert_eq!(app.tick(), Some(Job::Look { sort: Sort::Denied, address: None }));
        assert_eq!(app.tick(), None, "the answer is waited for");
        assert!(app.hear(stands(testing::snapshot()), Instant::now()).unwrap().is_none());
        app.is_paused = true;
        assert_eq!(app.tick(), None);
        app.is_paused = false;
        assert!(app.tick().is_some());
    }

    #[test]
    fn two_answers_make_rates_and_a_failure_ends_them() {
        let (mut app, now) = (App::new(String::new()), Instant::now());
        app.hear(stands(testing::snapshot()), now).unwrap();
        assert_eq!(app.rates.total, None);
        let mut later = testing::snapshot();
        later.routes[0].requests += 50;
        app.hear(stands(later), now + Duration::from_secs(2)).unwrap();
        assert_eq!(app.rates.total.unwrap().requests, 25.0);
        assert_eq!(app.history.requests().collect::<Vec<_>>(), [Some(2_500), None]);

        let away = Failure::Refused("away".to_owned());
        app.hear(Told::NoLook(away), now + Duration::from_secs(3)).unwrap();
        assert_eq!((app.trouble.as_deref(), app.rates.total), (Some("away"), None));
        assert!(app.latest.is_some(), "the last figures stay");
        assert!(app.tick().is_some(), "it is asked again");
        app.hear(stands(testing::snapshot()), now + Duration::from_secs(4)).unwrap();
        assert_eq!(app.trouble, None);
    }

    #[test]
    fn a_wrong_token_ends_it() {
        let mut app = App::new(String::new());
        for refused in [Failure::Unauthorized, Failure::WrongToken] {
            let refused = || refused("127.0.0.1:9900".to_owned());
            assert!(app.hear(Told::NoLook(refused()), Instant::now()).is_err());
            assert!(app.hear(Told::NoChange(refused()), Instant::now()).is_err());
        }
    }

    #[test]
    fn the_selection_stays_with_its_address() {
        let mut app = App::new(String::new());
        app.hear(stands(testing::snapshot()), Instant::now()).unwrap();
        app.selected = 1;
        let address = app.address().unwrap().to_owned();
        let mut sorted = testing::snapshot();
        sorted.blocked.reverse();
        sorted.blocked.rotate_left(1);
        app.hear(stands(sorted), Instant::now()).unwrap();
        assert_eq!((app.selected, app.address()), (0, Some(address.as_str())));

        app.selected = 2;
        let mut fewer = testing::snapshot();
        fewer.blocked.truncate(1);
        app.hear(stands(fewer), Instant::now()).unwrap();
        assert_eq!((app.selected, app.address()), (0, Some("203.0.113.7")));
        let mut none = testing::snapshot();
        none.blocked.clear();
        app.hear(stands(none), Instant::now()).unwrap();
        assert_eq!(app.address(), None);
    }

    #[test]
    fn what_was_changed_is_told_and_looked_at_anew() {
        let mut app = App::new(String::new());
        let job = app.hear(Told::Changed("done".to_owned()), Instant::now()).unwrap();
        assert!(matches!(job, Some(Job::Look { .. })));
        assert_eq!(app.notice.as_deref(), Some("done"));
        let refused = Failure::Refused("not limited".to_owned());
        assert!(app.hear(Told::NoChange(refused), Instant::now()).unwrap().is_none());
        assert_eq!(app.notice.as_deref(), Some("not limited"));
    }
}
