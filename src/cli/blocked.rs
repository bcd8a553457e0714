//! `tollgate blocked [IP]`: which addresses were limited, and who was behind one.

use std::{net::IpAddr, process::ExitCode};

use clap::ValueHint;
use http::Method;
use indexmap::IndexMap;
use jiff::Timestamp;

use super::{
    bans,
    client::{self, AdminError, EXIT_CODES, Options, page_size},
    limits::usage_table,
    terminal::{moment, printable, table, time_left},
};
use crate::admin::dto::{Blocked, BlockedAddress, Evidence, Record, RecordedUser, Unblock};

/// The orders, as named by the API.
const SORTS: [&str; 5] = ["last", "first", "denied", "users", "address"];

/// List limited addresses, or show which users were behind one
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// Show which users were behind this address
    #[arg(value_hint = ValueHint::Other)]
    pub ip: Option<String>,
    /// Only addresses that this policy limited
    #[arg(long, conflicts_with = "ip", value_hint = ValueHint::Other)]
    pub policy: Option<String>,
    /// Only addresses within this prefix, such as 203.0.113.0/24
    #[arg(long, conflicts_with = "ip", value_hint = ValueHint::Other)]
    pub prefix: Option<String>,
    /// What to sort by: the last or first denial, the denials or the users (highest first), or the address
    #[arg(long, conflicts_with = "ip", value_parser = SORTS)]
    pub sort: Option<String>,
    /// The number of addresses to list, 1 to 1000 [default: 100]
    #[arg(
        long,
        conflicts_with = "ip",
        value_name = "NUMBER",
        value_parser = page_size(),
        value_hint = ValueHint::Other
    )]
    pub limit: Option<u16>,
    /// Continue where the previous page ended
    #[arg(long, conflicts_with = "ip", value_hint = ValueHint::Other)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

impl Args {
    /// For one address, or for all.
    pub(super) fn new(ip: Option<String>, options: Options) -> Self {
        Self { ip, policy: None, prefix: None, sort: None, limit: None, cursor: None, options }
    }
}

/// The number of recorded denials of an address.
pub(super) fn denial_count(ip: IpAddr, options: &Options) -> u64 {
    let mut denied = 0;
    let target = format!("/v1/blocked/{ip}");
    // An unlisted address is an error of the API: nothing was denied.
    let _result = client::request(options, Method::GET, &target, |evidence: &Evidence| {
        denied = evidence.address.denied;
        String::new()
    });
    denied
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args, Timestamp::now()))
}

fn output(args: &Args, now: Timestamp) -> Result<String, AdminError> {
    match &args.ip {
        Some(ip) => {
            let target = format!("/v1/blocked/{}", client::percent_encoded(ip));
            client::request(&args.options, Method::GET, &target, |evidence| page(evidence, now))
        }
        None => client::request(&args.options, Method::GET, &target(args), |blocked| list(blocked, now)),
    }
}

fn target(args: &Args) -> String {
    let limit = args.limit.map(|limit| limit.to_string());
    let parameters = [
        ("policy", &args.policy),
        ("prefix", &args.prefix),
        ("sort", &args.sort),
        ("limit", &limit),
        ("cursor", &args.cursor),
    ];
    client::with_query("/v1/blocked", &parameters.map(|(name, value)| (name, value.as_deref())))
}

fn list(blocked: &Blocked, now: Timestamp) -> String {
    if blocked.blocked.is_empty() {
        return "No address was limited recently.\n".to_owned();
    }
    let row = |blocked: &BlockedAddress| {
        [
            blocked.address.clone(),
            blocked.state.clone(),
            blocked.denied.to_string(),
            blocked.distinct_users.to_string(),
            blocked.hint.clone(),
            blocked.policies.join(", "),
            moment(&blocked.last),
            time_left(&blocked.until, now),
        ]
    };
    let head = ["ADDRESS", "STATE", "DENIED", "USERS", "HINT", "POLICIES", "LAST (UTC)", "TIME LEFT"];
    let mut text = table(head, blocked.blocked.iter().map(row));
    if let Some(cursor) = &blocked.cursor {
        text += &format!("\nFor the next page, add --cursor {}\n", printable(cursor));
    }
    text
}

fn page(evidence: &Evidence, now: Timestamp) -> String {
    let Evidence { address, records, users, limits, unlimited, more_limits, bans } = evidence;
    let left = time_left(&address.until, now);
    let denied = match address.denied {
        0 => "never".to_owned(),
        denied => {
            let [first, last] = [&address.first, &address.last].map(|time| moment(time));
            format!("{denied} times, from {} to {} UTC", printable(&first), printable(&last))
        }
    };
    let unblocked = address.unblocked.as_ref().map_or_else(String::new, |unblocked| {
        format!("unblocked  {}\n", printable(&unblock_line(unblocked)))
    });
    let mut text = format!(
        "{}: {}, {}\n{}\n\ndenied     {denied}\ntime left  {left}\n{unblocked}policies   {}\nusers      {}\n",
        printable(&address.address),
        printable(&address.state),
        printable(&address.hint),
        printable(&address.hint_reason),
        printable(&address.policies.join(", ")),
        address.distinct_users,
    );
    if let Some(advice) = &address.hint_advice {
        text += &format!("\n{}\n", printable(advice));
    }
    if !bans.is_empty() {
        text += &format!("\n{}", bans::table_of(bans, now));
    }
    if !users.is_empty() {
        text += &format!("\n{}", users_table(users, now));
    }
    if !limits.is_empty() || !unlimited.is_empty() {
        text += &format!("\n{}", usage_table(limits, unlimited));
        if *more_limits > 0 {
            text += &format!("and {more_limits} more\n");
        }
    }
    if !records.is_empty() {
        let rows = group_alike(records).into_iter().map(|(record, count)| {
            let user = record.user.clone().unwrap_or_else(|| "-".to_owned());
            let [method, path, policy] = [&record.method, &record.path, &record.policy].map(String::clone);
            [moment(&record.time), count.to_string(), user, method, path, policy]
        });
        let head = ["LAST (UTC)", "TIMES", "USER", "METHOD", "PATH", "POLICY"];
        text += &format!("\n{}", table(head, rows));
    }
    text
}

/// Has a column for bans only if a user is banned.
fn users_table(users: &[RecordedUser], now: Timestamp) -> String {
    let cells =
        |user: &RecordedUser| [user.user.clone().unwrap_or_else(|| "-".to_owned()), user.records.to_string()];
    if users.iter().all(|user| user.banned_until.is_none()) {
        return table(["USER", "RECORDS"], users.iter().map(cells));
    }
    let rows = users.iter().map(|user| {
        let [name, records] = cells(user);
        let left = user.banned_until.as_deref().map(|until| time_left(until, now));
        [name, records, left.unwrap_or_else(|| "-".to_owned())]
    });
    table(["USER", "RECORDS", "BANNED FOR"], rows)
}

/// When an address was unblocked, and by whom.
fn unblock_line(unblocked: &Unblock) -> String {
    let by = unblocked.by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
    format!("{} UTC{by}", moment(&unblocked.time))
}

/// Groups records by kind of request: the newest record of each and their number, newest first.
fn group_alike(records: &[Record]) -> Vec<(&Record, usize)> {
    let kind = |record: &Record| {
        (record.user.clone(), record.method.clone(), record.path.clone(), record.policy.clone())
    };
    let mut kinds = IndexMap::new();
    for record in records {
        kinds.entry(kind(record)).or_insert((record, 0)).1 += 1;
    }
    kinds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::admin::testing::{Harness, NOW};

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn blocked(harness: &Harness, arguments: &[&str]) -> Result<String, String> {
        let admin = format!("--admin=http://{}", harness.address);
        let line = ["blocked", admin.as_str()].into_iter().chain(arguments.iter().copied());
        let command = Command::try_parse_from(line).map_err(|error| error.to_string())?;
        let now = Timestamp::from_microsecond(NOW).unwrap();
        output(&command.args, now).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_list_is_a_table() {
        let harness = Harness::with_shared_address(None);
        assert_eq!(
            blocked(&harness, &[]).unwrap(),
            "\
ADDRESS      STATE    DENIED  USERS  HINT     POLICIES          LAST (UTC)           TIME LEFT
203.0.113.7  limited  2       3      unknown  per-user, per-ip  2026-07-03 12:00:00  59s
"
        );
        let none = blocked(&harness, &["--prefix", "10.0.0.0/8", "--sort", "denied", "--policy", "per-ip"]);
        assert_eq!(none.unwrap(), "No address was limited recently.\n");
    }

    #[test]
    fn a_page_shows_who_was_behind_the_address() {
        let harness = Harness::with_shared_address(None);
        assert_eq!(
            blocked(&harness, &["203.0.113.7"]).unwrap(),
            "\
203.0.113.7: limited, unknown
3 users, 2 requests, to one URL

denied     2 times, from 2026-07-03 11:59:59 to 2026-07-03 12:00:00 UTC
time left  59s
policies   per-user, per-ip
users      3

USER  RECORDS
acme  2
bob   1
eve   1

POLICY    KEY             USED  LIMIT  REMAINING  RESET
per-ip    ip:203.0.113.7  2     3      1          41s
per-user  user:acme       0     3      3          0s

LAST (UTC)           TIMES  USER  METHOD  PATH  POLICY
2026-07-03 12:00:00  1      acme  GET     /a    per-ip
2026-07-03 11:59:59  1      acme  GET     /a    per-user
2026-07-03 11:59:59  1      eve   GET     /a    per-ip
2026-07-03 11:59:58  1      bob   GET     /a    per-ip
"
        );
    }

    #[test]
    fn requests_that_are_alike_are_grouped() {
        let record = |time: &str, user: &str| Record {
            time: time.into(),
            user: Some(user.into()),
            method: "GET".into(),
            path: "/a".into(),
            policy: "per-ip".into(),
        };
        let records = [record("3", "eve"), record("2", "bob"), record("1", "eve")];
        assert_eq!(group_alike(&records), [(&records[0], 2), (&records[1], 1)]);
    }

    #[test]
    fn user_names_cannot_control_the_terminal() {
        let harness = Harness::start(None);
        harness.deny("2001:db8::/64", 0, "ip:2001:db8::/64", "\x1b]0;owned\x07", -5);
        harness.settle("2001:db8::/64");
        for arguments in [["2001:db8::/64", "--json"].as_slice(), &["2001:db8::1"]] {
            let text = blocked(&harness, arguments).unwrap();
            assert!(text.contains("owned"), "{text}");
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }

    #[test]
    fn json_is_the_answer_itself_and_pages_go_on() {
        let harness = Harness::with_shared_address(None);
        harness.deny("10.0.0.1", 0, "ip:10.0.0.1", "acme", -5);
        harness.settle("10.0.0.1");
        let json = blocked(&harness, &["--json", "--limit", "1"]).unwrap();
        let page: Blocked = serde_json::from_str(&json).unwrap();
        assert_eq!(page.blocked[0].address, "10.0.0.1");
        let cursor = page.cursor.unwrap();
        let text = blocked(&harness, &["--limit", "1"]).unwrap();
        assert!(text.ends_with(&format!("For the next page, add --cursor {cursor}\n")), "{text}");
        assert!(blocked(&harness, &["--cursor", &cursor]).unwrap().contains("\n203.0.113.7 "));
    }

    #[test]
    fn mistakes_are_reported_in_the_admin_port_s_words() {
        let harness = Harness::start(None);
        assert_eq!(blocked(&harness, &["10.0.0.1"]).unwrap_err(), "10.0.0.1 was not limited recently");
        assert_eq!(blocked(&harness, &["--policy", "x"]).unwrap_err(), "no policy is named x");
        assert!(blocked(&harness, &["no address/at all"]).unwrap_err().starts_with("not a client's address"));
        assert!(blocked(&harness, &["10.0.0.1", "--limit", "3"]).is_err());
    }
}
