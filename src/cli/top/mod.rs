//! `tollgate top`: traffic, limits and limited addresses, live in the terminal.
//!
//! A snapshot is fetched from the admin port each second; rates are the difference between two snapshots.

mod admin_client;
mod app;
mod draw;
mod keys;
mod live;
mod rates;
mod report;
mod snapshot;
#[cfg(test)]
mod testing;

use std::{
    env,
    io::{IsTerminal, stdout},
    process::ExitCode,
};

use super::client::{self, Options};
use live::Exit;

/// Watch traffic, limits and limited addresses live; where the output is no terminal, print how things stand once
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit code: 0 on q or Ctrl-C, 1 if the admin port refuses or nothing can be shown, 2 if an argument is \
        wrong, and 128 and its number if a signal ends it."
)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// Runs until the operator quits. The exit code is 1 if the admin port refuses or drawing fails, and 128 plus the
/// number of a signal that ends it.
pub(super) fn run(args: &Args) -> ExitCode {
    if args.options.json || !can_draw() {
        return client::print_result(report::output(&args.options));
    }
    match live::run(&args.options) {
        Ok(Exit::Quit) => ExitCode::SUCCESS,
        Ok(Exit::Signal(number)) => ExitCode::from(128 + number),
        Err(failure) => client::print_result(Err(failure)),
    }
}

fn can_draw() -> bool {
    stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}
