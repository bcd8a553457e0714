//! The routes, in the order in which they are tried.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
};

use super::{
    super::{rates::Rates, snapshot::Snapshot},
    Look,
    grid::{Column, figures, grid, plain, words},
    words::{latency, rate},
};

const COLUMNS: [Column; 6] = [
    words("ROUTE", Constraint::Fill(1), 0),
    figures("REQ/S", 8, 0),
    figures("DENIED/S", 8, 30),
    figures("5XX/S", 7, 40),
    // Since the start.
    figures("P50", 7, 60),
    figures("P99", 7, 50),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, latest: &Snapshot, rates: &Rates, look: Look) {
    // A gap above.
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let rows = latest.routes.iter().map(|route| {
        let of = rates.routes.get(&route.name);
        let (denied, failed) = (of.map(|of| of.denied), of.map(|of| of.failed));
        let marked = |value: Option<f64>| {
            let is_some = value.is_some_and(|value| value > 0.0);
            (rate(value), if is_some { look.bad() } else { Default::default() })
        };
        [
            plain(route.name.clone()),
            plain(rate(of.map(|of| of.requests))),
            marked(denied),
            marked(failed),
            plain(latency(route.latency.map(|of| of.p50))),
            plain(latency(route.latency.map(|of| of.p99))),
        ]
    });
    frame.render_widget(grid(&COLUMNS, rows, area.width, look), area);
}
