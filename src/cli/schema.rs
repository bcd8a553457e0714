//! `tollgate schema`: the JSON Schema of `proxy.yaml`.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use crate::config::settings;

/// Print the JSON Schema of proxy.yaml, for editors
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "For example: tollgate schema > proxy.schema.json, and as a line of proxy.yaml: \
        # yaml-language-server: $schema=proxy.schema.json\n\nExit code: 0 on success, 1 if the schema cannot be written, 2 if \
        an argument is wrong.")]
pub(super) struct Args {}

/// Prints the schema. The exit code is 1 if it can't be written.
pub(super) fn run(_: &Args) -> ExitCode {
    match writeln!(stdout().lock(), "{:#}", settings::json_schema()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
