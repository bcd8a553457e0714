//! The names of this instance's policies in records. Policies that only other instances have are kept by name.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;

use super::{
    distinct_users,
    records::{MAX_KEEP, RecordBounds},
};
use crate::limit::Policy;

/// For ban rules, and for policies of other instances that do not send their bounds.
const DEFAULT_BOUNDS: RecordBounds = RecordBounds { keep: 50, retain: 3_600_000_000 };
/// Number of other instances' policies that are remembered.
const MAX_PEER_POLICIES: usize = 256;

/// The bounds of each policy's records, by its name.
type Bounds = Vec<(Arc<str>, RecordBounds)>;

/// The names of policies, and the bounds of their records.
#[derive(Debug, Clone, Default)]
pub(in crate::abuse) struct RecordPolicies {
    known: Bounds,
    /// Policies that only other instances have.
    peers: Arc<RwLock<Bounds>>,
    /// Microseconds of a slice of `abuse.retain`.
    slice: i64,
    routes: Arc<[RecordedRoute]>,
}

/// A route, as records know it.
#[derive(Debug, Clone)]
pub struct RecordedRoute {
    pub name: Arc<str>,
    /// Whether one of its policies counts failed logins: responses with 401 or 403, or different users.
    pub guards_logins: bool,
}

impl RecordPolicies {
    /// `retain`: microseconds for which a client is listed.
    pub(in crate::abuse) fn new(policies: &[Policy], retain: i64) -> Self {
        let known = policies.iter().map(|policy| {
            let bounds = RecordBounds { keep: policy.record.keep, retain: micros(policy.record.retain) };
            (Arc::from(policy.name.as_str()), bounds)
        });
        Self {
            known: known.collect(),
            peers: Arc::default(),
            slice: distinct_users::length(retain),
            routes: Arc::default(),
        }
    }

    /// The time slice in which users seen at this time are counted: the same on every instance.
    pub(super) fn slice(&self, time: i64) -> u32 {
        distinct_users::slice(self.slice, time)
    }

    /// The period in which traffic at this time is counted: each is as long as clients are listed.
    pub(super) fn period(&self, time: i64) -> u32 {
        distinct_users::period(self.slice(time))
    }

    /// `record.keep` of the policy with this index in a denial.
    pub(in crate::abuse) fn keep(&self, index: usize) -> usize {
        self.known.get(index).map_or(0, |(_, bounds)| bounds.keep)
    }

    /// Adds the names of ban rules, whose indexes follow those of the policies.
    pub(in crate::abuse) fn with_ban_names(mut self, names: &[String]) -> Self {
        self.known.extend(names.iter().map(|name| (Arc::from(name.as_str()), DEFAULT_BOUNDS)));
        self
    }

    /// Adds the routes, in the order of their indexes.
    pub(in crate::abuse) fn with_routes(mut self, routes: &[RecordedRoute]) -> Self {
        self.routes = routes.into();
        self
    }

    /// The route with this index.
    pub(in crate::abuse) fn route(&self, index: usize) -> Option<&RecordedRoute> {
        self.routes.get(index)
    }

    /// The name of the policy with this index in a denial.
    pub(in crate::abuse) fn name(&self, index: usize) -> Option<&Arc<str>> {
        self.known.get(index).map(|(name, _)| name)
    }

    /// The longest time that any of these policies keeps its records, in microseconds.
    pub(super) fn longest(&self, indexes: impl Iterator<Item = usize>) -> i64 {
        indexes.filter_map(|index| self.known.get(index)).map(|(_, bounds)| bounds.retain).max().unwrap_or(0)
    }

    /// The shared copy of the name, if it is known. `bounds`: sent by the other instance that named it.
    pub(super) fn intern(&self, name: &str, bounds: RecordBounds) -> Arc<str> {
        if let Some((known, _)) = self.find(name) {
            return Arc::clone(known);
        }
        let bounds = RecordBounds { keep: bounds.keep.min(MAX_KEEP), retain: bounds.retain.max(0) };
        let mut peers = self.peers.write();
        match peers.iter_mut().find(|(known, _)| **known == *name) {
            Some((known, of)) => {
                *of = bounds;
                Arc::clone(known)
            }
            None => {
                let name: Arc<str> = name.into();
                if peers.len() < MAX_PEER_POLICIES {
                    peers.push((Arc::clone(&name), bounds));
                }
                name
            }
        }
    }

    pub(super) fn bounds(&self, name: &str) -> RecordBounds {
        let of_peers = || {
            let peers = self.peers.read();
            peers.iter().find(|(known, _)| **known == *name).map(|(_, bounds)| *bounds)
        };
        self.find(name).map(|(_, bounds)| *bounds).or_else(of_peers).unwrap_or(DEFAULT_BOUNDS)
    }

    fn find(&self, name: &str) -> Option<&(Arc<str>, RecordBounds)> {
        self.known.iter().find(|(known, _)| **known == *name)
    }
}

/// Microseconds.
pub(in crate::abuse) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
