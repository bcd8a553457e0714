//! The whole screen: the header, the body, the last line, and the dialogs above them.

use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Flex, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Block, Clear, Paragraph, Wrap},
};

use super::{
    super::{
        super::{
            format::{rate, uptime},
            status::{failing_nodes, phase, store},
            terminal::printable,
        },
        admin_client::AddressChange,
        app::TopApp,
        keys::HELP,
        snapshot::Snapshot,
    },
    Theme, evidence, overview,
};

const HEADER_LINES: u16 = 3;
/// Maximum number of outages that are named; the others are only counted.
const SHOWN_OUTAGES: usize = 3;

/// Draws everything as of `now`.
pub(in super::super) fn draw(frame: &mut Frame<'_>, app: &TopApp, theme: Theme, now: Timestamp) {
    let whole = frame.area();
    let failing = app.latest.as_ref().map(failures).unwrap_or_default();
    let header = match whole.height {
        0..12 => 1 + u16::from(!failing.is_empty()),
        _ => HEADER_LINES + u16::try_from(failing.len()).unwrap_or(u16::MAX),
    };
    let [top, body, footer] =
        Layout::vertical([Constraint::Length(header), Constraint::Fill(1), Constraint::Length(1)])
            .areas(whole);
    draw_header(frame, top, app, &failing, theme);
    match &app.opened {
        Some(opened) => evidence::draw(frame, body, opened, theme, now),
        None => overview::draw(frame, body, app, theme, now),
    }
    draw_footer(frame, footer, app, theme);
    if app.is_help {
        draw_help(frame, body);
    } else if let Some(change) = &app.to_confirm {
        draw_confirmation(frame, body, change, theme);
    }
}

/// Problems, one per line: outages, nodes of the store that are not up, and drained endpoints.
fn failures(latest: &Snapshot) -> Vec<String> {
    let outages = &latest.status.outages;
    let mut lines: Vec<_> = outages.iter().take(SHOWN_OUTAGES).map(|outage| outage.text.clone()).collect();
    if outages.len() > SHOWN_OUTAGES {
        lines.push(format!("and {} more outages", outages.len() - SHOWN_OUTAGES));
    }
    lines.extend(failing_nodes(&latest.status.store).map(|nodes| format!("not up: {nodes}")));
    let drained = latest.endpoints().filter(|(_, endpoint)| endpoint.state == "drained");
    let drained: Vec<_> =
        drained.map(|(upstream, endpoint)| format!("{} of {upstream}", endpoint.url)).collect();
    if !drained.is_empty() {
        lines.push(format!("drained: {}", drained.join(", ")));
    }
    lines
}

/// The state of the process in three lines, or in one if there is little room. The `failing` lines follow the first.
fn draw_header(frame: &mut Frame<'_>, area: Rect, app: &TopApp, failing: &[String], theme: Theme) {
    let mut lines = vec![process_line(app, theme)];
    if let Some(latest) = &app.latest {
        lines.extend(failing.iter().map(|line| Line::styled(printable(line).into_owned(), theme.bad())));
        lines.push(health_line(latest, app, theme));
        lines.push(warnings_line(&latest.status.other_warnings().collect::<Vec<_>>(), theme));
    }
    if let Some(error) = &app.refresh_error {
        // More important than old numbers.
        lines.insert(1, Line::styled(printable(error).into_owned(), theme.bad()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn process_line(app: &TopApp, theme: Theme) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("tollgate", bold)];
    match (&app.latest, &app.refresh_error) {
        (_, Some(_)) => spans.push(Span::styled("  no answer, retrying", theme.bad())),
        (None, None) => spans.push(Span::raw("  connecting")),
        (Some(latest), None) => {
            let (version, up) = (printable(&latest.status.version), uptime(&latest.status.uptime));
            spans.push(Span::raw(format!(" {version}  up {}  ", printable(&up))));
            let phase = phase(&latest.status);
            let style = if phase == "ready" { theme.good() } else { theme.bad() };
            spans.push(Span::styled(phase, style));
        }
    }
    if app.is_paused {
        spans.push(Span::styled("  paused", theme.warning()));
    }
    spans.push(Span::raw(format!("  {}", printable(&app.admin))));
    Line::from(spans)
}

fn health_line(latest: &Snapshot, app: &TopApp, theme: Theme) -> Line<'static> {
    let status = &latest.status.store;
    let store_style = if status.is_healthy() { theme.good() } else { theme.bad() };
    let (all, healthy, drained) =
        (latest.endpoints().count(), latest.endpoints_in("healthy"), latest.endpoints_in("drained"));
    let endpoint_style = if healthy + drained == all { theme.good() } else { theme.bad() };
    let drained = if drained > 0 { format!(", {drained} drained") } else { String::new() };
    let mut spans = vec![
        Span::raw("store "),
        Span::styled(printable(&store(status)).into_owned(), store_style),
        Span::raw("  endpoints "),
        Span::styled(format!("{healthy}/{all} healthy{drained}"), endpoint_style),
    ];
    if let Some(total) = app.rates.total.filter(|total| total.shadow_denied > 0.0) {
        let text = format!("  shadow {}/s", rate(Some(total.shadow_denied)));
        spans.push(Span::styled(text, theme.warning()));
    }
    Line::from(spans)
}

fn warnings_line(warnings: &[&String], theme: Theme) -> Line<'static> {
    match warnings {
        [] => Line::styled("no warnings", theme.good()),
        [only] => Line::styled(format!("1 warning: {}", printable(only)), theme.warning()),
        [first, ..] => {
            let text = format!("{} warnings: {}", warnings.len(), printable(first));
            Line::styled(text, theme.warning())
        }
    }
}

/// The last line: the result of a change, or the keys.
fn draw_footer(frame: &mut Frame<'_>, area: Rect, app: &TopApp, theme: Theme) {
    let line = match (&app.notice, &app.opened) {
        (Some(notice), _) => Line::styled(printable(notice).into_owned(), theme.warning()),
        (None, Some(_)) => {
            Line::from("Esc back  u unblock  b ban 1h  Up/Down records  p pause  q quit  ? help")
        }
        (None, None) => Line::from(format!(
            "q quit  s sort: {}  Enter users  u unblock  b ban 1h  p pause  ? help",
            app.sort.name()
        )),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.map(|(keys, what)| Line::from(format!("{keys:<14}{what}")));
    draw_dialog(frame, area, " Keys ", 54, Text::from(lines.to_vec()));
}

/// The dialog to confirm a change.
fn draw_confirmation(frame: &mut Frame<'_>, area: Rect, change: &AddressChange, theme: Theme) {
    let text = match change {
        AddressChange::Unblock(address) => format!("Unblock {} on every instance?", printable(address)),
        AddressChange::Ban(address) => format!("Ban {} on every instance for 1 h?", printable(address)),
    };
    let lines = vec![Line::styled(text, theme.warning()), Line::default(), Line::from("y yes   n no")];
    draw_dialog(frame, area, " Sure? ", 60, Text::from(lines));
}

/// A box in the middle, at most `width` wide.
fn draw_dialog(frame: &mut Frame<'_>, area: Rect, title: &'static str, width: u16, text: Text<'static>) {
    let width = width.min(area.width);
    // Long lines wrap.
    let inner = usize::from(width.saturating_sub(2).max(1));
    let lines: usize = text.lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = u16::try_from(lines + 2).unwrap_or(u16::MAX).min(area.height);
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [rect] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    frame.render_widget(Clear, rect);
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), rect);
}
