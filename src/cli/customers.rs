//! `tollgate customers`: the customers of API keys, and their plans.

use std::{cmp::Reverse, io, process::ExitCode};

use clap::{Subcommand, ValueHint};
use http::Method;
use tokio::runtime;

use super::{
    client::{self, AdminConnection, AdminError, EXIT_CODES, Options, unshared, with_timeout},
    limits::usage_table,
    terminal::{moment, printable, printable_json, table},
};
use crate::admin::dto::{Customer, CustomerPlan, Customers, MovedCustomer};

/// Customers of one request.
const PAGE: &str = "1000";

/// List customers with their plans and what they have used, or move one to another plan
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<CustomersCommand>,
    /// Only this customer, with its limits
    #[arg(value_hint = ValueHint::Other)]
    customer: Option<String>,
    /// Only customers with a key of this plan
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    plan: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Subcommand)]
enum CustomersCommand {
    /// Set the plan of all keys of a customer; exit code 1 if some are in the file, where they keep theirs
    Set(SetArgs),
}

#[derive(Debug, Clone, clap::Args)]
struct SetArgs {
    /// The customer
    #[arg(value_hint = ValueHint::Other)]
    customer: String,
    /// The plan
    #[arg(long, value_name = "NAME", required_unless_present = "no_plan", conflicts_with = "no_plan", value_hint = ValueHint::Other)]
    plan: Option<String>,
    /// No plan: the policies' own limits hold
    #[arg(long)]
    no_plan: bool,
    #[command(flatten)]
    options: Options,
}

/// Sends the requests and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Some(CustomersCommand::Set(set)) => set_plan(set),
        None => client::print_result(output(args)),
    }
}

fn set_plan(args: &SetArgs) -> ExitCode {
    let target = format!("/v1/customers/{}/plan", client::percent_encoded(&args.customer));
    let body = CustomerPlan { plan: args.plan.clone() };
    let mut in_file = false;
    let moved = client::post_json(&args.options, Method::PUT, &target, &body, |moved: &MovedCustomer| {
        in_file = !moved.in_file.is_empty();
        describe(moved)
    });
    match client::print_result(moved) {
        ExitCode::SUCCESS if in_file => ExitCode::FAILURE,
        code => code,
    }
}

fn describe(moved: &MovedCustomer) -> String {
    let plan = moved.plan.as_deref().map_or_else(|| "no plan".to_owned(), |plan| format!("plan {plan}"));
    let list = |ids: &[String]| printable(&ids.join(", ")).into_owned();
    let mut out = match moved.changed.len() {
        0 => format!("No key of {} was changed.\n", printable(&moved.customer)),
        1 => format!(
            "1 key of {} has {} now: {}\n",
            printable(&moved.customer),
            printable(&plan),
            list(&moved.changed)
        ),
        many => format!(
            "{many} keys of {} have {} now: {}\n",
            printable(&moved.customer),
            printable(&plan),
            list(&moved.changed)
        ),
    };
    if !moved.unchanged.is_empty() {
        out += &format!("These had it already: {}\n", list(&moved.unchanged));
    }
    if !moved.in_file.is_empty() {
        out += &format!("These are in the file, and keep the plan that it says: {}\n", list(&moved.in_file));
    }
    for warning in &moved.warnings {
        out += &format!("warning: {}\n", printable(warning));
    }
    out + unshared(moved.shared)
}

fn output(args: &Args) -> Result<String, AdminError> {
    let mut all = runtime::Builder::new_current_thread().enable_all().build()?.block_on(all(args))?;
    // Those who are closest to their limits come first.
    all.customers.sort_by_key(|customer| Reverse(customer.share));
    if args.options.json {
        let json = serde_json::to_string(&all).map_err(io::Error::from)?;
        return Ok(printable_json(&json) + "\n");
    }
    Ok(text(&all, args.customer.is_some()))
}

/// All pages.
async fn all(args: &Args) -> Result<Customers, AdminError> {
    let mut connection =
        with_timeout(&args.options, client::TIMEOUT, AdminConnection::open(&args.options)).await?;
    let mut all = Customers { customers: Vec::new(), month: None, cursor: None };
    let mut cursor = None::<String>;
    loop {
        let target = client::with_query(
            "/v1/customers",
            &[
                ("customer", args.customer.as_deref()),
                ("plan", args.plan.as_deref()),
                ("limit", Some(PAGE)),
                ("cursor", cursor.as_deref()),
            ],
        );
        let page = connection.request(Method::GET, &target, bytes::Bytes::new());
        let page: Customers = with_timeout(&args.options, client::TIMEOUT, page).await?;
        all.customers.extend(page.customers);
        all.month = page.month;
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

fn text(all: &Customers, with_limits: bool) -> String {
    if all.customers.is_empty() {
        return "No valid key has such a customer.\n".to_owned();
    }
    let dash = || "-".to_owned();
    let number = |number: Option<u64>| number.map_or_else(dash, |number| number.to_string());
    let row = |customer: &Customer| {
        let Customer { name, plans, keys, share, requests, denied, last_denied, .. } = customer;
        [
            name.clone(),
            if plans.is_empty() { dash() } else { plans.join(", ") },
            keys.to_string(),
            share.map_or_else(dash, |share| format!("{share}%")),
            number(*requests),
            number(*denied),
            last_denied.as_deref().map_or_else(dash, moment),
        ]
    };
    let head = ["CUSTOMER", "PLANS", "KEYS", "USED", "REQUESTS", "DENIED", "LAST DENIED (UTC)"];
    let mut out = table(head, all.customers.iter().map(row));
    if let Some(month) = &all.month {
        out += &format!("\nRequests are those of {}.\n", printable(month));
    }
    if let [only] = all.customers.as_slice()
        && with_limits
        && !(only.limits.is_empty() && only.unlimited.is_empty())
    {
        out += &format!("\n{}", usage_table(&only.limits, &only.unlimited));
    }
    out
}
