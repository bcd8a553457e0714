//! `tollgate reload`: makes a running Tollgate reload its configuration.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use http::Method;

use super::{
    client::{self, AdminError, Options},
    failure::{CONFIG_ERROR, print_error},
    terminal::{printable, printable_json, printable_lines},
};
use crate::admin::dto::{ConfigurationError, Reloaded};

/// Read the configuration again
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit code: 0 if the configuration was reloaded, 1 if the admin port cannot be reached or refuses, 2 if an \
        argument is wrong, 78 (EX_CONFIG) if the configuration has errors."
)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// The heading of settings that a reload can't change.
const AFTER_RESTART: &str = "Takes effect after a restart, or after SIGUSR2 (docs/upgrade.md)";

/// Sends the request and prints the changes. The exit code is 78 if the configuration has errors, which are printed as
/// by `tollgate check`, and 1 without a response.
pub(super) fn run(args: &Args) -> ExitCode {
    match client::request(&args.options, Method::POST, "/v1/reload", describe) {
        Err(AdminError::Misconfigured { errors, problem }) => report_errors(&args.options, &errors, &problem),
        result => client::print_result(result),
    }
}

fn describe(reloaded: &Reloaded) -> String {
    let mut text = match reloaded.changed.as_slice() {
        [] if !reloaded.needs_restart.is_empty() => {
            "The configuration was reloaded; nothing has changed yet.\n".to_owned()
        }
        [] => "The configuration was reloaded; nothing has changed.\n".to_owned(),
        changed => format!("Changed:\n{}", bullet_list(changed)),
    };
    for (heading, lines) in [(AFTER_RESTART, &reloaded.needs_restart), ("Warnings", &reloaded.warnings)] {
        if !lines.is_empty() {
            text += &format!("\n{heading}:\n{}", bullet_list(lines));
        }
    }
    text
}

fn bullet_list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {}\n", printable(line))).collect()
}

fn report_errors(options: &Options, errors: &[ConfigurationError], problem: &str) -> ExitCode {
    if options.json {
        // A closed stdout is ignored.
        let _ = writeln!(stdout(), "{}", printable_json(problem.trim_end()));
    } else {
        let all: Vec<_> = errors.iter().map(|error| printable_lines(error.text.trim_end())).collect();
        print_error(format_args!("{}\n\nThe running configuration was not changed.\n", all.join("\n\n")));
    }
    ExitCode::from(CONFIG_ERROR)
}
