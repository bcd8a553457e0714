//! `tollgate bans`, `ban` and `unban`.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;
use jiff::Timestamp;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, page_size, place, unshared},
    terminal::{moment, printable, table, time_left},
};
use crate::admin::dto::{Ban, Banned, Bans, Lifted, NewBan};

/// List bans
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Only bans of this key, such as 203.0.113.7 or user:acme
    #[arg(long, value_hint = ValueHint::Other)]
    pub key: Option<String>,
    /// Only addresses and prefixes within this prefix, such as 203.0.113.0/24
    #[arg(long, value_hint = ValueHint::Other)]
    pub prefix: Option<String>,
    /// The number of bans to list, 1 to 1000 [default: 100]
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
    client::print_result(output(args, Timestamp::now()))
}

fn output(args: &Args, now: Timestamp) -> Result<String, AdminError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let Args { key, prefix, cursor, .. } = args;
    let parameters = [("key", key), ("prefix", prefix), ("limit", &limit), ("cursor", cursor)];
    let target = client::with_query("/v1/bans", &parameters.map(|(name, value)| (name, value.as_deref())));
    client::request(&args.options, Method::GET, &target, |bans| list(bans, now))
}

fn list(bans: &Bans, now: Timestamp) -> String {
    if bans.bans.is_empty() {
        return "There are no bans.\n".to_owned();
    }
    let mut text = table_of(&bans.bans, now);
    if let Some(cursor) = &bans.cursor {
        text += &format!("\nFor the next page, add --cursor {}\n", printable(cursor));
    }
    text
}

/// A table of bans.
pub(super) fn table_of(bans: &[Ban], now: Timestamp) -> String {
    let row = |ban: &Ban| {
        let in_a_row = if ban.level == 0 { "-".to_owned() } else { ban.level.to_string() };
        [
            ban.key.clone(),
            ban.mode.clone(),
            moment(&ban.until),
            time_left(&ban.until, now),
            in_a_row,
            ban.by.clone(),
            ban.reason.clone(),
        ]
    };
    let head = ["KEY", "MODE", "UNTIL (UTC)", "TIME LEFT", "IN A ROW", "BY", "REASON"];
    table(head, bans.iter().map(row))
}

/// Ban an address, a prefix or a user
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct BanArgs {
    /// What to ban: 203.0.113.7, 10.0.0.0/8, 2001:db8::/32 or user:acme
    #[arg(value_hint = ValueHint::Other)]
    pub key: String,
    /// How long to ban it, 1s to 366d: 30m, 12h, 7d
    #[arg(long = "for", alias = "duration", value_name = "DURATION", value_hint = ValueHint::Other, allow_hyphen_values = true)]
    pub lasts: String,
    /// A note for the list of bans, up to 256 characters
    #[arg(long, default_value = "", value_hint = ValueHint::Other)]
    pub reason: String,
    /// Ban even a large part of the internet, this machine, your own address or a trusted proxy
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn ban(args: &BanArgs) -> ExitCode {
    client::print_result(banned(args))
}

fn banned(args: &BanArgs) -> Result<String, AdminError> {
    let BanArgs { key, lasts, reason, force, options } = args.clone();
    let ban = NewBan { key, lasts, reason, force };
    client::post_json(&options, Method::POST, "/v1/bans", &ban, describe)
}

fn describe(Banned { ban, shared }: &Banned) -> String {
    let place = place(*shared);
    let (key, until) = (printable(&ban.key), moment(&ban.until));
    format!("{key} is banned{place} until {} UTC.\n{}", printable(&until), unshared(*shared))
}

/// Lift a ban
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct UnbanArgs {
    /// The key, as `tollgate bans` lists it: ip:203.0.113.7, ip:10.0.0.0/8, user:acme
    #[arg(value_hint = ValueHint::Other)]
    pub key: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn unban(args: &UnbanArgs) -> ExitCode {
    client::print_result(lifted(args))
}

fn lifted(args: &UnbanArgs) -> Result<String, AdminError> {
    let target = format!("/v1/bans?key={}", client::percent_encoded(&args.key));
    client::request(&args.options, Method::DELETE, &target, |lifted: &Lifted| {
        let place = place(lifted.shared);
        format!("{} is no longer banned{place}.\n{}", printable(&lifted.key), unshared(lifted.shared))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::{
        abuse::bans::BannedKey,
        admin::testing::{Harness, NOW},
    };

    #[test]
    fn the_list_is_a_table_whose_pages_go_on() {
        let harness = Harness::start(None);
        let args = |limit, cursor| {
            let options = options(harness.address, None);
            Args { key: None, prefix: None, limit, cursor, options }
        };
        let now = Timestamp::from_microsecond(NOW).unwrap();
        assert_eq!(output(&args(None, None), now).unwrap(), "There are no bans.\n");
        for (key, minutes) in [("ip:203.0.113.7", 90), ("user:acme", 5)] {
            let lasts = minutes * 60_000_000;
            harness.bans.ban(
                BannedKey::from_canonical(key).unwrap(),
                lasts,
                "abuse".into(),
                "operator at 127.0.0.1".into(),
            );
        }
        assert_eq!(
            output(&args(None, None), now).unwrap(),
            "\
KEY             MODE     UNTIL (UTC)          TIME LEFT  IN A ROW  BY                     REASON
ip:203.0.113.7  enforce  2026-07-03 13:30:01  1h 30m     -         operator at 127.0.0.1  abuse
user:acme       enforce  2026-07-03 12:05:01  5m 0s      -         operator at 127.0.0.1  abuse
"
        );
        let first = output(&args(Some(1), None), now).unwrap();
        let cursor = first.trim_end().rsplit(' ').next().unwrap().to_owned();
        let second = output(&args(Some(1), Some(cursor)), now).unwrap();
        assert!(first.contains("ip:203.0.113.7") && !first.contains("acme"), "{first}");
        assert!(
            second.contains("user:acme") && !second.contains("203") && !second.contains("more"),
            "{second}"
        );
        let acme = Args { key: Some("user:acme".into()), ..args(None, None) };
        assert_eq!(output(&acme, now).unwrap().lines().count(), 2);
        let within = Args { prefix: Some("203.0.0.0/16".into()), ..args(None, None) };
        assert!(output(&within, now).unwrap().contains("203.0.113.7"));
    }

    #[test]
    fn a_ban_is_reported_and_mistakes_are_too() {
        let harness = Harness::start(Some("s3cret"));
        let ban = |key: &str, lasts: &str| {
            let options = options(harness.address, Some("s3cret"));
            let (key, lasts, reason) = (key.into(), lasts.into(), "abuse".into());
            let args = BanArgs { key, lasts, reason, force: false, options };
            banned(&args).map_err(|failure| failure.to_string())
        };
        let reported = "ip:2001:db8::/64 is banned until 2026-07-03 13:00:01 UTC.\n";
        assert_eq!(ban("2001:db8::1", "1h").as_deref(), Ok(reported));
        assert_eq!(ban("ip:0.0.0.0/0", "1h").unwrap_err(), "ip:0.0.0.0/0 would ban every client");
        assert!(ban("127.0.0.1", "1h").unwrap_err().contains("would shut out this machine itself"));
        assert_eq!(ban("x", "1h").unwrap_err(), "a key is ip:203.0.113.7, ip:10.0.0.0/8 or user:acme, not x");
        assert!(ban("user:acme", "367d").unwrap_err().contains("1s to 366d, such as 30d, not 367d"));
    }

    #[test]
    fn a_ban_is_lifted_once() {
        let harness = Harness::start(None);
        let key = BannedKey::from_canonical("user:a%3Ab").unwrap();
        harness.bans.ban(key, 60_000_000, String::new(), "operator".into());
        let args = UnbanArgs { key: "user:a:b".into(), options: options(harness.address, None) };
        assert_eq!(lifted(&args).unwrap(), "user:a%3Ab is no longer banned.\n");
        assert_eq!(lifted(&args).unwrap_err().to_string(), "there is no ban of user:a%3Ab");
        assert_eq!(harness.get("/v1/audit").json()["entries"][0]["action"], "lift");
    }
}
