//! Drawing of the screen.

mod evidence;
mod frame;
mod overview;
#[cfg(test)]
mod tests;
mod widgets;

pub(super) use frame::draw;
pub(super) use widgets::Theme;
