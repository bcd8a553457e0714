//! `tollgate limits KEY`: the usage of a key's limits.

use std::process::ExitCode;

use clap::ValueHint;
use http::Method;

use super::{
    client::{self, AdminError, EXIT_CODES, Options},
    terminal::{printable, table},
};
use crate::admin::dto::{ClearedLimit, LimitUsage, Limits, ResetLimits, Unlimited};

/// Show how much of the limits of a key is used, or reset them
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The key, as `tollgate explain` shows it: ip:203.0.113.7 (or 203.0.113.7), user:acme, ip:203.0.113.7+path:/a
    #[arg(value_hint = ValueHint::Other)]
    pub key: String,
    /// Only this policy
    #[arg(long, value_hint = ValueHint::Other)]
    pub policy: Option<String>,
    /// Reset the limits of exactly this key, on every instance
    #[arg(long)]
    pub reset: bool,
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(output(args))
}

fn output(args: &Args) -> Result<String, AdminError> {
    let parameters = [("policy", args.policy.as_deref()), ("key", Some(args.key.as_str()))];
    let target = client::with_query("/v1/limits", &parameters);
    match args.reset {
        true => client::request(&args.options, Method::DELETE, &target, |limits| reset(&args.key, limits)),
        false => client::request(&args.options, Method::GET, &target, |limits| list(&args.key, limits)),
    }
}

fn list(key: &str, limits: &Limits) -> String {
    match limits.limits.is_empty() && limits.unlimited.is_empty() {
        true => nothing_used(key),
        false => usage_table(&limits.limits, &limits.unlimited),
    }
}

/// The usage of limits, one row each, and the policies without a limit.
pub(super) fn usage_table(limits: &[LimitUsage], unlimited: &[Unlimited]) -> String {
    let limited = limits.iter().map(|limit| {
        let [used, remaining] = [limit.used, limit.remaining].map(|n| n.to_string());
        let of = with_condition(&limit.limit.to_string(), limit.condition.as_deref());
        [limit.policy.clone(), limit.key.clone(), used, of, remaining, reset_or_end(limit)]
    });
    let free = unlimited.iter().map(|Unlimited { policy, key, condition }| {
        let none = || "-".to_owned();
        let of = with_condition("unlimited", condition.as_deref());
        [policy.clone(), key.clone(), none(), of, none(), none()]
    });
    table(["POLICY", "KEY", "USED", "LIMIT", "REMAINING", "RESET"], limited.chain(free))
}

/// A limit, and for which requests it holds: `1000 (plan:pro)`.
fn with_condition(limit: &str, condition: Option<&str>) -> String {
    condition.map_or_else(|| limit.to_owned(), |condition| format!("{limit} ({condition})"))
}

/// When units are free again: after this time, or of a window of the calendar, at its end.
fn reset_or_end(limit: &LimitUsage) -> String {
    limit.window_ends.clone().unwrap_or_else(|| limit.reset.clone())
}

fn reset(key: &str, limits: &ResetLimits) -> String {
    if limits.cleared.is_empty() {
        return nothing_used(key);
    }
    let place = if limits.redis_away { "at this instance" } else { "on every instance" };
    let left = only_here(limits.redis_away);
    format!("These limits were reset, {place}:\n\n{}{left}", cleared_table(&limits.cleared))
}

/// The cleared limits, one row each.
pub(super) fn cleared_table(cleared: &[ClearedLimit]) -> String {
    table(["POLICY", "KEY"], cleared.iter().map(|limit| [limit.policy.clone(), limit.key.clone()]))
}

/// The next step if limits were cleared at this instance alone.
pub(super) fn only_here(redis_away: bool) -> &'static str {
    match redis_away {
        true => {
            "\nRedis is away: they were cleared at this instance alone, and may be left in Redis and at other instances.\n\
             Repeat the command there, and once Redis is back.\n"
        }
        false => "",
    }
}

fn nothing_used(key: &str) -> String {
    format!("Nothing of the limits of {} is used.\n", printable(key))
}

#[cfg(test)]
mod tests {
    use super::{super::client::testing::options, *};
    use crate::admin::testing::Harness;

    fn limits(harness: &Harness, key: &str, policy: Option<&str>, reset: bool) -> Result<String, String> {
        let (policy, options) = (policy.map(str::to_owned), options(harness.address, None));
        output(&Args { key: key.into(), policy, reset, options }).map_err(|failure| failure.to_string())
    }

    #[test]
    fn limits_are_shown_and_reset() {
        let harness = Harness::with_shared_address(None);
        let shown = limits(&harness, "203.0.113.7", Some("per-ip"), false).unwrap();
        let mut lines = shown.lines();
        assert_eq!(
            lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["POLICY", "KEY", "USED", "LIMIT", "REMAINING", "RESET"]
        );
        assert!(lines.next().unwrap().starts_with("per-ip  ip:203.0.113.7  "), "{shown}");
        assert_eq!(
            limits(&harness, "ip:203.0.113.7", None, true).unwrap(),
            "These limits were reset, on every instance:\n\nPOLICY  KEY\nper-ip  ip:203.0.113.7\n"
        );
        assert_eq!(
            limits(&harness, "ip:203.0.113.7", None, true).unwrap(),
            "Nothing of the limits of ip:203.0.113.7 is used.\n"
        );
    }

    #[test]
    fn a_month_ends_at_a_time_in_its_zone() {
        let limit = LimitUsage {
            policy: "monthly".into(),
            key: "user:acme".into(),
            used: 3,
            limit: 9,
            remaining: 6,
            reset: "59s".into(),
            window_ends: Some("2026-12-01T00:00:00+01:00[Europe/Berlin]".into()),
            condition: None,
        };
        let shown = usage_table(&[limit.clone(), LimitUsage { window_ends: None, ..limit }], &[]);
        let ends: Vec<_> = shown.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
        assert_eq!(ends, ["RESET", "2026-12-01T00:00:00+01:00[Europe/Berlin]", "59s"]);
    }

    #[test]
    fn a_policy_that_is_not_there_is_named() {
        let harness = Harness::with_shared_address(None);
        assert_eq!(limits(&harness, "ip:203.0.113.7", Some("x"), false).unwrap_err(), "no policy is named x");
        assert!(limits(&harness, "acme", None, false).unwrap_err().contains("write it as the store does"));
    }
}
