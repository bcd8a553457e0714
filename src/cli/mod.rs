//! The commands: arguments in, exit code out.

mod admin_url;
mod audit;
mod ban;
mod bans;
mod blocked;
mod check;
mod client;
mod command_line;
mod completions;
mod config_file;
mod demo;
mod drain;
mod events;
mod explain;
mod explain_setting;
mod failure;
mod format;
mod handover;
mod keys;
mod limits;
mod man;
mod policies;
mod reload;
mod replay;
mod run;
mod schema;
mod service_manager;
mod status;
mod terminal;
mod top;
mod unban;
mod unblock;
mod undrain;
mod upstreams;
mod user;

pub use command_line::main;
