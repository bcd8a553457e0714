//! `tollgate explain-setting NAME`: an entry of the reference.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use super::failure::{WRONG_ARGUMENTS, print_error};
use crate::config::settings;

/// Print what a setting is, with its type, default and an example
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "For example: tollgate explain-setting policies.*.slice\n\nThe reference of all settings is \
        docs/reference.md.\n\nExit code: 0 on success, 1 if the entry cannot be written, 2 if no setting has this name."
)]
pub(super) struct Args {
    /// The setting, as policies.*.slice or policies.per-ip.slice; a key alone, such as slice, shows every setting with this key
    #[arg(value_name = "SETTING")]
    name: String,
}

/// Prints the entry. The exit code is 2 if there is none.
pub(super) fn run(args: &Args) -> ExitCode {
    match settings::explain(&args.name) {
        Ok(text) => match stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(unknown) => {
            print_error(format_args!("tollgate: {unknown}\n"));
            ExitCode::from(WRONG_ARGUMENTS)
        }
    }
}
