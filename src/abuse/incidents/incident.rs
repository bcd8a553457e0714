//! An incident: what an operator would say in one sentence.

use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{
    find::{Finding, IncidentKind, WINDOW, class, counts_of, hint, usual_credential},
    minute::{CLIENTS, Cause, CauseCounts, ClientCounts, Credential, Minute},
};
use crate::abuse::Hint;

/// Members of an incident that are kept, the first ones.
const MEMBERS: usize = 16_384;
/// Minutes without any of it after which an incident is over.
const QUIET: i64 = WINDOW;
const MINUTE: i64 = 60;

/// Many requests that belong together. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    pub id: String,
    pub kind: IncidentKind,
    /// The route or the policy with the most of it first.
    pub causes: Vec<Cause>,
    pub start: i64,
    pub last: i64,
    /// The most requests of a minute.
    pub peak: u32,
    /// Whether it is about attempts to log in.
    pub is_of_logins: bool,
    /// Refusals: nobody gets in any more who usually does.
    pub is_login_outage: bool,
    /// Whether only this instance's minutes are known: Redis is away.
    pub is_partial: bool,
    /// The counts of its routes or policies.
    pub total: CauseCounts,
    pub members: IndexMap<IpNet, Member, FixedState>,
    /// The counts of minutes that are not looked at any more, and the last of these minutes.
    past: CauseCounts,
    past_until: i64,
    /// Its `last` when it was written to Redis, or read from there.
    pub(in crate::abuse) written: i64,
    /// Whether operators were told of it, and of an attack.
    pub(in crate::abuse) is_announced: bool,
    pub(in crate::abuse) is_announced_attack: bool,
    /// Whether its end is known.
    is_ended: bool,
}

/// An incident, as it is written to Redis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenIncident {
    kind: String,
    causes: Vec<Cause>,
    start: i64,
    pub last: i64,
    peak: u32,
    is_of_logins: bool,
    is_login_outage: bool,
    total: CauseCounts,
    past: CauseCounts,
    past_until: i64,
    /// With the counts of all minutes, and of those that are not looked at any more.
    members: Vec<(IpNet, ClientCounts, ClientCounts)>,
}

/// A client of an incident.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Member {
    /// All that it did.
    pub counts: ClientCounts,
    /// Of it, in minutes that are not looked at any more.
    past: ClientCounts,
}

impl Member {
    /// The kind of client that it seems to be, if a policy has denied it.
    pub fn hint(&self) -> Option<Hint> {
        hint(&self.counts)
    }
}

impl Incident {
    /// A new incident. `found` in the minutes that are looked at.
    pub(in crate::abuse) fn new(id: String, found: Finding, is_partial: bool) -> Self {
        let start = found.members.values().map(|counts| counts.first).filter(|&first| first > 0).min();
        let mut incident = Self {
            id,
            kind: found.kind,
            causes: Vec::new(),
            start: i64::from(start.unwrap_or(0)),
            last: 0,
            peak: 0,
            is_of_logins: found.is_of_logins,
            is_login_outage: false,
            is_partial,
            total: CauseCounts::default(),
            members: IndexMap::default(),
            past: CauseCounts::default(),
            past_until: 0,
            written: 0,
            is_announced: false,
            is_announced_attack: false,
            is_ended: false,
        };
        incident.update(found, is_partial);
        incident
    }

    /// An incident as it was written: the counts with those of minutes that were looked at, and without them.
    /// `now`: in seconds.
    pub(in crate::abuse) fn restore(id: String, written: WrittenIncident, now: i64) -> Option<Self> {
        let WrittenIncident {
            kind,
            causes,
            start,
            last,
            peak,
            is_of_logins,
            is_login_outage,
            total,
            members,
            ..
        } = written;
        let member = |(client, counts, past)| (client, Member { counts, past });
        let kind = IncidentKind::named(&kind)?;
        let is_attack = kind.is_attack();
        Some(Self {
            id,
            kind,
            causes,
            start,
            last,
            peak,
            is_of_logins,
            is_login_outage,
            is_partial: false,
            total,
            members: members.into_iter().take(MEMBERS).map(member).collect(),
            past: written.past,
            past_until: written.past_until,
            written: last,
            is_announced: true,
            is_announced_attack: is_attack,
            is_ended: now.saturating_sub(last) >= QUIET * MINUTE,
        })
    }

    /// What others need to go on with it.
    pub fn write(&self) -> WrittenIncident {
        let member = |(client, of): (&IpNet, &Member)| (*client, of.counts.clone(), of.past.clone());
        WrittenIncident {
            kind: self.kind.name().to_owned(),
            causes: self.causes.clone(),
            start: self.start,
            last: self.last,
            peak: self.peak,
            is_of_logins: self.is_of_logins,
            is_login_outage: self.is_login_outage,
            total: self.total.clone(),
            past: self.past.clone(),
            past_until: self.past_until,
            members: self.members.iter().map(member).collect(),
        }
    }

    /// Takes what was found in the minutes that are looked at now.
    pub(in crate::abuse) fn update(&mut self, found: Finding, is_partial: bool) {
        self.kind = found.kind;
        self.is_login_outage = found.is_login_outage;
        self.is_partial = is_partial;
        self.is_ended = false;
        self.peak = self.peak.max(found.peak);
        // New ones come last, so that the sentence does not change its route each time.
        for cause in found.causes {
            if !self.causes.contains(&cause) {
                self.causes.push(cause);
            }
        }
        // Who was let in meanwhile is none of them.
        for client in &found.people {
            self.members.swap_remove(client);
        }
        self.total = self.past.clone();
        self.total.add(&found.total);
        for (client, counts) in found.members {
            self.last = self.last.max(i64::from(counts.last));
            if self.members.len() >= MEMBERS && !self.members.contains_key(&client) {
                continue;
            }
            let member = self.members.entry(client).or_default();
            member.counts = member.past.clone();
            member.counts.add(&counts);
        }
    }

    /// Keeps the counts of minutes that are not looked at any more, all of this number.
    pub(in crate::abuse) fn leave_behind(&mut self, number: i64, minutes: &[Arc<Minute>]) {
        if number <= self.past_until {
            return;
        }
        self.past_until = number;
        let own =
            minutes.iter().flat_map(|minute| self.causes.iter().filter_map(|cause| minute.causes.get(cause)));
        own.for_each(|of| self.past.add(&of.total));
        for (client, counts) in counts_of(minutes.iter().map(Arc::as_ref), &self.causes, self.is_of_logins) {
            if let Some(member) = self.members.get_mut(&client) {
                member.past.add(&counts);
            }
        }
    }

    /// Whether it has been quiet for a while.
    pub fn is_over(&self, now: i64) -> bool {
        now.saturating_sub(self.last) >= QUIET * MINUTE
    }

    /// Whether it ends now.
    pub(in crate::abuse) fn ends(&mut self, now: i64) -> bool {
        let ends = !self.is_ended && self.is_over(now);
        self.is_ended |= ends;
        ends
    }

    /// Whether it is about a route or a policy of this finding, and of its kind.
    pub(in crate::abuse) fn is_of(&self, found: &Finding) -> bool {
        // All refusals that are no logins are one.
        let is_common = self.class() == "refusals";
        self.class() == class(found.kind, found.is_of_logins)
            && (is_common || found.causes.iter().any(|cause| self.causes.contains(cause)))
    }

    /// What incidents may be one and the same.
    pub(in crate::abuse) fn class(&self) -> &'static str {
        class(self.kind, self.is_of_logins)
    }

    /// Whether a member was let in after failing: it may have found a password.
    pub fn is_takeover(&self, member: &Member) -> bool {
        self.is_of_logins && self.kind.is_attack() && member.counts.let_in > 0 && member.counts.attempts > 0
    }

    /// How many addresses take part. Approximate if there are more than are kept.
    pub fn addresses(&self) -> u64 {
        let kept = self.members.len() as u64;
        // Of a minute with more clients than are counted one by one, not all are members.
        if self.members.len() >= CLIENTS { self.total.clients.count().max(kept) } else { kept }
    }

    /// How many of them a policy has denied.
    pub fn denied(&self) -> usize {
        self.members.values().filter(|member| member.counts.denied > 0).count()
    }

    /// How many of them may have found a password.
    pub fn takeovers(&self) -> usize {
        self.members.values().filter(|member| self.is_takeover(member)).count()
    }

    /// Requests that were refused or denied.
    pub fn requests(&self) -> u64 {
        let of = |counts: &ClientCounts| u64::from(counts.refused) + u64::from(counts.denied);
        let kept: u64 = self.members.values().map(|member| of(&member.counts)).sum();
        if self.kind == IncidentKind::Refusals { kept.max(self.total.refused().into()) } else { kept }
    }

    /// The network with most of the members, and their number: a /24 or a /48, if it has a third of them.
    pub fn network(&self) -> Option<(IpNet, usize)> {
        let network = |client: &IpNet| match client {
            IpNet::V4(net) => Ipv4Net::new(net.addr(), 24).ok().map(|net| IpNet::V4(net.trunc())),
            IpNet::V6(net) => Ipv6Net::new(net.addr(), 48).ok().map(|net| IpNet::V6(net.trunc())),
        };
        let mut counts = IndexMap::<IpNet, usize, FixedState>::default();
        self.members.keys().filter_map(network).for_each(|net| *counts.entry(net).or_default() += 1);
        let most = counts.into_iter().max_by_key(|&(net, count)| (count, net))?;
        (most.1 > 1 && most.1 * 3 >= self.members.len()).then_some(most)
    }

    /// It in a sentence, without when it began: `40 addresses, POST /login, password guessing, 13/s at most; 5 were denied`.
    pub fn sentence(&self) -> String {
        let addresses = counted(self.addresses(), "address", "addresses");
        let peak = match self.peak {
            0..60 => format!("{}/min at most", self.peak),
            peak => format!("{}/s at most", peak.div_ceil(60)),
        };
        let paths = if self.is_of_logins { &self.total.attempted_paths } else { &self.total.other_paths };
        let place = paths.top().map(str::to_owned);
        let place =
            place.or_else(|| self.causes.first().map(|cause| cause.name().to_owned())).unwrap_or_default();
        if self.kind == IncidentKind::Refusals {
            return self.sentence_of_refusals(&addresses, &place);
        }
        let place = match self.causes.first() {
            Some(Cause::Policy(policy)) => format!("policy {policy}"),
            _ => place,
        };
        let mut text = format!("{addresses}, {place}, {}, {peak}", self.kind.name());
        match self.denied() {
            0 => {}
            1 => text += "; one was denied",
            denied if denied as u64 == self.addresses() => text += "; all were denied",
            denied => text += &format!("; {denied} were denied"),
        }
        match self.takeovers() {
            0 => {}
            1 => text += "; one was let in after failing",
            takeovers => text += &format!("; {takeovers} were let in after failing"),
        }
        text
    }

    fn sentence_of_refusals(&self, addresses: &str, place: &str) -> String {
        let status = if self.total.statuses[0] >= self.total.statuses[1] { "401" } else { "403" };
        if self.is_login_outage {
            return format!(
                "{addresses} get {status} for {place}, and nobody is let in: is what checks passwords down?"
            );
        }
        let on = match self.total.paths.count() {
            0 | 1 => place.to_owned(),
            count => format!("{count} paths"),
        };
        if self.is_of_logins {
            return format!(
                "{addresses} get {status} for {place}, and most others are let in: sessions that have ended?"
            );
        }
        let cause = match (usual_credential(&self.total), status) {
            (Credential::Token, "401") => "expired tokens, or a changed key?",
            (Credential::Cookie, "401") => "sessions that have ended?",
            (_, "401") => "clients without their credential?",
            _ => "a permission that they lack?",
        };
        format!("{addresses} get {status} on {on}: {cause}")
    }
}

/// `1 address`, `40 addresses`, `10,000 addresses`
fn counted(count: u64, one: &str, many: &str) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{} {}", groups.join(","), if count == 1 { one } else { many })
}
