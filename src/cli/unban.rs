//! `tollgate unban KEY`: lifts a ban.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options, unshared},
    terminal::printable,
};
use crate::admin::dto::Lifted;

/// Lift a ban
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The key, as `tollgate bans` lists it: ip:203.0.113.7, ip:10.0.0.0/8, user:acme
    #[arg(value_hint = ValueHint::Other)]
    pub key: String,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let target = format!("/v1/bans?key={}", client::percent_encoded(&args.key));
    client::request(&args.options, Method::DELETE, &target, |lifted: &Lifted| {
        let place = if lifted.shared { "" } else { " at this instance" };
        format!("{} is no longer banned{place}.\n{}", printable(&lifted.key), unshared(lifted.shared))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::{abuse::bans::BannedKey, admin::testing::Harness};

    #[test]
    fn a_ban_is_lifted_once() {
        let harness = Harness::start(None);
        let key = BannedKey::from_canonical("user:a%3Ab").unwrap();
        harness.bans.ban(key, 60_000_000, String::new(), "operator".into());
        let args = Args { key: "user:a:b".into(), options: options(harness.address, None) };
        assert_eq!(output(&args).unwrap(), "user:a%3Ab is no longer banned.\n");
        assert_eq!(output(&args).unwrap_err().to_string(), "there is no ban of user:a%3Ab");
        assert_eq!(harness.get("/v1/audit").json()["entries"][0]["action"], "lift");
    }
}
