//! `tollgate events`: events as they happen, one per line.

mod follow;
mod line;

use std::process::ExitCode;

use super::{
    client::{self, Options},
    terminal::has_colours,
};
use line::Format;

/// Follow events as they happen
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Events are followed until Ctrl-C, or until nobody reads the output any more. If the connection is lost, it is \
        made again, with a word on standard error: the events in between are not sent again.\n\nWith --json, each event is an \
        object in a line of its own: its time, its name as `event`, and its data.\n\nExit code: 0 if nobody reads the output any \
        more, 1 if the admin port cannot be reached at the start or refuses, 2 if an argument is wrong, 130 on Ctrl-C."
)]
pub(super) struct Args {
    /// Only events of this type; repeat it for more [default: all but tick]
    #[arg(long = "type", value_name = "TYPE", value_parser = TYPES, value_delimiter = ',')]
    pub types: Vec<String>,
    #[command(flatten)]
    pub options: Options,
}

/// The events of the admin port. `tick`: the current rates, every two seconds.
const TYPES: [&str; 15] = [
    "limited",
    "unblocked",
    "banned",
    "lifted",
    "drained",
    "undrained",
    "reloaded",
    "not_reloaded",
    "health",
    "endpoints",
    "warning",
    "incident",
    "incident_act",
    "missed",
    TICK,
];
const TICK: &str = "tick";

impl Args {
    fn wants(&self, event: &str) -> bool {
        match self.types.as_slice() {
            [] => event != TICK,
            types => types.iter().any(|wanted| wanted == event),
        }
    }
}

/// Prints events until the output is closed.
pub(super) fn run(args: &Args) -> ExitCode {
    let format = match args.options.json {
        true => Format::Json,
        false => Format::Text { has_colours: has_colours() },
    };
    client::print_result(follow::follow(args, format).map(|()| String::new()))
}
