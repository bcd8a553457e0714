//! `tollgate man [DIRECTORY]`: the pages of the manual.

use std::{
    fs, io,
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use clap_mangen::{Man, generate_to};

use super::print_error;

/// Write the man pages, one per command
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Without a directory, the main page is printed: tollgate man | man -l -")]
pub(super) struct Args {
    /// The directory to write to, such as /usr/local/share/man/man1
    pub directory: Option<PathBuf>,
}

/// Writes them. The exit code is 1 if they can't be written.
pub(super) fn run(args: &Args, command: clap::Command) -> ExitCode {
    match write(args, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("tollgate: can't write the man pages: {error}\n"));
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
