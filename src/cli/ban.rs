//! `tollgate ban KEY`: bans an address, a prefix or a user.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, unshared},
    terminal::{moment, printable},
};
use crate::admin::dto::{Banned, NewBan};

/// Ban an address, a prefix or a user
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// What to ban: 203.0.113.7, 10.0.0.0/8, 2001:db8::/32 or user:acme
    #[arg(value_hint = ValueHint::Other)]
    pub key: String,
    /// How long to ban it, 1s to 366d: 30m, 12h, 7d
    #[arg(long = "for", value_name = "DURATION", value_hint = ValueHint::Other)]
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
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let Args { key, lasts, reason, force, options } = args.clone();
    let ban = NewBan { key, lasts, reason, force };
    client::post_json(&options, Method::POST, "/v1/bans", &ban, describe)
}

fn describe(Banned { ban, shared }: &Banned) -> String {
    let place = if *shared { "" } else { " at this instance" };
    let (key, until) = (printable(&ban.key), moment(&ban.until));
    format!("{key} is banned{place} until {} UTC.\n{}", printable(&until), unshared(*shared))
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::admin::testing::Harness;

    #[test]
    fn a_ban_is_reported_and_mistakes_are_too() {
        let harness = Harness::start(Some("s3cret"));
        let ban = |key: &str, lasts: &str| {
            let options = options(harness.address, Some("s3cret"));
            let (key, lasts, reason) = (key.into(), lasts.into(), "abuse".into());
            let args = Args { key, lasts, reason, force: false, options };
            output(&args).map_err(|failure| failure.to_string())
        };
        let reported = "ip:2001:db8::/64 is banned until 2026-07-03 13:00:01 UTC.\n";
        assert_eq!(ban("2001:db8::1", "1h").as_deref(), Ok(reported));
        assert_eq!(ban("ip:0.0.0.0/0", "1h").unwrap_err(), "ip:0.0.0.0/0 would ban every client");
        assert!(ban("127.0.0.1", "1h").unwrap_err().contains("would shut out this machine itself"));
        assert_eq!(ban("x", "1h").unwrap_err(), "a key is ip:203.0.113.7, ip:10.0.0.0/8 or user:acme, not x");
        assert!(ban("user:acme", "367d").unwrap_err().contains("1s to 366d, not 367d"));
    }
}
