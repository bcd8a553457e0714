//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    app::{App, Opened},
    asker::{Change, Job},
};
use crate::abuse::Sort;

/// What follows from a key beyond the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Leave,
    Ask(Job),
}

/// What they are for, as the help tells.
pub(super) const HELP: [(&str, &str); 9] = [
    ("Up, Down, Tab", "select an address"),
    ("Enter", "show who was behind it"),
    ("u", "unblock it, everywhere"),
    ("b", "ban it for an hour, everywhere"),
    ("s", "sort by denied, last, users, address"),
    ("p", "pause, and go on"),
    ("?", "this help"),
    ("Esc", "back; from the list: leave"),
    ("q, Ctrl-C", "leave"),
];

impl App {
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Wish::Leave);
        }
        if let Some(change) = self.question.take() {
            return self.confirm(change, key.code);
        }
        self.notice = None;
        if self.is_help {
            // Whatever key it is, it has been read.
            self.is_help = false;
            return (key.code == KeyCode::Char('q')).then_some(Wish::Leave);
        }
        match key.code {
            KeyCode::Char('q') => return Some(Wish::Leave),
            KeyCode::Esc => match self.opened.take() {
                Some(_) => {}
                None => return Some(Wish::Leave),
            },
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') if self.opened.is_none() => {
                self.sort = next(self.sort);
                return Some(Wish::Ask(self.look()));
            }
            KeyCode::Char('u') => self.question = self.address().map(|of| Change::Unblock(of.to_owned())),
            KeyCode::Char('b') => self.question = self.address().map(|of| Change::Ban(of.to_owned())),
            KeyCode::Enter => return self.open(),
            code => self.go(code),
        }
        None
    }

    /// Nothing but `y` is a yes.
    fn confirm(&mut self, change: Change, code: KeyCode) -> Option<Wish> {
        match code {
            KeyCode::Char('y' | 'Y') => Some(Wish::Ask(Job::Change(change))),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => None,
            // A slip: it is asked still.
            _ => {
                self.question = Some(change);
                None
            }
        }
    }

    fn open(&mut self) -> Option<Wish> {
        if self.opened.is_some() {
            return None;
        }
        let address = self.address()?.to_owned();
        self.opened = Some(Opened { address, evidence: None, scrolled: 0 });
        Some(Wish::Ask(self.look()))
    }

    /// Through the list, or through the records of one address.
    fn go(&mut self, code: KeyCode) {
        let (place, count, is_round) = match (&mut self.opened, &self.latest) {
            (Some(Opened { scrolled, evidence: Some(Ok(evidence)), .. }), _) => {
                (scrolled, evidence.records.len(), false)
            }
            (None, Some(latest)) => (&mut self.selected, latest.blocked.len(), true),
            _ => return,
        };
        let last = count.saturating_sub(1);
        *place = match code {
            KeyCode::Tab if is_round && *place >= last => 0,
            KeyCode::BackTab if is_round && *place == 0 => last,
            KeyCode::Down | KeyCode::Tab | KeyCode::Char('j') => (*place + 1).min(last),
            KeyCode::Up | KeyCode::BackTab | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::PageDown => (*place + 10).min(last),
            KeyCode::PageUp => place.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => *place,
        };
    }
}

fn next(sort: Sort) -> Sort {
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
        super::{asker::Told, testing},
        *,
    };

    fn app() -> App {
        let mut app = App::new(String::new());
        let snapshot = Box::new(testing::snapshot());
        app.hear(Told::Stands { snapshot, evidence: None }, Instant::now()).unwrap();
        app
    }

    fn press(app: &mut App, code: KeyCode) -> Option<Wish> {
        app.press(KeyEvent::from(code))
    }

    const FIRST: &str = "203.0.113.7";

    #[test]
    fn it_is_left_by_q_escape_and_control_c() {
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut app(), code), Some(Wish::Leave));
        }
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let mut asking = app();
        press(&mut asking, KeyCode::Char('b'));
        assert_eq!(asking.press(control('c')), Some(Wish::Leave));
        assert_eq!(app().press(control('q')), None);
        let released = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::from(KeyCode::Char('q')) };
        assert_eq!(app().press(released), None);
    }

    #[test]
    fn a_change_is_made_after_a_yes_alone() {
        for (key, change) in [('u', Change::Unblock(FIRST.into())), ('b', Change::Ban(FIRST.into()))] {
            let mut app = app();
            assert_eq!(press(&mut app, KeyCode::Char(key)), None);
            assert_eq!(app.question, Some(change.clone()));
            for slip in [KeyCode::Enter, KeyCode::Char('x'), KeyCode::Down, KeyCode::Char(key)] {
                assert_eq!(press(&mut app, slip), None);
                assert_eq!(app.question, Some(change.clone()), "it is asked still");
            }
            assert_eq!(press(&mut app, KeyCode::Char('y')), Some(Wish::Ask(Job::Change(change))));
            assert_eq!(app.question, None);
            for no in [KeyCode::Char('n'), KeyCode::Esc, KeyCode::Char('q')] {
                press(&mut app, KeyCode::Char(key));
                assert_eq!((press(&mut app, no), &app.question), (None, &None));
            }
        }
    }

    #[test]
    fn the_question_stays_about_its_address_when_the_list_changes() {
        let mut app = app();
        press(&mut app, KeyCode::Char('u'));
        let mut other = testing::snapshot();
        other.blocked.remove(0);
        app.hear(Told::Stands { snapshot: Box::new(other), evidence: None }, Instant::now()).unwrap();
        let yes = press(&mut app, KeyCode::Char('y'));
        assert_eq!(yes, Some(Wish::Ask(Job::Change(Change::Unblock(FIRST.into())))));
    }

    #[test]
    fn without_an_address_there_is_nothing_to_change_or_to_open() {
        let mut app = App::new(String::new());
        for code in [KeyCode::Char('u'), KeyCode::Char('b'), KeyCode::Enter, KeyCode::Down, KeyCode::End] {
            assert_eq!(press(&mut app, code), None);
        }
        assert!(app.question.is_none() && app.opened.is_none());
    }

    #[test]
    fn keys_go_through_the_list() {
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
        let look = Job::Look { sort: Sort::Denied, address: Some(FIRST.into()) };
        assert_eq!(press(&mut app, KeyCode::Enter), Some(Wish::Ask(look)));
        let told = Told::Stands {
            snapshot: Box::new(testing::snapshot()),
            evidence: Some(Box::new((FIRST.into(), Ok(testing::evidence())))),
        };
        app.hear(told, Instant::now()).unwrap();
        for (code, scrolled) in [(KeyCode::Down, 1), (KeyCode::End, 2), (KeyCode::Tab, 2), (KeyCode::Up, 1)] {
            press(&mut app, code);
            assert_eq!(app.opened.as_ref().unwrap().scrolled, scrolled);
        }
        assert_eq!(app.selected, 0);
        press(&mut app, KeyCode::Char('b'));
        assert_eq!(app.question.take(), Some(Change::Ban(FIRST.into())));
        assert_eq!(press(&mut app, KeyCode::Esc), None);
        assert!(app.opened.is_none());
    }

    #[test]
    fn s_sorts_p_pauses_and_help_covers_everything() {
        let mut app = app();
        let mut orders = Vec::new();
        for _ in 0..4 {
            assert!(matches!(press(&mut app, KeyCode::Char('s')), Some(Wish::Ask(Job::Look { .. }))));
            orders.push(app.sort.name());
        }
        assert_eq!(orders, ["last", "users", "address", "denied"]);
        press(&mut app, KeyCode::Char('p'));
        assert!(app.is_paused);
        press(&mut app, KeyCode::Char('?'));
        assert!(app.is_help);
        assert_eq!(press(&mut app, KeyCode::Char('u')), None);
        assert!(!app.is_help && app.question.is_none(), "the key only closed the help");
        press(&mut app, KeyCode::Char('p'));
        assert!(!app.is_paused);
    }
}
