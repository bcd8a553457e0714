//! The composition root: builds, starts, reloads and stops everything.

mod difference;
mod generation;
mod keys_file;
mod launch;
mod reload;
mod running;
mod shared;
mod start_error;
mod stores;
mod workers;

pub use crate::listener::{HANDOVER_VARIABLE, InheritedSockets, ListeningSockets, SessionKeys};
pub use launch::start;
pub use reload::{Loaded, PreparationOutcome, PreparingReload};
pub use running::App;
pub use start_error::StartError;
