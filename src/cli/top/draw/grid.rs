//! Tables whose columns make room: those that matter least go first where the screen is narrow.

use ratatui::{
    layout::{Alignment, Constraint},
    style::Style,
    text::{Line, Text},
    widgets::{Cell, Row, Table},
};

use super::{super::super::terminal::printable, Look};

/// A column of `N`.
pub(super) struct Column {
    head: &'static str,
    width: Constraint,
    /// The narrowest screen that has it.
    from: u16,
    alignment: Alignment,
}

/// Words, as wide as `width`.
pub(super) const fn words(head: &'static str, width: Constraint, from: u16) -> Column {
    Column { head, width, from, alignment: Alignment::Left }
}

/// Figures, `width` wide.
pub(super) const fn figures(head: &'static str, width: u16, from: u16) -> Column {
    Column { head, width: Constraint::Length(width), from, alignment: Alignment::Right }
}

/// Rows of cells, each made harmless, each with its style.
pub(super) fn grid<const N: usize>(
    columns: &[Column; N],
    rows: impl Iterator<Item = [(String, Style); N]>,
    width: u16,
    look: Look,
) -> Table<'static> {
    let shown = |cells: [(String, Style); N]| {
        let cells = columns.iter().zip(cells).filter(|(column, _)| column.from <= width);
        Row::new(cells.map(|(column, (text, style))| {
            let line = Line::from(printable(&text).into_owned()).alignment(column.alignment);
            Cell::from(Text::from(line)).style(style)
        }))
    };
    let head = columns.each_ref().map(|column| (column.head.to_owned(), Style::new()));
    let widths = columns.iter().filter(|column| column.from <= width).map(|column| column.width);
    Table::new(rows.map(shown), widths).header(shown(head).style(look.head())).column_spacing(2)
}

/// A cell that looks like all others.
pub(super) fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), Style::new())
}
