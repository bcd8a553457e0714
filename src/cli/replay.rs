//! `tollgate replay LOG…`: which clients the policies would have limited.

use std::{
    fs,
    io::{self, Write, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgGroup, ValueHint};
use tokio::runtime;

use super::{
    failure::{print_error, report_config_errors},
    format::count,
    logs::LogArgs,
    progress::ProgressBar,
    terminal::{moment, printable, printable_json, table},
};
use crate::{
    config::{self, Config, Errors, Purpose},
    offline::{
        access_logs::ReadOptions,
        replay::{
            ChangedClient, Closeness, LimitedKey, Minute, PolicyReport, ReplayComparison, ReplayError,
            Report, page, replay,
        },
    },
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
#[command(after_help = HELP, group = ArgGroup::new("source").args(["logs"]).required(true))]
pub(super) struct Args {
    #[command(flatten)]
    logs: LogArgs,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = "proxy.yaml", value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// Another configuration: who would be newly denied by it, and who freed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    compare: Option<PathBuf>,
    /// The number of keys and clients to list; --json has all
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_hint = ValueHint::Other)]
    limit: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as one HTML page, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// Replays the logs and prints the report.
pub(super) fn run(args: &Args) -> ExitCode {
    let (config, other) = match (load(&args.config), args.compare.as_deref().map(load).transpose()) {
        (Ok(config), Ok(other)) => (config, other),
        (Err(errors), _) | (_, Err(errors)) => return report_config_errors(&errors),
    };
    let other = args.compare.iter().map(|path| path.display().to_string()).zip(other).next();
    let printed = report(config, other, &args.logs).and_then(|report| {
        if let Some(path) = &args.html {
            fs::write(path, page(&report, args.limit)).map_err(|error| with_path(path, &error))?;
        }
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

fn load(path: &Path) -> Result<Config, Errors> {
    let (config, warnings) = config::load_with_warnings(path, Purpose::Start)?;
    print_error(&warnings);
    Ok(config)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} cannot be written: {error}", path.display()))
}

fn report(config: Config, other: Option<(String, Config)>, logs: &LogArgs) -> Result<Report, ReplayError> {
    let logs = logs.open(ReadOptions::default())?;
    let _bar = ProgressBar::start("replay", logs.progress());
    runtime::Builder::new_current_thread().build()?.block_on(replay(config, other, logs))
}

fn json(report: &Report) -> String {
    // A report can always be written as JSON.
    serde_json::to_string_pretty(report).map(|json| printable_json(&json) + "\n").unwrap_or_default()
}

fn text(report: &Report, most_rows: usize) -> String {
    let Report { requests, forbidden, refused, unchecked, unknown, .. } = report;
    let mut text = match (&report.first, &report.last) {
        (Some(first), Some(last)) => {
            format!("{} from {} to {} UTC\n", count(*requests, "request"), moment(first), moment(last))
        }
        _ => format!("{}, none of them HTTP\n", count(*requests, "request")),
    };
    text += &denied(report.requests, report.denied, report.shadow_denied, &report.policies);
    if *forbidden > 0 {
        text += &format!("Refused by deny or allow: {}\n", share(*forbidden, *requests));
    }
    if *refused > 0 {
        text += &format!("Without a route, or malformed: {}\n", share(*refused, *requests));
    }
    if *unchecked > 0 {
        text += &format!(
            "Refused before the policies (a ban, a missing credential, a body that is too long): {}\n",
            share(*unchecked, *requests)
        );
    }
    if *unknown > 0 {
        text += &format!("Not decided, since the log lacks the listener: {}\n", share(*unknown, *requests));
    }
    if !report.policies.is_empty() {
        let head = ["POLICY", "MODE", "CHECKED", "DENIED", "DELAYED", "KEYS DENIED", "NOT IN LOG"];
        text += &format!("\n{}", table(head, report.policies.iter().map(policy_row)));
        text += "\nHow much of its limit each key used at most, and the worst minute:\n";
        let head = [
            "POLICY",
            "KEYS",
            "≤ 25 %",
            "≤ 50 %",
            "≤ 75 %",
            "≤ 90 %",
            "≤ 100 %",
            "DENIED",
            "WORST MINUTE (UTC)",
        ];
        text += &table(head, report.policies.iter().map(closeness_row));
    }
    if !report.keys.is_empty() {
        let head = ["KEY", "POLICY", "REQUESTS", "DENIED", "FIRST DENIED (UTC)", "LAST DENIED (UTC)", "HINT"];
        text += &format!("\n{}", table(head, report.keys.iter().take(most_rows).map(key_row)));
        text += &more(report.keys.len(), most_rows, "more key");
    }
    if let Some(comparison) = &report.comparison {
        text += &compared(report, comparison, most_rows);
    }
    let notes = report.notes();
    if !notes.is_empty() {
        text += &format!("\n{}\n", notes.iter().map(|note| printable(note)).collect::<Vec<_>>().join("\n"));
    }
    text
}

/// `31 (23.66 %)`
fn share(part: u64, of: u64) -> String {
    format!("{part} ({:.2} %)", part as f64 * 100.0 / of.max(1) as f64)
}

fn denied(requests: u64, denied: u64, shadow_denied: u64, policies: &[PolicyReport]) -> String {
    let mut text = format!("Denied: {}", share(denied, requests));
    if policies.iter().any(|policy| policy.mode == "shadow") {
        text += &format!(", and {} more without mode: shadow", share(shadow_denied, requests));
    }
    text + "\n"
}

fn more(rows: usize, most_rows: usize, what: &str) -> String {
    match rows.saturating_sub(most_rows) {
        0 => String::new(),
        more => format!("and {}; --limit lists more\n", count(more as u64, what)),
    }
}

/// The decisions of the other configuration, and the clients that would notice.
fn compared(report: &Report, comparison: &ReplayComparison, most_rows: usize) -> String {
    let ReplayComparison { config, newly_denied, freed, clients, policies, .. } = comparison;
    let mut text = format!("\nWith {}:\n", printable(config));
    text += &denied(report.requests, comparison.denied, comparison.shadow_denied, policies);
    for (what, refused) in [
        ("Refused by deny or allow", comparison.forbidden),
        ("Without a route, or malformed", comparison.refused),
    ] {
        if refused > 0 {
            text += &format!("{what}: {}\n", share(refused, report.requests));
        }
    }
    let of =
        |what: fn(&ChangedClient) -> u64| clients.iter().filter(|client| what(client) > 0).count() as u64;
    text += &format!(
        "Newly denied: {} of {}. Freed: {} of {}.\n",
        count(*newly_denied, "request"),
        count(of(|client| client.newly_denied), "client"),
        count(*freed, "request"),
        count(of(|client| client.freed), "client")
    );
    if !clients.is_empty() {
        let head = ["CLIENT", "NEWLY DENIED", "BY", "FREED", "FROM", "FIRST (UTC)", "LAST (UTC)"];
        text += &format!("\n{}", table(head, clients.iter().take(most_rows).map(client_row)));
        text += &more(clients.len(), most_rows, "more client");
    }
    text
}

fn policy_row(policy: &PolicyReport) -> [String; 7] {
    let PolicyReport { checked, denied, delayed, denied_keys, not_in_log, .. } = policy;
    let [checked, denied, delayed, denied_keys, not_in_log] =
        [checked, denied, delayed, denied_keys, not_in_log].map(u64::to_string);
    [policy.policy.clone(), policy.mode.to_owned(), checked, denied, delayed, denied_keys, not_in_log]
}

fn closeness_row(policy: &PolicyReport) -> [String; 9] {
    let Closeness { keys, to_25, to_50, to_75, to_90, to_100, denied } = policy.closeness;
    let [keys, to_25, to_50, to_75, to_90, to_100, denied] =
        [keys, to_25, to_50, to_75, to_90, to_100, denied].map(|keys| keys.to_string());
    let worst = match &policy.worst_minute {
        None => "-".to_owned(),
        Some(Minute { minute, requests, denied }) => {
            format!("{}, {denied} of {requests} denied", moment(minute))
        }
    };
    [policy.policy.clone(), keys, to_25, to_50, to_75, to_90, to_100, denied, worst]
}

fn key_row(key: &LimitedKey) -> [String; 7] {
    [
        key.key.clone(),
        key.policy.clone(),
        key.requests.to_string(),
        key.denied.to_string(),
        moment(&key.first),
        moment(&key.last),
        match (key.hint, &key.reasons) {
            (Some(hint), Some(reasons)) => format!("{hint}: {reasons}"),
            _ => "-".to_owned(),
        },
    ]
}

fn client_row(client: &ChangedClient) -> [String; 7] {
    let names = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
    [
        client.client.clone(),
        client.newly_denied.to_string(),
        names(&client.denied_by),
        client.freed.to_string(),
        names(&client.freed_from),
        moment(&client.first),
        moment(&client.last),
    ]
}
