//! `tollgate policies`: the policies in force and their decisions.

use std::process::ExitCode;

use http::Method;

use super::{
    client::{self, EXIT_CODES, Options},
    terminal::table,
};
use crate::admin::dto::{Policies, Policy};

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
    table(head, policies.policies.iter().map(row))
        + "\nDecisions are those of this instance since its start.\n"
}

fn row(policy: &Policy) -> [String; 10] {
    let Policy { allowed, denied, shadow_denied, errors, .. } = policy;
    let routes = if policy.routes.is_empty() { "none".to_owned() } else { policy.routes.join(", ") };
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

    #[test]
    fn each_policy_is_a_row() {
        let policy = Policy {
            name: "per-ip".into(),
            algorithm: "gcra".into(),
            keys: vec!["ip".into(), "ip+path".into()],
            limits: vec!["10/1s".into(), "100/1m".into()],
            mode: "enforce".into(),
            overrides: 1,
            routes: vec!["/*".into(), "login".into()],
            used: true,
            allowed: 12,
            denied: 3,
            shadow_denied: 0,
            errors: 0,
        };
        let unused =
            Policy { name: "unused".into(), routes: Vec::new(), used: false, overrides: 2, ..policy.clone() };
        assert_eq!(
            list(&Policies { policies: vec![policy, unused] }),
            "\
POLICY  ALGORITHM  KEYS         LIMITS                       MODE      ROUTES     ALLOWED  DENIED  SHADOW DENIED  ERRORS
per-ip  gcra       ip, ip+path  10/1s, 100/1m (1 override)   enforce   /*, login  12       3       0              0
unused  gcra       ip, ip+path  10/1s, 100/1m (2 overrides)  not used  none       12       3       0              0

Decisions are those of this instance since its start.
"
        );
        assert!(list(&Policies { policies: Vec::new() }).starts_with("There are no policies"));
    }
}
