//! The process: its start from inherited sockets, its handover to a new one, reloads, files that hang, and a clock that is
//! set.

mod activation;
mod clock;
pub mod handover;
mod hanging_files;
mod idleness;
mod reload;
