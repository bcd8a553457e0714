//! `tollgate alerts`: the messages to webhooks, and a test of these.

use std::process::ExitCode;

use clap::{Subcommand, ValueHint};
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, page_size},
    failure::print_error,
    terminal::{moment, printable, table},
};
use crate::admin::dto::{Alert, Alerts, TestedAlerts};

/// List the messages to webhooks that a share of a limit is used, or test the webhooks
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<AlertsCommand>,
    /// The number of messages to list, 1 to 1000 [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = page_size(), value_hint = ValueHint::Other)]
    limit: Option<u16>,
    /// Continue where the previous page ended
    #[arg(long, value_hint = ValueHint::Other)]
    cursor: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Subcommand)]
enum AlertsCommand {
    /// Send a test to each webhook of the running configuration; exit code 1 if one does not take it
    Test(TestArgs),
}

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct TestArgs {
    #[command(flatten)]
    options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Some(AlertsCommand::Test(args)) => test(args),
        None => client::print_result(output(args)),
    }
}

fn test(args: &TestArgs) -> ExitCode {
    let mut failed = 0;
    let code = client::print_result(client::request(
        &args.options,
        Method::POST,
        "/v1/alerts/test",
        |tested: &TestedAlerts| {
            failed = tested.webhooks.iter().filter(|webhook| webhook.error.is_some()).count();
            tests(tested)
        },
    ));
    // With --json, the reply itself says so.
    if failed > 0 {
        print_error(format_args!("tollgate: {failed} of the webhooks did not take the test\n"));
        return ExitCode::FAILURE;
    }
    code
}

fn tests(tested: &TestedAlerts) -> String {
    let row = |webhook: &crate::admin::dto::TestedWebhook| {
        let reply = webhook.error.as_ref().or(webhook.status.as_ref()).cloned().unwrap_or_default();
        [webhook.to.clone(), webhook.policies.join(", "), format!("{}ms", webhook.milliseconds), reply]
    };
    table(["WEBHOOK", "POLICIES", "TOOK", "REPLY"], tested.webhooks.iter().map(row))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let target =
        client::with_query("/v1/alerts", &[("limit", limit.as_deref()), ("cursor", args.cursor.as_deref())]);
    client::request(&args.options, Method::GET, &target, list)
}

fn list(alerts: &Alerts) -> String {
    if alerts.alerts.is_empty() {
        return "Nobody has used such a share of a limit.\n".to_owned();
    }
    let row = |alert: &Alert| {
        let Alert { time, policy, subject, share, used, limit, to, state, attempts, result, .. } =
            alert.clone();
        let state = match state.as_str() {
            "given_up" => "given up".to_owned(),
            _ => state,
        };
        let result = result.map(|result| format!(": {result}")).unwrap_or_default();
        let tries = if attempts > 1 { format!(" ({attempts} attempts)") } else { String::new() };
        [
            moment(&time),
            subject,
            format!("{share}% of {policy}"),
            format!("{used} of {limit}"),
            to,
            format!("{state}{tries}{result}"),
        ]
    };
    let head = ["TIME (UTC)", "WHO", "SHARE", "USED", "WEBHOOK", "STATE"];
    let mut text = table(head, alerts.alerts.iter().map(row));
    if let Some(cursor) = &alerts.cursor {
        text += &format!("\nFor the next page, add --cursor {}\n", printable(cursor));
    }
    text
}
