//! The overview: the traffic of the last minute, the routes, and limited addresses.

use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    widgets::{Paragraph, RenderDirection, Sparkline, SparklineBar, TableState},
};

use super::{
    super::{
        super::{
            format::{latency, rate},
            terminal::time_left,
        },
        app::TopApp,
        rates::Rates,
        snapshot::Snapshot,
    },
    Theme,
    widgets::{Column, below_gap, figures, plain, table, words},
};

/// A gap, and one line each.
const TRAFFIC_LINES: u16 = 3;
/// `requests   1250/s`
const TRAFFIC_LABEL: u16 = 20;

const ROUTE_COLUMNS: [Column; 7] = [
    words("ROUTE", Constraint::Fill(1), 0),
    figures("REQ/S", 8, 0),
    figures("DENIED/S", 8, 30),
    figures("5XX/S", 7, 40),
    // Since the process started.
    figures("P50", 7, 60),
    figures("P99", 7, 50),
    figures("TUNNELS", 7, 90),
];

const BLOCKED_COLUMNS: [Column; 7] = [
    words("ADDRESS", Constraint::Length(19), 0),
    figures("DENIED", 7, 0),
    figures("+/S", 5, 40),
    figures("USERS", 5, 50),
    words("HINT", Constraint::Length(19), 76),
    words("POLICIES", Constraint::Fill(1), 88),
    // Wide enough for the word for a ban.
    figures("LEFT", 11, 58),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &TopApp, theme: Theme, now: Timestamp) {
    // The limited addresses get at least half of the room.
    let traffic = if area.height < 8 { 0 } else { TRAFFIC_LINES };
    let rest = area.height - traffic;
    let wanted_lines = app.latest.as_ref().map_or(0, |latest| latest.routes.len() + 2);
    let routes = u16::try_from(wanted_lines).unwrap_or(u16::MAX).min(if rest < 6 { 0 } else { rest / 2 });
    let parts = [Constraint::Length(traffic), Constraint::Length(routes), Constraint::Fill(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(area);
    draw_traffic(frame, top, app, theme);
    if let Some(latest) = &app.latest {
        draw_routes(frame, middle, latest, &app.rates, theme);
        draw_blocked(frame, bottom, app, latest, theme, now);
    }
}

fn draw_traffic(frame: &mut Frame<'_>, area: Rect, app: &TopApp, theme: Theme) {
    let lines = [Constraint::Length(1); TRAFFIC_LINES as usize];
    let [_, first, second] = Layout::vertical(lines).areas(area);
    let (total, history) = (app.rates.total, &app.history);
    let most = history.requests().chain(history.denied()).flatten().max();
    let requests = rate(total.map(|total| total.requests));
    draw_rate(
        frame,
        first,
        &format!("requests {requests:>8}/s"),
        sparkline(history.requests(), most, theme, false),
    );
    let denied = rate(total.map(|total| total.denied));
    draw_rate(
        frame,
        second,
        &format!("denied   {denied:>8}/s"),
        sparkline(history.denied(), most, theme, true),
    );
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, label: &str, bars: Sparkline<'_>) {
    let [left, right] =
        Layout::horizontal([Constraint::Length(TRAFFIC_LABEL), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(label), left);
    frame.render_widget(bars, right);
}

/// The newest value is on the right; both lines have the same scale.
fn sparkline(
    values: impl Iterator<Item = Option<u64>>,
    most: Option<u64>,
    theme: Theme,
    is_denied: bool,
) -> Sparkline<'static> {
    Sparkline::default()
        .data(values.map(SparklineBar::from).collect::<Vec<_>>())
        .max(most.unwrap_or(0).max(1))
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol(" ")
        .style(theme.bars(is_denied))
}

fn draw_routes(frame: &mut Frame<'_>, area: Rect, latest: &Snapshot, rates: &Rates, theme: Theme) {
    let area = below_gap(area);
    let rows = latest.routes.iter().map(|route| {
        let rates = rates.routes.get(&route.name);
        let (denied, failed) = (rates.map(|rates| rates.denied), rates.map(|rates| rates.failed));
        let marked = |value: Option<f64>| {
            let is_positive = value.is_some_and(|value| value > 0.0);
            (rate(value), if is_positive { theme.bad() } else { Default::default() })
        };
        [
            plain(route.name.clone()),
            plain(rate(rates.map(|rates| rates.requests))),
            marked(denied),
            marked(failed),
            plain(latency(route.latency.map(|latency| latency.p50))),
            plain(latency(route.latency.map(|latency| latency.p99))),
            plain(route.tunnels.to_string()),
        ]
    });
    frame.render_widget(table(&ROUTE_COLUMNS, rows, area.width, theme), area);
}

fn draw_blocked(
    frame: &mut Frame<'_>,
    area: Rect,
    app: &TopApp,
    latest: &Snapshot,
    theme: Theme,
    now: Timestamp,
) {
    let area = below_gap(area);
    if latest.blocked.is_empty() {
        frame.render_widget(Paragraph::new("No address was limited recently."), area);
        return;
    }
    let rows = latest.blocked.iter().map(|blocked| {
        let denial_rate = app.rates.denied.get(&blocked.address).copied();
        let style = if denial_rate.is_some_and(|rate| rate > 0.0) { theme.bad() } else { Default::default() };
        [
            plain(blocked.address.clone()),
            plain(blocked.denied.to_string()),
            (rate(denial_rate), style),
            plain(blocked.distinct_users.to_string()),
            plain(&blocked.hint),
            plain(blocked.policies.join(", ")),
            match blocked.state.as_str() {
                "banned" => (format!("ban {}", time_left(&blocked.until, now)), theme.bad()),
                "unblocked" => plain("unblocked"),
                _ => plain(time_left(&blocked.until, now)),
            },
        ]
    });
    let widget = table(&BLOCKED_COLUMNS, rows, area.width, theme).row_highlight_style(theme.selected());
    let mut state = TableState::new().with_selected(app.selected);
    frame.render_stateful_widget(widget, area, &mut state);
}
