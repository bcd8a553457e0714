//! Settings beside `api_keys` that count something else than customers, or that read the keys themselves.

use crate::{
    api_keys::KeyField,
    config::{
        keys::settings::ApiKeySettings,
        policies::settings::Policy,
        reader::Cursor,
        value::{key::KeyPart, rate::Quota},
    },
};

const BY_CUSTOMER: &str = "write `key: customer`, which holds over all keys of a customer";

/// Warns of a limit by key: a customer that makes more keys gets more. `value`: the settings of `policy`.
pub(in crate::config) fn warn(value: Cursor<'_>, policy: &Policy, api_keys: &ApiKeySettings) {
    let counted = policy.value.iter().map(|recipe| ("value", recipe));
    let recipes = policy.keys.iter().map(|recipe| ("key", recipe)).chain(counted);
    for (setting, part) in
        recipes.flat_map(|(setting, recipe)| recipe.0.iter().map(move |part| (setting, part)))
    {
        let message = match part {
            KeyPart::OfKey(KeyField::ApiKey) if setting == "key" => {
                "each API key has this limit for itself, so a customer with more keys gets more".to_owned()
            }
            KeyPart::Header(name) if api_keys.reads_header(name) => {
                format!("the values of {name} are API keys, which would be stored with the counts")
            }
            KeyPart::Query(name) if api_keys.reads_parameter(name) => {
                format!("no request has `{part}` here: API keys are removed from the query first")
            }
            _ => continue,
        };
        if let Some(at) = value.entry(setting) {
            at.warn(message, BY_CUSTOMER.to_owned());
        }
    }
}

/// Warns of users that are named by API keys. `users`: the list of their sources.
pub(in crate::config) fn warn_of_users(users: Cursor<'_>, api_keys: &ApiKeySettings) {
    let sources = Some(users).filter(|list| list.is_list()).and_then(Cursor::list).unwrap_or_default();
    for header in sources.into_iter().filter_map(|source| source.entry("header")) {
        let name = header.scalar().and_then(|name| name.parse().ok());
        if let Some(name) = name.filter(|name| api_keys.reads_header(name)) {
            let message =
                format!("the values of {name} are API keys, which would be logged and stored as user IDs");
            header.warn(message, "write `- api_key: customer`".to_owned());
        }
    }
}

/// Warns of a route that asks for an API key in the `query`, which is the setting at `value`.
pub(in crate::config) fn warn_of_condition(
    value: Cursor<'_>,
    query: &[(String, String)],
    api_keys: &ApiKeySettings,
) {
    if query.iter().any(|(name, _)| api_keys.reads_parameter(name)) {
        let message = "no request meets this condition: API keys are removed from the query first";
        let help = "to admit only some keys to a route, list it under `routes` of these keys";
        value.warn(message, help.to_owned());
    }
}

/// Warns of a plan whose limits have other windows than the policy: they are counted apart. `value`: the plan's limits.
pub(in crate::config) fn warn_of_other_windows(value: Cursor<'_>, plan: &[Quota], policy: &[Quota]) {
    let windows = |quotas: &[Quota]| {
        let mut windows: Vec<_> = quotas.iter().map(|quota| quota.window.to_string()).collect();
        windows.sort_unstable();
        windows
    };
    if windows(plan) == windows(policy) {
        return;
    }
    let written = |quotas: &[Quota]| windows(quotas).join(", ");
    let message = format!(
        "this plan counts in windows of {}, and the policy in {}: counts start anew when the plan of a key changes",
        written(plan),
        written(policy)
    );
    value.warn(message, "use the same windows, and change only the numbers".to_owned());
}
