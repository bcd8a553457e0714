//! The incidents of a process, and what they are found in.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use ipnet::IpNet;
use parking_lot::Mutex;

use super::{
    find::{self, Finding, IncidentKind, Usual, WINDOW},
    incident::{Incident, WrittenIncident},
    minute::{Cause, ClientCounts, Minute},
    notes::{RouteNotes, client_hash},
    usual::{SlotCounts, UsualCounts, slot},
};
use crate::{
    abuse::clients::policies::RecordPolicies,
    telemetry::{Event, Events, IncidentNews, metrics::Metrics},
};

/// Microseconds.
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
/// How often incidents are looked for, while anything is refused or denied.
const ROUND: i64 = 5 * SECOND;
/// Incidents that are kept, and their members.
const INCIDENTS: usize = 128;
const MEMBERS: usize = 65_536;
/// Clients in the minutes of other instances.
const PEER_CLIENTS: usize = 131_072;
/// Rounds after which an incident is announced without an ID that all instances know.
const WAIT_FOR_ID: u32 = 5;
/// Seconds that another instance's clock may be ahead of ours.
const MAX_CLOCK_SKEW: i64 = 60;
/// Rounds before its ID is proposed: the first one may lack the minutes of others.
const ROUNDS_BEFORE_ID: u32 = 2;

/// The incidents of all instances, and the minutes that they are found in. Its lock is taken by the collector, by the exchange with
/// Redis and by the admin port, never by a worker.
#[derive(Debug)]
pub struct Incidents {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// The minute in progress, and earlier ones that are looked at; the latest is the last.
    current: Minute,
    closed: VecDeque<Arc<Minute>>,
    /// Whether the current minute has changed since it was sent, and whether earlier ones may not have arrived.
    is_changed: bool,
    is_unsent: bool,
    /// The minutes of other instances.
    peers: BTreeMap<(i64, String), Arc<Minute>>,
    usual: UsualCounts,
    /// The counters of each route at the last look.
    counters: HashMap<String, [u64; 2], FixedState>,
    incidents: IndexMap<String, Arc<Incident>, FixedState>,
    /// Incidents whose IDs other instances do not know yet, with the rounds that they have waited.
    unshared: HashMap<String, u32, FixedState>,
    mutes: HashMap<String, Mute, FixedState>,
    acknowledged: HashMap<String, Mute, FixedState>,
    events: Option<Events>,
    is_shared: bool,
    is_partial: bool,
    next_round: i64,
    /// Microseconds for which an incident is kept after its end.
    retain: i64,
}

/// An operator's word on an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mute {
    /// When it was said, in microseconds since the Unix epoch, and until when it holds.
    pub said: i64,
    pub until: i64,
    pub by: String,
}

/// An incident, and what operators have said of it.
#[derive(Debug, Clone)]
pub struct KeptIncident {
    pub incident: Arc<Incident>,
    pub acknowledged: Option<Mute>,
    pub muted: Option<Mute>,
    pub is_over: bool,
}

impl Incidents {
    pub(in crate::abuse) fn new(metrics: Arc<Metrics>) -> Self {
        let state = State {
            current: Minute::new(0),
            closed: VecDeque::new(),
            is_changed: false,
            is_unsent: false,
            peers: BTreeMap::new(),
            usual: UsualCounts::default(),
            counters: HashMap::default(),
            incidents: IndexMap::default(),
            unshared: HashMap::default(),
            mutes: HashMap::default(),
            acknowledged: HashMap::default(),
            events: None,
            is_shared: false,
            is_partial: false,
            next_round: 0,
            retain: 0,
        };
        Self { state: Mutex::new(state), metrics, bytes: AtomicUsize::new(0) }
    }

    /// Publishes events about incidents.
    pub(in crate::abuse) fn set_events(&self, events: Events) {
        self.state.lock().events = Some(events);
    }

    /// Sets how long an incident is kept after its end, in microseconds.
    pub(in crate::abuse) fn set_retain(&self, retain: i64) {
        self.state.lock().retain = retain;
    }

    /// Whether other instances share their minutes, and whether they can be read. Before the first call, there are no others.
    pub fn set_shared(&self, is_reachable: bool) {
        let mut state = self.state.lock();
        state.is_shared = true;
        state.is_partial = !is_reachable;
        if !is_reachable {
            state.peers.clear();
        }
    }

    /// Adds a worker's notes.
    pub(in crate::abuse) fn add_notes(&self, notes: RouteNotes, policies: &RecordPolicies, now: i64) {
        if notes.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        state.begin_minute(now, &self.metrics);
        notes.enter(policies, &mut state.current);
        state.is_changed = true;
    }

    /// Adds the denials of a client by a policy.
    pub(in crate::abuse) fn add_denials(
        &self,
        policy: &Arc<str>,
        client: IpNet,
        counts: &ClientCounts,
        now: i64,
    ) {
        let state = &mut *self.state.lock();
        state.begin_minute(now, &self.metrics);
        let cause = Cause::Policy(Arc::clone(policy));
        state.current.add_client(&cause, client, counts);
        if let Some(of) = state.current.cause(&cause) {
            of.total.denied = of.total.denied.saturating_add(counts.denied);
            of.total.clients.add(client_hash(client));
        }
        state.is_changed = true;
    }

    /// Whether it is time to look for incidents.
    pub(in crate::abuse) fn is_round_due(&self, now: i64) -> bool {
        let next = self.state.lock().next_round;
        // The clock may have been set back.
        now >= next || now < next - 2 * ROUND
    }

    /// Whether there is anything to look at.
    pub(in crate::abuse) fn has_evidence(&self) -> bool {
        self.state.lock().has_evidence()
    }

    /// The clients that a policy has denied in the minute in progress.
    pub(in crate::abuse) fn denied_clients(&self) -> Vec<IpNet> {
        let state = self.state.lock();
        let denied = state.current.causes.iter().filter(|(cause, _)| matches!(cause, Cause::Policy(_)));
        denied.flat_map(|(_, of)| of.clients.keys().copied()).collect()
    }

    /// Sets what these clients seem to be.
    pub(in crate::abuse) fn set_hints(&self, hints: &[(IpNet, u8)]) {
        let mut state = self.state.lock();
        let denied = state.current.causes.iter_mut().filter(|(cause, _)| matches!(cause, Cause::Policy(_)));
        for (_, of) in denied {
            for (client, hint) in hints {
                if let Some(counts) = of.clients.get_mut(client) {
                    counts.hint = *hint;
                }
            }
        }
    }

    /// Looks for incidents.
    pub(in crate::abuse) fn round(&self, now: i64) {
        let (minutes, usual) = self.state.lock().evidence(now, &self.metrics);
        // Without the lock: it is a walk through all clients.
        let minutes: Vec<_> = minutes.iter().map(Arc::as_ref).collect();
        let found = find::find(&minutes, |cause| usual.get(cause).copied().unwrap_or_default());
        let state = &mut *self.state.lock();
        state.take_over(found, now);
        self.bytes.store(state.bytes(), Relaxed);
    }

    /// The incidents, those that go on first, then by their time.
    pub fn all(&self, now: i64) -> Vec<KeptIncident> {
        let state = self.state.lock();
        let mut all: Vec<_> = state.incidents.values().map(|incident| state.kept(incident, now)).collect();
        drop(state);
        all.sort_by_key(|kept| {
            let Incident { kind, last, start, .. } = *kept.incident;
            (kept.is_over, kept.muted.is_some(), !kind.is_attack(), Reverse(last), Reverse(start))
        });
        all
    }

    /// An incident by its ID.
    pub fn find(&self, id: &str, now: i64) -> Option<KeptIncident> {
        let state = self.state.lock();
        state.incidents.get(id).map(|incident| state.kept(incident, now))
    }

    /// Customers that are at their limits now, by policy, with their number.
    pub fn customers_at_limits(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        let mut found = BTreeMap::<&str, super::distinct::Distinct>::new();
        for (cause, of) in state.minutes().flat_map(|minute| &minute.causes) {
            if matches!(cause, Cause::Policy(_)) && of.total.users.count() > 0 {
                found.entry(cause.name()).or_default().merge(&of.total.users);
            }
        }
        found.into_iter().map(|(policy, users)| (policy.to_owned(), users.count())).collect()
    }

    /// Notes a customer whom a policy has denied.
    pub(in crate::abuse) fn add_customer(&self, policy: &Arc<str>, hash: u32, now: i64) {
        let state = &mut *self.state.lock();
        state.begin_minute(now, &self.metrics);
        if let Some(of) = state.current.cause(&Cause::Policy(Arc::clone(policy))) {
            of.total.users.add(hash);
            state.is_changed = true;
        }
    }

    /// Whether other instances can't be heard.
    pub fn is_partial(&self) -> bool {
        self.state.lock().is_partial
    }

    /// How many incidents of each kind go on, without those that are muted.
    pub fn open_by_kind(&self, now: i64) -> Vec<(IncidentKind, u64)> {
        let state = self.state.lock();
        let open = |kind| {
            let of = state.incidents.values().filter(|incident| incident.kind == kind);
            let open = of.filter(|incident| !incident.is_over(now.div_euclid(SECOND)));
            (kind, open.filter(|incident| !state.is_muted(incident, now)).count() as u64)
        };
        IncidentKind::ALL.into_iter().map(open).collect()
    }

    /// Notes that an operator has taken the incident on. Returns whether there is such an incident.
    pub fn acknowledge(&self, id: &str, by: Mute) -> bool {
        let mut state = self.state.lock();
        let is_known = state.incidents.contains_key(id);
        if is_known {
            state.acknowledged.insert(id.to_owned(), by);
        }
        is_known
    }

    /// Mutes an incident, and the next ones of its kind at the same place, until then. Returns whether there is such an incident.
    pub fn mute(&self, id: &str, mute: Mute) -> bool {
        let mut state = self.state.lock();
        let Some(place) = state.incidents.get(id).map(|incident| place(incident)) else { return false };
        state.mutes.insert(place, mute);
        true
    }

    /// Bytes of minutes and incidents, at the last look.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The minutes that were changed since the last call, for other instances.
    pub fn changed_minutes(&self) -> Vec<Minute> {
        let state = &mut *self.state.lock();
        if !mem::take(&mut state.is_changed) {
            return Vec::new();
        }
        let since = if mem::take(&mut state.is_unsent) { i64::MIN } else { state.current.number - 1 };
        let closed = state.closed.iter().filter(|minute| minute.number >= since);
        let all = closed.map(|minute| (**minute).clone()).chain([state.current.clone()]);
        all.filter(|minute| !minute.is_empty()).collect()
    }

    /// What was sent may not have arrived: all minutes that are looked at, and the incidents of the last hour, are sent again.
    pub fn resend(&self, now: i64) {
        let state = &mut *self.state.lock();
        (state.is_changed, state.is_unsent) = (true, true);
        let since = now.div_euclid(SECOND) - 3_600;
        let late = state.incidents.values_mut().filter(|incident| incident.last >= since);
        late.for_each(|incident| Arc::make_mut(incident).written = 0);
    }

    /// Replaces minutes of other instances. What no instance writes is left out.
    pub fn replace_peer_minutes(&self, minutes: Vec<(String, Minute)>) {
        let state = &mut *self.state.lock();
        for (instance, minute) in minutes {
            if minute.is_plausible() {
                state.peers.insert((minute.number, instance), Arc::new(minute));
            }
        }
        while state.peers.values().map(|minute| minute.clients()).sum::<usize>() > PEER_CLIENTS {
            state.peers.pop_first();
        }
    }

    /// Incidents whose IDs have to be agreed on: what they are about, and the ID that is proposed.
    pub fn unshared(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        // Once it was looked at with the minutes of all.
        let asked = state.unshared.iter().filter(|(_, rounds)| **rounds >= ROUNDS_BEFORE_ID);
        asked.filter_map(|(id, _)| Some((place(state.incidents.get(id)?), id.clone()))).collect()
    }

    /// The IDs of incidents that go on.
    pub fn open_ids(&self, now: i64) -> Vec<String> {
        let state = self.state.lock();
        let open = state.incidents.values().filter(|incident| !incident.is_over(now.div_euclid(SECOND)));
        open.map(|incident| incident.id.clone()).collect()
    }

    /// Whether the incident of this ID is known, and is over.
    pub fn is_over(&self, id: &str, now: i64) -> bool {
        let state = self.state.lock();
        state.incidents.get(id).is_some_and(|incident| incident.is_over(now.div_euclid(SECOND)))
    }

    /// All instances call the incident so.
    pub fn agree(&self, proposed: &str, agreed: &str, now: i64) {
        let state = &mut *self.state.lock();
        state.unshared.remove(proposed);
        if proposed != agreed
            && let Some(mut incident) = state.incidents.swap_remove(proposed)
        {
            agreed.clone_into(&mut Arc::make_mut(&mut incident).id);
            match state.incidents.get_mut(agreed) {
                // It was read meanwhile.
                Some(known) => {
                    let known = Arc::make_mut(known);
                    known.start = known.start.min(incident.start);
                }
                None => drop(state.incidents.insert(agreed.to_owned(), incident)),
            }
        }
        if let Some(word) = state.acknowledged.remove(proposed) {
            state.acknowledged.insert(agreed.to_owned(), word);
        }
        state.announce(agreed, now);
    }

    /// Incidents that were changed since they were last written, for other instances and for later ones of this. At most one instance
    /// need write them: each writes the same.
    pub fn changed_incidents(&self, now: i64) -> Vec<(String, WrittenIncident)> {
        let seconds = now.div_euclid(SECOND);
        let state = &mut *self.state.lock();
        let unshared = &state.unshared;
        let is_due = |incident: &Incident| {
            let since = incident.last.saturating_sub(incident.written);
            // Once a minute, and once more when it is over.
            !unshared.contains_key(&incident.id) && (since >= 60 || since > 0 && incident.is_over(seconds))
        };
        let due = state.incidents.values_mut().filter(|incident| is_due(incident));
        due.map(|incident| {
            let incident = Arc::make_mut(incident);
            incident.written = incident.last;
            (incident.id.clone(), incident.write())
        })
        .collect()
    }

    /// The end of each incident that is known, by its ID.
    pub fn known(&self) -> HashMap<String, i64, FixedState> {
        self.state.lock().incidents.values().map(|incident| (incident.id.clone(), incident.last)).collect()
    }

    /// Takes an incident that was found by others, or before a restart. What no instance writes is left out.
    /// Returns whether there is room for it.
    pub fn restore(&self, id: &str, written: WrittenIncident, now: i64) -> bool {
        let state = &mut *self.state.lock();
        let is_possible = written.last <= now.div_euclid(SECOND) + MAX_CLOCK_SKEW;
        let read = Incident::restore(id.to_owned(), written, now.div_euclid(SECOND));
        let Some(read) = read.filter(|_| is_possible) else { return false };
        match state.incidents.get_mut(id) {
            // What is found here is newer.
            Some(known) if known.last >= read.last => {
                let known = Arc::make_mut(known);
                known.start = known.start.min(read.start);
            }
            Some(known) => *known = Arc::new(read),
            None => drop(state.incidents.insert(id.to_owned(), Arc::new(read))),
        }
        state.bound();
        state.incidents.contains_key(id)
    }

    /// What operators have said: mutes by place, acknowledgements by ID.
    pub fn words(&self) -> [Vec<(String, Mute)>; 2] {
        let state = self.state.lock();
        let list = |of: &HashMap<String, Mute, FixedState>| {
            of.iter().map(|(key, mute)| (key.clone(), mute.clone())).collect()
        };
        [list(&state.mutes), list(&state.acknowledged)]
    }

    /// Takes what operators have said at other instances.
    pub fn hear(&self, mutes: Vec<(String, Mute)>, acknowledged: Vec<(String, Mute)>) {
        let State { mutes: known_mutes, acknowledged: known_words, incidents, .. } = &mut *self.state.lock();
        let acknowledged = acknowledged.into_iter().filter(|(id, _)| incidents.contains_key(id)).collect();
        for (known, heard) in [(known_mutes, mutes), (known_words, acknowledged)] {
            for (key, mute) in heard {
                if known.get(&key).is_none_or(|of| of.said < mute.said) && known.len() < 2 * INCIDENTS {
                    known.insert(key, mute);
                }
            }
        }
    }

    /// The counts of a slot of ten minutes, for other instances.
    pub fn slot_counts(&self, slot: i64) -> Vec<(Arc<str>, SlotCounts)> {
        self.state.lock().usual.of_slot(slot)
    }

    /// The slots that are needed now, and the one in progress.
    pub fn needed_slots(&self) -> (Vec<i64>, i64) {
        let minute = self.state.lock().current.number;
        (UsualCounts::needed(minute).collect(), slot(minute))
    }

    /// Counts a response, as the metrics do.
    #[cfg(test)]
    pub(super) fn count_response(&self, route: &str, succeeded: bool) {
        let state = &mut *self.state.lock();
        if let Some(of) = state.current.causes.get_mut(&Cause::Route(route.into())) {
            of.total.responses += 1;
            of.total.succeeded += u32::from(succeeded);
        }
    }

    /// Lets so many responses of each minute be usual for a route.
    #[cfg(test)]
    pub(super) fn set_usual(&self, minutes: std::ops::Range<i64>, route: &str, refused: u64, succeeded: u64) {
        let state = &mut *self.state.lock();
        let route: Arc<str> = route.into();
        minutes.for_each(|minute| state.usual.add(minute, &route, SlotCounts { refused, succeeded }));
    }

    /// Replaces a slot by the counts of all instances.
    pub fn replace_slot(&self, slot: i64, counts: Vec<(Arc<str>, SlotCounts)>) {
        self.state.lock().usual.replace(slot, counts);
    }
}

impl State {
    fn has_evidence(&self) -> bool {
        !self.current.is_empty() || !self.closed.is_empty() || !self.peers.is_empty()
    }

    /// Minutes of all instances that are looked at.
    fn minutes(&self) -> impl Iterator<Item = &Minute> {
        let since = self.current.number - WINDOW;
        let of_peers = self.peers.values().filter(move |minute| minute.number > since).map(Arc::as_ref);
        self.closed.iter().map(Arc::as_ref).chain([&self.current]).chain(of_peers)
    }

    /// Bytes of minutes and incidents.
    fn bytes(&self) -> usize {
        let own = self.current.bytes() + self.closed.iter().map(|minute| minute.bytes()).sum::<usize>();
        let member = size_of::<(IpNet, super::Member)>() + 2 * size_of::<usize>();
        let members: usize =
            self.incidents.values().map(|incident| incident.members.capacity() * member).sum();
        own + self.peers.values().map(|minute| minute.bytes()).sum::<usize>() + members
    }

    fn is_muted(&self, incident: &Incident, now: i64) -> bool {
        self.mutes.get(&place(incident)).is_some_and(|mute| mute.until > now)
    }

    fn kept(&self, incident: &Arc<Incident>, now: i64) -> KeptIncident {
        let muted = self.mutes.get(&place(incident)).filter(|mute| mute.until > now).cloned();
        KeptIncident {
            acknowledged: self.acknowledged.get(&incident.id).cloned(),
            muted,
            is_over: incident.is_over(now.div_euclid(SECOND)),
            incident: Arc::clone(incident),
        }
    }

    /// Begins a new minute, if it has come.
    fn begin_minute(&mut self, now: i64, metrics: &Metrics) {
        let number = now.div_euclid(MINUTE);
        if number == self.current.number {
            return;
        }
        let was_counted = self.current.number > 0;
        if was_counted {
            self.count_responses(metrics);
            self.count_usual();
        } else {
            self.counters = read_counters(metrics);
        }
        let ended = mem::replace(&mut self.current, Minute::new(number));
        // The clock may have been set back.
        self.closed.retain(|minute| minute.number < number);
        if !ended.is_empty() && ended.number < number {
            self.closed.push_back(Arc::new(ended));
            self.is_changed = true;
        }
        self.leave_behind();
    }

    /// Adds the responses since the last look to routes with refused requests.
    fn count_responses(&mut self, metrics: &Metrics) {
        let counters = read_counters(metrics);
        for (route, counts) in &counters {
            let before = self.counters.get(route).copied().unwrap_or_default();
            let [responses, succeeded] = [0, 1].map(|at| counts[at].saturating_sub(before[at]));
            if responses == 0 {
                continue;
            }
            let route: Arc<str> = route.as_str().into();
            self.usual.add(self.current.number, &route, SlotCounts { refused: 0, succeeded });
            if let Some(of) = self.current.causes.get_mut(&Cause::Route(route)) {
                let [responses, succeeded] =
                    [responses, succeeded].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                of.total.responses = of.total.responses.saturating_add(responses);
                of.total.succeeded = of.total.succeeded.saturating_add(succeeded);
            }
        }
        self.counters = counters;
    }

    /// Adds the refused requests of the minute that ends to what is usual.
    fn count_usual(&mut self) {
        let Self { current, usual, incidents, .. } = self;
        usual.note(current.number);
        let now = current.number * 60;
        // An attack never becomes usual.
        let is_attacked = |cause: &Cause| {
            incidents.values().any(|of| of.kind.is_attack() && !of.is_over(now) && of.causes.contains(cause))
        };
        for (cause, of) in &current.causes {
            let Cause::Route(route) = cause else { continue };
            let counted = u64::from(of.total.refused());
            let refused = match is_attacked(cause) {
                false => counted,
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
                true => usual
                    .usual(current.number, route)
                    .refused
                    .map_or(0, |of| (of / 10.0).round() as u64)
                    .min(counted),
            };
            usual.add(current.number, route, SlotCounts { refused, succeeded: 0 });
        }
    }

    /// Forgets minutes that are not looked at any more, and keeps their counts in incidents.
    fn leave_behind(&mut self) {
        let oldest = self.current.number - WINDOW;
        let own = self.closed.iter().take_while(|minute| minute.number <= oldest).count();
        let mut old: Vec<_> = self.closed.drain(..own).collect();
        let newer = self.peers.split_off(&(oldest + 1, String::new()));
        old.extend(mem::replace(&mut self.peers, newer).into_values());
        old.sort_by_key(|minute| minute.number);
        for minutes in old.chunk_by(|one, other| one.number == other.number) {
            let Some(number) = minutes.first().map(|minute| minute.number) else { continue };
            let open = self.incidents.values_mut().filter(|incident| !incident.is_over(number * 60));
            open.for_each(|incident| Arc::make_mut(incident).leave_behind(number, minutes));
        }
    }

    /// What incidents are found in: the minutes of all instances, and what is usual for their routes.
    fn evidence(
        &mut self,
        now: i64,
        metrics: &Metrics,
    ) -> (Vec<Arc<Minute>>, HashMap<Cause, Usual, FixedState>) {
        self.next_round = now + ROUND;
        self.begin_minute(now, metrics);
        if self.has_evidence() {
            self.count_responses(metrics);
        }
        let number = self.current.number;
        let of_peers = self.peers.values().filter(|minute| minute.number > number - WINDOW);
        let minutes = self.closed.iter().chain(of_peers).cloned().chain([Arc::new(self.current.clone())]);
        let minutes: Vec<_> = minutes.filter(|minute| !minute.is_empty()).collect();
        let causes = minutes.iter().flat_map(|minute| minute.causes.keys());
        let usual = causes.map(|cause| (cause.clone(), self.usual.usual(number, cause.name()))).collect();
        (minutes, usual)
    }

    /// Takes over what was found.
    fn take_over(&mut self, found: Vec<Finding>, now: i64) {
        let (is_partial, seconds) = (self.is_partial, now.div_euclid(SECOND));
        let mut of_open = IndexMap::<String, Finding, FixedState>::default();
        for finding in found {
            let is_same = |incident: &&Arc<Incident>| !incident.is_over(seconds) && incident.is_of(&finding);
            match self.incidents.values().find(is_same).map(|incident| incident.id.clone()) {
                None => self.open(finding, now),
                Some(id) => match of_open.get_mut(&id) {
                    Some(known) => known.merge(finding),
                    None => drop(of_open.insert(id, finding)),
                },
            }
        }
        for (id, finding) in of_open {
            let is_unshared = self.unshared.contains_key(&id);
            let Some(incident) = self.incidents.get_mut(&id).map(Arc::make_mut) else { continue };
            if is_unshared {
                // Its place is not fixed yet: the first look may have lacked the minutes of others.
                incident.causes.clear();
            }
            incident.update(finding, is_partial);
            if incident.is_announced && !incident.is_announced_attack && incident.kind.is_attack() {
                incident.is_announced = false;
                self.announce(&id, now);
            }
        }
        self.unshared.values_mut().for_each(|rounds| *rounds += 1);
        let late: Vec<_> = self
            .unshared
            .iter()
            .filter(|(_, rounds)| **rounds == WAIT_FOR_ID)
            .map(|(id, _)| id.clone())
            .collect();
        late.iter().for_each(|id| self.announce(id, now));
        let over = |incident: &mut Arc<Incident>| {
            (incident.is_over(seconds) && Arc::make_mut(incident).ends(seconds)).then(|| Arc::clone(incident))
        };
        let over: Vec<_> = self.incidents.values_mut().filter_map(over).collect();
        over.iter().for_each(|incident| self.publish(incident, true, now));
        self.bound();
        let expired = seconds - self.retain / SECOND;
        self.incidents.retain(|_, incident| incident.last > expired);
        let incidents = &self.incidents;
        self.acknowledged.retain(|id, _| incidents.contains_key(id));
        self.unshared.retain(|id, _| incidents.contains_key(id));
        self.mutes.retain(|_, mute| mute.until > now);
    }

    fn open(&mut self, finding: Finding, now: i64) {
        let id = format!("{:08x}", fastrand::u32(..));
        let incident = Incident::new(id.clone(), finding, self.is_partial);
        self.incidents.insert(id.clone(), Arc::new(incident));
        match self.is_shared {
            true => drop(self.unshared.insert(id, 0)),
            false => self.announce(&id, now),
        }
    }

    /// Tells operators about an incident that has begun, once.
    fn announce(&mut self, id: &str, now: i64) {
        let Some(incident) = self.incidents.get_mut(id).filter(|incident| !incident.is_announced) else {
            return;
        };
        let told = Arc::make_mut(incident);
        (told.is_announced, told.is_announced_attack) = (true, told.kind.is_attack());
        let incident = Arc::clone(incident);
        self.publish(&incident, false, now);
    }

    /// Tells operators that an incident has begun, or is over.
    fn publish(&self, incident: &Incident, is_over: bool, now: i64) {
        let Some(events) = self.events.as_ref().filter(|_| !self.is_muted(incident, now)) else { return };
        events.publish(|| {
            Event::Incident(IncidentNews {
                id: incident.id.clone(),
                kind: incident.kind.name(),
                is_attack: incident.kind.is_attack(),
                text: incident.sentence(),
                start: incident.start.saturating_mul(SECOND),
                is_over,
            })
        });
    }

    /// Leaves out the oldest incidents beyond the bounds.
    fn bound(&mut self) {
        let members = |incidents: &IndexMap<String, Arc<Incident>, FixedState>| {
            incidents.values().map(|incident| incident.members.len()).sum::<usize>()
        };
        while self.incidents.len() > INCIDENTS
            || self.incidents.len() > 1 && members(&self.incidents) > MEMBERS
        {
            let oldest = self.incidents.values().min_by_key(|incident| incident.last).map(|of| of.id.clone());
            oldest.map(|id| self.incidents.swap_remove(&id));
        }
    }
}

/// What an incident is about: its kind and its first route or policy.
fn place(incident: &Incident) -> String {
    let cause = match incident.causes.first() {
        Some(Cause::Route(name)) => format!("route {name}"),
        Some(Cause::Policy(name)) => format!("policy {name}"),
        None => String::new(),
    };
    match incident.class() {
        "refusals" => "refusals".to_owned(),
        class => format!("{class} {cause}"),
    }
}

/// The responses of each route since the start, and how many of them had 2xx or 3xx.
fn read_counters(metrics: &Metrics) -> HashMap<String, [u64; 2], FixedState> {
    metrics.route_responses().into_iter().collect()
}
