//! The commands.

pub mod blocked;
mod client;
mod terminal;
pub mod unblock;

pub use client::Options;
