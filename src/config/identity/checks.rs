//! Settings about addresses that contradict each other, or trust what clients can write.

use http::HeaderName;
use ipnet::IpNet;

use crate::{
    address_set::AddressSet,
    config::{
        identity::{
            access::Access,
            settings::{HeaderFrom, UserSource},
        },
        policies::cost::Cost,
        reader::{Cursor, MappingCursor},
        resolved::Config,
        value::key::Condition,
    },
};

/// Warns about the first network in `allow` that `deny` covers.
pub(in crate::config) fn warn_of_denied_networks(mapping: &MappingCursor<'_>, access: Option<&Access>) {
    let Some(Access { deny: denied, allow: Some(allowed) }) = access else { return };
    let Some(value) = mapping.peek("allow") else { return };
    let set: AddressSet = denied.networks.iter().copied().collect();
    let is_denied = |network: &&IpNet| set.contains(network.network()) && set.contains(network.broadcast());
    // Both ends may be denied by different networks.
    let by = |network: &IpNet| denied.networks.iter().find(|denied| denied.contains(network)).copied();
    let text = |network: &IpNet| match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    };
    if let Some((network, by)) =
        allowed.networks.iter().filter(is_denied).find_map(|network| Some((network, by(network)?)))
    {
        let help = format!("remove it from `allow`, or narrow `{}` in `deny`", text(&by));
        value.warn(format!("`{}` is denied all the same: `deny` wins over `allow`", text(network)), help);
    }
}

/// Warns at `trusted_proxies` about the fields that decide who a client is, or what it may do. nginx and most other proxies
/// pass a field on as the client sent it unless they are configured to replace it. `trusted_headers` confirms that they are.
pub(in crate::config) fn warn_of_spoofable_headers(trusted_proxies: Cursor<'_>, config: &Config) {
    let mut names: Vec<&HeaderName> = Vec::new();
    for name in believed(config) {
        if !config.trusted_headers.contains(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    let Some(first) = names.first() else { return };
    let (this, it) = if names.len() == 1 { ("this header", "it") } else { ("these headers", "them") };
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let plain: Vec<&str> =
        config.trusted_headers.iter().chain(names.iter().copied()).map(HeaderName::as_str).collect();
    let message = format!(
        "clients can set {} themselves: nginx and most other proxies pass {this} on unless told otherwise, and Tollgate \
            trusts what your trusted_proxies pass on",
        quoted.join(", ")
    );
    let help = format!(
        "set or remove {it} in each of these proxies (nginx: `proxy_set_header {first} $value;`, where \"\" removes it), \
            then confirm it here: `trusted_headers: [{}]`; see docs/identity.md",
        plain.join(", ")
    );
    trusted_proxies.warn(message, help);
}

/// The fields that are believed if a trusted proxy sends them.
fn believed(config: &Config) -> impl Iterator<Item = &HeaderName> {
    let users = config.user.iter().filter_map(|source| match source {
        UserSource::Header { name, from: HeaderFrom::TrustedProxies } => Some(name),
        _ => None,
    });
    let costs = config.policies.iter().filter_map(|policy| match &policy.cost {
        Cost::Header { name, .. } => Some(name),
        Cost::Fixed(_) | Cost::Response(_) => None,
    });
    let overrides = config.policies.iter().flat_map(|policy| &policy.overrides);
    let exempt = config.policies.iter().flat_map(|policy| &policy.exempt);
    let exempt = exempt.chain(config.bans.iter().flat_map(|rule| &rule.exempt));
    let conditions = exempt.chain(overrides.map(|other| &other.condition));
    let conditions = conditions.filter_map(Condition::header);
    users.chain(conditions).chain(costs)
}
