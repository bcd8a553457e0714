//! The last line: what came of a change, or which keys there are.

use ratatui::{Frame, layout::Rect, text::Line, widgets::Paragraph};

use super::{
    super::{super::terminal::printable, app::App},
    Look,
};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, look: Look) {
    let line = match (&app.notice, &app.opened) {
        (Some(notice), _) => Line::styled(printable(notice).into_owned(), look.doubtful()),
        (None, Some(_)) => {
            Line::from("Esc back  u unblock  b ban 1h  Up/Down records  p pause  q quit  ? help")
        }
        (None, None) => Line::from(format!(
            "q quit  s sort: {}  Enter who  u unblock  b ban 1h  p pause  ? help",
            app.sort.name()
        )),
    };
    frame.render_widget(Paragraph::new(line), area);
}
