//! `tollgate check FILE`: loads a configuration without starting anything.

use std::{
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
};

use super::{
    config_file::ConfigFile,
    failure::{print_error, report_config_errors},
    format::count,
    terminal::printable,
};
use crate::config::{
    self, Purpose,
    model::{Config, Route, is_numbered_name},
};

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

/// A hint for routes whose generated names differ only by a number; printed once.
fn naming_hint(config: &Config) -> String {
    let is_numbered = |route: &&Route| is_numbered_name(&route.name, &route.shown_path());
    let mut numbered = config.routes.iter().filter(is_numbered);
    let Some(first) = numbered.next() else { return String::new() };
    let others = match numbered.count() {
        0 => String::new(),
        others => format!(" (and {})", count(others as u64, "other route")),
    };
    format!(
        "hint: metrics, logs and the page call a route {}{others}, since an earlier one has the same path: give it a name, such \
         as `name: uploads`\n",
        printable(&first.name)
    )
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
            // A closed stdout is ignored.
            let _ = write!(
                stdout(),
                "{}: valid ({}, {}, {})\n{}",
                config.source.path,
                count(config.routes.len() as u64, "route"),
                count(config.upstreams.len() as u64, "upstream"),
                match config.policies.len() {
                    1 => "1 policy".to_owned(),
                    count => format!("{count} policies"),
                },
                naming_hint(&config)
            );
            ExitCode::SUCCESS
        }
        Err(errors) => report_config_errors(&errors),
    }
}
