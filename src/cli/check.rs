//! `tollgate check FILE`: checks a configuration with the loader itself, without starting anything.

use std::{
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
};

use super::{config_file::ConfigFile, format::count, print_error, report_config_errors};
use crate::config::{self, Purpose};

/// Arguments of `tollgate check`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 if the configuration is valid (warnings are no errors), 2 if an argument is wrong, 78 (EX_CONFIG) \
        if the configuration has errors or cannot be read.\n\nThe file - is standard input."
)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigFile,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let file = match args.config.path() {
        Ok(file) => file,
        Err(code) => return code,
    };
    let loaded = match file == Path::new("-") {
        true => config::load_from_stdin(),
        false => config::load_with_warnings(file, Purpose::Check),
    };
    match loaded {
        Ok((config, warnings)) => {
            print_error(&warnings);
            // If stdout is closed, nobody reads it.
            let _ = writeln!(
                stdout(),
                "{}: valid ({}, {}, {})",
                config.source.path,
                count(config.routes.len() as u64, "route"),
                count(config.upstreams.len() as u64, "upstream"),
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
