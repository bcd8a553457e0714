//! Bans that never happen, or that hit others than meant.

use std::sync::Arc;

use crate::config::{
    FileLocation,
    abuse::settings::{BanKey, BanRule},
    identity::settings::IdentitySources,
    keys::settings::ATTEMPTS_POLICY,
    policies::{
        algorithm::Algorithm,
        settings::{Mode, Policy},
    },
    reader::Cursor,
    value::key::KeyPart,
};

/// Checks the `key` of a rule, which is at `value`. `counted`: the enforced policies whose denials count; `None` if a policy
/// is invalid.
pub(in crate::config) fn check_key(
    value: Cursor<'_>,
    key: BanKey,
    identity: IdentitySources,
    counted: Option<&[&Policy]>,
) {
    if key == BanKey::User && !identity.has_users {
        let help = "set where the user ID comes from: `user` at the top level";
        value.report("no request has a user ID, because `user` is not configured", help.to_owned());
    } else if counted.is_some_and(<[_]>::is_empty) {
        value.warn(
            "this rule never bans: it counts what policies deny, and no policy that it counts is enforced",
            "add a policy, or remove `mode: shadow` from one".to_owned(),
        );
    } else if key == BanKey::User
        && let Some(counted) = counted.filter(|_| identity.has_unverified_users)
    {
        warn_of_unverified_users(value, identity, counted);
    }
}

/// Warns of a ban of users who are not verified. A request that only claims to be of a user counts against that user if it is
/// denied by the user's own limit.
fn warn_of_unverified_users(key: Cursor<'_>, identity: IdentitySources, counted: &[&Policy]) {
    let is_counted = counted.iter().any(|policy| policy.keys.iter().any(|key| key.0 == [KeyPart::User]));
    let message = match (is_counted, identity.has_verified_users) {
        (true, _) => {
            "a client can have another user banned: user IDs from a cookie, from `basic`, or from a header with \
            `from: anyone` are not verified"
        }
        (false, false) => {
            "this rule never bans: user IDs are not verified, so only denials by a policy with `key: user` count, \
            and there is none"
        }
        (false, true) => return,
    };
    let help = "ban by `key: ip`, or take the user from a `jwt`, a client certificate, or a header that \
        trusted_proxies set";
    key.warn(message, help.to_owned());
}

/// Warns of a rule that counts denials of all policies, where some count only failures and others all requests. The rule is
/// meant for the failures; but a client that only goes on after it has used up a quota would be banned as well.
pub(in crate::config) fn warn_of_counted_quotas(
    rule: Cursor<'_>,
    location: FileLocation,
    read: &BanRule,
    policies: &[Arc<Policy>],
) {
    let is_counted = |policy: &&Arc<Policy>| policy.mode == Mode::Enforce && policy.name != ATTEMPTS_POLICY;
    let enforced = policies.iter().filter(is_counted);
    let (of_misuse, quotas): (Vec<_>, Vec<_>) =
        enforced.partition(|policy| policy.count.is_some() || policy.algorithm == Algorithm::Distinct);
    if read.policies.is_some() || of_misuse.is_empty() || quotas.is_empty() {
        return;
    }
    let names = |policies: &[&Arc<Policy>]| {
        let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        names.join(", ")
    };
    let message = format!(
        "this rule counts denials by all policies: it also bans clients that have used up a quota ({}), and send more requests",
        names(&quotas)
    );
    let help =
        format!("name the policies whose denials are misuse, such as `policies: [{}]`", names(&of_misuse));
    rule.warn_at(location, message, help);
}
