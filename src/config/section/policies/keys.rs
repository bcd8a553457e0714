//! `key`: what a policy limits.

use crate::config::{
    model::{KeyPart, KeyRecipe},
    section::user::Known,
    value::key_recipe,
    walk::Cursor,
};

/// One key, or a list of which each is limited on its own.
pub(super) fn keys(value: Cursor<'_>, known: Known) -> Vec<KeyRecipe> {
    if value.written().is_some() {
        return key(value, known).into_iter().collect();
    }
    let keys = value.distinct(|item| key(item, known));
    if value.is_empty_list() {
        value.report("a policy needs a key", "to limit all requests together write `key: global`".to_owned());
    }
    keys
}

/// One key, whose parts some request can have.
pub(super) fn key(item: Cursor<'_>, known: Known) -> Option<KeyRecipe> {
    let key = item.parse(key_recipe)?;
    if !known.users && key.0.contains(&KeyPart::User) {
        let help = "say where the user ID comes from, in `user` at the top level";
        item.report("no request has a user as long as `user` is not configured", help.to_owned());
    }
    if !known.tokens && key.0.iter().any(|part| matches!(part, KeyPart::Jwt(_))) {
        let help = "name the token and its key in `user`: `- jwt: { key: { file: FILE }, algorithm: RS256 }`";
        item.report("no request has claims as long as no token is verified", help.to_owned());
    }
    Some(key)
}
