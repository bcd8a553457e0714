//! `tollgate unblock IP`: clears the limits of an address and lifts its bans.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, unshared},
    limits::{cleared_table, only_here},
    terminal::{moment, printable},
};
use crate::admin::dto::Unblocked;

/// Clear the limits of an address and lift its bans
///
/// The evidence is kept: the address is listed as unblocked, with its records, until they expire. Limits and bans of the users
/// behind the address, and bans of prefixes around it, still hold.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The address to unblock
    #[arg(value_hint = ValueHint::Other)]
    pub ip: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let target = format!("/v1/blocked/{}", client::percent_encoded(&args.ip));
    client::request(&args.options, Method::DELETE, &target, describe)
}

fn describe(unblocked: &Unblocked) -> String {
    let address = printable(&unblocked.address);
    let is_free = unblocked.still_banned.is_empty();
    let mut text = String::new();
    for ban in &unblocked.still_banned {
        let (key, until) = (printable(&ban.key), moment(&ban.until));
        let until = printable(&until);
        text += &format!(
            "{address} is still banned, because {key} is banned until {until} UTC. To lift that ban: tollgate unban {key}\n\n"
        );
    }
    text += &match unblocked.cleared.as_slice() {
        [] if is_free => format!("{address} is unblocked; there was no limit of its own to clear.\n"),
        [] => "There was no limit of its own to clear.\n".to_owned(),
        cleared => {
            let head = if is_free { format!("{address} is unblocked. ") } else { String::new() };
            let left = only_here(unblocked.redis_away);
            format!("{head}Cleared limits:\n\n{}{left}", cleared_table(cleared))
        }
    };
    if unblocked.bans_lifted > 0 {
        let place = if unblocked.shared { "" } else { " at this instance" };
        text += &format!("\nIts own ban was lifted{place}.\n{}", unshared(unblocked.shared));
    }
    if unblocked.records_kept > 0 {
        let records = match unblocked.records_kept {
            1 => "1 record, shown by".to_owned(),
            records => format!("{records} records, shown by"),
        };
        text +=
            &format!("\nIts evidence was kept: {records} `tollgate blocked {address}` until it expires.\n");
    }
    if !unblocked.other_keys.is_empty() {
        let others: Vec<_> = unblocked.other_keys.iter().map(|key| printable(key)).collect();
        text += &format!("\nNot cleared, but limited behind this address: {}\n", others.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::admin::testing::Harness;

    #[test]
    fn cleared_limits_are_listed() {
        let harness = Harness::with_shared_address(Some("s3cret"));
        let args = Args { ip: "203.0.113.7".into(), options: options(harness.address, Some("s3cret")) };
        assert_eq!(
            output(&args).unwrap(),
            "\
203.0.113.7 is unblocked. Cleared limits:

POLICY  KEY
per-ip  ip:203.0.113.7
per-ip  ip:203.0.113.7+path:/a

Its evidence was kept: 4 records, shown by `tollgate blocked 203.0.113.7` until it expires.

Not cleared, but limited behind this address: user:acme
"
        );
        let again = output(&args).unwrap_err().to_string();
        assert_eq!(again, "203.0.113.7 has no limits and no bans to clear");
    }
}
