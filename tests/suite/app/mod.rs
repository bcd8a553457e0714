//! The process: its start from inherited sockets, its handover to a new one, and reloads.

mod activation;
mod handover;
mod reload;
