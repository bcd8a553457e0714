//! The commands: arguments in, exit code out.

mod check;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// EX_CONFIG of sysexits.h: the configuration is wrong.
const CONFIG_ERROR: u8 = 78;

/// A reverse proxy with built-in throttling.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
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
}

/// Runs the command that the process was called with.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.unwrap_or(Command::Run(arguments.run)) {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
    }
}
