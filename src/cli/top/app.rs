//! The state of the screen, which responses of the admin port and keys change.

use std::time::Instant;

use super::{
    super::client::AdminError,
    admin_client::{AddressChange, AddressEvidence, AdminRequest, AdminResponse},
    rates::{RateHistory, Rates},
    snapshot::Snapshot,
};
use crate::{abuse::Sort, admin::dto::Evidence};

#[derive(Debug)]
pub(super) struct TopApp {
    /// The URL of the admin port, as given.
    pub(super) admin: String,
    pub(super) latest: Option<Snapshot>,
    pub(super) rates: Rates,
    pub(super) history: RateHistory,
    pub(super) sort: Sort,
    /// The index of the selected address. It follows the address when the order changes.
    pub(super) selected: usize,
    /// The address whose evidence is shown.
    pub(super) opened: Option<OpenAddress>,
    /// The change that waits for its confirmation.
    pub(super) to_confirm: Option<AddressChange>,
    pub(super) is_help: bool,
    pub(super) is_paused: bool,
    /// The outcome of the last change.
    pub(super) notice: Option<String>,
    /// Why the last refresh failed.
    pub(super) refresh_error: Option<String>,
    /// When the latest snapshot arrived.
    refreshed: Option<Instant>,
    /// Whether a refresh is in progress.
    is_refreshing: bool,
}

/// An open address, with its evidence or the error once loaded.
#[derive(Debug)]
pub(super) struct OpenAddress {
    pub(super) address: String,
    pub(super) evidence: Option<Result<Evidence, String>>,
    /// Records above the first one that is shown.
    pub(super) scrolled: usize,
}

impl TopApp {
    pub(super) fn new(admin: String) -> Self {
        Self {
            admin,
            latest: None,
            rates: Rates::default(),
            history: RateHistory::default(),
            sort: Sort::Denied,
            selected: 0,
            opened: None,
            to_confirm: None,
            is_help: false,
            is_paused: false,
            notice: None,
            refresh_error: None,
            refreshed: None,
            is_refreshing: false,
        }
    }

    /// The address that is open or selected.
    pub(super) fn address(&self) -> Option<&str> {
        match (&self.opened, &self.latest) {
            (Some(opened), _) => Some(&opened.address),
            (None, Some(latest)) => latest.blocked.get(self.selected).map(|blocked| blocked.address.as_str()),
            (None, None) => None,
        }
    }

    /// The request to send each second: none while a refresh is in progress or updates are paused.
    pub(super) fn tick(&mut self) -> Option<AdminRequest> {
        if self.is_paused || self.is_refreshing { None } else { Some(self.refresh()) }
    }

    /// Requests a refresh.
    pub(super) fn refresh(&mut self) -> AdminRequest {
        self.is_refreshing = true;
        AdminRequest::Refresh {
            sort: self.sort,
            address: self.opened.as_ref().map(|opened| opened.address.clone()),
        }
    }

    /// Handles a response received at `now`; returns the next request.
    ///
    /// # Errors
    /// A permanent failure.
    pub(super) fn handle(
        &mut self,
        response: AdminResponse,
        now: Instant,
    ) -> Result<Option<AdminRequest>, AdminError> {
        match response {
            AdminResponse::Refreshed { snapshot, evidence } => {
                self.is_refreshing = false;
                self.show_snapshot(*snapshot, now);
                self.show_evidence(evidence.map(|evidence| *evidence));
                Ok(None)
            }
            AdminResponse::Changed(text) => {
                self.notice = Some(text);
                Ok(Some(self.refresh()))
            }
            AdminResponse::RefreshFailed(failure) => {
                self.is_refreshing = false;
                self.refresh_error = Some(transient(failure)?);
                self.rates = Rates::default();
                self.history.push(None);
                Ok(None)
            }
            AdminResponse::ChangeFailed(failure) => {
                self.notice = Some(transient(failure)?);
                Ok(None)
            }
        }
    }

    fn show_snapshot(&mut self, snapshot: Snapshot, now: Instant) {
        let elapsed = self.refreshed.map(|before| now.saturating_duration_since(before));
        self.rates = match (&self.latest, elapsed) {
            (Some(before), Some(elapsed)) => Rates::between(before, &snapshot, elapsed),
            _ => Rates::default(),
        };
        self.history.push(self.rates.total);
        let selected = self.latest.as_ref().and_then(|latest| latest.blocked.get(self.selected));
        let same = selected
            .and_then(|old| snapshot.blocked.iter().position(|blocked| blocked.address == old.address));
        let last = snapshot.blocked.len().saturating_sub(1);
        self.selected = same.unwrap_or(self.selected).min(last);
        (self.latest, self.refreshed, self.refresh_error) = (Some(snapshot), Some(now), None);
    }

    fn show_evidence(&mut self, evidence: Option<AddressEvidence>) {
        if let (Some(opened), Some((address, evidence))) = (&mut self.opened, evidence)
            && opened.address == address
        {
            let last = evidence.as_ref().map_or(0, |evidence| evidence.records.len().saturating_sub(1));
            opened.scrolled = opened.scrolled.min(last);
            opened.evidence = Some(evidence);
        }
    }
}

/// The message of a transient failure; other failures are returned as errors.
fn transient(failure: AdminError) -> Result<String, AdminError> {
    match failure {
        AdminError::Unauthorized(_) | AdminError::WrongToken(_) | AdminError::Token => Err(failure),
        other => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::testing, *};

    fn refreshed(snapshot: Snapshot) -> AdminResponse {
        AdminResponse::Refreshed { snapshot: Box::new(snapshot), evidence: None }
    }

    #[test]
    fn it_is_refreshing_once_at_a_time_and_not_while_it_is_paused() {
        let mut app = TopApp::new(String::new());
        assert_eq!(app.tick(), Some(AdminRequest::Refresh { sort: Sort::Denied, address: None }));
        assert_eq!(app.tick(), None, "a refresh is under way");
        assert!(app.handle(refreshed(testing::snapshot()), Instant::now()).unwrap().is_none());
        app.is_paused = true;
        assert_eq!(app.tick(), None);
        app.is_paused = false;
        assert!(app.tick().is_some());
    }

    #[test]
    fn two_snapshots_make_rates_and_a_failure_ends_them() {
        let (mut app, now) = (TopApp::new(String::new()), Instant::now());
        app.handle(refreshed(testing::snapshot()), now).unwrap();
        assert_eq!(app.rates.total, None);
        let mut later = testing::snapshot();
        later.routes[0].requests += 50;
        app.handle(refreshed(later), now + Duration::from_secs(2)).unwrap();
        assert_eq!(app.rates.total.unwrap().requests, 25.0);
        assert_eq!(app.history.requests().collect::<Vec<_>>(), [Some(2_500), None]);

        let away = AdminError::Refused("away".to_owned());
        app.handle(AdminResponse::RefreshFailed(away), now + Duration::from_secs(3)).unwrap();
        assert_eq!((app.refresh_error.as_deref(), app.rates.total), (Some("away"), None));
        assert!(app.latest.is_some(), "the last figures stay");
        assert!(app.tick().is_some(), "it tries again");
        app.handle(refreshed(testing::snapshot()), now + Duration::from_secs(4)).unwrap();
        assert_eq!(app.refresh_error, None);
    }

    #[test]
    fn a_wrong_token_is_an_error() {
        let mut app = TopApp::new(String::new());
        for refused in [AdminError::Unauthorized, AdminError::WrongToken] {
            let refused = || refused("127.0.0.1:9900".parse().unwrap());
            assert!(app.handle(AdminResponse::RefreshFailed(refused()), Instant::now()).is_err());
            assert!(app.handle(AdminResponse::ChangeFailed(refused()), Instant::now()).is_err());
        }
    }

    #[test]
    fn the_selection_stays_with_its_address() {
        let mut app = TopApp::new(String::new());
        app.handle(refreshed(testing::snapshot()), Instant::now()).unwrap();
        app.selected = 1;
        let address = app.address().unwrap().to_owned();
        let mut sorted = testing::snapshot();
        sorted.blocked.reverse();
        sorted.blocked.rotate_left(1);
        app.handle(refreshed(sorted), Instant::now()).unwrap();
        assert_eq!((app.selected, app.address()), (0, Some(address.as_str())));

        app.selected = 2;
        let mut fewer = testing::snapshot();
        fewer.blocked.truncate(1);
        app.handle(refreshed(fewer), Instant::now()).unwrap();
        assert_eq!((app.selected, app.address()), (0, Some("203.0.113.7")));
        let mut none = testing::snapshot();
        none.blocked.clear();
        app.handle(refreshed(none), Instant::now()).unwrap();
        assert_eq!(app.address(), None);
    }

    #[test]
    fn a_change_is_reported_and_followed_by_a_refresh() {
        let mut app = TopApp::new(String::new());
        let request = app.handle(AdminResponse::Changed("done".to_owned()), Instant::now()).unwrap();
        assert!(matches!(request, Some(AdminRequest::Refresh { .. })));
        assert_eq!(app.notice.as_deref(), Some("done"));
        let refused = AdminError::Refused("not limited".to_owned());
        assert!(app.handle(AdminResponse::ChangeFailed(refused), Instant::now()).unwrap().is_none());
        assert_eq!(app.notice.as_deref(), Some("not limited"));
    }
}
