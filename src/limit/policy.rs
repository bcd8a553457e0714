//! A policy as the stores see it: an algorithm with its tiers, and the names by which it is known.

use std::time::Duration;

use crate::{
    config::model,
    limit::algorithm::{Kind, Tier},
};

/// Stands for a policy's name and shape in the memory store's keys. Two policies share one iff both
/// are the same, so that a policy whose algorithm or windows change starts afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId(pub u32);

/// What a store needs to know of a policy, and what clients are told of it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub id: PolicyId,
    pub name: String,
    pub kind: Kind,
    /// Never empty; shortest window first, in whatever order they were configured.
    pub tiers: Vec<Tier>,
    /// The algorithm and its windows, never its counts: `fw.1s.1m.1h`.
    pub shape: String,
    /// The recipes of its keys, each limited on its own.
    pub keys: Vec<model::KeyRecipe>,
    /// What an identifier does that a request lacks.
    pub missing: model::Missing,
    /// What holds while the store is away.
    pub on_store_error: model::OnStoreError,
    /// The evidence kept.
    pub record: model::Record,
    /// A name for each tier: the policy's own where there is one tier, else `login-1s`.
    pub quota_names: Vec<String>,
}

impl Policy {
    /// The policy that `config` describes. Whoever gives out `id` sees to it that it stands for this
    /// name and shape alone.
    pub fn new(config: &model::Policy, id: PolicyId) -> Self {
        let mut rates = config.tiers.clone();
        rates.sort_by_key(|rate| rate.window);
        let quota_names = match rates.as_slice() {
            [_] => vec![config.name.clone()],
            several => several.iter().map(|rate| format!("{}-{}", config.name, unit(rate.window))).collect(),
        };
        Self {
            id,
            name: config.name.clone(),
            kind: kind(config.algorithm),
            tiers: rates.iter().map(tier).collect(),
            shape: shape(config.algorithm, &rates),
            keys: config.keys.clone(),
            missing: config.missing,
            on_store_error: config.on_store_error,
            record: config.record,
            quota_names,
        }
    }

    /// Whether its limits write down who made their requests, so that a check needs an entry.
    pub fn keeps_entries(&self) -> bool {
        self.kind == Kind::MetadataList
    }
}

fn kind(algorithm: model::Algorithm) -> Kind {
    match algorithm {
        model::Algorithm::SingleCounter => Kind::SingleCounter,
        model::Algorithm::FixedWindow => Kind::FixedWindow,
        model::Algorithm::SlidingLog => Kind::SlidingLog,
        model::Algorithm::MetadataList => Kind::MetadataList,
    }
}

fn tier(rate: &model::Rate) -> Tier {
    let window = i64::try_from(rate.window.as_micros()).unwrap_or(i64::MAX);
    Tier { limit: rate.limit, window: window.max(1) }
}

fn shape(algorithm: model::Algorithm, rates: &[model::Rate]) -> String {
    let mut shape = String::from(match algorithm {
        model::Algorithm::SingleCounter => "sc",
        model::Algorithm::FixedWindow => "fw",
        model::Algorithm::SlidingLog => "sl",
        model::Algorithm::MetadataList => "ml",
    });
    for rate in rates {
        shape.push('.');
        shape.push_str(&unit(rate.window));
    }
    shape
}

/// A duration in the largest unit that is exact: `90s`, `1m`, `1h`, `30d`.
fn unit(duration: Duration) -> String {
    const UNITS: [(u128, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let micros = duration.as_micros();
    match UNITS.iter().find(|(unit, _)| micros >= *unit && micros.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", micros / unit),
        None => format!("{micros}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(algorithm: model::Algorithm, tiers: &[(u64, u64)]) -> Policy {
        let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
        let config = model::Policy {
            name: "login".to_owned(),
            algorithm,
            keys: vec![model::KeyRecipe(vec![model::KeyPart::Ip])],
            missing: model::Missing::Skip,
            tiers: tiers.iter().map(rate).collect(),
            on_store_error: model::OnStoreError::Local,
            record: model::Record { keep: 50, retain: Duration::from_secs(3600) },
        };
        Policy::new(&config, PolicyId(7))
    }

    #[test]
    fn shapes_name_the_algorithm_and_its_windows_in_the_largest_exact_unit() {
        use model::Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingLog};
        for (algorithm, millis, shape) in [
            (SingleCounter, 10_000, "sc.10s"),
            (FixedWindow, 3_600_000, "fw.1h"),
            (SlidingLog, 1_000, "sl.1s"),
            (MetadataList, 60_000, "ml.1m"),
            (SlidingLog, 90_000, "sl.90s"),
            (SlidingLog, 250, "sl.250ms"),
            (SlidingLog, 366 * 86_400_000, "sl.366d"),
        ] {
            assert_eq!(policy(algorithm, &[(5, millis)]).shape, shape);
        }
        assert_eq!(unit(Duration::from_micros(1_500)), "1500us");
    }

    #[test]
    fn only_a_metadata_list_keeps_entries() {
        use model::Algorithm::{FixedWindow, MetadataList, SingleCounter, SlidingLog};
        let keeps = |algorithm| policy(algorithm, &[(5, 1_000)]).keeps_entries();
        let all = [SingleCounter, FixedWindow, SlidingLog, MetadataList];
        assert_eq!(all.map(keeps), [false, false, false, true]);
    }

    #[test]
    fn tiers_are_named_where_there_are_several() {
        let one = policy(model::Algorithm::SlidingLog, &[(100, 1_000)]);
        assert_eq!(one.quota_names, ["login"]);
        assert_eq!(one.tiers, [Tier { limit: 100, window: 1_000_000 }]);

        let several = policy(model::Algorithm::FixedWindow, &[(240, 3_600_000), (10, 1_000), (120, 60_000)]);
        assert_eq!(several.shape, "fw.1s.1m.1h");
        assert_eq!(several.quota_names, ["login-1s", "login-1m", "login-1h"]);
        assert_eq!(several.tiers.iter().map(|tier| tier.limit).collect::<Vec<_>>(), [10, 120, 240]);
    }
}
