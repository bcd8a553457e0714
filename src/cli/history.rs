//! `tollgate history`: the file of the history.

use std::{path::PathBuf, process::ExitCode};

use clap::{Subcommand, ValueHint};

use super::{
    failure::{print_error, report_config_errors},
    terminal::printable,
};
use crate::{
    config::{self, Purpose},
    history,
};

/// Back up the history
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: HistoryCommand,
}

#[derive(Debug, Subcommand)]
enum HistoryCommand {
    /// Write a copy of the history's file, also while Tollgate runs
    Backup(BackupArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 on success, 1 on failure, 2 if an argument is wrong, 78 (EX_CONFIG) if the configuration has errors."
)]
struct BackupArgs {
    /// The copy, which must not be there yet
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The configuration file that names the history
    #[arg(long, value_name = "FILE", default_value = "proxy.yaml", value_hint = ValueHint::FilePath)]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let HistoryCommand::Backup(args) = &args.command;
    let config = match config::load_with_warnings(&args.config, Purpose::Start) {
        Ok((config, _)) => config,
        Err(errors) => return report_config_errors(&errors),
    };
    let fail = |reason: &str| {
        print_error(format_args!("tollgate: {}\n", printable(reason)));
        ExitCode::FAILURE
    };
    let Some(history) = &config.history else { return fail("the configuration has no `history`") };
    let Some(file) = &history.store.file else {
        return fail("the history is in PostgreSQL: back it up with pg_dump --schema tollgate");
    };
    match history::back_up(file, &args.file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{}: {error}", args.file.display())),
    }
}
