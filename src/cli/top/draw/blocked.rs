//! The addresses that are or were limited.

use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    widgets::{Paragraph, TableState},
};

use super::{
    super::{
        super::terminal::time_left,
        app::App,
        snapshot::{Snapshot, short},
    },
    Look,
    grid::{Column, figures, grid, plain, words},
    words::rate,
};

const COLUMNS: [Column; 7] = [
    words("ADDRESS", Constraint::Length(21), 0),
    figures("DENIED", 7, 0),
    figures("+/S", 5, 40),
    figures("USERS", 5, 50),
    words("HINT", Constraint::Length(13), 76),
    words("POLICIES", Constraint::Fill(1), 66),
    figures("LEFT", 7, 58),
];

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &App,
    latest: &Snapshot,
    look: Look,
    now: Timestamp,
) {
    // A gap above.
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if latest.blocked.is_empty() {
        frame.render_widget(Paragraph::new("No address was limited lately."), area);
        return;
    }
    let rows = latest.blocked.iter().map(|of| {
        let more = app.rates.denied.get(&of.address).copied();
        let style = if more.is_some_and(|more| more > 0.0) { look.bad() } else { Default::default() };
        [
            plain(of.address.clone()),
            plain(of.denied.to_string()),
            (rate(more), style),
            plain(of.distinct_users.to_string()),
            plain(short(&of.hint)),
            plain(of.policies.join(", ")),
            plain(time_left(&of.until, now)),
        ]
    });
    let table = grid(&COLUMNS, rows, area.width, look).row_highlight_style(look.selected());
    let mut state = TableState::new().with_selected(app.selected);
    frame.render_stateful_widget(table, area, &mut state);
}
