//! `tollgate replay LOG…`: which clients the policies would have limited.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueHint;
use tokio::runtime;

use super::{
    failure::{print_error, report_config_errors},
    format::count,
    logs::LogArgs,
    progress::ProgressBar,
    terminal::{moment, printable, printable_json, table},
};
use crate::{
    access_logs::ReadOptions,
    config::{self, Config, Purpose},
    replay::{LimitedKey, PolicyReport, ReplayError, Report, replay},
};

const HELP: &str = concat!(
    "LOG may be compressed by gzip or zstd. Several logs are read as one, for example those of several instances.\n\n",
    "Tollgate recognizes its own logs, the combined and the common format of nginx and Apache, the logs of Traefik, Caddy, ",
    "Envoy, Istio, HAProxy (option httplog), AWS load balancers, CloudFront and Cloudflare, and JSON with the names of nginx' ",
    "variables.\n\n",
    "Exit code: 0 on success, 1 if a log cannot be read, 2 if an argument is wrong, 78 (EX_CONFIG) if the configuration has errors."
);

/// Show which clients the policies would have limited, by access logs
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    #[command(flatten)]
    logs: LogArgs,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "proxy.yaml", value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// The number of keys to list; --json has all
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_hint = ValueHint::Other)]
    limit: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Replays the logs and prints the report.
pub(super) fn run(args: &Args) -> ExitCode {
    let config = match config::load_with_warnings(&args.config, Purpose::Start) {
        Ok((config, warnings)) => {
            print_error(&warnings);
            config
        }
        Err(errors) => return report_config_errors(&errors),
    };
    let printed = report(config, &args.logs).and_then(|report| {
        let text = if args.json { json(&report) } else { text(&report, args.limit) };
        Ok(stdout().lock().write_all(text.as_bytes())?)
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("tollgate: {}\n", printable(&error.to_string())));
            ExitCode::FAILURE
        }
    }
}

fn report(config: Config, logs: &LogArgs) -> Result<Report, ReplayError> {
    let logs = logs.open(ReadOptions::default())?;
    let _bar = ProgressBar::start("replay", logs.progress());
    runtime::Builder::new_current_thread().build()?.block_on(replay(config, logs))
}

fn json(report: &Report) -> String {
    // A report can always be written as JSON.
    serde_json::to_string_pretty(report).map(|json| printable_json(&json) + "\n").unwrap_or_default()
}

fn text(report: &Report, most_keys: usize) -> String {
    let Report { requests, denied, shadow_denied, forbidden, refused, unchecked, unreadable, .. } = report;
    let [first, last] = [&report.first, &report.last].map(|time| moment(time));
    let share = |part: u64| format!("{part} ({:.2} %)", part as f64 * 100.0 / (*requests).max(1) as f64);
    let mut text = format!("{} from {first} to {last} UTC\n", count(*requests, "request"));
    text += &format!("Denied: {}", share(*denied));
    if report.policies.iter().any(|policy| policy.mode == "shadow") {
        text += &format!(", and {} more without mode: shadow", share(*shadow_denied));
    }
    text += "\n";
    if *forbidden > 0 {
        text += &format!("Refused by deny or allow: {}\n", share(*forbidden));
    }
    if *refused > 0 {
        text += &format!("Without a route, or malformed: {}\n", share(*refused));
    }
    if *unchecked > 0 {
        text += &format!(
            "Refused before the policies (a ban, a missing credential, a body that is too long): {}\n",
            share(*unchecked)
        );
    }
    if !report.policies.is_empty() {
        let head = ["POLICY", "MODE", "CHECKED", "DENIED", "DELAYED", "KEYS DENIED", "NOT IN LOG"];
        text += &format!("\n{}", table(head, report.policies.iter().map(policy_row)));
    }
    if !report.keys.is_empty() {
        let head = ["KEY", "POLICY", "MODE", "REQUESTS", "DENIED", "FIRST DENIED (UTC)", "LAST DENIED (UTC)"];
        text += &format!("\n{}", table(head, report.keys.iter().take(most_keys).map(key_row)));
        let more = report.keys.len().saturating_sub(most_keys);
        if more > 0 {
            text += &format!("and {}; --limit lists more\n", count(more as u64, "more key"));
        }
    }
    let mut notes = Vec::new();
    if report.policies.iter().any(|policy| policy.not_in_log > 0) {
        notes.push(
            "NOT IN LOG: requests that were not checked, since the log does not have what the policy's keys are made of."
                .to_owned(),
        );
    }
    for PolicyReport { policy, unknown_conditions, .. } in &report.policies {
        if !unknown_conditions.is_empty() {
            let conditions = unknown_conditions.join(", ");
            notes.push(format!(
                "Policy {policy}: the log does not tell whether {} holds (exempt, overrides). It was taken not to.",
                printable(&conditions)
            ));
        }
    }
    if report.without_host > 0 {
        notes.push(format!(
            "{} without a host in the log. Each was taken to be for the host of the first route that matches.",
            count(report.without_host, "request")
        ));
    }
    if report.late > 0 {
        notes.push(format!(
            "{} further out of order than Tollgate can sort, and taken to have come later. The report may be wrong: give each \
             log as an argument of its own.",
            count(report.late, "request")
        ));
    }
    if !report.without_requests.is_empty() {
        notes.push(format!("Without requests: {}.", printable(&report.without_requests.join(", "))));
    }
    if !report.broken_off.is_empty() {
        notes.push(format!(
            "Not read to the end, since the compressed data is damaged: {}.",
            printable(&report.broken_off.join(", "))
        ));
    }
    if report.spread {
        notes.push(
            "The log has whole seconds. The requests of a second were spread evenly over it.".to_owned(),
        );
    }
    if unreadable.count > 0 {
        let (lines, examples) = (count(unreadable.count, "line"), unreadable.examples.join(", "));
        let reason = unreadable.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        notes.push(format!(
            "{lines} could not be read, such as {}{}.",
            printable(&examples),
            printable(&reason)
        ));
    }
    if !notes.is_empty() {
        text += &format!("\n{}\n", notes.join("\n"));
    }
    text
}

fn policy_row(policy: &PolicyReport) -> [String; 7] {
    let PolicyReport { checked, denied, delayed, denied_keys, not_in_log, .. } = policy;
    let [checked, denied, delayed, denied_keys, not_in_log] =
        [checked, denied, delayed, denied_keys, not_in_log].map(u64::to_string);
    [policy.policy.clone(), policy.mode.to_owned(), checked, denied, delayed, denied_keys, not_in_log]
}

fn key_row(key: &LimitedKey) -> [String; 7] {
    [
        key.key.clone(),
        key.policy.clone(),
        key.mode.to_owned(),
        key.requests.to_string(),
        key.denied.to_string(),
        moment(&key.first),
        moment(&key.last),
    ]
}
