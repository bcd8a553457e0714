//! `tollgate unblock IP`: clears the limits and bans of an address.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options},
    limits::cleared_table,
    terminal::{moment, printable},
};
use crate::admin::dto::Unblocked;

/// Clear the limits of an address
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The address to unblock
    #[arg(value_hint = ValueHint::Other)]
    pub ip: String,
    #[command(flatten)]
    pub options: Options,
}

/// Asks the admin port and prints its answer. The exit code is 1 where there is none.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let target = format!("/v1/blocked/{}", client::percent_encoded(&args.ip));
    client::request(&args.options, Method::DELETE, &target, describe)
}

fn describe(unblocked: &Unblocked) -> String {
    let address = printable(&unblocked.address);
    // Whatever was cleared, an address that is banned with its prefix is served no sooner.
    let cleared = if unblocked.still_banned.is_empty() { "is unblocked" } else { "had limits" };
    let mut text = match unblocked.cleared.as_slice() {
        [] if unblocked.still_banned.is_empty() => {
            format!("{address} is unblocked; there was no limit of its own to clear.\n")
        }
        [] => format!("{address} had no limit of its own to clear.\n"),
        limits => {
            format!("{address} {cleared}. Cleared limits:\n\n{}", cleared_table(limits))
        }
    };
    if unblocked.bans_lifted > 0 {
        text += "\nIts own ban was lifted.\n";
    }
    for ban in &unblocked.still_banned {
        let [key, until] = [printable(&ban.key).into_owned(), printable(&moment(&ban.until)).into_owned()];
        text += &format!(
            "\n{address} is still banned by the ban of {key} until {until} UTC. To lift it: tollgate unban {key}\n"
        );
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

Not cleared, but limited behind this address: user:acme
"
        );
        let again = output(&args).unwrap_err().to_string();
        assert_eq!(again, "203.0.113.7 was not limited recently and has no limits to clear");
    }
}
