//! How it looks.

mod blocked;
mod evidence;
mod foot;
mod grid;
mod header;
mod look;
mod overlay;
mod routes;
#[cfg(test)]
mod tests;
mod traffic;
pub(super) mod words;

use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
};

pub(super) use look::Look;

use super::app::App;

/// Draws everything, at `now`.
pub(super) fn frame(frame: &mut Frame<'_>, app: &App, look: Look, now: Timestamp) {
    let whole = frame.area();
    let head = if whole.height < 12 { 1 } else { header::LINES };
    let [top, body, foot] =
        Layout::vertical([Constraint::Length(head), Constraint::Fill(1), Constraint::Length(1)]).areas(whole);
    header::draw(frame, top, app, look);
    match &app.opened {
        Some(opened) => evidence::draw(frame, body, opened, look, now),
        None => overview(frame, body, app, look, now),
    }
    foot::draw(frame, foot, app, look);
    if app.is_help {
        overlay::help(frame, body);
    } else if let Some(change) = &app.question {
        overlay::question(frame, body, change, look);
    }
}

fn overview(frame: &mut Frame<'_>, area: Rect, app: &App, look: Look, now: Timestamp) {
    // What is limited comes first where there is little room: half of it at least.
    let traffic = if area.height < 8 { 0 } else { traffic::LINES };
    let rest = area.height - traffic;
    let wanted = app.latest.as_ref().map_or(0, |latest| latest.routes.len() + 2);
    let routes = u16::try_from(wanted).unwrap_or(u16::MAX).min(if rest < 6 { 0 } else { rest / 2 });
    let parts = [Constraint::Length(traffic), Constraint::Length(routes), Constraint::Fill(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(area);
    traffic::draw(frame, top, app, look);
    if let Some(latest) = &app.latest {
        routes::draw(frame, middle, latest, &app.rates, look);
        blocked::draw(frame, bottom, app, latest, look, now);
    }
}
