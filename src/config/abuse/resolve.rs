//! Makes the rules of `bans` of their settings.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use crate::config::{
    abuse::{
        checks,
        settings::{BanRule, BanSettings, BansSettings},
    },
    identity::settings::IdentitySources,
    policies::{
        denial_reply::DenialReply,
        overrides::exempt,
        settings::{Mode, Policy, ReadPolicies},
    },
    reader::Cursor,
    settings::Read,
    value::resource_name,
};

/// The default of `max`, unless the first ban lasts longer.
const DEFAULT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const LISTED: &str = "name at least one policy, or leave `policies` out: then the denials of all count";

/// Reads all rules, and whether a ban closes tunnels. `None` if a rule is invalid.
pub(in crate::config) fn bans(
    value: Option<Cursor<'_>>,
    identity: IdentitySources,
    policies: &ReadPolicies<'_>,
) -> (Option<Vec<Arc<BanRule>>>, bool) {
    // Anything but a mapping of names is reported.
    let value = value.filter(|value| value.is_mapping() || value.named_entries().is_some());
    let Some(BansSettings { close_tunnels, rules }) = value.and_then(BansSettings::read) else {
        return (Some(Vec::new()), true);
    };
    let mut all = Vec::new();
    for (location, name, value) in rules {
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        let rule = rule(name, value, identity, policies).map(Arc::new);
        if let Some(rule) = &rule {
            let policies = policies.resolved.as_deref().unwrap_or_default();
            checks::warn_of_counted_quotas(value, location, rule, policies);
        }
        all.push(rule);
    }
    (all.into_iter().collect(), close_tunnels)
}

fn rule(
    name: &str,
    value: Cursor<'_>,
    identity: IdentitySources,
    policies: &ReadPolicies<'_>,
) -> Option<BanRule> {
    let settings = BanSettings::read(value)?;
    let listed = settings.policies.map(|list| {
        if list.is_empty_list() {
            list.report("no denial would count, so the rule would never ban", LISTED.to_owned());
        }
        list.unique_items(|item| policies.counted.resolve(item))
    });
    let counted: Option<Vec<&Policy>> = policies.resolved.as_ref().map(|all| {
        let is_counted = |index: &usize| listed.as_ref().is_none_or(|listed| listed.contains(index));
        let counted = all.iter().enumerate().filter(|(index, _)| is_counted(index));
        counted.map(|(_, policy)| &**policy).filter(|policy| policy.mode == Mode::Enforce).collect()
    });
    if let Some((at, key)) = value.entry("key").zip(settings.key) {
        checks::check_key(at, key, identity, counted.as_deref());
    }
    if let Some((at, max)) = value.entry("max").zip(settings.max)
        && settings.first_duration.is_some_and(|first_duration| max < first_duration)
    {
        at.report("`max` is shorter than `for`", "set `max` to at least `for`".to_owned());
    }
    let exempt = exempt(settings.exempt.exempt, identity);
    let reply = settings.reply.and_then(|value| DenialReply::read(value, StatusCode::FORBIDDEN));
    let first_duration = settings.first_duration?;
    Some(BanRule {
        name: name.to_owned(),
        key: settings.key?,
        policies: listed,
        after: settings.after?,
        first_duration,
        factor: settings.factor,
        jitter: settings.jitter,
        max: settings.max.unwrap_or(first_duration.max(DEFAULT_MAX)),
        mode: settings.mode,
        exempt,
        reply: reply.unwrap_or(DenialReply {
            status: StatusCode::FORBIDDEN,
            headers: Vec::new(),
            body: None,
        }),
    })
}
