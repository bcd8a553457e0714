//! The command line.

mod access_logs;
mod arguments;
mod command_line;
mod commands;
mod convert;
mod convert_others;
mod demo;
mod events;
mod keys;
mod limits;
mod replay;
mod replay_refusals;
mod suggest;
mod top;
