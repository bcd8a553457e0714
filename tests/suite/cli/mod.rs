//! The command line.

mod command_line;
mod commands;
mod demo;
mod top;
