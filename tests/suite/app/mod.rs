//! The process: its start from inherited sockets, and reloads.

mod activation;
mod reload;
