//! Colours and tables. On a narrow screen, the least important columns are left out.

use std::env;

use ratatui::{
    layout::{Alignment, Constraint, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Text},
    widgets::{Cell, Row, Table},
};

use super::super::super::terminal::printable;

#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Theme {
    pub(super) is_coloured: bool,
}

impl Theme {
    /// Without colours if `NO_COLOR` is set and not empty (no-color.org).
    pub(in super::super) fn from_environment() -> Self {
        Self { is_coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Bars of admitted requests, and of denied ones.
    pub(super) fn bars(self, is_denied: bool) -> Style {
        self.coloured(if is_denied { Color::Red } else { Color::Cyan })
    }

    /// The head of a column.
    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn coloured(self, color: Color) -> Style {
        if self.is_coloured { Style::new().fg(color) } else { Style::new() }
    }
}

/// A column of a table.
pub(super) struct Column {
    head: &'static str,
    width: Constraint,
    /// The minimum width of the screen to show it.
    min_screen: u16,
    alignment: Alignment,
}

/// A column of words, as wide as `width`.
pub(super) const fn words(head: &'static str, width: Constraint, min_screen: u16) -> Column {
    Column { head, width, min_screen, alignment: Alignment::Left }
}

/// A column of figures, `width` wide.
pub(super) const fn figures(head: &'static str, width: u16, min_screen: u16) -> Column {
    Column { head, width: Constraint::Length(width), min_screen, alignment: Alignment::Right }
}

/// A table of cells with their styles. Control characters in cells are escaped.
pub(super) fn table<const N: usize>(
    columns: &[Column; N],
    rows: impl Iterator<Item = [(String, Style); N]>,
    width: u16,
    theme: Theme,
) -> Table<'static> {
    let row = |cells: [(String, Style); N]| {
        let cells = columns.iter().zip(cells).filter(|(column, _)| column.min_screen <= width);
        Row::new(cells.map(|(column, (text, style))| {
            let line = Line::from(printable(&text).into_owned()).alignment(column.alignment);
            Cell::from(Text::from(line)).style(style)
        }))
    };
    let head = columns.each_ref().map(|column| (column.head.to_owned(), Style::new()));
    let widths = columns.iter().filter(|column| column.min_screen <= width).map(|column| column.width);
    Table::new(rows.map(row), widths).header(row(head).style(theme.head())).column_spacing(2)
}

/// A cell without a style of its own.
pub(super) fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), Style::new())
}

/// The area without its first line.
pub(super) fn below_gap(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
}
