//! The commands: arguments in, exit code out.

mod ban;
mod bans;
mod blocked;
mod check;
mod client;
mod completions;
mod demo;
mod explain;
mod man;
mod reload;
mod run;
mod service_manager;
mod terminal;
mod top;
mod unban;
mod unblock;

use std::{
    fmt::Display,
    io::{Write, stderr},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};

use crate::config;

/// EX_CONFIG of sysexits.h: the configuration is wrong.
const CONFIG_ERROR: u8 = 78;

/// A reverse proxy with built-in throttling.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests; what is done where no command is given
    Run(run::Args),
    /// Check a configuration: exit code 0, or 78 with every error and its line
    Check(check::Args),
    /// Start an origin, the proxy in front of it and some traffic, and show who was limited
    Demo(demo::Args),
    /// List the addresses that are or were limited, or show who was behind one
    Blocked(blocked::Args),
    /// Take back what limits an address
    Unblock(unblock::Args),
    /// Shut out an address, a prefix or a user for a while
    Ban(ban::Args),
    /// List who is shut out
    Bans(bans::Args),
    /// Lift a ban
    Unban(unban::Args),
    /// Watch traffic, limits and limited addresses live
    Top(top::Args),
    /// Say what would become of a request, and why: exit code 0 if it would be allowed, 1 if not
    Explain(explain::Args),
    /// Print what a shell needs to complete command lines
    Completions(completions::Args),
    /// Write the pages of the manual
    Man(man::Args),
    /// Have a running Tollgate read its configuration again, and show what has changed
    Reload(reload::Args),
}

/// Runs the command that the process was called with.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.unwrap_or(Command::Run(arguments.run)) {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Blocked(args) => blocked::run(&args),
        Command::Unblock(args) => unblock::run(&args),
        Command::Ban(args) => ban::run(&args),
        Command::Bans(args) => bans::run(&args),
        Command::Unban(args) => unban::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Completions(args) => completions::run(&args, Arguments::command()),
        Command::Man(args) => man::run(&args, Arguments::command()),
        Command::Reload(args) => reload::run(&args),
    }
}

/// Prints every error of a configuration, and returns the exit code.
fn report_config_errors(errors: &config::Errors) -> ExitCode {
    print_error(errors);
    ExitCode::from(CONFIG_ERROR)
}

/// Writes to stderr. If it is closed, nobody reads the message.
fn print_error(message: impl Display) {
    let _ = write!(stderr(), "{message}");
}
