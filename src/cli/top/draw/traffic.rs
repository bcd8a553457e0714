//! Requests and denials of the last minute.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    widgets::{Paragraph, RenderDirection, Sparkline, SparklineBar},
};

use super::{super::app::App, Look, words::rate};

/// A gap above, and a line for each.
pub(super) const LINES: u16 = 3;
/// `requests   1250/s`
const LABEL: u16 = 20;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, look: Look) {
    let lines = [Constraint::Length(1); LINES as usize];
    let [_, first, second] = Layout::vertical(lines).areas(area);
    let (total, history) = (app.rates.total, &app.history);
    let most = history.requests().chain(history.denied()).flatten().max();
    let requests = rate(total.map(|total| total.requests));
    draw_line(
        frame,
        first,
        &format!("requests {requests:>8}/s"),
        bars(history.requests(), most, look, false),
    );
    let denied = rate(total.map(|total| total.denied));
    draw_line(frame, second, &format!("denied   {denied:>8}/s"), bars(history.denied(), most, look, true));
}

fn draw_line(frame: &mut Frame<'_>, area: Rect, label: &str, bars: Sparkline<'_>) {
    let [left, right] = Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(label), left);
    frame.render_widget(bars, right);
}

/// The newest on the right, both lines on one scale.
fn bars(
    values: impl Iterator<Item = Option<u64>>,
    most: Option<u64>,
    look: Look,
    is_denied: bool,
) -> Sparkline<'static> {
    Sparkline::default()
        .data(values.map(SparklineBar::from).collect::<Vec<_>>())
        .max(most.unwrap_or(0).max(1))
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol(" ")
        .style(look.bars(is_denied))
}
