//! `tollgate man [DIRECTORY]`: the pages of the manual.

use std::{
    fs, io,
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use clap_mangen::{Man, generate_to};

use super::print_error;

/// Write the pages of the manual, one a command
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Without a directory, the page of tollgate itself is printed: tollgate man | man -l -"
)]
pub(super) struct Args {
    /// Where to write them, such as /usr/local/share/man/man1
    pub directory: Option<PathBuf>,
}

/// Writes them. The exit code is 1 if they can't be written.
pub(super) fn run(args: &Args, command: clap::Command) -> ExitCode {
    match write(args, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("tollgate: the manual can't be written: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn write(args: &Args, command: clap::Command) -> io::Result<()> {
    match &args.directory {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            generate_to(command, directory)
        }
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            stdout().lock().write_all(&page)
        }
    }
}
