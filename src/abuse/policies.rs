//! The policies of this instance, as records name them. Others may have more: theirs are kept by name.

use std::{sync::Arc, time::Duration};

use super::evidence::Bounds;
use crate::limit::Policy;

/// Of a policy that only others have.
const FOREIGN: Bounds = Bounds { keep: 50, retain: 3_600_000_000 };

/// Names of policies, and what each keeps of its records.
#[derive(Debug, Clone, Default)]
pub(super) struct Policies(Vec<(Arc<str>, Bounds)>);

impl Policies {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let known = policies.iter().map(|policy| {
            let bounds = Bounds { keep: policy.record.keep, retain: micros(policy.record.retain) };
            (Arc::from(policy.name.as_str()), bounds)
        });
        Self(known.collect())
    }

    /// Names of what else denies, whose indexes follow those of the policies.
    pub(super) fn with_names(mut self, names: &[String]) -> Self {
        self.0.extend(names.iter().map(|name| (Arc::from(name.as_str()), FOREIGN)));
        self
    }

    /// The name of the policy that has this index in a denial.
    pub(super) fn name(&self, index: usize) -> Option<&Arc<str>> {
        self.0.get(index).map(|(name, _)| name)
    }

    /// The name as one that is held already, where it is.
    pub(super) fn intern(&self, name: &str) -> Arc<str> {
        self.find(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    pub(super) fn bounds(&self, name: &str) -> Bounds {
        self.find(name).map_or(FOREIGN, |(_, bounds)| *bounds)
    }

    fn find(&self, name: &str) -> Option<&(Arc<str>, Bounds)> {
        self.0.iter().find(|(known, _)| **known == *name)
    }
}

/// Microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
