//! `tollgate man [DIRECTORY]`: the man pages.

use std::{
    fs, io,
    io::{Write, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Command, ValueHint, builder::Resettable};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use super::failure::print_error;

/// Write the man pages, one per command
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Without a directory, the main page is printed: tollgate man | man -l -\n\nExit code: 0 on success, 1 if the \
        pages cannot be written, 2 if an argument is wrong."
)]
pub(super) struct Args {
    /// The directory to write to, such as /usr/local/share/man/man1
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

/// Writes the pages. The exit code is 1 if they can't be written.
pub(super) fn run(args: &Args, command: Command) -> ExitCode {
    match write(args, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("tollgate: can't write the man pages: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn write(args: &Args, command: Command) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    match &args.directory {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            write_pages(&command, directory)
        }
        None => stdout().lock().write_all(&page(&command)?.1),
    }
}

/// Writes the pages of a command and its subcommands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let (name, text) = page(command)?;
    fs::write(directory.join(name), text)?;
    command.get_subcommands().try_for_each(|subcommand| write_pages(subcommand, directory))
}

/// The name and text of a page. The text below the options in the help becomes sections, as usual in man-pages(7).
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut text = Vec::new();
    man.render(&mut text)?;
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in after_help.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let (section, paragraph) = match paragraph.strip_prefix("Exit code: ") {
            Some(codes) => ("EXIT STATUS", codes),
            None => ("NOTES", paragraph),
        };
        Roff::new().control("SH", [section]).text([roman(paragraph)]).to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}
