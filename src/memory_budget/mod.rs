//! What memory costs, how much of it there is, and how it is shared out.
//!
//! Limits and evidence are bounded in bytes, each by a budget. A budget that `proxy.yaml` does not set is a share of what the
//! process may take ([`available`]). What counts against it is what the allocator hands out for it ([`heap`]).

mod available;
mod budget;
mod display;
pub mod heap;
mod reclaim;

pub use available::{AvailableMemory, available};
pub use budget::MemoryBudgets;
pub use display::format_bytes;
pub use reclaim::{FreedBytes, Reclaimer};
