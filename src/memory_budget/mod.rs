//! The budgets of memory: available bytes, their shares, and the heap size of values.
//!
//! Limits and evidence are each bounded by a budget in bytes. A budget that `proxy.yaml` does not set is a share of the
//! available memory ([`available`]). The bytes counted against it are those that the allocator hands out ([`heap`]).

mod available;
mod budget;
mod display;
pub mod heap;
mod reclaim;

pub use available::{AvailableMemory, available};
pub use budget::MemoryBudgets;
pub use display::format_bytes;
pub use reclaim::{FreedBytes, Reclaimer};
