//! `tollgate keys list` and `show`.

use std::process::ExitCode;

use clap::{ValueEnum, ValueHint};
use http::Method;

use super::super::{
    client::{self, AdminError, EXIT_CODES, Options, page_size},
    terminal::{moment, printable, table},
};
use crate::admin::dto::{ApiKey, ApiKeys, KeySecret};

/// List keys
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct ListArgs {
    /// Only keys of this customer
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub customer: Option<String>,
    /// Only keys of this plan
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub plan: Option<String>,
    /// Only keys in this state
    #[arg(long, value_enum)]
    pub state: Option<KeyListState>,
    /// The number of keys to list, 1 to 1000 [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = page_size(), value_hint = ValueHint::Other)]
    pub limit: Option<u16>,
    /// Continue where the previous page ended
    #[arg(long, value_hint = ValueHint::Other)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KeyListState {
    Active,
    Expired,
    Revoked,
}

impl KeyListState {
    fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// Sends the request and prints the response.
pub(super) fn list(args: &ListArgs) -> ExitCode {
    client::print_result(list_output(args))
}

fn list_output(args: &ListArgs) -> Result<String, AdminError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let parameters = [
        ("customer", args.customer.as_deref()),
        ("plan", args.plan.as_deref()),
        ("state", args.state.map(KeyListState::name)),
        ("limit", limit.as_deref()),
        ("cursor", args.cursor.as_deref()),
    ];
    let target = client::with_query("/v1/keys", &parameters);
    client::request(&args.options, Method::GET, &target, |keys: &ApiKeys| {
        if keys.keys.is_empty() {
            return "There are no such keys.\n".to_owned();
        }
        let row = |key: &ApiKey| {
            [
                key.id.clone(),
                key.customer.clone(),
                or_dash(key.plan.as_deref()),
                or_dash(Some(&key.name)),
                key.state.clone(),
                or_dash(key.expires.as_deref().map(moment).as_deref()),
                or_dash(key.last_used.as_deref().map(moment).as_deref()),
            ]
        };
        let head = ["ID", "CUSTOMER", "PLAN", "NAME", "STATE", "EXPIRES (UTC)", "LAST USED (UTC)"];
        let mut text = table(head, keys.keys.iter().map(row));
        if let Some(cursor) = &keys.cursor {
            text += &format!("\nFor the next page, add --cursor {}\n", printable(cursor));
        }
        text
    })
}

fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

/// Show a key
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct ShowArgs {
    /// The ID of the key
    #[arg(value_hint = ValueHint::Other)]
    pub id: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn show(args: &ShowArgs) -> ExitCode {
    let target = format!("/v1/keys/{}", client::percent_encoded(&args.id));
    client::print_result(client::request(&args.options, Method::GET, &target, describe))
}

fn describe(key: &ApiKey) -> String {
    let time = |time: &Option<String>, none: &str| time.as_deref().map_or_else(|| none.to_owned(), moment);
    let labels: Vec<String> = key.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let state = match &key.revoked {
        Some(revoked) if revoked.reason.is_empty() => format!("revoked at {} UTC", moment(&revoked.at)),
        Some(revoked) => format!("revoked at {} UTC: {}", moment(&revoked.at), revoked.reason),
        None => key.state.clone(),
    };
    let lines = [
        ("key", key.id.clone()),
        ("customer", key.customer.clone()),
        ("plan", or_dash(key.plan.as_deref())),
        ("name", or_dash(Some(&key.name))),
        ("state", state),
        ("created", moment(&key.created)),
        ("expires", time(&key.expires, "never")),
        ("last used", time(&key.last_used, "not yet")),
        ("routes", if key.routes.is_empty() { "all".to_owned() } else { key.routes.join(", ") }),
        ("labels", or_dash(Some(&labels.join(", ")))),
        ("kept in", key.source.clone()),
        ("version", key.version.clone()),
    ];
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:<10} {}\n", printable(value))).collect();
    let row = |secret: &KeySecret| {
        [moment(&secret.created), time(&secret.expires, "with the key"), secret.hash.clone()]
    };
    text +=
        &format!("\n{}", table(["SECRET MADE (UTC)", "VALID UNTIL", "HASH"], key.secrets.iter().map(row)));
    text
}
