//! How the process stands, in three lines; in one where there is no room.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{super::terminal::printable, app::App, snapshot::Snapshot},
    Look,
    words::{rate, uptime},
};

pub(super) const LINES: u16 = 3;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, look: Look) {
    let mut lines = vec![first(app, look)];
    if let Some(latest) = &app.latest {
        lines.push(second(latest, app, look));
        lines.push(warnings(&latest.status.warnings, look));
    }
    if let Some(trouble) = &app.trouble {
        // It matters more than figures that are old.
        lines.insert(1, Line::styled(printable(trouble).into_owned(), look.bad()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn first(app: &App, look: Look) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("tollgate", bold)];
    match (&app.latest, &app.trouble) {
        (_, Some(_)) => spans.push(Span::styled("  no answer, trying again", look.bad())),
        (None, None) => spans.push(Span::raw("  asking")),
        (Some(latest), None) => {
            let (version, up) = (printable(&latest.status.version), uptime(&latest.status.uptime));
            spans.push(Span::raw(format!(" {version}  up {}  ", printable(&up))));
            let style = if latest.phase() == "ready" { look.well() } else { look.bad() };
            spans.push(Span::styled(latest.phase(), style));
        }
    }
    if app.is_paused {
        spans.push(Span::styled("  paused", look.doubtful()));
    }
    spans.push(Span::raw(format!("  {}", printable(&app.admin))));
    Line::from(spans)
}

fn second(latest: &Snapshot, app: &App, look: Look) -> Line<'static> {
    let store = if latest.is_store_well() { look.well() } else { look.bad() };
    let (healthy, endpoints) = latest.endpoints();
    let well = if healthy == endpoints { look.well() } else { look.bad() };
    let mut spans = vec![
        Span::raw("store "),
        Span::styled(printable(&latest.store()).into_owned(), store),
        Span::raw("  endpoints "),
        Span::styled(format!("{healthy}/{endpoints} healthy"), well),
    ];
    if let Some(total) = app.rates.total.filter(|total| total.shadow_denied > 0.0) {
        let text = format!("  shadow {}/s", rate(Some(total.shadow_denied)));
        spans.push(Span::styled(text, look.doubtful()));
    }
    Line::from(spans)
}

fn warnings(warnings: &[String], look: Look) -> Line<'static> {
    match warnings {
        [] => Line::styled("no warnings", look.well()),
        [only] => Line::styled(format!("1 warning: {}", printable(only)), look.doubtful()),
        [first, ..] => {
            let text = format!("{} warnings: {}", warnings.len(), printable(first));
            Line::styled(text, look.doubtful())
        }
    }
}
