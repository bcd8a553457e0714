//! A policy, put together from what its settings say.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    algorithm::{self, Settings},
    cost::{self, Charge},
    exceptions::{self, exempt},
    keys, limits,
    reply::reply,
};
use crate::config::{
    model::{Missing, Mode, OnStoreError, Policy, Record},
    reader::{Cursor, Mapping, Names},
    section::{SHORTEST, user::Known},
    value::{LONGEST_DURATION, choice, count, duration, name_of_thing, switch},
};

/// What others refer to, and the policies themselves where all are right.
pub(in crate::config::section) struct Policies<'t> {
    pub(in crate::config::section) names: Names<'t>,
    pub(in crate::config::section) resolved: Option<Vec<Arc<Policy>>>,
}

const ON_STORE_ERROR: [(&str, OnStoreError); 3] =
    [("local", OnStoreError::Local), ("allow", OnStoreError::Allow), ("deny", OnStoreError::Deny)];

/// Reads all policies. `known`: what the configuration says of users and proxies.
pub(in crate::config::section) fn policies(value: Option<Cursor<'_>>, known: Known) -> Policies<'_> {
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
    let value = keys::distinct_value(&mut at, kind, keys.as_deref(), known);
    let tiers = limits::tiers(&mut at, kind, settings);
    let algorithm = kind.zip(tiers.as_deref()).map(|(kind, tiers)| settings.complete(kind, tiers));
    let limits = algorithm.zip(tiers.as_deref());
    let Charge { cost, count, count_denied, slice } = cost::charge(&mut at, kind, settings, limits, known);
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
