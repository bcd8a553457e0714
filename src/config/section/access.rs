//! `deny` and `allow`: which addresses may send requests.

use std::{collections::HashMap, path::PathBuf};

use ipnet::IpNet;

use crate::{
    address_set::{AddressSet, read_addresses},
    config::{
        model::{Access, AddressList},
        reader::{Cursor, MappingCursor},
        settings,
        value::{Invalid, network},
    },
};

/// Reads `deny` and `allow` at the top level, or of a route.
pub(super) fn access(mapping: &mut MappingCursor<'_>) -> Access {
    let deny = mapping.take("deny");
    let allow = mapping.take("allow");
    let denied = deny.map(|value| list(value, denied_network)).unwrap_or_default();
    let allowed = allow.map(|value| {
        if value.is_empty_list() {
            let help = "name the addresses that are allowed, or remove `allow`".to_owned();
            value.report("an empty list allows nobody", help);
        }
        list(value, allowed_network)
    });
    if let (Some(value), Some(allowed)) = (allow, &allowed) {
        warn_of_denied(value, &denied, allowed);
    }
    Access { deny: denied, allow: allowed }
}

/// A list of addresses and files, or a file alone.
fn list(value: Cursor<'_>, read: fn(&str) -> Result<IpNet, Invalid>) -> AddressList {
    if let Some(text) = value.scalar().filter(|text| is_everybody(text)) {
        let text = text.to_owned();
        value.parse(move |_| read(&text).map(|_| ()));
        return AddressList::default();
    }
    let items = if value.is_mapping() { vec![value] } else { value.list().unwrap_or_default() };
    let mut networks: Vec<IpNet> = Vec::with_capacity(items.len());
    let mut lines: HashMap<IpNet, usize> = HashMap::with_capacity(items.len());
    let mut files: Vec<PathBuf> = Vec::new();
    for item in items {
        if item.is_mapping() {
            files.extend(file(item).filter(|file| !files.contains(file)));
            continue;
        }
        let Some(network) = item.parse(read) else { continue };
        match lines.insert(network, item.location().line) {
            None => networks.push(network),
            Some(line) => item.report(
                format!("`{}` is in this list twice", item.scalar().unwrap_or_default()),
                (line != item.location().line).then(|| format!("it is also in line {line}")),
            ),
        }
    }
    AddressList { networks: networks.into(), files }
}

/// `{ file: PATH }`
fn file(value: Cursor<'_>) -> Option<PathBuf> {
    let mut mapping = value.mapping()?.of(&settings::ADDRESSES_FILE);
    let path = mapping.require("file", "such as `{ file: blocked.txt }`, with one address or network a line");
    mapping.finish();
    let (path, ()) = path?.file(|bytes| match read_addresses(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(Invalid::new(format!("can't be used: {error}"))
            .expected("write one address or network a line; # begins a comment")),
    })?;
    Some(path)
}

/// What nginx and people write for every address.
fn is_everybody(text: &str) -> bool {
    ["all", "any", "*", "everyone", "everybody"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn denied_network(text: &str) -> Result<IpNet, Invalid> {
    if is_everybody(text) {
        return Err(Invalid::new("would deny every request, since `deny` wins over `allow`")
            .expected("`allow: [ADDRESS, …]` alone denies all others; remove this"));
    }
    network(text)
}

fn allowed_network(text: &str) -> Result<IpNet, Invalid> {
    if is_everybody(text) {
        return Err(Invalid::new("need not be written")
            .expected("without `allow`, every address that `deny` does not name is allowed; remove this"));
    }
    network(text)
}

/// Warns about networks that are allowed and denied as a whole.
fn warn_of_denied(value: Cursor<'_>, denied: &AddressList, allowed: &AddressList) {
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
