//! `tollgate suggest`: limits that would have spared most clients.

use std::process::ExitCode;

use clap::ValueHint;

use super::{
    client::{EXIT_CODES, Options},
    suggest_live::{Spare, run_live},
};

/// Suggest limits that would have spared most clients
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// By how close clients of a running Tollgate have come to the limits in force
    #[arg(long, required = true)]
    pub live: bool,
    /// The share of the clients to spare
    #[arg(long, value_name = "PERCENT", default_value = "99.9%", value_hint = ValueHint::Other)]
    pub spare: Spare,
    #[command(flatten)]
    pub options: Options,
}

/// Prints the suggestions.
pub(super) fn run(args: &Args) -> ExitCode {
    run_live(&args.options, args.spare)
}
