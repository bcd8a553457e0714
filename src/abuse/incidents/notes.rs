//! A worker's notes of responses with 401 and 403, and of others to clients that got one recently.

use indexmap::IndexMap;
use ipnet::IpNet;

use super::{
    super::{
        recording::ObservedResponse,
        traffic::{is_refusal, value_hash},
    },
    minute::{Cause, CauseCounts, ClientCounts, Credential, Minute},
};
use crate::{abuse::clients::policies::RecordPolicies, memory_budget::heap};

/// Clients that a tick notes, on all routes together.
const CLIENTS: usize = 4_096;
/// Routes that a tick notes.
const ROUTES: usize = 256;

/// The notes of one tick, by the index of the route.
#[derive(Debug, Default)]
pub(in crate::abuse) struct RouteNotes {
    clients: IndexMap<(usize, IpNet), ClientCounts, foldhash::fast::RandomState>,
    routes: IndexMap<usize, CauseCounts, foldhash::fast::RandomState>,
}

impl RouteNotes {
    /// Notes a response. `user`: the hash of the user's name. `guards_logins`: a policy of the route counts failed logins.
    pub(in crate::abuse) fn add(
        &mut self,
        response: &ObservedResponse<'_>,
        user: Option<u32>,
        guards_logins: bool,
    ) {
        let ObservedResponse { client, route, ref request, signs, credential, status, now, .. } = *response;
        // A login form redirects whom it lets in.
        let is_served = status.is_success() || matches!(status.as_u16(), 302 | 303);
        let is_refused = is_refusal(status);
        if !is_refused && !is_served {
            return;
        }
        let sends_password = !request.is_safe && matches!(credential, Credential::None | Credential::Cookie);
        // A token that has expired is no attempt, nor is a page that is read afterwards.
        let is_guarded = guards_logins && credential != Credential::Token && (is_refused || !request.is_safe);
        let is_attempt =
            response.may_be_attempt && (credential == Credential::Basic || sends_password || is_guarded);
        let second = u32::try_from(now.div_euclid(1_000_000)).unwrap_or(0);
        let one = |is_one: bool| u32::from(is_one);
        let counts = ClientCounts {
            refused: one(is_refused),
            attempts: one(is_refused && is_attempt),
            let_in: one(is_served && is_attempt),
            served: one(is_served && !is_attempt),
            first: second,
            last: second,
            is_customer: response.is_customer,
            is_script: is_attempt && signs.is_some_and(|signs| signs.is_of_program()),
            user: user.filter(|_| is_attempt).unwrap_or(0),
            ..ClientCounts::default()
        };
        let key = (route, client);
        if self.clients.len() < CLIENTS || self.clients.contains_key(&key) {
            self.clients.entry(key).or_default().add(&counts);
        }
        if !is_refused || self.routes.len() >= ROUTES && !self.routes.contains_key(&route) {
            return;
        }
        let total = self.routes.entry(route).or_default();
        total.statuses[usize::from(status.as_u16() == 403)] += 1;
        total.credentials[credential as usize] += 1;
        total.attempts += one(is_attempt);
        total.writes += one(!request.is_safe);
        total.clients.add(client_hash(client));
        signs.and_then(|signs| signs.agent()).into_iter().for_each(|agent| total.agents.add(agent));
        total.paths.add(request.path_hash());
        let path = format!("{} {}", response.method, request.recorded_path());
        if is_attempt {
            user.into_iter().for_each(|user| total.users.add(user));
            total.attempted_paths.add(&path, 1);
        } else {
            total.other_paths.add(&path, 1);
        }
    }

    /// The clients that were refused.
    pub(in crate::abuse) fn refused_clients(&self) -> impl Iterator<Item = IpNet> {
        self.clients.iter().filter(|(_, counts)| counts.refused > 0).map(|((_, client), _)| *client)
    }

    pub(in crate::abuse) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Bytes on the heap.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        heap::array::<((usize, IpNet), ClientCounts)>(self.clients.capacity())
            + heap::array::<(usize, CauseCounts)>(self.routes.capacity())
    }

    /// Adds them to a minute. `policies` has the names of the routes.
    pub(in crate::abuse) fn enter(self, policies: &RecordPolicies, minute: &mut Minute) {
        let cause = |route: usize| Some(Cause::Route(policies.route(route)?.name.clone()));
        for ((route, client), counts) in self.clients {
            if let Some(cause) = cause(route) {
                minute.add_client(&cause, client, &counts);
            }
        }
        for (route, counts) in self.routes {
            if let Some(of) = cause(route).and_then(|cause| minute.cause(&cause).map(|of| &mut of.total)) {
                of.add(&counts);
            }
        }
    }
}

/// The hash by which clients are counted.
pub(in crate::abuse) fn client_hash(client: IpNet) -> u32 {
    match client {
        IpNet::V4(net) => value_hash(&net.addr().octets()),
        IpNet::V6(net) => value_hash(&net.addr().octets()),
    }
}
