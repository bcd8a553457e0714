//! `policies`: what holds requests back.

use std::{sync::Arc, time::Duration};

use super::SHORTEST;
use crate::config::{
    model::{Algorithm, KeyPart, KeyRecipe, Missing, OnStoreError, Policy, Rate, Record},
    value::{Invalid, LONGEST, choice, count, duration, key_recipe, name_of_thing, rate},
    walk::{Cursor, Mapping, Names},
};

/// What others refer to, and the policies themselves where all are right.
pub(super) struct Policies<'t> {
    pub(super) names: Names<'t>,
    pub(super) resolved: Option<Vec<Arc<Policy>>>,
}

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("single_counter", Algorithm::SingleCounter),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_log", Algorithm::SlidingLog),
    ("metadata_list", Algorithm::MetadataList),
];

const ON_STORE_ERROR: [(&str, OnStoreError); 3] =
    [("local", OnStoreError::Local), ("allow", OnStoreError::Allow), ("deny", OnStoreError::Deny)];

/// Reads all policies. `knows_users` if the configuration says where a user ID comes from.
pub(super) fn policies(value: Option<Cursor<'_>>, knows_users: bool) -> Policies<'_> {
    let entries = value.and_then(Cursor::named).unwrap_or_default();
    let names = entries.iter().map(|(_, name, _)| *name).collect();
    let mut all = Vec::new();
    for (place, name, value) in entries {
        if let Err(invalid) = name_of_thing(name) {
            value.report_at(place, format!("`{name}` {}", invalid.what), invalid.help(false));
        }
        all.push(value.mapping().and_then(|at| policy(name, at, knows_users)).map(Arc::new));
    }
    Policies { names: Names::new("policy", names), resolved: all.into_iter().collect() }
}

fn policy(name: &str, mut at: Mapping<'_>, knows_users: bool) -> Option<Policy> {
    let algorithm = at
        .require("algorithm", "one of single_counter, fixed_window, sliding_log, metadata_list")
        .and_then(|value| value.parse(choice(&ALGORITHMS)));
    let keys = at
        .require("key", "what is limited, such as `key: ip` or `key: [ip, user]`")
        .map(|value| keys(value, knows_users));
    let missing = choice(&[("skip", Missing::Skip), ("ip", Missing::Ip), ("deny", Missing::Deny)]);
    let missing = at.parse_or("missing", Missing::Skip, missing);
    let tiers = tiers(&mut at, algorithm);
    let on_store_error = at.parse_or("on_store_error", OnStoreError::Local, choice(&ON_STORE_ERROR));
    let record = record(at.take("record"));
    at.finish();
    let policy = Policy::new(name, algorithm?, keys?, tiers?);
    Some(Policy { missing, on_store_error, record, ..policy })
}

/// One key, or a list of which each is limited on its own.
fn keys(value: Cursor<'_>, knows_users: bool) -> Vec<KeyRecipe> {
    let key = |item: Cursor<'_>| {
        let key = item.parse(key_recipe)?;
        if !knows_users && key.0.contains(&KeyPart::User) {
            let help = "say where the user ID comes from, in `user` at the top level";
            item.report("no request has a user as long as `user` is not configured", help.to_owned());
        }
        Some(key)
    };
    if value.written().is_some() {
        return key(value).into_iter().collect();
    }
    let keys = value.distinct(key);
    if value.is_empty_list() {
        value.report("a policy needs a key", "to limit all requests together write `key: global`".to_owned());
    }
    keys
}

/// `limit` or `limits`.
fn tiers(at: &mut Mapping<'_>, algorithm: Option<Algorithm>) -> Option<Vec<Rate>> {
    let (limit, limits) = (at.take("limit"), at.take("limits"));
    match (at.place_of("limit"), at.place_of("limits")) {
        (Some(_), Some(place)) => {
            at.report_at(place, "a policy has either `limit` or `limits`", None);
            None
        }
        (None, None) => {
            if !at.means("limit") && !at.means("limits") {
                at.report("`limit` is missing", "such as `limit: 100/1s`".to_owned());
            }
            None
        }
        (Some(_), None) => Some(vec![limit?.parse(rate)?]),
        (None, Some(_)) => several(limits?, algorithm),
    }
}

fn several(value: Cursor<'_>, algorithm: Option<Algorithm>) -> Option<Vec<Rate>> {
    let items = value.list()?;
    if items.is_empty() {
        value.report("a policy needs a limit", "such as `limits: [10/1s, 120/1m]`".to_owned());
    }
    if items.len() > 1 && algorithm.is_some_and(|algorithm| algorithm != Algorithm::FixedWindow) {
        let help = "`fixed_window` takes several; or write a policy for each";
        value.report("this algorithm takes one limit only", help.to_owned());
    }
    let mut tiers: Vec<Rate> = Vec::new();
    for item in items {
        let tier = item.parse(|text| {
            let tier = rate(text)?;
            if tiers.iter().any(|other| other.window == tier.window) {
                return Err(Invalid::new("has the window of another limit of this policy"));
            }
            Ok(tier)
        });
        tiers.extend(tier);
    }
    Some(tiers)
}

fn record(value: Option<Cursor<'_>>) -> Record {
    let default = Record { keep: 50, retain: Duration::from_secs(60 * 60) };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let record = Record {
        keep: at.parse_or("keep", default.keep, count(0..=1_000)),
        retain: at.parse_or("for", default.retain, duration(SHORTEST..=LONGEST)),
    };
    at.finish();
    record
}
