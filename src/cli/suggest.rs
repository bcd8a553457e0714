//! `tollgate suggest`: limits for the traffic in access logs, or of a running Tollgate, with their evidence.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgGroup, ValueHint};
use tokio::runtime;

use super::{
    client::Options,
    failure::{print_error, report_config_errors},
    logs::LogArgs,
    suggest_live::{Spare, run_live},
    terminal::{printable, printable_json, printable_lines},
};
use crate::{
    config::{self, Config, Purpose, argument, model::KeyRecipe},
    offline::{
        access_logs::ReadOptions,
        replay::ReplayError,
        suggest::{SuggestError, SuggestOptions, Suggestion, suggest},
    },
};

/// Suggest limits, by access logs or by what a running Tollgate has seen
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The output is YAML with comments: policies for the routes of --config, or without it a whole configuration. For \
        each route, the comments show how many requests clients send at most in any window, whether some stand apart, and what the \
        policies would have denied in the logs.\n\nLOG is as for `tollgate replay`.\n\nExit code: 0 on success, 1 if a log cannot be \
        read, or if the admin port cannot be reached or refuses, 2 if an argument is wrong, 78 (EX_CONFIG) if the configuration has \
        errors.",
    group = ArgGroup::new("source").args(["logs", "live"]).required(true)
)]
pub(super) struct Args {
    #[command(flatten)]
    logs: LogArgs,
    /// Suggest by how close clients of a running Tollgate have come to the limits in force
    #[arg(long, conflicts_with_all = ["logs", "format", "nginx_conf", "config", "key", "window", "limit"])]
    live: bool,
    /// The configuration whose routes get policies; without it, all requests and the busiest paths
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The key to limit by, as in policies: ip, user, header:x-api-key, ip+path
    #[arg(long, value_name = "KEY", default_value = "ip", value_parser = argument::key, value_hint = ValueHint::Other)]
    key: KeyRecipe,
    /// The windows to limit, as in policies
    #[arg(long, value_name = "DURATION", value_delimiter = ',', default_value = "1s,1m,1h",
        value_parser = argument::window, value_hint = ValueHint::Other)]
    window: Vec<Duration>,
    /// The share of the clients to spare. By logs, clients that stand apart from all others are not spared
    #[arg(long, value_name = "PERCENT", default_value = "99.9%", value_hint = ValueHint::Other)]
    spare: Spare,
    /// The number of clients above a limit to list; --json has more
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_hint = ValueHint::Other)]
    limit: usize,
    #[command(flatten)]
    options: Options,
}

/// Reads the logs and prints the suggestion.
pub(super) fn run(args: &Args) -> ExitCode {
    if args.live {
        return run_live(&args.options, args.spare);
    }
    let config = match &args.config {
        None => None,
        Some(file) => match config::load_with_warnings(file, Purpose::Start) {
            Ok((config, warnings)) => {
                print_error(&warnings);
                Some(config)
            }
            Err(errors) => return report_config_errors(&errors),
        },
    };
    let printed = suggestion(config, args).and_then(|suggestion| {
        let text =
            if args.options.json { json(&suggestion) } else { printable_lines(&suggestion.yaml) + "\n" };
        Ok(stdout().lock().write_all(text.as_bytes()).map_err(ReplayError::from)?)
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("tollgate: {}\n", printable(&error.to_string())));
            ExitCode::FAILURE
        }
    }
}

fn suggestion(config: Option<Config>, args: &Args) -> Result<Suggestion, SuggestError> {
    let Args { logs, key, spare, limit, .. } = args;
    let mut windows = args.window.clone();
    windows.sort_unstable();
    windows.dedup();
    let request = SuggestOptions { key: key.clone(), windows, spare: spare.0 / 100.0, listed: *limit };
    let open = || logs.open(ReadOptions::default());
    let runtime = runtime::Builder::new_current_thread().build().map_err(ReplayError::from)?;
    runtime.block_on(suggest(config, &request, &open, logs.are_files()))
}

fn json(suggestion: &Suggestion) -> String {
    // A suggestion can always be written as JSON.
    serde_json::to_string_pretty(suggestion).map(|json| printable_json(&json) + "\n").unwrap_or_default()
}
