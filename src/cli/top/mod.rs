//! `tollgate top`: what an operator wants at a glance, live in the terminal.
//!
//! Each second the admin port is asked how things stand; what happens per second is the difference between two answers.

mod app;
mod asker;
mod draw;
mod history;
mod keys;
mod live;
mod once;
mod rates;
mod screen;
mod snapshot;
#[cfg(test)]
mod testing;

use std::{
    env,
    io::{IsTerminal, stdout},
    process::ExitCode,
};

use super::client::{self, Options};
use live::End;

/// Watch traffic, limits and limited addresses live; where the output is no terminal, print how things stand once
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// Shows it until somebody has seen enough. The exit code is 1 where the admin port refuses, or nothing can be shown, and
/// 128 and its number where a signal ends it.
pub(super) fn run(args: &Args) -> ExitCode {
    if args.options.json || !can_draw() {
        return client::finish(once::output(&args.options));
    }
    match live::run(&args.options) {
        Ok(End::Left) => ExitCode::SUCCESS,
        Ok(End::Signal(number)) => ExitCode::from(128 + number),
        Err(failure) => client::finish(Err(failure)),
    }
}

fn can_draw() -> bool {
    stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}
