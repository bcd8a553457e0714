//! Screens as they are drawn, of several sizes.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};

use super::{
    super::{
        admin_client::{AddressChange, AdminResponse},
        app::{OpenAddress, TopApp},
        testing::{NOW, evidence, snapshot},
    },
    Theme,
};
use crate::{admin::dto::Outage, telemetry::testing};

const PLAIN: Theme = Theme { is_coloured: false };
const COLOURED: Theme = Theme { is_coloured: true };

/// The state after two snapshots, with 40 requests per second, half of them denied.
fn app() -> TopApp {
    let mut app = TopApp::new("http://127.0.0.1:9900".to_owned());
    let now = Instant::now();
    let refreshed = |snapshot| AdminResponse::Refreshed { snapshot: Box::new(snapshot), evidence: None };
    app.handle(refreshed(snapshot()), now).unwrap();
    let mut later = snapshot();
    later.routes[0].requests += 40;
    later.routes[0].denied += 20;
    later.blocked[0].denied += 20;
    app.handle(refreshed(later), now + Duration::from_secs(1)).unwrap();
    app
}

/// The same state, modified by `change`.
fn with(change: impl FnOnce(&mut TopApp)) -> TopApp {
    let mut app = app();
    change(&mut app);
    app
}

fn opened(scrolled: usize) -> Option<OpenAddress> {
    Some(OpenAddress { address: "203.0.113.7".into(), evidence: Some(Ok(evidence())), scrolled })
}

fn drawn(app: &TopApp, width: u16, height: u16, theme: Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now: Timestamp = NOW.parse().unwrap();
    terminal.draw(|frame| super::draw(frame, app, theme, now)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(app: &TopApp, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(app, width, height, PLAIN);
    let rows = buffer.content.chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn the_overview_shows_everything_at_80_columns() {
    let expected = "\
tollgate 1.2.3  up 3h 0m  ready  http://127.0.0.1:9900
store redis, master, 2ms, breaker closed, 2 instances  endpoints 1/2 healthy
2 warnings: Redis evicts keys

requests     40.0/s                                                            █
denied       20.0/s                                                            ▄

ROUTE                                 REQ/S  DENIED/S    5XX/S      P50      P99
/api/*                                 40.0      20.0        0    2.1ms     1.2s
/*                                        0         0        0    2.1ms     1.2s

ADDRESS               DENIED    +/S  USERS  HINT                        LEFT
203.0.113.7               80   20.0      3  credential stuffing          59s
198.51.100.9              20      0      1  password guessing     ban 12m 0s
2001:db8::/64              5      0      0  unknown                      59s





q quit  s sort: denied  Enter users  u unblock  b ban 1h  p pause  ? help";
    assert_eq!(lines(&app(), 80, 21).join("\n"), expected);
}

#[test]
fn redis_servers_that_fail_get_a_line_of_their_own() {
    let facts = testing::cluster();
    let app = with(|app| {
        let store = &mut app.latest.as_mut().unwrap().status.store;
        (store.topology, store.shared) = ("cluster".to_owned(), Some(facts.into()));
    });
    let lines = lines(&app, 80, 24);
    assert_eq!(
        lines[1..4],
        [
            "not up: 10.0.0.2:6379 (breaker open), 10.0.0.4:6379 (down)",
            "store cluster, 1/4 up, 1ms, breaker closed, 2 instances  endpoints 1/2 healthy",
            "2 warnings: Redis evicts keys",
        ]
    );
}

#[test]
fn drained_endpoints_are_named() {
    let app = with(|app| {
        let endpoint = &mut app.latest.as_mut().unwrap().upstreams[0].endpoints[1];
        endpoint.state = "drained".to_owned();
    });
    let lines = lines(&app, 100, 24);
    assert_eq!(lines[1], "drained: http://10.0.0.6:3000 of api");
    assert!(lines[2].ends_with("endpoints 1/2 healthy, 1 drained"), "{}", lines[2]);
}

#[test]
fn outages_come_first_and_are_no_warnings() {
    let outage = |n: usize| {
        let text = format!("endpoint http://10.0.0.{n}:3000 of upstream api is unreachable");
        Outage { kind: "endpoint".into(), name: format!("http://10.0.0.{n}:3000"), since: NOW.into(), text }
    };
    let with_outages = |count: usize| {
        with(|app| {
            let status = &mut app.latest.as_mut().unwrap().status;
            status.outages = (0..count).map(outage).collect();
            let texts = status.outages.iter().map(|outage| outage.text.clone());
            status.warnings = texts.chain(["clocks differ".to_owned()]).collect();
        })
    };
    let lines = self::lines(&with_outages(5), 80, 24);
    assert_eq!(lines[0], "tollgate 1.2.3  up 3h 0m  outage  http://127.0.0.1:9900");
    assert_eq!(lines[1], "endpoint http://10.0.0.0:3000 of upstream api is unreachable");
    assert_eq!(lines[4], "and 2 more outages");
    assert_eq!(lines[6], "1 warning: clocks differ");
    let low = self::lines(&with_outages(1), 80, 8);
    assert_eq!(low[1], "endpoint http://10.0.0.0:3000 of upstream api is unreachable");
    let colours = drawn(&with_outages(1), 80, 24, COLOURED);
    assert_eq!(colours[(0, 1)].fg, Color::Red);
}

#[test]
fn narrow_screens_drop_the_least_important_columns() {
    let app = app();
    let [small, smaller] = [(40, 20), (30, 8)].map(|(width, height)| lines(&app, width, height).join("\n"));
    for text in [&small, &smaller] {
        assert!(text.contains("203.0.113.7") && text.contains("DENIED"), "{text}");
        assert!(!text.contains("POLICIES") && !text.contains("P50"), "{text}");
    }
    // Every screen can be drawn at every size.
    let others = [
        with(|app| app.opened = opened(99)),
        with(|app| app.is_help = true),
        with(|app| app.to_confirm = Some(AddressChange::Ban("2001:db8:1234:5678::/64".into()))),
        TopApp::new(String::new()),
    ];
    for (width, height) in (1..50).flat_map(|width| (1..30).map(move |height| (width, height))).step_by(7) {
        for app in &others {
            lines(app, width, height);
        }
    }
}

#[test]
fn colours_are_left_out_without_a_coloured_theme() {
    let has_colour = |buffer: &Buffer| {
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(&drawn(&app(), 80, 24, COLOURED)));
    assert!(!has_colour(&drawn(&app(), 80, 24, PLAIN)));
}

#[test]
fn an_admin_port_that_is_away_is_reported_above_the_last_figures() {
    let away = "cannot connect to the admin port at 127.0.0.1:9900";
    let failed = with(|app| app.refresh_error = Some(away.to_owned()));
    let text = lines(&failed, 80, 24).join("\n");
    assert!(text.contains("no answer, retrying") && text.contains(away), "{text}");
    assert!(text.contains("203.0.113.7"), "{text}");
    let mut never = TopApp::new("http://127.0.0.1:9900".into());
    never.refresh_error = Some(away.to_owned());
    assert!(lines(&never, 80, 24).join("\n").contains(away));
}

#[test]
fn evidence_shows_who_was_behind_an_address_and_escapes_names() {
    let app = with(|app| app.opened = opened(0));
    let text = lines(&app, 90, 30).join("\n");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    for part in [
        "203.0.113.7: banned for 59m 59s, credential stuffing",
        "3 users, 94 % of answers 401 or 403, all to /a",
        "denied 60 times, from 2026-07-03 11:00:00 to 2026-07-03 12:00:00 UTC; 3 users",
        r"\u{1b}]0;owned\u{7}",
        r"/\u{202e}b",
        "ban by operator at 127.0.0.1",
        "ip:203.0.113.0/24",
        "59m 59s",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let users: Vec<_> = text.lines().filter(|line| line.starts_with("ann ")).collect();
    assert_eq!(users.len(), 1, "{text}");
    assert!(users[0].contains(" 2 ") && users[0].ends_with(" 41s"), "{text}");
}

#[test]
fn a_change_asks_for_confirmation_and_help_lists_the_keys() {
    let asking = with(|app| app.to_confirm = Some(AddressChange::Ban("203.0.113.7".into())));
    let text = lines(&asking, 80, 24).join("\n");
    assert!(text.contains("Ban 203.0.113.7 on every instance for 1 h?") && text.contains("y yes   n no"));
    let text = lines(&with(|app| app.is_help = true), 80, 24).join("\n");
    for (keys, what) in super::super::keys::HELP {
        assert!(text.contains(keys) && text.contains(what), "{text}");
    }
}
