//! The policies of this instance, as records name them. Others may have more: theirs are kept by name.

use std::{sync::Arc, time::Duration};

use super::{distinct_users, records::RecordBounds};
use crate::limit::Policy;

/// For policies that only other instances have.
const PEER_POLICY_BOUNDS: RecordBounds = RecordBounds { keep: 50, retain: 3_600_000_000 };

/// Names of policies, and what each keeps of its records.
#[derive(Debug, Clone, Default)]
pub(in crate::abuse) struct RecordPolicies {
    known: Vec<(Arc<str>, RecordBounds)>,
    /// Microseconds of a slice of `abuse.retain`.
    slice: i64,
}

impl RecordPolicies {
    /// `retain`: microseconds for which a client stays listed.
    pub(in crate::abuse) fn new(policies: &[Policy], retain: i64) -> Self {
        let known = policies.iter().map(|policy| {
            let bounds = RecordBounds { keep: policy.record.keep, retain: micros(policy.record.retain) };
            (Arc::from(policy.name.as_str()), bounds)
        });
        Self { known: known.collect(), slice: distinct_users::length(retain) }
    }

    /// In which slice of time users are counted who are seen at this time: the same on every instance.
    pub(super) fn slice(&self, time: i64) -> u32 {
        distinct_users::slice(self.slice, time)
    }

    /// `record.keep` of the policy that has this index in a denial.
    pub(in crate::abuse) fn keep(&self, index: usize) -> usize {
        self.known.get(index).map_or(0, |(_, bounds)| bounds.keep)
    }

    /// Adds the names of ban rules, whose indexes follow those of the policies.
    pub(in crate::abuse) fn with_ban_names(mut self, names: &[String]) -> Self {
        self.known.extend(names.iter().map(|name| (Arc::from(name.as_str()), PEER_POLICY_BOUNDS)));
        self
    }

    /// The name of the policy that has this index in a denial.
    pub(super) fn name(&self, index: usize) -> Option<&Arc<str>> {
        self.known.get(index).map(|(name, _)| name)
    }

    /// The name, sharing the known one's memory where there is one.
    pub(super) fn intern(&self, name: &str) -> Arc<str> {
        self.find(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    pub(super) fn bounds(&self, name: &str) -> RecordBounds {
        self.find(name).map_or(PEER_POLICY_BOUNDS, |(_, bounds)| *bounds)
    }

    fn find(&self, name: &str) -> Option<&(Arc<str>, RecordBounds)> {
        self.known.iter().find(|(known, _)| **known == *name)
    }
}

/// Microseconds.
pub(in crate::abuse) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
