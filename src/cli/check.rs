//! `tollgate check FILE`: checks a configuration with the loader itself, without starting anything.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use super::{print_error, report_config_errors};
use crate::config::{self, Purpose};

/// Arguments of `tollgate check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file
    #[arg(default_value = "proxy.yaml")]
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match config::load_with_warnings(&args.file, Purpose::Check) {
        Ok((config, warnings)) => {
            print_error(&warnings);
            // If stdout is closed, nobody reads it.
            let _ = writeln!(
                stdout(),
                "{}: valid ({}, {}, {})",
                args.file.display(),
                count(config.routes.len(), "route"),
                count(config.upstreams.len(), "upstream"),
                match config.policies.len() {
                    1 => "1 policy".to_owned(),
                    count => format!("{count} policies"),
                }
            );
            ExitCode::SUCCESS
        }
        Err(errors) => report_config_errors(&errors),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
