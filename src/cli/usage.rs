//! `tollgate usage`: what customers and users have used.

use std::{io, process::ExitCode};

use clap::{Subcommand, ValueHint};
use http::Method;
use tokio::runtime;

use super::{
    client::{self, AdminConnection, AdminError, EXIT_CODES, Options, with_timeout},
    terminal::{printable, printable_json, wide_table},
};
use crate::admin::dto::{CloseMonth, ClosedMonth, Usage, UsageRow};

/// Rows of one request.
const PAGE: &str = "50000";
/// Show what customers and users have used, or close a month
///
/// Without arguments: this month, by customer. Requests are all, with the denied ones. Units are what policies have charged.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<UsageCommand>,
    #[command(flatten)]
    query: QueryArgs,
}

#[derive(Debug, Clone, Subcommand)]
enum UsageCommand {
    /// Close a month, also without what a process that has ended had not reported
    Close(CloseArgs),
}

#[derive(Debug, Clone, clap::Args)]
struct CloseArgs {
    /// The month, such as 2026-11
    #[arg(value_hint = ValueHint::Other)]
    month: String,
    /// The time zone in which it is a month [default: that of the first policy with a calendar, or UTC]
    #[arg(long, value_hint = ValueHint::Other)]
    zone: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, clap::Args)]
struct QueryArgs {
    /// Only of this customer
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    customer: Option<String>,
    /// Only of this user
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    user: Option<String>,
    /// Of this month, such as 2026-11
    #[arg(long, value_hint = ValueHint::Other, conflicts_with_all = ["from", "to"])]
    month: Option<String>,
    /// From this day on, such as 2026-11-15
    #[arg(long, value_name = "DAY", value_hint = ValueHint::Other)]
    from: Option<String>,
    /// Up to this day [default: today]
    #[arg(long, value_name = "DAY", requires = "from", value_hint = ValueHint::Other)]
    to: Option<String>,
    /// What tells rows apart: customer, user, plan, route, value, day, hour, policy or status; or several, with commas
    #[arg(long, value_name = "WHAT", default_value = "customer", value_hint = ValueHint::Other)]
    by: String,
    /// The time zone of days [default: that of the first policy with a calendar, or UTC]
    #[arg(long, value_hint = ValueHint::Other)]
    zone: Option<String>,
    /// Print CSV: a row for the requests, and one for the units of each policy
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    options: Options,
}

impl Args {
    /// For this month, told apart by `by`.
    pub(super) fn this_month(by: &str, options: Options) -> Self {
        let query = QueryArgs {
            customer: None,
            user: None,
            month: None,
            from: None,
            to: None,
            by: by.to_owned(),
            zone: None,
            csv: false,
            options,
        };
        Self { command: None, query }
    }
}

/// Sends the requests and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(match &args.command {
        Some(UsageCommand::Close(close)) => close_month(close),
        None => output(&args.query),
    })
}

fn close_month(args: &CloseArgs) -> Result<String, AdminError> {
    let body = CloseMonth { month: args.month.clone(), zone: args.zone.clone() };
    client::post_json(&args.options, Method::POST, "/v1/usage/close", &body, |closed: &ClosedMonth| {
        let ClosedMonth { month, zone, complete } = closed;
        let how = if *complete { "It is complete." } else { "It lacks what some process had not reported." };
        format!("Usage of {} is closed ({}). {how}\n", printable(month), printable(zone))
    })
}

fn output(args: &QueryArgs) -> Result<String, AdminError> {
    let usage = runtime::Builder::new_current_thread().enable_all().build()?.block_on(all(args))?;
    if args.options.json {
        let json = serde_json::to_string(&usage).map_err(io::Error::from)?;
        return Ok(printable_json(&json) + "\n");
    }
    Ok(if args.csv { usage.csv() } else { text(&usage) })
}

/// All pages.
async fn all(args: &QueryArgs) -> Result<Usage, AdminError> {
    let mut connection =
        with_timeout(&args.options, client::TIMEOUT, AdminConnection::open(&args.options)).await?;
    let mut all: Option<Usage> = None;
    let mut cursor = None::<String>;
    loop {
        let target = client::with_query(
            "/v1/usage",
            &[
                ("customer", args.customer.as_deref()),
                ("user", args.user.as_deref()),
                ("month", args.month.as_deref()),
                ("from", args.from.as_deref()),
                ("to", args.to.as_deref()),
                ("by", Some(args.by.as_str())),
                ("zone", args.zone.as_deref()),
                ("limit", Some(PAGE)),
                ("cursor", cursor.as_deref()),
            ],
        );
        let page = connection.request(Method::GET, &target, bytes::Bytes::new());
        let mut page: Usage = with_timeout(&args.options, client::TIMEOUT, page).await?;
        cursor = page.cursor.take();
        match &mut all {
            Some(all) => all.rows.append(&mut page.rows),
            None => all = Some(page),
        }
        if cursor.is_none() {
            return Ok(all.unwrap_or_else(|| Usage {
                zone: String::new(),
                from: String::new(),
                to: String::new(),
                state: "open".to_owned(),
                rows: Vec::new(),
                cursor: None,
            }));
        }
    }
}

/// The dimensions that a row has, by the names of their columns.
fn dimensions(row: &UsageRow) -> [(&'static str, &Option<String>); 9] {
    [
        ("customer", &row.customer),
        ("user", &row.user),
        ("plan", &row.plan),
        ("route", &row.route),
        ("value", &row.value),
        ("day", &row.day),
        ("hour", &row.hour),
        ("policy", &row.policy),
        ("status", &row.status),
    ]
}

fn text(usage: &Usage) -> String {
    let Usage { from, to, zone, state, .. } = usage;
    let mut out = format!("{from} to {to} ({}, {})\n", printable(zone), printable(state));
    let Some(first) = usage.rows.first() else { return out + "Nothing was used.\n" };
    let named: Vec<&str> =
        dimensions(first).iter().filter(|(_, key)| key.is_some()).map(|(name, _)| *name).collect();
    let by_policy = first.policy.is_some();
    let mut policies: Vec<&str> =
        usage.rows.iter().flat_map(|row| &row.units).map(|units| units.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    let mut head: Vec<String> = named.iter().map(|name| name.to_uppercase()).collect();
    if by_policy {
        head.push("UNITS".to_owned());
    } else {
        head.extend(["REQUESTS", "DENIED", "2XX", "3XX", "4XX", "5XX"].map(str::to_owned));
        head.extend(policies.iter().map(|policy| policy.to_string()));
    }
    let cells = |row: &UsageRow| {
        let keys = dimensions(row).into_iter().filter_map(|(_, key)| key.clone());
        let mut cells: Vec<String> =
            keys.map(|key| if key.is_empty() { "(none)".to_owned() } else { key }).collect();
        if row.late
            && let Some(first) = cells.first_mut()
        {
            first.push_str(" (late)");
        }
        let units =
            |policy: &str| row.units.iter().filter(|of| of.policy == policy).map(|of| of.units).sum::<u64>();
        if by_policy {
            cells.push(row.units.iter().map(|of| of.units).sum::<u64>().to_string());
        } else {
            let counts =
                [row.requests, row.denied, row.status_2xx, row.status_3xx, row.status_4xx, row.status_5xx];
            cells.extend(counts.map(|count| count.to_string()));
            cells.extend(policies.iter().map(|policy| units(policy).to_string()));
        }
        cells
    };
    out.push('\n');
    out += &wide_table(&head, usage.rows.iter().map(cells));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::UsedUnits;

    fn usage() -> Usage {
        let row = |customer: &str, requests, units| UsageRow {
            customer: Some(customer.into()),
            requests,
            status_2xx: requests,
            units: vec![UsedUnits { policy: "monthly".into(), units }],
            ..UsageRow::default()
        };
        Usage {
            zone: "Europe/Berlin".into(),
            from: "2026-11-01".into(),
            to: "2026-11-30".into(),
            state: "closed".into(),
            rows: vec![row("", 3, 1), row("acme, \"inc\"", 400, 400)],
            cursor: None,
        }
    }

    #[test]
    fn usage_is_a_table() {
        assert_eq!(
            text(&usage()),
            "2026-11-01 to 2026-11-30 (Europe/Berlin, closed)\n\n\
             CUSTOMER     REQUESTS  DENIED  2XX  3XX  4XX  5XX  monthly\n\
             (none)       3         0       3    0    0    0    1\n\
             acme, \"inc\"  400       0       400  0    0    0    400\n"
        );
        let nothing = Usage { rows: Vec::new(), ..usage() };
        assert!(text(&nothing).ends_with("closed)\nNothing was used.\n"));
    }
}
