//! `tollgate completions SHELL`: the completion script of a shell.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use clap_complete::{Shell, generate};

/// Print a shell's completion script
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "For example: tollgate completions bash > /usr/share/bash-completion/completions/tollgate\n\nExit code: 0 on \
        success, 1 if the script cannot be written, 2 if an argument is wrong."
)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script. The exit code is 1 if it can't be written.
pub(super) fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    generate(args.shell, &mut command, name, &mut script);
    match stdout().lock().write_all(&script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
