//! Exit codes and error messages of commands.

use std::{
    fmt::Display,
    io::{Write, stderr},
    process::ExitCode,
};

use crate::config;

/// EX_CONFIG of sysexits.h: the configuration is wrong.
pub(super) const CONFIG_ERROR: u8 = 78;
/// clap's exit code for arguments that it can't parse.
pub(super) const WRONG_ARGUMENTS: u8 = 2;

/// Prints all errors of a configuration and returns the exit code.
pub(super) fn report_config_errors(errors: &config::Errors) -> ExitCode {
    print_error(errors);
    ExitCode::from(CONFIG_ERROR)
}

/// Writes to stderr; does nothing if it is closed.
pub(super) fn print_error(message: impl Display) {
    let _ = write!(stderr(), "{message}");
}
