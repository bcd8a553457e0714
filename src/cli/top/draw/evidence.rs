//! One address: who was behind it, what was asked for, what holds it.

use std::collections::BTreeMap;

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
        app::Opened,
    },
    Look,
    grid::{Column, figures, grid, plain, words},
};
use crate::admin::dto::{Ban, Evidence, LimitUsage, Record};

const USERS: [Column; 2] = [words("USER", Constraint::Max(40), 0), figures("RECORDS", 8, 0)];
const HOLDS: [Column; 5] = [
    words("HELD BY", Constraint::Fill(3), 0),
    words("KEY", Constraint::Fill(3), 40),
    figures("USED", 8, 0),
    figures("LIMIT", 8, 50),
    figures("LEFT", 8, 0),
];
const RECORDS: [Column; 5] = [
    words("LAST REQUESTS (UTC)", Constraint::Length(19), 0),
    words("USER", Constraint::Fill(1), 40),
    words("METHOD", Constraint::Length(7), 50),
    words("PATH", Constraint::Fill(2), 0),
    words("POLICY", Constraint::Fill(1), 70),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, opened: &Opened, look: Look, now: Timestamp) {
    let [_, head, rest] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let title = |text: String| Line::styled(text, Style::new().add_modifier(Modifier::BOLD));
    let address = printable(&opened.address);
    match &opened.evidence {
        None => frame.render_widget(Paragraph::new(title(format!("{address}: asking"))), head),
        Some(Err(why)) => frame.render_widget(Paragraph::new(title(printable(why).into_owned())), head),
        Some(Ok(evidence)) => {
            let of = &evidence.address;
            let lines = [
                title(format!("{address}: {}", printable(&of.hint))),
                Line::from(format!(
                    "denied {} times, from {} to {} UTC; {} users",
                    of.denied,
                    printable(&moment(&of.first)),
                    printable(&moment(&of.last)),
                    of.distinct_users,
                )),
            ];
            frame.render_widget(Paragraph::new(lines.to_vec()), head);
            tables(frame, rest, evidence, opened.scrolled, look, now);
        }
    }
}

fn tables(
    frame: &mut Frame<'_>,
    area: Rect,
    evidence: &Evidence,
    scrolled: usize,
    look: Look,
    now: Timestamp,
) {
    let lines = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX).min(area.height / 3);
    let users = users(&evidence.records);
    let held = lines(evidence.limits.len() + evidence.bans.len());
    let parts = [Constraint::Length(lines(users.len())), Constraint::Length(held), Constraint::Fill(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(area).map(below_gap);
    let rows = users.into_iter().map(|(user, count)| [plain(user), plain(count.to_string())]);
    frame.render_widget(grid(&USERS, rows, top.width, look), top);
    let limits = evidence.limits.iter().map(limit);
    let rows = limits.chain(evidence.bans.iter().map(|of| ban(of, now)));
    frame.render_widget(grid(&HOLDS, rows.map(|row| row.map(plain)), middle.width, look), middle);
    let rows = evidence.records.iter().skip(scrolled).map(|of| record(of).map(plain));
    frame.render_widget(grid(&RECORDS, rows, bottom.width, look), bottom);
}

fn below_gap(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
}

/// By how many records there are of each.
fn users(records: &[Record]) -> Vec<(&str, usize)> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for record in records {
        *counts.entry(record.user.as_deref().unwrap_or("-")).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts
}

fn limit(of: &LimitUsage) -> [String; 5] {
    [of.policy.clone(), of.key.clone(), of.used.to_string(), of.limit.to_string(), of.reset.clone()]
}

fn ban(of: &Ban, now: Timestamp) -> [String; 5] {
    let mode = if of.mode == "enforce" { "" } else { " (shadow)" };
    let name = format!("ban{mode} by {}", of.by);
    [name, of.key.clone(), String::new(), String::new(), time_left(&of.until, now)]
}

fn record(of: &Record) -> [String; 5] {
    let user = of.user.clone().unwrap_or_else(|| "-".to_owned());
    [moment(&of.time), user, of.method.clone(), of.path.clone(), of.policy.clone()]
}
