//! The actions of keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    admin_client::{AddressChange, AdminRequest},
    app::{OpenAddress, TopApp},
};
use crate::abuse::Sort;

/// An action beyond the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Send(AdminRequest),
}

/// The keys and their actions, for the help.
pub(super) const HELP: [(&str, &str); 9] = [
    ("Up, Down, Tab", "select an address"),
    ("Enter", "show the users behind it"),
    ("u", "unblock it on all instances"),
    ("b", "ban it for an hour on all instances"),
    ("s", "sort by denied, last, users, address"),
    ("p", "pause or resume"),
    ("?", "this help"),
    ("Esc", "back; in the list: quit"),
    ("q, Ctrl-C", "quit"),
];

impl TopApp {
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
        }
        if let Some(change) = self.to_confirm.take() {
            return self.confirm(change, key.code);
        }
        self.notice = None;
        if self.is_help {
            // Any key closes the help.
            self.is_help = false;
            return (key.code == KeyCode::Char('q')).then_some(Action::Quit);
        }
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc => match self.opened.take() {
                Some(_) => {}
                None => return Some(Action::Quit),
            },
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') if self.opened.is_none() => {
                self.sort = next_sort(self.sort);
                return Some(Action::Send(self.refresh()));
            }
            KeyCode::Char('u') => {
                self.to_confirm = self.address().map(|address| AddressChange::Unblock(address.to_owned()));
            }
            KeyCode::Char('b') => {
                self.to_confirm = self.address().map(|address| AddressChange::Ban(address.to_owned()));
            }
            KeyCode::Enter => return self.open(),
            code => self.navigate(code),
        }
        None
    }

    /// Only `y` confirms.
    fn confirm(&mut self, change: AddressChange, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('y' | 'Y') => Some(Action::Send(AdminRequest::Change(change))),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => None,
            // Another key: ask again.
            _ => {
                self.to_confirm = Some(change);
                None
            }
        }
    }

    fn open(&mut self) -> Option<Action> {
        if self.opened.is_some() {
            return None;
        }
        let address = self.address()?.to_owned();
        self.opened = Some(OpenAddress { address, evidence: None, scrolled: 0 });
        Some(Action::Send(self.refresh()))
    }

    /// Moves through the list, or through the records of one address.
    fn navigate(&mut self, code: KeyCode) {
        let (position, count, wraps) = match (&mut self.opened, &self.latest) {
            (Some(OpenAddress { scrolled, evidence: Some(Ok(evidence)), .. }), _) => {
                (scrolled, evidence.records.len(), false)
            }
            (None, Some(latest)) => (&mut self.selected, latest.blocked.len(), true),
            _ => return,
        };
        let last = count.saturating_sub(1);
        *position = match code {
            KeyCode::Tab if wraps && *position >= last => 0,
            KeyCode::BackTab if wraps && *position == 0 => last,
            KeyCode::Down | KeyCode::Tab | KeyCode::Char('j') => (*position + 1).min(last),
            KeyCode::Up | KeyCode::BackTab | KeyCode::Char('k') => position.saturating_sub(1),
            KeyCode::PageDown => (*position + 10).min(last),
            KeyCode::PageUp => position.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => *position,
        };
    }
}

fn next_sort(sort: Sort) -> Sort {
    match sort {
        Sort::Denied => Sort::Last,
        Sort::Last | Sort::First => Sort::Users,
        Sort::Users => Sort::Address,
        Sort::Address => Sort::Denied,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{
        super::{admin_client::AdminResponse, testing},
        *,
    };

    fn app() -> TopApp {
        let mut app = TopApp::new(String::new());
        let snapshot = Box::new(testing::snapshot());
        app.handle(AdminResponse::Refreshed { snapshot, evidence: None }, Instant::now()).unwrap();
        app
    }

    fn press(app: &mut TopApp, code: KeyCode) -> Option<Action> {
        app.press(KeyEvent::from(code))
    }

    const FIRST: &str = "203.0.113.7";

    #[test]
    fn it_is_left_by_q_escape_and_control_c() {
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut app(), code), Some(Action::Quit));
        }
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let mut asking = app();
        press(&mut asking, KeyCode::Char('b'));
        assert_eq!(asking.press(control('c')), Some(Action::Quit));
        assert_eq!(app().press(control('q')), None);
        let released = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::from(KeyCode::Char('q')) };
        assert_eq!(app().press(released), None);
    }

    #[test]
    fn a_change_is_made_only_after_a_yes() {
        for (key, change) in
            [('u', AddressChange::Unblock(FIRST.into())), ('b', AddressChange::Ban(FIRST.into()))]
        {
            let mut app = app();
            assert_eq!(press(&mut app, KeyCode::Char(key)), None);
            assert_eq!(app.to_confirm, Some(change.clone()));
            for slip in [KeyCode::Enter, KeyCode::Char('x'), KeyCode::Down, KeyCode::Char(key)] {
                assert_eq!(press(&mut app, slip), None);
                assert_eq!(app.to_confirm, Some(change.clone()), "it asks again");
            }
            assert_eq!(press(&mut app, KeyCode::Char('y')), Some(Action::Send(AdminRequest::Change(change))));
            assert_eq!(app.to_confirm, None);
            for no in [KeyCode::Char('n'), KeyCode::Esc, KeyCode::Char('q')] {
                press(&mut app, KeyCode::Char(key));
                assert_eq!((press(&mut app, no), &app.to_confirm), (None, &None));
            }
        }
    }

    #[test]
    fn the_confirmation_stays_about_its_address_when_the_list_changes() {
        let mut app = app();
        press(&mut app, KeyCode::Char('u'));
        let mut other = testing::snapshot();
        other.blocked.remove(0);
        app.handle(AdminResponse::Refreshed { snapshot: Box::new(other), evidence: None }, Instant::now())
            .unwrap();
        let yes = press(&mut app, KeyCode::Char('y'));
        assert_eq!(yes, Some(Action::Send(AdminRequest::Change(AddressChange::Unblock(FIRST.into())))));
    }

    #[test]
    fn without_an_address_there_is_nothing_to_change_or_to_open() {
        let mut app = TopApp::new(String::new());
        for code in [KeyCode::Char('u'), KeyCode::Char('b'), KeyCode::Enter, KeyCode::Down, KeyCode::End] {
            assert_eq!(press(&mut app, code), None);
        }
        assert!(app.to_confirm.is_none() && app.opened.is_none());
    }

    #[test]
    fn keys_move_through_the_list() {
        let mut app = app();
        let mut after = |code| {
            press(&mut app, code);
            app.selected
        };
        let walked = [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::Tab, 2),
            (KeyCode::Down, 2),
            (KeyCode::Tab, 0),
            (KeyCode::BackTab, 2),
            (KeyCode::PageUp, 0),
            (KeyCode::End, 2),
            (KeyCode::Home, 0),
        ];
        for (code, selected) in walked {
            assert_eq!(after(code), selected, "{code}");
        }
    }

    #[test]
    fn enter_opens_an_address_and_escape_goes_back() {
        let mut app = app();
        let refresh = AdminRequest::Refresh { sort: Sort::Denied, address: Some(FIRST.into()) };
        assert_eq!(press(&mut app, KeyCode::Enter), Some(Action::Send(refresh)));
        let response = AdminResponse::Refreshed {
            snapshot: Box::new(testing::snapshot()),
            evidence: Some(Box::new((FIRST.into(), Ok(testing::evidence())))),
        };
        app.handle(response, Instant::now()).unwrap();
        for (code, scrolled) in [(KeyCode::Down, 1), (KeyCode::End, 2), (KeyCode::Tab, 2), (KeyCode::Up, 1)] {
            press(&mut app, code);
            assert_eq!(app.opened.as_ref().unwrap().scrolled, scrolled);
        }
        assert_eq!(app.selected, 0);
        press(&mut app, KeyCode::Char('b'));
        assert_eq!(app.to_confirm.take(), Some(AddressChange::Ban(FIRST.into())));
        assert_eq!(press(&mut app, KeyCode::Esc), None);
        assert!(app.opened.is_none());
    }

    #[test]
    fn s_sorts_p_pauses_and_help_covers_everything() {
        let mut app = app();
        let mut orders = Vec::new();
        for _ in 0..4 {
            assert!(matches!(
                press(&mut app, KeyCode::Char('s')),
                Some(Action::Send(AdminRequest::Refresh { .. }))
            ));
            orders.push(app.sort.name());
        }
        assert_eq!(orders, ["last", "users", "address", "denied"]);
        press(&mut app, KeyCode::Char('p'));
        assert!(app.is_paused);
        press(&mut app, KeyCode::Char('?'));
        assert!(app.is_help);
        assert_eq!(press(&mut app, KeyCode::Char('u')), None);
        assert!(!app.is_help && app.to_confirm.is_none(), "the key only closed the help");
        press(&mut app, KeyCode::Char('p'));
        assert!(!app.is_paused);
    }
}
