//! The composition root: builds, starts and stops everything. A checklist without logic.

mod difference;
mod generation;
mod launch;
mod reload;
mod running;
mod shared;
mod stores;
mod workers;

pub use crate::listener::{HANDOVER_VARIABLE, InheritedSockets, ListeningSockets, SessionKeys};
pub use launch::{StartError, start};
pub use reload::{Loaded, PreparationOutcome, PreparingReload};
pub use running::App;
