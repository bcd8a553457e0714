//! The process: its start from inherited sockets, its handover to a new one, reloads, and files that hang.

mod activation;
pub mod handover;
mod hanging_files;
mod idleness;
mod reload;
