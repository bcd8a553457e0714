//! `tollgate policies`: the policies in force and their decisions.

use std::process::ExitCode;

use http::Method;

use super::{
    client::{self, EXIT_CODES, Options},
    terminal::{printable, table},
};
use crate::admin::dto::{CalendarWindow, Policies, Policy};

/// List the policies and what they decided
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(flatten)]
    pub options: Options,
}

/// Sends the request and prints the response.
pub(super) fn run(args: &Args) -> ExitCode {
    client::print_result(client::request(&args.options, Method::GET, "/v1/policies", list))
}

fn list(policies: &Policies) -> String {
    if policies.policies.is_empty() {
        return "There are no policies: no request is limited.\n".to_owned();
    }
    let head = [
        "POLICY",
        "ALGORITHM",
        "KEYS",
        "LIMITS",
        "MODE",
        "ROUTES",
        "ALLOWED",
        "DENIED",
        "SHADOW DENIED",
        "ERRORS",
    ];
    let windows = policies.policies.iter().flat_map(|policy| {
        let line = |window: &CalendarWindow| {
            let [policy, limit, ends] =
                [&policy.name, &window.limit, &window.ends].map(|text| printable(text));
            format!("{policy}: the window of {limit} ends {ends}\n")
        };
        policy.calendar_windows.iter().map(line).collect::<Vec<_>>()
    });
    let windows: String = windows.collect();
    let gap = if windows.is_empty() { "" } else { "\n" };
    table(head, policies.policies.iter().map(row))
        + gap
        + &windows
        + "\nDecisions are those of this instance since its start.\n"
}

fn row(policy: &Policy) -> [String; 10] {
    let Policy { allowed, denied, shadow_denied, errors, .. } = policy;
    let routes = match policy.priced_routes().join(", ") {
        _ if policy.implicit => "implicit: wrong API keys and tokens".to_owned(),
        routes if routes.is_empty() => "none".to_owned(),
        routes => routes,
    };
    let limits = match policy.overrides {
        0 => policy.limits.join(", "),
        1 => format!("{} (1 override)", policy.limits.join(", ")),
        overrides => format!("{} ({overrides} overrides)", policy.limits.join(", ")),
    };
    let [allowed, denied, shadow_denied, errors] =
        [allowed, denied, shadow_denied, errors].map(ToString::to_string);
    [
        policy.name.clone(),
        policy.algorithm.clone(),
        policy.keys.join(", "),
        limits,
        if policy.used { policy.mode.clone() } else { "not used".to_owned() },
        routes,
        allowed,
        denied,
        shadow_denied,
        errors,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::RoutePrice;

    #[test]
    fn each_policy_is_a_row() {
        let policy = Policy {
            name: "per-ip".into(),
            algorithm: "gcra".into(),
            keys: vec!["ip".into(), "ip+path".into()],
            limits: vec!["10/1s".into(), "100/1m".into()],
            calendar_windows: Vec::new(),
            mode: "enforce".into(),
            overrides: 1,
            implicit: false,
            routes: vec!["/*".into(), "login".into()],
            prices: vec![RoutePrice { route: "login".into(), cost: 5 }],
            used: true,
            allowed: 12,
            denied: 3,
            shadow_denied: 0,
            errors: 0,
            response_cost: None,
        };
        let unused =
            Policy { name: "unused".into(), routes: Vec::new(), used: false, overrides: 2, ..policy.clone() };
        assert_eq!(
            list(&Policies { policies: vec![policy, unused.clone()] }),
            "\
POLICY  ALGORITHM  KEYS         LIMITS                       MODE      ROUTES              ALLOWED  DENIED  SHADOW DENIED  ERRORS
per-ip  gcra       ip, ip+path  10/1s, 100/1m (1 override)   enforce   /*, login (cost 5)  12       3       0              0
unused  gcra       ip, ip+path  10/1s, 100/1m (2 overrides)  not used  none                12       3       0              0

Decisions are those of this instance since its start.
"
        );
        let window = CalendarWindow {
            limit: "1000/month (Europe/Berlin)".into(),
            ends: "2026-12-01T00:00:00+01:00[Europe/Berlin]".into(),
        };
        let monthly = Policy { name: "monthly".into(), calendar_windows: vec![window], ..unused };
        let shown = list(&Policies { policies: vec![monthly] });
        let line = "\nmonthly: the window of 1000/month (Europe/Berlin) ends 2026-12-01T00:00:00+01:00[Europe/Berlin]\n\n";
        assert!(shown.contains(line), "{shown}");
        assert!(list(&Policies { policies: Vec::new() }).starts_with("There are no policies"));
    }
}
