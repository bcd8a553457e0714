//! Evidence about the clients above a limit: a script, or many people behind one address.

use std::collections::{HashMap, HashSet};

use http::header;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::offline::access_logs::{LoggedRequest, LoggedUser};

/// More different values are not told apart.
pub(super) const MAX_VALUES: usize = 1_000;
/// An address with this many users is shared; so is one with this many user agents, if none of them sends more than
/// `MAX_SHARE` of its requests. A script has one user agent, or a few.
const SHARED_FROM: usize = 5;
const MAX_SHARE: f64 = 0.6;

/// The requests of one key.
#[derive(Debug, Default, Clone)]
pub(super) struct KeyEvidence {
    requests: u64,
    /// Requests by the hash of their user agent.
    agents: HashMap<u64, u64>,
    paths: HashSet<u64>,
    users: HashSet<u64>,
}

/// The kind of client behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Appearance {
    /// One program sends all requests.
    Script,
    /// Many people share the key: an office, a school, a mobile network.
    Shared,
    /// Undecided, because the log has neither user agents nor users.
    Unknown,
}

/// The attributes of one request, as hashes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Attributes {
    agent: Option<u64>,
    path: u64,
    user: Option<u64>,
}

impl Attributes {
    pub(super) fn of(logged: &LoggedRequest) -> Self {
        let user = match &logged.user {
            LoggedUser::Named(name) => Some(xxh3_64(name.as_bytes())),
            LoggedUser::Absent | LoggedUser::Unknown => None,
        };
        let agent = logged.request.headers.get(header::USER_AGENT);
        Self {
            agent: agent.map(|agent| xxh3_64(agent.as_bytes())),
            path: xxh3_64(logged.request.uri.path().as_bytes()),
            user,
        }
    }
}

impl KeyEvidence {
    pub(super) fn add(&mut self, Attributes { agent, path, user }: Attributes) {
        self.requests += 1;
        if let Some(agent) = agent
            && (self.agents.len() < MAX_VALUES || self.agents.contains_key(&agent))
        {
            *self.agents.entry(agent).or_insert(0) += 1;
        }
        for (values, value) in [(&mut self.paths, Some(path)), (&mut self.users, user)] {
            if values.len() < MAX_VALUES {
                values.extend(value);
            }
        }
    }

    /// Number of different user agents, [`MAX_VALUES`] at most. 0: the log has none.
    pub(super) fn agents(&self) -> usize {
        self.agents.len()
    }

    /// Likewise of paths.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Likewise of users.
    pub(super) fn users(&self) -> usize {
        self.users.len()
    }

    pub(super) fn appearance(&self) -> Appearance {
        let most = self.agents.values().max().copied().unwrap_or(0);
        let is_mixed = most as f64 <= self.requests as f64 * MAX_SHARE;
        if self.users.len() >= SHARED_FROM || self.agents.len() >= SHARED_FROM && is_mixed {
            Appearance::Shared
        } else if self.agents.is_empty() && self.users.is_empty() {
            Appearance::Unknown
        } else {
            Appearance::Script
        }
    }
}
