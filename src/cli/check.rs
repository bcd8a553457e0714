//! `tollgate check FILE`: the loader's own word on a configuration, without starting anything.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use super::{complain, misconfigured};
use crate::config;

/// Arguments of `tollgate check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration
    #[arg(default_value = "proxy.yaml")]
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match config::load_warning(&args.file) {
        Ok((config, warnings)) => {
            complain(&warnings);
            // Whoever closed our stdout does not want to know.
            let _ = writeln!(
                stdout(),
                "{}: valid ({}, {}, {})",
                args.file.display(),
                count(config.routes.len(), "route"),
                count(config.upstreams.len(), "upstream"),
                match config.policies.len() {
                    1 => "1 policy".to_owned(),
                    several => format!("{several} policies"),
                }
            );
            ExitCode::SUCCESS
        }
        Err(errors) => misconfigured(&errors),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
