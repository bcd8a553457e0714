//! The command line.

mod access_logs;
mod arguments;
mod command_line;
mod commands;
mod demo;
mod events;
mod keys;
mod limits;
mod replay;
mod replay_refusals;
mod top;
