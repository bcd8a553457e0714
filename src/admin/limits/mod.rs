//! `/v1/limits`: how limits stand, and taking back what was used of one.

pub(super) mod clear;
pub(super) mod peek;

mod key;

use serde::Deserialize;
use utoipa::IntoParams;

use super::{Configured, problem::Problem, vocabulary};
use key::Key;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Of this policy; of every one that can have the key, where it is left out.
    #[param(min_length = 1, example = "per-ip")]
    policy: Option<String>,
    /// As in the store: `ip:203.0.113.7`, `user:acme`, `ip:203.0.113.7+path:/a`.
    #[param(value_type = vocabulary::LimitKey)]
    key: String,
}

/// The key, and the policies, by index, that can have it; and whether the one was asked for by its name.
fn read(configured: &Configured, wanted: &Wanted) -> Result<(Key, Vec<usize>, bool), Problem> {
    let key = Key::read(&wanted.key, configured.ipv6_prefix()).map_err(Problem::bad_request)?;
    let policies = configured.policies();
    if let Some(name) = &wanted.policy {
        let index = configured
            .policy_named(name)
            .ok_or_else(|| Problem::bad_request(format!("there is no policy {}", name.escape_debug())))?;
        let may = policies.get(index).is_some_and(|policy| key.may_be_of(policy));
        return match may {
            true => Ok((key, vec![index], true)),
            false => Err(Problem::not_found(format!("{name} has no key such as {}", key.text))),
        };
    }
    let may: Vec<usize> = (0..policies.len()).filter(|&index| key.may_be_of(&policies[index])).collect();
    match may.is_empty() {
        true => Err(Problem::not_found(format!("no policy has a key such as {}", key.text))),
        false => Ok((key, may, false)),
    }
}
