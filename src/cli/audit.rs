//! `tollgate audit`: who changed what, and when.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, page_size},
    terminal::{moment, printable, table},
};
use crate::admin::dto::{Audit, AuditEntry};

/// List who changed what, and when
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Only changes by operators, or by rules of `bans`
    #[arg(long, value_parser = ["operator", "rule"])]
    pub by: Option<String>,
    /// The number of changes to list, 1 to 1000 [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = page_size(), value_hint = ValueHint::Other)]
    pub limit: Option<u16>,
    /// Continue where the previous page ended
    #[arg(long, value_hint = ValueHint::Other)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let parameters = [("by", &args.by), ("limit", &limit), ("cursor", &args.cursor)];
    let target = client::with_query("/v1/audit", &parameters.map(|(name, value)| (name, value.as_deref())));
    client::request(&args.options, Method::GET, &target, list)
}

fn list(audit: &Audit) -> String {
    if audit.entries.is_empty() {
        return "Nothing was changed.\n".to_owned();
    }
    let row = |entry: &AuditEntry| {
        let AuditEntry { time, by, action, target, detail, instance } = entry.clone();
        [moment(&time), by, action, target, detail, instance]
    };
    let head = ["TIME (UTC)", "BY", "ACTION", "TARGET", "DETAIL", "INSTANCE"];
    let mut text = table(head, audit.entries.iter().map(row));
    if let Some(cursor) = &audit.cursor {
        text += &format!("\nFor the next page, add --cursor {}\n", printable(cursor));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::{abuse::bans::BannedKey, admin::testing::Harness};

    const JSON: &str = "content-type: application/json\r\n";

    #[test]
    fn changes_are_listed_newest_first_in_pages() {
        let harness = Harness::start(None);
        let args = |limit, cursor| {
            let options = options(harness.address, None);
            Args { by: Some("operator".into()), limit, cursor, options }
        };
        assert_eq!(output(&args(None, None)).unwrap(), "Nothing was changed.\n");
        for key in ["ip:203.0.113.7", "user:acme"] {
            harness.bans.ban(
                BannedKey::from_canonical(key).unwrap(),
                60_000_000,
                "abuse".into(),
                "operator".into(),
            );
            assert_eq!(harness.send("DELETE", &format!("/v1/bans?key={key}"), JSON).status, 200);
        }
        let all = output(&args(None, None)).unwrap();
        let rows: Vec<&str> = all.lines().collect();
        assert!(rows[0].starts_with("TIME (UTC)") && rows.len() == 3, "{all}");
        // Both have the same time by the test's clock, so either may be first.
        let keys = ["ip:203.0.113.7", "user:acme"];
        let of = |page: &str| keys.into_iter().filter(|key| page.contains(key)).collect::<Vec<_>>();
        assert_eq!(of(&all), keys, "{all}");
        let first = output(&args(Some(1), None)).unwrap();
        let cursor = first.trim_end().rsplit(' ').next().unwrap().to_owned();
        let second = output(&args(Some(1), Some(cursor))).unwrap();
        let mut pages = [of(&first), of(&second)].concat();
        pages.sort_unstable();
        assert_eq!(pages, keys, "{first}{second}");
    }
}
