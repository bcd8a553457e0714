//! `abuse` and `bans`: what is recorded about limited clients, and who is banned for being denied too often.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    MAX_BUDGET, MIN_BUDGET,
    policies::{Policies, exempt, reply},
    user::IdentitySources,
};
use crate::config::{
    Location,
    model::{Abuse, Algorithm, BanKey, BanRule, DenialReply, KeyPart, Mode, Policy, Secret, Users},
    reader::{Cursor, MappingCursor},
    settings,
    value::{
        Invalid, MAX_DURATION, boolean, choice, duration, factor, percentage, rate, resource_name, size,
    },
};

/// The shortest ban.
const MIN_BAN: Duration = Duration::from_secs(1);
/// The default of `max`, unless the first ban lasts longer.
const DEFAULT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const DEFAULT_FACTOR: f64 = 2.0;
const DEFAULT_JITTER: f64 = 0.1;

const KEY: &str = "what to ban: `key: ip` or `key: user`";
const LISTED: &str = "name at least one policy, or leave `policies` out: then the denials of all count";
const AFTER: &str = "the number of denied requests that triggers a ban, such as `after: 20/1m`";
const FOR: &str = "how long the first ban lasts, such as `for: 5m`";

/// The setting among the rules, which no rule can be named after.
const CLOSE_TUNNELS: &str = "close_tunnels";

/// Reads all rules, and whether a ban closes tunnels. `None` if a rule is invalid.
pub(super) fn bans(
    value: Option<Cursor<'_>>,
    identity: IdentitySources,
    policies: &Policies<'_>,
) -> (Option<Vec<Arc<BanRule>>>, bool) {
    let mut all = Vec::new();
    let mut close_tunnels = true;
    for (location, name, value) in value.and_then(Cursor::named_entries).unwrap_or_default() {
        if name == CLOSE_TUNNELS {
            close_tunnels = value.parse(boolean).unwrap_or(close_tunnels);
            continue;
        }
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        let rule = value
            .mapping()
            .and_then(|mapping| rule(name, mapping.of(&settings::BAN), identity, policies))
            .map(Arc::new);
        if let Some(rule) = &rule {
            warn_of_counted_quotas(value, location, rule, policies);
        }
        all.push(rule);
    }
    (all.into_iter().collect(), close_tunnels)
}

fn rule(
    name: &str,
    mut mapping: MappingCursor<'_>,
    identity: IdentitySources,
    policies: &Policies<'_>,
) -> Option<BanRule> {
    let listed = mapping.take("policies").map(|list| {
        if list.is_empty_list() {
            list.report("no denial would count, so the rule would never ban", LISTED.to_owned());
        }
        list.unique_items(|item| policies.names.resolve(item))
    });
    let counted: Option<Vec<&Policy>> = policies.resolved.as_ref().map(|all| {
        let is_counted = |index: &usize| listed.as_ref().is_none_or(|listed| listed.contains(index));
        let counted = all.iter().enumerate().filter(|(index, _)| is_counted(index));
        counted.map(|(_, policy)| &**policy).filter(|policy| policy.mode == Mode::Enforce).collect()
    });
    let key = mapping.require("key", KEY).and_then(|value| key(value, identity, counted.as_deref()));
    let after = mapping.require("after", AFTER).and_then(|value| value.parse(rate));
    let first_duration =
        mapping.require("for", FOR).and_then(|value| value.parse(duration(MIN_BAN..=MAX_DURATION)));
    let factor = mapping.parse_or("factor", DEFAULT_FACTOR, factor);
    let jitter = mapping.parse_or("jitter", DEFAULT_JITTER, jitter);
    let max = max(&mut mapping, first_duration);
    let mode = choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
    let mode = mapping.parse_or("mode", Mode::Enforce, mode);
    let exempt = exempt(mapping.take("exempt"), identity);
    let reply = mapping.take("reply").map(|value| reply(value, StatusCode::FORBIDDEN));
    mapping.finish();
    let default = DenialReply { status: StatusCode::FORBIDDEN, headers: Vec::new(), body: None };
    Some(BanRule {
        name: name.to_owned(),
        key: key?,
        policies: listed,
        after: after?,
        first_duration: first_duration?,
        factor,
        jitter,
        max,
        mode,
        exempt,
        reply: reply.unwrap_or(Some(default))?,
    })
}

/// `counted`: the enforced policies whose denials count; `None` if a policy is invalid.
fn key(value: Cursor<'_>, identity: IdentitySources, counted: Option<&[&Policy]>) -> Option<BanKey> {
    let key = value.parse(choice(&[("ip", BanKey::Ip), ("user", BanKey::User)]))?;
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
    Some(key)
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
fn warn_of_counted_quotas(rule: Cursor<'_>, location: Location, read: &BanRule, policies: &Policies<'_>) {
    let all = policies.resolved.as_deref().unwrap_or_default();
    let enforced = all.iter().filter(|policy| policy.mode == Mode::Enforce);
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

/// At most half, so that the next ban of a ladder is rarely shorter than the one before.
fn jitter(text: &str) -> Result<f64, Invalid> {
    let share = percentage(text)?;
    match share <= 0.5 {
        true => Ok(share),
        false => Err(Invalid::new("is too large").expected("from 0% to 50%")),
    }
}

fn max(mapping: &mut MappingCursor<'_>, first_duration: Option<Duration>) -> Duration {
    let default = first_duration.map_or(DEFAULT_MAX, |first_duration| first_duration.max(DEFAULT_MAX));
    let Some(value) = mapping.take("max") else { return default };
    let Some(max) = value.parse(duration(MIN_BAN..=MAX_DURATION)) else { return default };
    if first_duration.is_some_and(|first_duration| max < first_duration) {
        value.report("`max` is shorter than `for`", "set `max` to at least `for`".to_owned());
    }
    max
}

pub(super) fn abuse(value: Option<Cursor<'_>>) -> Abuse {
    let default =
        Abuse { retain: Duration::from_secs(24 * 60 * 60), memory: None, users: Users::Plain, secret: None };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::ABUSE);
    let retain = mapping.parse_or("retain", default.retain, duration(Duration::from_secs(1)..=MAX_DURATION));
    let memory = mapping.take("memory").and_then(|value| value.parse(size(MIN_BUDGET..=MAX_BUDGET)));
    let users_value = mapping.take("users");
    let words = [("plain", Users::Plain), ("hashed", Users::Hashed), ("off", Users::Off)];
    let users = users_value.and_then(|value| value.parse(choice(&words))).unwrap_or(default.users);
    let secret = mapping.take("secret").map(|value| value.parse_secret(|text| Ok(text.to_owned())));
    mapping.finish();
    // An invalid secret was reported. Do not report it as missing as well.
    let is_missing = secret.as_ref().is_none_or(|secret| secret.as_deref() == Some(""));
    if let Some(value) = users_value.filter(|_| users == Users::Hashed && is_missing) {
        let help = "set `secret`, to the same value on every instance".to_owned();
        value.report("hashing user IDs needs a secret", help);
    }
    let secret = secret.flatten().filter(|secret| !secret.is_empty()).map(Secret::new);
    Abuse { retain, memory, users, secret }
}
