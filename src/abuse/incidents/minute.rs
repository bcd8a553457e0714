//! What clients did in a minute, by route and by policy: the evidence that incidents are made of.

use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::distinct::Distinct;
use crate::memory_budget::heap;

/// Clients that an instance counts in a minute, on all routes together. Of more, those with the fewest refusals are left out, of the
/// route or the policy with the most clients.
pub(in crate::abuse) const CLIENTS: usize = 8_192;
/// Routes and policies that a minute counts.
const CAUSES: usize = 1_024;
/// Clients that an eviction compares.
const COMPARED: usize = 8;
/// Paths of a route that are counted.
const PATHS: usize = 4;
/// Most bytes of a name or of a path of another instance.
const MAX_TEXT: usize = 1_024;

/// Where requests were refused or denied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    Route(Arc<str>),
    Policy(Arc<str>),
}

impl Cause {
    /// The name of the route or the policy.
    pub fn name(&self) -> &str {
        match self {
            Self::Route(name) | Self::Policy(name) => name,
        }
    }
}

/// The kind of credential that a request sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    None,
    /// `Authorization: Basic`.
    Basic,
    /// Any other `Authorization`, or an API key.
    Token,
    Cookie,
}

/// What one client did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCounts {
    /// Responses with 401 or 403, and how many of them refused attempts to log in.
    pub refused: u32,
    pub attempts: u32,
    /// Attempts to log in that succeeded after another one was refused, and other requests with 2xx or 3xx since then.
    pub let_in: u32,
    pub served: u32,
    /// Requests that a policy denied.
    pub denied: u32,
    /// When the first and the last of these came, in seconds since the Unix epoch.
    pub first: u32,
    pub last: u32,
    /// Whether it is a customer: it has a valid API key, or a verified user.
    pub is_customer: bool,
    /// Whether a program's `User-Agent` attempted to log in.
    pub is_script: bool,
    /// The hash of the first name with which it attempted to log in, and whether there were others. 0: none is known.
    pub(in crate::abuse) user: u32,
    pub has_more_users: bool,
    /// The index of its hint, of a client that a policy has denied. 0: it has none.
    pub(in crate::abuse) hint: u8,
}

impl ClientCounts {
    pub(in crate::abuse) fn add(&mut self, other: &Self) {
        for (count, more) in [
            (&mut self.refused, other.refused),
            (&mut self.attempts, other.attempts),
            (&mut self.let_in, other.let_in),
            (&mut self.served, other.served),
            (&mut self.denied, other.denied),
        ] {
            *count = count.saturating_add(more);
        }
        self.first = if self.first == 0 { other.first } else { self.first.min(other.first.max(1)) };
        // The hint of the later minute.
        if other.last >= self.last && other.hint > 0 {
            self.hint = other.hint;
        }
        self.last = self.last.max(other.last);
        self.is_customer |= other.is_customer;
        self.is_script |= other.is_script;
        self.has_more_users |=
            other.has_more_users || self.user != 0 && other.user != 0 && self.user != other.user;
        self.user = if self.user == 0 { other.user } else { self.user };
    }

    /// What makes it worth keeping.
    fn weight(&self) -> u32 {
        self.refused.saturating_add(self.denied)
    }
}

/// The requests of all clients on a route, or under a policy. They stay right if clients are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseCounts {
    /// Responses with 401, with 403.
    pub statuses: [u32; 2],
    pub attempts: u32,
    pub denied: u32,
    /// Refused requests by [`Credential`].
    pub credentials: [u32; 4],
    /// Refused requests that do not only read.
    pub writes: u32,
    /// All responses of the route, and how many of them had 2xx or 3xx.
    pub responses: u32,
    pub succeeded: u32,
    pub clients: Distinct,
    pub users: Distinct,
    pub agents: Distinct,
    pub paths: Distinct,
    /// Of attempts to log in, and of other refused requests.
    pub attempted_paths: TopPaths,
    pub other_paths: TopPaths,
}

/// The paths with the most requests, such as `POST /login`: each with more than a fifth of all is one of them, with a number that is too
/// low by at most a fifth of all (Misra-Gries).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopPaths(Vec<(String, u32)>);

impl TopPaths {
    pub(in crate::abuse) fn add(&mut self, path: &str, requests: u32) {
        let Self(paths) = self;
        if let Some((_, count)) = paths.iter_mut().find(|(known, _)| known == path) {
            *count = count.saturating_add(requests);
        } else if paths.len() < PATHS {
            paths.push((path.to_owned(), requests));
        } else {
            let least = paths.iter().map(|&(_, count)| count).min().unwrap_or(0).min(requests);
            paths.iter_mut().for_each(|(_, count)| *count -= least);
            paths.retain(|&(_, count)| count > 0);
            if requests > least {
                paths.push((path.to_owned(), requests - least));
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(path, count)| self.add(path, *count));
    }

    /// The path with the most requests.
    pub fn top(&self) -> Option<&str> {
        self.0.iter().max_by_key(|&(path, count)| (count, path)).map(|(path, _)| path.as_str())
    }

    fn bytes(&self) -> usize {
        heap::array::<(String, u32)>(self.0.capacity())
            + self.0.iter().map(|(path, _)| heap::block(path.capacity())).sum::<usize>()
    }

    fn is_plausible(&self) -> bool {
        self.0.len() <= PATHS && self.0.iter().all(|(path, _)| path.len() <= MAX_TEXT)
    }
}

impl CauseCounts {
    /// Responses with 401 or 403.
    pub fn refused(&self) -> u32 {
        self.statuses[0].saturating_add(self.statuses[1])
    }

    pub(in crate::abuse) fn add(&mut self, other: &Self) {
        let sum = |count: &mut u32, more: u32| *count = count.saturating_add(more);
        self.statuses.iter_mut().zip(other.statuses).for_each(|(count, more)| sum(count, more));
        self.credentials.iter_mut().zip(other.credentials).for_each(|(count, more)| sum(count, more));
        sum(&mut self.attempts, other.attempts);
        sum(&mut self.denied, other.denied);
        sum(&mut self.writes, other.writes);
        sum(&mut self.responses, other.responses);
        sum(&mut self.succeeded, other.succeeded);
        self.clients.merge(&other.clients);
        self.users.merge(&other.users);
        self.agents.merge(&other.agents);
        self.paths.merge(&other.paths);
        self.attempted_paths.merge(&other.attempted_paths);
        self.other_paths.merge(&other.other_paths);
    }
}

/// The clients of a route or of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseMinute {
    pub total: CauseCounts,
    #[serde(with = "client_list")]
    pub clients: IndexMap<IpNet, ClientCounts, FixedState>,
}

/// A minute of one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// Minutes since the Unix epoch.
    pub number: i64,
    #[serde(with = "cause_list")]
    pub causes: IndexMap<Cause, CauseMinute, FixedState>,
    /// The number of clients, of each route and policy.
    #[serde(skip)]
    held: usize,
}

impl Minute {
    pub(in crate::abuse) fn new(number: i64) -> Self {
        Self { number, ..Self::default() }
    }

    /// The counts of a route or a policy. `None`: there are too many.
    pub(in crate::abuse) fn cause(&mut self, cause: &Cause) -> Option<&mut CauseMinute> {
        if !self.causes.contains_key(cause) {
            if self.causes.len() >= CAUSES {
                return None;
            }
            self.causes.insert(cause.clone(), CauseMinute::default());
        }
        self.causes.get_mut(cause)
    }

    /// Adds counts of a client, and leaves out another one if there are too many.
    pub(in crate::abuse) fn add_client(&mut self, cause: &Cause, client: IpNet, counts: &ClientCounts) {
        let Some(of) = self.cause(cause) else { return };
        if let Some(known) = of.clients.get_mut(&client) {
            return known.add(counts);
        }
        of.clients.insert(client, counts.clone());
        self.held += 1;
        if self.held > CLIENTS {
            self.held -= 1;
            self.leave_one_out();
        }
    }

    /// The number of clients, of each route and policy.
    pub(in crate::abuse) fn clients(&self) -> usize {
        self.causes.values().map(|of| of.clients.len()).sum()
    }

    /// Leaves out the client with the fewest refusals of a few that are drawn: nobody can choose which.
    fn leave_one_out(&mut self) {
        let Some(of) = self.causes.values_mut().max_by_key(|of| of.clients.len()) else { return };
        let count = of.clients.len();
        let drawn = (0..COMPARED.min(count)).map(|_| fastrand::usize(..count));
        let least = drawn.min_by_key(|&at| of.clients.get_index(at).map_or(0, |(_, counts)| counts.weight()));
        least.map(|at| of.clients.swap_remove_index(at));
    }

    pub(in crate::abuse) fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Bytes on the heap.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        let of = |of: &CauseMinute| {
            let CauseCounts { clients, users, agents, paths, attempted_paths, other_paths, .. } = &of.total;
            let sketches: usize = [clients, users, agents, paths].map(Distinct::bytes).iter().sum();
            heap::block(of.clients.capacity() * (size_of::<(IpNet, ClientCounts)>() + 2 * size_of::<usize>()))
                + sketches
                + attempted_paths.bytes()
                + other_paths.bytes()
        };
        heap::block(self.causes.capacity() * (size_of::<(Cause, CauseMinute)>() + 2 * size_of::<usize>()))
            + self.causes.values().map(of).sum::<usize>()
    }

    /// Whether another instance may have written it.
    pub(in crate::abuse) fn is_plausible(&self) -> bool {
        let fits = |(cause, of): (&Cause, &CauseMinute)| {
            let paths = [&of.total.attempted_paths, &of.total.other_paths];
            cause.name().len() <= MAX_TEXT && paths.into_iter().all(TopPaths::is_plausible)
        };
        self.clients() <= CLIENTS && self.causes.len() <= CAUSES && self.causes.iter().all(fits)
    }
}

/// Maps with hashes of their own are lists of pairs.
macro_rules! list_of {
    ($name:ident, $key:ty, $value:ty) => {
        mod $name {
            use super::*;

            pub(super) fn serialize<S: serde::Serializer>(
                map: &IndexMap<$key, $value, FixedState>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(map)
            }

            pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<IndexMap<$key, $value, FixedState>, D::Error> {
                Ok(Vec::<($key, $value)>::deserialize(deserializer)?.into_iter().collect())
            }
        }
    };
}
list_of!(client_list, IpNet, ClientCounts);
list_of!(cause_list, Cause, CauseMinute);

#[cfg(test)]
mod tests {
    use super::{super::super::testing::client, *};

    fn refused(refused: u32) -> ClientCounts {
        ClientCounts { refused, first: 7, last: 7, ..ClientCounts::default() }
    }

    #[test]
    fn a_flood_of_clients_on_one_route_leaves_those_of_others() {
        let mut minute = Minute::new(1);
        let [quiet, flooded] = ["/login", "/flooded"].map(|name| Cause::Route(name.into()));
        (0..500).for_each(|n| minute.add_client(&quiet, client(n), &refused(1)));
        (0..3 * CLIENTS).for_each(|n| minute.add_client(&flooded, client(n), &refused(1)));
        assert_eq!(minute.clients(), CLIENTS);
        assert_eq!(minute.causes[&quiet].clients.len(), 500);
        assert!(minute.bytes() < 3 << 20, "{}", minute.bytes());
    }

    #[test]
    fn clients_with_more_refusals_stay() {
        let mut minute = Minute::new(1);
        let cause = Cause::Route("/login".into());
        (0..1_000).for_each(|n| minute.add_client(&cause, client(n), &refused(50)));
        (1_000..4 * CLIENTS).for_each(|n| minute.add_client(&cause, client(n), &refused(1)));
        let stayed = (0..1_000).filter(|&n| minute.causes[&cause].clients.contains_key(&client(n))).count();
        assert!(stayed >= 990, "{stayed}");
    }

    #[test]
    fn a_minute_survives_a_round_trip() {
        let mut minute = Minute::new(29_000_000);
        let cause = Cause::Policy("per-ip".into());
        minute.add_client(&cause, client(1), &ClientCounts { denied: 3, hint: 1, ..refused(0) });
        let total = &mut minute.causes[&cause].total;
        (0..9).for_each(|n| total.other_paths.add(&format!("GET /{}", n % 5), 1));
        total.clients.add(77);
        let bytes = postcard::to_allocvec(&minute).unwrap();
        let read = postcard::from_bytes::<Minute>(&bytes).unwrap();
        assert_eq!((read.number, &read.causes), (minute.number, &minute.causes));
        assert!(minute.is_plausible());
    }

    #[test]
    fn the_path_with_the_most_requests_is_found_among_many() {
        let mut paths = TopPaths::default();
        (0..1_000).for_each(|n| {
            paths.add("POST /login", u32::from(n % 3 == 0));
            paths.add(&format!("GET /{n}"), 1);
        });
        assert_eq!(paths.top(), Some("POST /login"));
    }
}
