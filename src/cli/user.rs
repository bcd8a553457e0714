//! `tollgate user NAME`: a user's bans, limits, addresses and last requests.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;
use indexmap::IndexMap;
use jiff::Timestamp;

use super::{
    bans,
    client::{self, AdminError, EXIT_CODES, Options},
    limits::usage_table,
    terminal::{moment, printable, table, time_left},
};
use crate::admin::dto::{User, UserAddress, UserRecord};

/// Show a user's bans, limits, addresses and last requests
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The user, as requests name it; if users are recorded as hashes, also hmac:0123456789abcdef
    #[arg(value_hint = ValueHint::Other)]
    pub name: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args, Timestamp::now()))
}

fn output(args: &Args, now: Timestamp) -> Result<String, AdminError> {
    let target = format!("/v1/users/{}", client::percent_encoded(&args.name));
    client::request(&args.options, Method::GET, &target, |user| page(user, now))
}

fn page(user: &User, now: Timestamp) -> String {
    let User { user: name, denied, banned_until, bans, limits, unlimited, records, addresses } = user;
    let state = match banned_until.as_deref().map(|until| time_left(until, now)) {
        Some(left) if left != "-" => format!("banned for {left}"),
        _ => "not banned".to_owned(),
    };
    let mut text = format!(
        "{}: {state}\n\ndenied     {denied} times\naddresses  {}\n",
        printable(name),
        addresses.len()
    );
    if !bans.is_empty() {
        text += &format!("\n{}", bans::table_of(bans, now));
    }
    if !limits.is_empty() || !unlimited.is_empty() {
        text += &format!("\n{}", usage_table(limits, unlimited));
    }
    if !addresses.is_empty() {
        let row = |address: &UserAddress| {
            let UserAddress { address, denied, verified, last, banned_until } = address;
            let banned =
                banned_until.as_deref().map_or_else(|| "-".to_owned(), |until| time_left(until, now));
            [address.clone(), denied.to_string(), verified.to_string(), moment(last), banned]
        };
        let head = ["ADDRESS", "DENIED", "VERIFIED", "LAST (UTC)", "BANNED FOR"];
        text += &format!("\n{}", table(head, addresses.iter().map(row)));
    }
    if !records.is_empty() {
        let row = |(record, count): (&UserRecord, usize)| {
            let UserRecord { time, address, method, path, policy } = record.clone();
            [moment(&time), count.to_string(), address, method, path, policy]
        };
        let head = ["LAST (UTC)", "TIMES", "ADDRESS", "METHOD", "PATH", "POLICY"];
        text += &format!("\n{}", table(head, group_alike(records).into_iter().map(row)));
    }
    text
}

/// Groups records by kind of request: the newest record of each and their number, newest first.
fn group_alike(records: &[UserRecord]) -> Vec<(&UserRecord, usize)> {
    let mut kinds = IndexMap::new();
    for record in records {
        let kind = (&record.address, &record.method, &record.path, &record.policy);
        kinds.entry(kind).or_insert((record, 0)).1 += 1;
    }
    kinds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::{Ban, LimitUsage, Unlimited};

    #[test]
    fn a_page_shows_bans_limits_addresses_and_requests() {
        let record = |time: &str, path: &str| UserRecord {
            time: time.into(),
            address: "203.0.113.7".into(),
            method: "GET".into(),
            path: path.into(),
            policy: "per-user".into(),
        };
        let user = User {
            user: "a\u{1b}cme".into(),
            denied: 3,
            banned_until: Some("2026-07-03T13:00:00Z".into()),
            bans: vec![Ban {
                key: "user:acme".into(),
                since: "2026-07-03T11:00:00Z".into(),
                until: "2026-07-03T13:00:00Z".into(),
                reason: "abuse".into(),
                by: "operator at 127.0.0.1".into(),
                level: 0,
                mode: "enforce".into(),
            }],
            limits: vec![LimitUsage {
                policy: "per-user".into(),
                key: "user:acme".into(),
                used: 3,
                limit: 3,
                remaining: 0,
                reset: "59s".into(),
                window_ends: None,
                condition: Some("plan:pro".into()),
            }],
            unlimited: vec![Unlimited {
                policy: "monthly".into(),
                key: "user:acme".into(),
                condition: Some("plan:enterprise".into()),
            }],
            records: vec![
                record("2026-07-03T12:00:00Z", "/a"),
                record("2026-07-03T11:59:59Z", "/b"),
                record("2026-07-03T11:59:58Z", "/a"),
            ],
            addresses: vec![UserAddress {
                address: "203.0.113.7".into(),
                denied: 3,
                verified: 2,
                last: "2026-07-03T12:00:00Z".into(),
                banned_until: None,
            }],
        };
        let now: Timestamp = "2026-07-03T12:00:00Z".parse().unwrap();
        assert_eq!(
            page(&user, now),
            "\
a\\u{1b}cme: banned for 1h 0m

denied     3 times
addresses  1

KEY        MODE     UNTIL (UTC)          TIME LEFT  IN A ROW  BY                     REASON
user:acme  enforce  2026-07-03 13:00:00  1h 0m      -         operator at 127.0.0.1  abuse

POLICY    KEY        USED  LIMIT                        REMAINING  RESET
per-user  user:acme  3     3 (plan:pro)                 0          59s
monthly   user:acme  -     unlimited (plan:enterprise)  -          -

ADDRESS      DENIED  VERIFIED  LAST (UTC)           BANNED FOR
203.0.113.7  3       2         2026-07-03 12:00:00  -

LAST (UTC)           TIMES  ADDRESS      METHOD  PATH  POLICY
2026-07-03 12:00:00  2      203.0.113.7  GET     /a    per-user
2026-07-03 11:59:59  1      203.0.113.7  GET     /b    per-user
"
        );
        let known = User { user: "ann".into(), ..Default::default() };
        assert_eq!(page(&known, now), "ann: not banned\n\ndenied     0 times\naddresses  0\n");
    }
}
