//! Colours, where they are wanted.

use std::env;

use ratatui::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Look {
    pub(super) is_coloured: bool,
}

impl Look {
    /// Without colours where `NO_COLOR` is set and not empty (no-color.org).
    pub(in super::super) fn of_environment() -> Self {
        Self { is_coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(super) fn well(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn doubtful(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Bars of what was admitted, and of what was not.
    pub(super) fn bars(self, is_denied: bool) -> Style {
        self.coloured(if is_denied { Color::Red } else { Color::Cyan })
    }

    /// What stands above a column.
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
