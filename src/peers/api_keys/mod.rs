//! API keys that all instances share.
//!
//! Each change has a number, and each key the number of its last change. So an instance reads what was changed after
//! the last number that it knows: one change, a day's, or all. It reads when a change is published, and twice a
//! second, so that a lost message does no lasting harm. Unlike bans, changes need no order: the greater version of a
//! key holds wherever two meet.

mod sync;
mod table;
mod uses;

pub(super) use sync::KeySync;
pub(super) use table::{KeyTable, scripts};
pub(super) use uses::share_uses;

/// The message that announces a change.
pub(super) const CHANGED: &str = r#"["keys"]"#;
