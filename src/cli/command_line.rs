//! The command line: parses the arguments and runs the command.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{
    alerts, audit, bans, blocked, check, completions, config_file::ConfigFile, convert, customers, demo,
    drains, events, explain, explain_setting, history, incidents, keys, limits, man, policies, reload,
    replay, run, schema, status, suggest, terminal, top, unblock, upstreams, usage, user, why,
};

/// A reverse proxy with built-in rate limiting.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    about,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = "Exit code: 0 on success, 1 on failure, 2 if an argument is wrong, 78 (EX_CONFIG) if the configuration has \
        errors. The help of each command has the details."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Serve requests with this configuration, like `tollgate run`
    #[arg(short, long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests
    #[command(aliases = ["start", "serve"])]
    Run(run::Args),
    /// Check a configuration and print every error with its line; exit code 78 if there are errors
    #[command(aliases = ["validate", "test"])]
    Check(check::Args),
    /// Print what a setting is, with its type, default and an example
    ExplainSetting(explain_setting::Args),
    /// Print the JSON Schema of proxy.yaml, for editors
    Schema(schema::Args),
    /// Show which clients the policies would have limited, by access logs
    Replay(replay::Args),
    /// Convert a configuration of nginx, HAProxy, Traefik or Kong
    Convert(convert::Args),
    /// Suggest limits, by access logs or by what a running Tollgate has seen
    Suggest(suggest::Args),
    /// Start an origin, the proxy and some traffic, and show which clients are limited
    Demo(demo::Args),
    /// List limited addresses, or show which users were behind one
    Blocked(blocked::Args),
    /// Clear the limits and bans of an address
    Unblock(unblock::Args),
    /// Ban an address, a prefix or a user for some time
    Ban(bans::BanArgs),
    /// List bans
    Bans(bans::Args),
    /// Lift a ban
    Unban(bans::UnbanArgs),
    /// List the upstreams and the state of their endpoints
    Upstreams(upstreams::Args),
    /// Drain an endpoint on all instances: it takes no new requests until it is undrained
    Drain(drains::DrainArgs),
    /// Let a drained endpoint take requests again
    Undrain(drains::UndrainArgs),
    /// Show a user's bans, limits, addresses and last requests
    User(user::Args),
    /// List the policies and what they decided
    Policies(policies::Args),
    /// Show how much of the limits of a key is used, or reset them
    Limits(limits::Args),
    /// Make, list, change, rotate, revoke, import and export API keys
    Keys(keys::Args),
    /// List customers with their plans and what they have used, or move one to another plan
    Customers(customers::Args),
    /// Show what customers and users have used, or close a month
    Usage(usage::Args),
    /// Say why requests were denied, now or at some time before
    Why(why::Args),
    /// List the messages to webhooks that a share of a limit is used, or test the webhooks
    Alerts(alerts::Args),
    /// List attacks and refusals of many clients, show one, or act on it
    Incidents(incidents::Args),
    /// Back up the history
    History(history::Args),
    /// List who changed what, and when
    Audit(audit::Args),
    /// Follow events as they happen
    Events(events::Args),
    /// Show the version, configuration, store and warnings of a running Tollgate
    Status(status::Args),
    /// Show traffic, limits and limited addresses live
    Top(top::Args),
    /// Explain what would happen to a request, and why; exit code 0 if it would be allowed, 1 if not
    Explain(explain::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
    /// Write the man pages
    Man(man::Args),
    /// Reload the configuration of a running Tollgate, and show what has changed
    Reload(reload::Args),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let arguments = arguments();
    terminal::fit_tables();
    let by_option = || Command::Run(run::Args { config: ConfigFile::by_option(arguments.config) });
    match arguments.command.unwrap_or_else(by_option) {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::ExplainSetting(args) => explain_setting::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Suggest(args) => suggest::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Blocked(args) => blocked::run(&args),
        Command::Unblock(args) => unblock::run(&args),
        Command::Ban(args) => bans::ban(&args),
        Command::Bans(args) => bans::run(&args),
        Command::Unban(args) => bans::unban(&args),
        Command::Upstreams(args) => upstreams::run(&args),
        Command::Drain(args) => drains::drain(&args),
        Command::Undrain(args) => drains::undrain(&args),
        Command::User(args) => user::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Customers(args) => customers::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Alerts(args) => alerts::run(&args),
        Command::Incidents(args) => incidents::run(&args),
        Command::History(args) => history::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Completions(args) => completions::run(&args, Arguments::command()),
        Command::Man(args) => man::run(&args, Arguments::command()),
        Command::Reload(args) => reload::run(&args),
    }
}

/// Parses the arguments of the process.
fn arguments() -> Arguments {
    let mut command = Arguments::command().mut_subcommands(|command| {
        command
            .mut_args(without_empty_variable)
            .mut_subcommands(|command| command.mut_args(without_empty_variable))
    });
    let matches = command.try_get_matches_from_mut(env::args_os());
    let matches = matches.unwrap_or_else(|error| with_hint(error, &command).exit());
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// Adds a hint about the probably intended command.
fn with_hint(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let takes_file =
        |command: &clap::Command| command.get_arguments().any(|taken| taken.get_id() == "config");
    let is_yaml = || [".yaml", ".yml"].iter().any(|end| word.ends_with(end)) || Path::new(word).is_file();
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand if is_yaml() => {
            format!("to serve requests with this configuration, use 'tollgate run {word}'")
        }
        ErrorKind::ArgumentConflict if command.find_subcommand(word).is_some_and(takes_file) => {
            format!("write the option behind the command: 'tollgate {word} --config <FILE>'")
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    error
}

/// Ignores an empty environment variable.
fn without_empty_variable(argument: Arg) -> Arg {
    match argument.get_env().and_then(env::var_os) {
        Some(value) if value.is_empty() => argument.env(Resettable::Reset),
        _ => argument,
    }
}
