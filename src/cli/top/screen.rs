//! The terminal while it is drawn upon. However it ends, it is left as it was found.

use std::io;

use ratatui::{DefaultTerminal, Frame};

/// Restored when it is dropped; on a panic before that is told, by ratatui's hook.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| {
            // It may have got half of the way.
            let _as_well_as_it_goes = ratatui::try_restore();
        })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _gone = self.0.show_cursor();
        let _gone = ratatui::try_restore();
    }
}
