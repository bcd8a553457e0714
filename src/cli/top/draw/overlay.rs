//! What lies above everything else: the help, and what has to be confirmed.

use ratatui::{
    Frame,
    layout::{Constraint, Flex, Layout, Rect},
    text::{Line, Text},
    widgets::{Block, Clear, Paragraph, Wrap},
};

use super::{
    super::{super::terminal::printable, asker::Change, keys::HELP},
    Look,
};

pub(super) fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines = HELP.map(|(keys, what)| Line::from(format!("{keys:<14}{what}")));
    boxed(frame, area, " Keys ", 54, Text::from(lines.to_vec()));
}

pub(super) fn question(frame: &mut Frame<'_>, area: Rect, change: &Change, look: Look) {
    let text = match change {
        Change::Unblock(address) => format!("Unblock {} on every instance?", printable(address)),
        Change::Ban(address) => format!("Ban {} on every instance for 1 h?", printable(address)),
    };
    let lines = vec![Line::styled(text, look.doubtful()), Line::default(), Line::from("y yes   n no")];
    boxed(frame, area, " Sure? ", 60, Text::from(lines));
}

/// In the middle, as wide as `width` where the screen is.
fn boxed(frame: &mut Frame<'_>, area: Rect, title: &'static str, width: u16, text: Text<'static>) {
    let width = width.min(area.width);
    // What has no room in a line takes another.
    let inner = usize::from(width.saturating_sub(2).max(1));
    let lines: usize = text.lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = u16::try_from(lines + 2).unwrap_or(u16::MAX).min(area.height);
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [place] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), place);
}
