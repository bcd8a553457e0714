//! `policies`: what holds requests back.

mod algorithm;
mod charge;
mod cost;
mod exceptions;
mod keys;
mod limits;
mod reply;

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{SHORTEST, user::Known};
use crate::config::{
    model::{Algorithm, KeyRecipe, Missing, Mode, OnStoreError, Policy, Record},
    value::{LONGEST_DURATION, choice, count, duration, name_of_thing, switch},
    walk::{Cursor, Mapping, Names},
};
use algorithm::Settings;
use charge::Charge;

pub(super) use exceptions::exempt;
pub(super) use reply::reply;

/// What others refer to, and the policies themselves where all are right.
pub(super) struct Policies<'t> {
    pub(super) names: Names<'t>,
    pub(super) resolved: Option<Vec<Arc<Policy>>>,
}

const ON_STORE_ERROR: [(&str, OnStoreError); 3] =
    [("local", OnStoreError::Local), ("allow", OnStoreError::Allow), ("deny", OnStoreError::Deny)];

/// Reads all policies. `known`: what the configuration says of users and proxies.
pub(super) fn policies(value: Option<Cursor<'_>>, known: Known) -> Policies<'_> {
    let entries = value.and_then(Cursor::named).unwrap_or_default();
    let names = entries.iter().map(|(_, name, _)| *name).collect();
    let mut all = Vec::new();
    for (place, name, value) in entries {
        if let Err(invalid) = name_of_thing(name) {
            value.report_at(place, format!("`{name}` {}", invalid.what), invalid.help(false));
        }
        all.push(value.mapping().and_then(|at| policy(name, at, known)).map(Arc::new));
    }
    Policies { names: Names::new("policy", names), resolved: all.into_iter().collect() }
}

fn policy(name: &str, mut at: Mapping<'_>, known: Known) -> Option<Policy> {
    let kind = algorithm::kind(&mut at);
    let keys = at
        .require("key", "what is limited, such as `key: ip` or `key: [ip, user]`")
        .map(|value| keys::keys(value, known));
    let missing = choice(&[("skip", Missing::Skip), ("ip", Missing::Ip), ("deny", Missing::Deny)]);
    let missing = at.parse_or("missing", Missing::Skip, missing);
    let settings = Settings::read(&mut at, kind);
    let value = value(&mut at, kind, keys.as_deref(), known);
    let tiers = limits::tiers(&mut at, kind, settings);
    let algorithm = kind.zip(tiers.as_deref()).map(|(kind, tiers)| settings.complete(kind, tiers));
    let limits = algorithm.zip(tiers.as_deref());
    let Charge { cost, count, count_denied, slice } = charge::charge(&mut at, kind, settings, limits, known);
    let mode = choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
    let mode = at.parse_or("mode", Mode::Enforce, mode);
    let preflight = at.parse_or("preflight", false, switch);
    let exempt = exempt(at.take("exempt"), known);
    let overrides = exceptions::overrides(at.take("overrides"), kind, settings, &cost, slice > 0.0, known);
    let on_store_error = at.parse_or("on_store_error", OnStoreError::Local, choice(&ON_STORE_ERROR));
    let record = record(at.take("record"));
    let reply = at.take("reply").and_then(|value| reply(value, StatusCode::TOO_MANY_REQUESTS));
    at.finish();
    Some(Policy {
        missing,
        value: value?,
        count,
        on_store_error,
        record,
        cost,
        mode,
        count_denied,
        preflight,
        slice,
        exempt,
        overrides,
        reply,
        ..Policy::new(name, algorithm?, keys?, tiers?)
    })
}

/// What of a request `distinct` counts the different values of. None where it is wrong.
fn value(
    at: &mut Mapping<'_>,
    kind: Option<Algorithm>,
    keys: Option<&[KeyRecipe]>,
    known: Known,
) -> Option<Option<KeyRecipe>> {
    if kind.is_some_and(|kind| kind != Algorithm::Distinct) {
        // That it is here was said by its settings.
        return Some(None);
    }
    let value = match kind {
        Some(_) => at.require("value", "what of a request is counted, such as `value: user`"),
        None => at.take("value"),
    }?;
    let recipe = keys::key(value, known)?;
    if keys.is_some_and(|keys| keys.contains(&recipe)) {
        let help = "with `key: ip`, `value: user` counts the users behind an address".to_owned();
        value.report("this is the key as well, so there would never be but one value", help);
    }
    Some(Some(recipe))
}

fn record(value: Option<Cursor<'_>>) -> Record {
    let default = Record { keep: 50, retain: Duration::from_secs(60 * 60) };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let record = Record {
        keep: at.parse_or("keep", default.keep, count(0..=1_000)),
        retain: at.parse_or("for", default.retain, duration(SHORTEST..=LONGEST_DURATION)),
    };
    at.finish();
    record
}
