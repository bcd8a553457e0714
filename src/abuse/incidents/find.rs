//! Finds incidents in the minutes of all instances. Pure: instances with the same minutes find the same.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::IpNet;

use super::minute::{Cause, CauseCounts, ClientCounts, Credential, Minute};
use crate::abuse::Hint;

/// Minutes that are looked at together.
pub(in crate::abuse) const WINDOW: i64 = 10;
/// The fewest clients and refused requests of an attack on logins, and of refusals that are worth a word.
const LOGIN_CLIENTS: usize = 20;
const LOGIN_REFUSALS: u32 = 60;
/// As many times as in the same hour of the day before are unusual; without that hour, this share of all responses.
const UNUSUAL: f64 = 4.0;
const UNUSUAL_SHARE: f64 = 0.5;
/// An attack has this share of the refusals of its members, on so many routes.
const CONCENTRATION: f64 = 0.8;
const ROUTES: usize = 3;
/// Routes that are looked at, those with the most attempts: each takes a walk through all clients.
const ATTACKED: usize = 16;
/// The share of its members that may have been let in.
const LET_IN: f64 = 0.1;
/// People are let in after a few attempts, and go on.
const ATTEMPTS_OF_PEOPLE: u32 = 3;
const SERVED_PEOPLE: u32 = 5;
/// As many times more requests of a route are served as are refused, where sessions end.
const SERVED_OTHERS: u32 = 4;
/// Logins that succeeded in ten minutes of the hour before, from which on their absence is an outage; and what is left of them then.
const USUAL_LOGINS: f64 = 10.0;
const OUTAGE: f64 = 0.1;
/// So many of them would have to be there by now.
const ENOUGH_LOGINS: f64 = 5.0;
const WINDOW_SECONDS: f64 = 600.0;
/// From this number of names on, each tried for a few times, leaked passwords are tried.
const STUFFED_NAMES: u64 = 10;
const ATTEMPTS_EACH: u64 = 3;
/// Denied requests of a flood in ten minutes, of many clients and of any number.
const FLOODERS: usize = 20;
const FLOOD_OF_MANY: u64 = 600;
const FLOOD: u64 = 3_000;
/// The fewest clients and denied requests of scrapers.
const SCRAPERS: usize = 5;
const SCRAPED: u64 = 60;
/// Attacks on two routes are one if this share of the smaller one's members are in both.
const SAME_MEMBERS: f64 = 0.5;

/// What an incident is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IncidentKind {
    PasswordGuessing,
    CredentialStuffing,
    Flood,
    Scraping,
    /// Many clients are refused, and nothing says that they attack.
    Refusals,
}

impl IncidentKind {
    pub const ALL: [Self; 5] =
        [Self::PasswordGuessing, Self::CredentialStuffing, Self::Flood, Self::Scraping, Self::Refusals];

    /// The name that is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::PasswordGuessing => "password guessing",
            Self::CredentialStuffing => "credential stuffing",
            Self::Flood => "flood",
            Self::Scraping => "scraping",
            Self::Refusals => "refusals",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether somebody attacks.
    pub fn is_attack(self) -> bool {
        self != Self::Refusals
    }
}

/// What was usual for a route.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usual {
    /// Refused requests in ten minutes of the same hour of the day before. `None`: nobody has counted them.
    pub refused: Option<f64>,
    /// Responses with 2xx and 3xx in ten minutes of the hour before.
    pub succeeded: Option<f64>,
}

/// An incident in the minutes that were looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: IncidentKind,
    /// The route or the policy with the most of it first.
    pub causes: Vec<Cause>,
    pub total: CauseCounts,
    pub members: IndexMap<IpNet, ClientCounts, FixedState>,
    /// The most requests of a minute.
    pub peak: u32,
    /// Whether it is about attempts to log in. One that seems to be an attack may turn out to be none.
    pub is_of_logins: bool,
    /// Refusals: nobody gets in any more who usually does.
    pub is_login_outage: bool,
    /// Clients that failed to log in and are people.
    pub people: Vec<IpNet>,
}

impl Finding {
    /// Adds what was found of the same incident elsewhere.
    pub(in crate::abuse) fn merge(&mut self, other: Self) {
        if other.kind.is_attack() && !self.kind.is_attack() {
            (self.kind, self.is_login_outage) = (other.kind, other.is_login_outage);
        }
        self.causes.extend(other.causes);
        self.total.add(&other.total);
        self.peak = self.peak.max(other.peak);
        for (client, counts) in other.members {
            self.members.entry(client).or_default().add(&counts);
        }
        self.people.extend(other.people);
        let members = &self.members;
        self.people.retain(|client| !members.contains_key(client));
    }
}

/// What incidents may be one and the same: one incident may turn from one kind into another of the same class.
pub(in crate::abuse) fn class(kind: IncidentKind, is_of_logins: bool) -> &'static str {
    match kind {
        _ if is_of_logins => "logins",
        IncidentKind::Flood => "flood",
        IncidentKind::Scraping => "scraping",
        IncidentKind::PasswordGuessing | IncidentKind::CredentialStuffing | IncidentKind::Refusals => {
            "refusals"
        }
    }
}

/// What each client did on these routes or under these policies, in one minute or in several. Of logins, denials by any policy count.
pub(in crate::abuse) fn counts_of<'m>(
    minutes: impl Iterator<Item = &'m Minute>,
    causes: &[Cause],
    is_of_logins: bool,
) -> IndexMap<IpNet, ClientCounts, FixedState> {
    let mut counts = IndexMap::<IpNet, ClientCounts, FixedState>::default();
    for (cause, of) in minutes.flat_map(|minute| &minute.causes) {
        let is_own = causes.contains(cause);
        if !(is_own || is_of_logins && matches!(cause, Cause::Policy(_))) {
            continue;
        }
        for (client, of_client) in &of.clients {
            counts.entry(*client).or_default().add(of_client);
        }
    }
    counts
}

/// The counts of all minutes.
struct Summed {
    total: CauseCounts,
    clients: IndexMap<IpNet, ClientCounts, FixedState>,
}

/// Finds incidents. `minutes`: of all instances, no older than [`WINDOW`]. `usual`: of a route.
pub fn find(minutes: &[&Minute], usual: impl Fn(&Cause) -> Usual) -> Vec<Finding> {
    let mut causes = BTreeMap::<&Cause, Summed>::new();
    let mut by_client = IndexMap::<IpNet, ClientCounts, FixedState>::default();
    for (cause, of) in minutes.iter().flat_map(|minute| &minute.causes) {
        let empty = || Summed { total: CauseCounts::default(), clients: IndexMap::default() };
        let sum = causes.entry(cause).or_insert_with(empty);
        sum.total.add(&of.total);
        for (client, counts) in &of.clients {
            sum.clients.entry(*client).or_default().add(counts);
            by_client.entry(*client).or_default().add(counts);
        }
    }
    let summed = Window { minutes, causes, by_client, usual };
    let (mut found, taken) = summed.logins();
    found.extend(summed.refusals(&taken));
    found.extend(summed.denials());
    found
}

struct Window<'a, U> {
    minutes: &'a [&'a Minute],
    causes: BTreeMap<&'a Cause, Summed>,
    /// What each client did, on all routes and under all policies.
    by_client: IndexMap<IpNet, ClientCounts, FixedState>,
    usual: U,
}

impl<U: Fn(&Cause) -> Usual> Window<'_, U> {
    /// Attacks on logins, and the routes that they explain.
    fn logins(&self) -> (Vec<Finding>, BTreeSet<Cause>) {
        let mut routes: Vec<_> = self
            .causes
            .iter()
            .filter(|(cause, of)| matches!(cause, Cause::Route(_)) && of.total.attempts > 0)
            .map(|(&cause, of)| (cause, of.total.attempts))
            .collect();
        routes.sort_by(|(a, of_a), (b, of_b)| (of_b, a).cmp(&(of_a, b)));
        let mut groups: Vec<LoginGroup<'_>> = Vec::new();
        for &(route, _) in routes.iter().take(ATTACKED) {
            let group = self.group(vec![route]);
            if !self.is_large(&group) {
                continue;
            }
            let shares = |with: &LoginGroup<'_>| {
                let both = group.members.iter().filter(|member| with.members.contains(*member)).count();
                with.routes.len() < ROUTES
                    && ratio(both, with.members.len().min(group.members.len())) >= SAME_MEMBERS
            };
            match groups.iter_mut().find(|with| shares(with)) {
                Some(with) => {
                    with.routes.push(route);
                    *with = self.group(std::mem::take(&mut with.routes));
                }
                None => groups.push(group),
            }
        }
        if groups.is_empty() {
            let top: Vec<_> = routes.iter().take(ROUTES).map(|&(route, _)| route).collect();
            let group = self.group(top);
            if group.routes.len() > 1 && self.is_large(&group) {
                groups.push(group);
            }
        }
        let (mut found, mut taken) = (Vec::new(), BTreeSet::new());
        for group in groups {
            let Some(finding) = self.judge(&group) else { continue };
            taken.extend(group.routes.into_iter().cloned());
            found.push(finding);
        }
        (found, taken)
    }

    /// Those who try to log in on these routes, and the people among them.
    fn group<'c>(&'c self, routes: Vec<&'c Cause>) -> LoginGroup<'c> {
        let causes: Vec<_> = routes.iter().map(|&route| route.clone()).collect();
        let mut counts = counts_of(self.minutes.iter().copied(), &causes, true);
        counts.retain(|_, counts| counts.attempts > 0);
        let (mut members, mut people) = (BTreeSet::new(), Vec::new());
        for (client, counts) in &counts {
            match self.is_of_people(client, counts) {
                true => people.push(*client),
                false => drop(members.insert(*client)),
            }
        }
        counts.retain(|client, _| members.contains(client));
        LoginGroup { routes, members, counts, people }
    }

    /// Whether people are behind the client, or a customer: most of what it asks for is served. `counts`: of its attempts.
    fn is_of_people(&self, client: &IpNet, counts: &ClientCounts) -> bool {
        let Some(everywhere) = self.by_client.get(client) else { return false };
        let ClientCounts { attempts, let_in, is_script, has_more_users, .. } = *counts;
        // A person tries one name, in a browser, and is let in soon.
        let is_like_person =
            attempts <= let_in.saturating_mul(ATTEMPTS_OF_PEOPLE) && !is_script && !has_more_users;
        if let_in > 0 && !is_like_person {
            // It may have found a password, and uses it now.
            return false;
        }
        let is_served = everywhere.served > attempts.saturating_mul(2).saturating_add(SERVED_PEOPLE);
        everywhere.is_customer || let_in > 0 || is_served || hint(everywhere) == Some(Hint::SharedAddress)
    }

    fn attempts(group: &LoginGroup<'_>) -> u32 {
        group.counts.values().fold(0, |sum, counts| sum.saturating_add(counts.attempts))
    }

    /// Whether there are more attempts of more clients than people make.
    fn is_large(&self, group: &LoginGroup<'_>) -> bool {
        let attempts = Self::attempts(group);
        group.members.len() >= LOGIN_CLIENTS
            && attempts >= LOGIN_REFUSALS
            && self.is_unusual(group.routes.iter().copied(), attempts)
    }

    /// Whether so many refused requests are more than usual on these routes.
    fn is_unusual<'c>(&self, routes: impl Iterator<Item = &'c Cause>, refused: u32) -> bool {
        let (mut usual, mut responses) = (Some(0.0), 0_u32);
        for route in routes {
            usual = usual.zip((self.usual)(route).refused).map(|(sum, of)| sum + of);
            responses = self.causes.get(route).map_or(0, |of| of.total.responses).saturating_add(responses);
        }
        match usual {
            Some(usual) => f64::from(refused) > UNUSUAL * usual,
            None => f64::from(refused) >= UNUSUAL_SHARE * f64::from(responses),
        }
    }

    /// What a group does. `None`: its members are refused elsewhere as well.
    fn judge(&self, group: &LoginGroup<'_>) -> Option<Finding> {
        let attempts = Self::attempts(group);
        let of_members = || group.members.iter().filter_map(|member| self.by_client.get(member));
        let everywhere = of_members().fold(0_u32, |sum, counts| sum.saturating_add(counts.refused));
        if f64::from(attempts) < CONCENTRATION * f64::from(everywhere) {
            return None;
        }
        let let_in = group.counts.values().filter(|counts| counts.let_in > 0).count();
        // Too early to tell an attack from an outage.
        let is_login_outage = self.is_login_outage(group)?;
        let total = self.total(&group.routes);
        let users = total.users.count();
        let is_no_attack =
            is_login_outage || ratio(let_in, group.members.len()) > LET_IN || has_ended_sessions(&total);
        let kind = match () {
            () if is_no_attack => IncidentKind::Refusals,
            () if users >= STUFFED_NAMES && users * ATTEMPTS_EACH >= u64::from(attempts) => {
                IncidentKind::CredentialStuffing
            }
            () => IncidentKind::PasswordGuessing,
        };
        Some(Finding {
            kind,
            causes: group.routes.iter().map(|&route| route.clone()).collect(),
            total,
            members: group.counts.clone(),
            peak: self.peak(&group.routes, |of| of.attempts),
            is_of_logins: true,
            is_login_outage,
            people: group.people.clone(),
        })
    }

    /// Whether logins succeeded in the hour before, and hardly any do now. `None`: too few would have succeeded by now to tell.
    fn is_login_outage(&self, group: &LoginGroup<'_>) -> Option<bool> {
        let usual: f64 = group.routes.iter().filter_map(|route| (self.usual)(route).succeeded).sum();
        let causes = || group.routes.iter().filter_map(|route| self.causes.get(*route));
        let succeeded = causes().fold(0_u32, |sum, of| sum.saturating_add(of.total.succeeded));
        let times = || causes().flat_map(|of| of.clients.values());
        let first = times().map(|counts| counts.first).filter(|&first| first > 0).min().unwrap_or(0);
        let last = times().map(|counts| counts.last).max().unwrap_or(0);
        let expected = usual * (f64::from(last.saturating_sub(first)) / WINDOW_SECONDS).min(1.0);
        match () {
            () if usual < USUAL_LOGINS || f64::from(succeeded) >= OUTAGE * usual => Some(false),
            () if expected < ENOUGH_LOGINS => None,
            () => Some(f64::from(succeeded) < OUTAGE * expected),
        }
    }

    fn total(&self, causes: &[&Cause]) -> CauseCounts {
        let mut total = CauseCounts::default();
        causes.iter().filter_map(|cause| self.causes.get(cause)).for_each(|of| total.add(&of.total));
        total
    }

    /// The most of a minute, of all instances.
    fn peak(&self, causes: &[&Cause], count: impl Fn(&CauseCounts) -> u32) -> u32 {
        let mut minutes = BTreeMap::<i64, u32>::new();
        for minute in self.minutes {
            let of = causes.iter().filter_map(|cause| minute.causes.get(*cause)).map(|of| count(&of.total));
            let sum = minutes.entry(minute.number).or_default();
            *sum = of.fold(*sum, u32::saturating_add);
        }
        minutes.into_values().max().unwrap_or(0)
    }

    /// Clients that are refused without attempts to log in: an expired token, a changed key, a missing permission. `taken`: the routes
    /// that an attack explains.
    fn refusals(&self, taken: &BTreeSet<Cause>) -> Option<Finding> {
        let other = |total: &CauseCounts| total.refused().saturating_sub(total.attempts);
        let mut routes: Vec<_> = self
            .causes
            .iter()
            .filter(|(cause, of)| {
                let refused = other(&of.total);
                matches!(cause, Cause::Route(_))
                    && !taken.contains(**cause)
                    && refused > 0
                    && self.is_unusual(std::iter::once(**cause), refused)
            })
            .map(|(&cause, of)| (cause, other(&of.total)))
            .collect();
        routes.sort_by(|(a, of_a), (b, of_b)| (of_b, a).cmp(&(of_a, b)));
        let refused = routes.iter().fold(0_u32, |sum, &(_, refused)| sum.saturating_add(refused));
        let causes: Vec<_> = routes.into_iter().map(|(cause, _)| cause).collect();
        let total = self.total(&causes);
        if refused < LOGIN_REFUSALS {
            return None;
        }
        let mut members = IndexMap::<_, ClientCounts, _>::default();
        for (client, counts) in
            causes.iter().filter_map(|cause| self.causes.get(cause)).flat_map(|of| &of.clients)
        {
            if counts.refused > counts.attempts {
                members.entry(*client).or_default().add(counts);
            }
        }
        if members.len() < LOGIN_CLIENTS {
            return None;
        }
        Some(Finding {
            kind: IncidentKind::Refusals,
            peak: self.peak(&causes, other),
            causes: causes.into_iter().cloned().collect(),
            total,
            members,
            is_of_logins: false,
            is_login_outage: false,
            people: Vec::new(),
        })
    }

    /// Floods and scrapers that policies deny. Customers and shared addresses at their limits are none.
    fn denials(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (&cause, of) in self.causes.iter().filter(|(cause, _)| matches!(cause, Cause::Policy(_))) {
            for (kind, seems) in
                [(IncidentKind::Flood, Hint::Flood), (IncidentKind::Scraping, Hint::Scraping)]
            {
                let is_customer =
                    |client: &IpNet| self.by_client.get(client).is_some_and(|counts| counts.is_customer);
                let clients =
                    of.clients.iter().filter(|(client, counts)| counts.denied > 0 && !is_customer(client));
                let members: IndexMap<_, _, _> = clients
                    .filter(|(_, counts)| hint(counts) == Some(seems))
                    .map(|(client, counts)| (*client, counts.clone()))
                    .collect();
                let denied: u64 = members.values().map(|counts| u64::from(counts.denied)).sum();
                let is_one = match kind {
                    IncidentKind::Flood => {
                        denied >= FLOOD || members.len() >= FLOODERS && denied >= FLOOD_OF_MANY
                    }
                    _ => members.len() >= SCRAPERS && denied >= SCRAPED,
                };
                if is_one {
                    found.push(Finding {
                        kind,
                        causes: vec![cause.clone()],
                        total: of.total.clone(),
                        members,
                        peak: self.peak(&[cause], |of| of.denied),
                        is_of_logins: false,
                        is_login_outage: false,
                        people: Vec::new(),
                    });
                }
            }
        }
        found
    }
}

/// Whether most requests have a cookie, and far more others are served: sessions that have ended, of pages that are still open.
fn has_ended_sessions(total: &CauseCounts) -> bool {
    let cookies = total.credentials[Credential::Cookie as usize];
    f64::from(cookies) >= CONCENTRATION * f64::from(total.refused())
        && total.succeeded >= total.refused().saturating_mul(SERVED_OTHERS)
}

/// Clients that try to log in on the same routes, and what they did there.
struct LoginGroup<'c> {
    routes: Vec<&'c Cause>,
    members: BTreeSet<IpNet>,
    counts: IndexMap<IpNet, ClientCounts, FixedState>,
    people: Vec<IpNet>,
}

/// The hint about a client that a policy has denied.
pub(in crate::abuse) fn hint(counts: &ClientCounts) -> Option<Hint> {
    Hint::ALL.get(usize::from(counts.hint).checked_sub(1)?).copied()
}

/// The index of a hint in [`ClientCounts`].
pub(in crate::abuse) fn index_of(hint: Hint) -> u8 {
    Hint::ALL.iter().zip(1..).find(|(of, _)| **of == hint).map_or(0, |(_, index)| index)
}

/// The credential that most refused requests had.
pub(in crate::abuse) fn usual_credential(total: &CauseCounts) -> Credential {
    let all = [Credential::None, Credential::Basic, Credential::Token, Credential::Cookie];
    all.into_iter().max_by_key(|&of| total.credentials[of as usize]).unwrap_or(Credential::None)
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}
