//! One address: its users, its last requests, and the limits and bans on it.

use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::Paragraph,
};

use super::{
    super::{
        super::terminal::{moment, printable, time_left},
        app::OpenAddress,
    },
    Theme,
    widgets::{Column, below_gap, figures, plain, table, words},
};
use crate::admin::dto::{Ban, Evidence, LimitUsage, Record, Unlimited};

const USERS: [Column; 3] =
    [words("USER", Constraint::Max(40), 0), figures("RECORDS", 8, 0), figures("BANNED FOR", 10, 40)];
const LIMITS: [Column; 5] = [
    words("LIMITED BY", Constraint::Fill(3), 0),
    words("KEY", Constraint::Fill(3), 40),
    figures("USED", 8, 0),
    figures("LIMIT", 9, 50),
    figures("LEFT", 8, 0),
];
const RECORDS: [Column; 5] = [
    words("LAST REQUESTS (UTC)", Constraint::Length(19), 0),
    words("USER", Constraint::Fill(1), 40),
    words("METHOD", Constraint::Length(7), 50),
    words("PATH", Constraint::Fill(2), 0),
    words("POLICY", Constraint::Fill(1), 70),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, opened: &OpenAddress, theme: Theme, now: Timestamp) {
    let [_, head, rest] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(3), Constraint::Fill(1)]).areas(area);
    let title = |text: String| Line::styled(text, Style::new().add_modifier(Modifier::BOLD));
    let address = printable(&opened.address);
    match &opened.evidence {
        None => frame.render_widget(Paragraph::new(title(format!("{address}: loading"))), head),
        Some(Err(reason)) => frame.render_widget(Paragraph::new(title(printable(reason).into_owned())), head),
        Some(Ok(evidence)) => {
            let address_entry = &evidence.address;
            let left = match time_left(&address_entry.until, now) {
                left if left == "-" => String::new(),
                left => format!(" for {left}"),
            };
            let [state, hint] = [&address_entry.state, &address_entry.hint].map(|text| printable(text));
            let lines = [
                title(format!("{address}: {state}{left}, {hint}")),
                Line::from(printable(&address_entry.hint_reason).into_owned()),
                Line::from(format!(
                    "denied {} times, from {} to {} UTC; {} users",
                    address_entry.denied,
                    printable(&moment(&address_entry.first)),
                    printable(&moment(&address_entry.last)),
                    address_entry.distinct_users,
                )),
            ];
            frame.render_widget(Paragraph::new(lines.to_vec()), head);
            tables(frame, rest, evidence, opened.scrolled, theme, now);
        }
    }
}

fn tables(
    frame: &mut Frame<'_>,
    area: Rect,
    evidence: &Evidence,
    scrolled: usize,
    theme: Theme,
    now: Timestamp,
) {
    let lines = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX).min(area.height / 3);
    let limit_lines = lines(evidence.limits.len() + evidence.unlimited.len() + evidence.bans.len());
    let parts = [
        Constraint::Length(lines(evidence.users.len())),
        Constraint::Length(limit_lines),
        Constraint::Fill(1),
    ];
    let [top, middle, bottom] = Layout::vertical(parts).areas(area).map(below_gap);
    let rows = evidence.users.iter().map(|user| {
        let name = user.user.clone().unwrap_or_else(|| "-".to_owned());
        let banned = user.banned_until.as_deref().map_or_else(String::new, |until| time_left(until, now));
        [plain(name), plain(user.records.to_string()), (banned, theme.bad())]
    });
    frame.render_widget(table(&USERS, rows, top.width, theme), top);
    let limits = evidence.limits.iter().map(limit_row).chain(evidence.unlimited.iter().map(unlimited_row));
    let rows = limits.chain(evidence.bans.iter().map(|ban| ban_row(ban, now)));
    frame.render_widget(table(&LIMITS, rows.map(|row| row.map(plain)), middle.width, theme), middle);
    let rows = evidence.records.iter().skip(scrolled).map(|record| record_row(record).map(plain));
    frame.render_widget(table(&RECORDS, rows, bottom.width, theme), bottom);
}

fn limit_row(limit: &LimitUsage) -> [String; 5] {
    [
        limit.policy.clone(),
        limit.key.clone(),
        limit.used.to_string(),
        limit.limit.to_string(),
        limit.reset.clone(),
    ]
}

fn unlimited_row(Unlimited { policy, key, .. }: &Unlimited) -> [String; 5] {
    [policy.clone(), key.clone(), String::new(), "unlimited".to_owned(), String::new()]
}

fn ban_row(ban: &Ban, now: Timestamp) -> [String; 5] {
    let mode = if ban.mode == "enforce" { "" } else { " (shadow)" };
    let name = format!("ban{mode} by {}", ban.by);
    [name, ban.key.clone(), String::new(), String::new(), time_left(&ban.until, now)]
}

fn record_row(record: &Record) -> [String; 5] {
    let user = record.user.clone().unwrap_or_else(|| "-".to_owned());
    [moment(&record.time), user, record.method.clone(), record.path.clone(), record.policy.clone()]
}
