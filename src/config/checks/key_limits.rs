//! Limits beside `api_keys` that count something else than customers.

use crate::api_keys::KeyField;
use crate::config::{
    model::{ApiKeySettings, KeyPart, KeySource, Policy, Quota},
    reader::Cursor,
};

/// Warns of a limit by key: a customer that makes more keys gets more. `key`: the setting of `policy`.
pub(in crate::config) fn warn(key: Cursor<'_>, policy: &Policy, api_keys: &ApiKeySettings) {
    let is_source = |name| {
        api_keys.from.iter().any(|source| matches!(source, KeySource::Header(header) if header == name))
    };
    for part in policy.keys.iter().flat_map(|recipe| &recipe.0) {
        let message = match part {
            KeyPart::OfKey(KeyField::ApiKey) => {
                "each API key has this limit for itself, so a customer with more keys gets more".to_owned()
            }
            KeyPart::Header(name) if is_source(name) => {
                format!("the values of {name} are API keys, which would be stored with the counts")
            }
            _ => continue,
        };
        key.warn(message, "write `key: customer`, which holds over all keys of a customer".to_owned());
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
