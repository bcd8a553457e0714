//! Networks that are allowed and denied as a whole.

use ipnet::IpNet;

use crate::{
    address_set::AddressSet,
    config::{model::Access, reader::MappingCursor},
};

/// Warns about the first network in `allow` that `deny` covers.
pub(in crate::config) fn warn(mapping: &MappingCursor<'_>, access: Option<&Access>) {
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
