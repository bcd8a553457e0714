//! The files of `tests/vectors`, as its README.md explains them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::units::{Micros, Rate, Told};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vectors {
    pub(super) source: Source,
    pub(super) cases: Vec<Case>,
    pub(super) left_out: Vec<LeftOut>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) project: String,
    pub(super) repository: String,
    pub(super) version: String,
    pub(super) commit: String,
    pub(super) licence: String,
    pub(super) files: Vec<String>,
    pub(super) taken: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    pub(super) what: String,
    pub(super) why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) maps: String,
    pub(super) algorithms: Vec<Name>,
    pub(super) policies: BTreeMap<String, Limits>,
    pub(super) within: Option<Micros>,
    pub(super) rounds_up_to: Option<Micros>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    SingleCounter,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    SlidingCounter,
    Gcra,
    Concurrency,
}

/// Of a policy; or what of it differs for a step.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) limits: Option<Vec<Rate>>,
    pub(super) burst: Option<u64>,
    pub(super) delay: Option<Micros>,
    pub(super) buckets: Option<u32>,
    pub(super) shadow: Option<bool>,
    pub(super) count_denied: Option<bool>,
}

impl Limits {
    /// These, as far as `other` says nothing else.
    pub(super) fn with(&self, other: &Self) -> Self {
        Self {
            limits: other.limits.clone().or_else(|| self.limits.clone()),
            burst: other.burst.or(self.burst),
            delay: other.delay.or(self.delay),
            buckets: other.buckets.or(self.buckets),
            shadow: other.shadow.or(self.shadow),
            count_denied: other.count_denied.or(self.count_denied),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) at: Micros,
    #[serde(default = "client")]
    pub(super) key: String,
    /// Empty: all of them.
    #[serde(default)]
    pub(super) checks: Vec<String>,
    #[serde(default = "once")]
    pub(super) cost: u64,
    #[serde(default = "once")]
    pub(super) times: u64,
    pub(super) lease: Option<u128>,
    #[serde(default)]
    pub(super) with: Limits,
    pub(super) release: Option<u128>,
    #[serde(default)]
    pub(super) clear: bool,
    pub(super) admitted: Option<bool>,
    pub(super) check_admits: Option<bool>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<Told>,
    pub(super) full_after: Option<Micros>,
    pub(super) retry_after: Option<Told>,
    pub(super) delay: Option<Told>,
}

fn client() -> String {
    "client".into()
}

fn once() -> u64 {
    1
}
