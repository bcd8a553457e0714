//! `key`: what a policy counts by; and `value`: what `distinct` counts. `balance` takes a key as well.

use crate::config::{
    model::{Algorithm, KeyPart, KeyRecipe},
    reader::{Cursor, MappingCursor},
    section::user::IdentitySources,
    value::{key_recipe, suggest_key},
};

/// One key, or a list of keys that are limited independently.
pub(super) fn keys(value: Cursor<'_>, identity: IdentitySources) -> Vec<KeyRecipe> {
    if value.scalar().is_some() || value.is_mapping() {
        return key(value, identity).into_iter().collect();
    }
    let keys = value.unique_items(|item| key(item, identity));
    if value.is_empty_list() {
        value
            .report("a policy needs a key", "to limit all requests together, write `key: global`".to_owned());
    }
    keys
}

/// One key. Reports parts that no request can have.
pub(in crate::config::section) fn key(item: Cursor<'_>, identity: IdentitySources) -> Option<KeyRecipe> {
    if let Some((kind, name)) = item.only_entry().filter(|(_, value)| !value.is_null()) {
        let written = format!("{kind}:{}", name.scalar().unwrap_or("NAME"));
        let help = suggest_key(&written).map(|key| format!("did you mean `\"{key}\"`?"));
        item.report("expected a single value, not a mapping", help);
        return None;
    }
    let key = item.parse(key_recipe)?;
    if !identity.has_users && key.0.contains(&KeyPart::User) {
        let help = "set where the user ID comes from: `user` at the top level";
        item.report("no request has a user ID, because `user` is not configured", help.to_owned());
    }
    if !identity.has_tokens && key.0.iter().any(|part| matches!(part, KeyPart::Jwt(_))) {
        let help = "configure the token and its key under `user`: `- jwt: { key: { file: FILE }, algorithm: RS256 }`";
        item.report("no request has claims, because no token is verified", help.to_owned());
    }
    if key.0.iter().any(|part| matches!(part, KeyPart::Tls(_))) {
        identity.warn_without_client_certificates(item);
    }
    Some(key)
}

/// The value of a request that `distinct` counts. The outer `None` means that it is invalid.
pub(super) fn distinct_value(
    mapping: &mut MappingCursor<'_>,
    kind: Option<Algorithm>,
    keys: Option<&[KeyRecipe]>,
    identity: IdentitySources,
) -> Option<Option<KeyRecipe>> {
    if kind.is_some_and(|kind| kind != Algorithm::Distinct) {
        // `AlgorithmSettings::read` has reported it.
        return Some(None);
    }
    let value = match kind {
        Some(_) => mapping.require("value", "the part of a request to count, such as `value: user`"),
        None => mapping.take("value"),
    }?;
    let recipe = key(value, identity)?;
    if keys.is_some_and(|keys| keys.contains(&recipe)) {
        let help = "with `key: ip`, `value: user` counts the users behind an address".to_owned();
        value.report("this is also the key, so there would only ever be one value", help);
    }
    Some(Some(recipe))
}
