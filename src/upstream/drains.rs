//! Endpoints that operators drain: they get no new requests until they are undrained, under every configuration.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::SystemTime,
};

use parking_lot::Mutex;

use crate::telemetry::{Event, Events, time::unix_micros};

/// The most drains. Drains of endpoints that are no longer configured are kept until they are undrained.
pub const MAX_DRAINS: usize = 1_000;

/// How long it is known that an endpoint was undrained: a day, in microseconds.
const UNDRAINS_KNOWN: i64 = 86_400_000_000;

/// An endpoint: the name of its upstream, and its URL as in `endpoints`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId {
    pub upstream: String,
    /// `http://127.0.0.1:3000`
    pub url: String,
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.upstream, self.url)
    }
}

/// An operator's drain of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointDrain {
    pub endpoint: EndpointId,
    /// Microseconds since the Unix epoch.
    pub since: i64,
    pub reason: String,
    /// `operator at 127.0.0.1`
    pub by: String,
}

/// A change that other instances have not been sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainUpdate {
    /// An operator has drained the endpoint here.
    Drain(Arc<EndpointDrain>),
    /// Redis has lost the drain, but this instance still knows it. A drain of the same
    /// endpoint that is in Redis by then is kept.
    Restore(Arc<EndpointDrain>),
    /// An operator has undrained the endpoint here. `at` is set if this is sent once more: a drain after this time is
    /// kept. In microseconds since the Unix epoch.
    Undrain { endpoint: EndpointId, at: Option<i64> },
}

impl DrainUpdate {
    /// The endpoint that it concerns.
    pub fn endpoint(&self) -> &EndpointId {
        match self {
            Self::Drain(drain) | Self::Restore(drain) => &drain.endpoint,
            Self::Undrain { endpoint, .. } => endpoint,
        }
    }
}

/// An update and its number, which acknowledges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingDrain {
    sequence: u64,
    pub update: DrainUpdate,
}

/// Why an endpoint is not drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are already {MAX_DRAINS} drains: undrain endpoints that are no longer configured (tollgate upstreams lists them)"
)]
pub struct TooManyDrains;

/// The drains of a process. Each change is applied to the upstreams at once.
#[derive(Debug)]
pub struct DrainTable {
    events: Events,
    /// Whether there are other instances, which are sent updates.
    is_shared: bool,
    table: Mutex<DrainState>,
    followers: Mutex<Vec<Weak<dyn DrainFollower>>>,
}

/// An upstream, which applies the drains of its endpoints.
pub(super) trait DrainFollower: fmt::Debug + Send + Sync {
    /// Sends no new requests to the endpoints that are drained now.
    fn apply_drains(&self);
}

#[derive(Debug, Default)]
struct DrainState {
    drains: BTreeMap<EndpointId, Arc<EndpointDrain>>,
    /// By endpoint, the last update that other instances have not been sent yet.
    pending: BTreeMap<EndpointId, PendingDrain>,
    next_sequence: u64,
    /// Endpoints that were undrained recently, on any instance, and when. At most [`MAX_DRAINS`].
    undrained: BTreeMap<EndpointId, i64>,
}

impl DrainState {
    /// Notes that these endpoints are no longer drained.
    fn note_undrained<'a>(&mut self, endpoints: impl IntoIterator<Item = &'a EndpointId>) {
        let now = unix_micros(SystemTime::now());
        self.undrained.retain(|_, at| *at > now - UNDRAINS_KNOWN);
        for endpoint in endpoints {
            if self.undrained.len() >= MAX_DRAINS
                && let Some(first) =
                    self.undrained.iter().min_by_key(|(_, at)| **at).map(|(first, _)| first.clone())
            {
                self.undrained.remove(&first);
            }
            self.undrained.insert(endpoint.clone(), now);
        }
    }
}

impl DrainTable {
    /// No endpoint is drained. `is_shared`: whether there are other instances.
    pub fn new(events: Events, is_shared: bool) -> Self {
        Self { events, is_shared, table: Mutex::default(), followers: Mutex::default() }
    }

    /// Lets an upstream apply its drains, now and after each change.
    pub(super) fn watch(&self, follower: &Arc<impl DrainFollower + 'static>) {
        let mut followers = self.followers.lock();
        followers.retain(|follower| follower.strong_count() > 0);
        let weak = Arc::downgrade(follower);
        followers.push(weak);
        drop(followers);
        follower.apply_drains();
    }

    fn notify(&self) {
        let followers = self.followers.lock().clone();
        followers.iter().filter_map(Weak::upgrade).for_each(|follower| follower.apply_drains());
    }

    /// Drains an endpoint on all instances. Returns whether it was drained before.
    ///
    /// # Errors
    /// There are too many drains.
    pub fn drain(&self, drain: EndpointDrain) -> Result<bool, TooManyDrains> {
        let drain = Arc::new(drain);
        let mut table = self.table.lock();
        if table.drains.len() >= MAX_DRAINS && !table.drains.contains_key(&drain.endpoint) {
            return Err(TooManyDrains);
        }
        let replaced = table.drains.insert(drain.endpoint.clone(), Arc::clone(&drain)).is_some();
        table.undrained.remove(&drain.endpoint);
        self.queue(&mut table, DrainUpdate::Drain(Arc::clone(&drain)));
        drop(table);
        self.notify();
        self.publish_drained(&drain);
        Ok(replaced)
    }

    /// Undrains an endpoint on all instances. Returns its drain.
    pub fn undrain(&self, endpoint: &EndpointId) -> Option<Arc<EndpointDrain>> {
        let mut table = self.table.lock();
        let drain = table.drains.remove(endpoint)?;
        table.note_undrained([endpoint]);
        self.queue(&mut table, DrainUpdate::Undrain { endpoint: endpoint.clone(), at: None });
        drop(table);
        self.notify();
        self.publish_undrained(endpoint);
        Some(drain)
    }

    /// The operator's drain of this endpoint.
    pub fn get(&self, endpoint: &EndpointId) -> Option<Arc<EndpointDrain>> {
        self.table.lock().drains.get(endpoint).cloned()
    }

    /// All drains, by upstream and endpoint.
    pub fn all(&self) -> Vec<Arc<EndpointDrain>> {
        self.table.lock().drains.values().cloned().collect()
    }

    fn queue(&self, table: &mut DrainState, update: DrainUpdate) {
        if self.is_shared {
            let sequence = table.next_sequence;
            table.next_sequence += 1;
            table.pending.insert(update.endpoint().clone(), PendingDrain { sequence, update });
        }
    }

    fn publish_drained(&self, drain: &EndpointDrain) {
        let EndpointDrain { endpoint: EndpointId { upstream, url }, reason, by, .. } = drain;
        self.events.publish(|| Event::Drained {
            upstream: upstream.clone(),
            endpoint: url.clone(),
            reason: reason.clone(),
            by: by.clone(),
        });
    }

    fn publish_undrained(&self, EndpointId { upstream, url }: &EndpointId) {
        self.events.publish(|| Event::Undrained { upstream: upstream.clone(), endpoint: url.clone() });
    }
}

/// The updates between instances that share a store.
impl DrainTable {
    /// Updates that the other instances have not been sent yet.
    pub fn pending_updates(&self) -> Vec<PendingDrain> {
        self.table.lock().pending.values().cloned().collect()
    }

    /// Whether the other instances have been sent the last change of this endpoint.
    pub fn is_sent(&self, endpoint: &EndpointId) -> bool {
        !self.table.lock().pending.contains_key(endpoint)
    }

    /// These updates were sent. Later changes remain pending.
    pub fn ack_updates(&self, sent: &[PendingDrain]) {
        let mut table = self.table.lock();
        for PendingDrain { sequence, update } in sent {
            let endpoint = update.endpoint();
            if table.pending.get(endpoint).is_some_and(|pending| pending.sequence == *sequence) {
                table.pending.remove(endpoint);
            }
        }
    }

    /// The shared store may have lost recent undrains: sends them once more.
    pub fn resend_undrains(&self) {
        let mut table = self.table.lock();
        for (endpoint, at) in table.undrained.clone() {
            if !table.pending.contains_key(&endpoint) {
                self.queue(&mut table, DrainUpdate::Undrain { endpoint, at: Some(at) });
            }
        }
    }

    /// Replaces all drains by the shared store's. Changes that were not sent yet are kept, and so are lost
    /// drains, which are sent again. `is_lost`: whether a drain that only this instance has was lost, and not undrained
    /// by an operator. `is_first`: nothing was known before, so no differences are announced.
    pub fn replace_all(
        &self,
        drains: impl IntoIterator<Item = EndpointDrain>,
        is_lost: impl Fn(&EndpointId) -> bool,
        is_first: bool,
    ) {
        let mut table = self.table.lock();
        let mut fresh: BTreeMap<_, _> =
            drains.into_iter().map(|drain| (drain.endpoint.clone(), Arc::new(drain))).collect();
        let is_known = |endpoint| fresh.contains_key(endpoint) || table.pending.contains_key(endpoint);
        let gone = table.drains.values().filter(|drain| !is_known(&drain.endpoint));
        let lost: Vec<_> = gone.filter(|drain| is_lost(&drain.endpoint)).cloned().collect();
        if !lost.is_empty() {
            let drains = lost.len();
            tracing::warn!(
                drains,
                "Redis has lost drains that this instance knows: they are written there again"
            );
        }
        lost.into_iter().for_each(|drain| self.queue(&mut table, DrainUpdate::Restore(drain)));
        for PendingDrain { update, .. } in table.pending.values() {
            match update {
                DrainUpdate::Drain(drain) => drop(fresh.insert(drain.endpoint.clone(), Arc::clone(drain))),
                DrainUpdate::Restore(drain) => {
                    fresh.entry(drain.endpoint.clone()).or_insert_with(|| Arc::clone(drain));
                }
                DrainUpdate::Undrain { endpoint, at } => {
                    let is_newer = |drain: &EndpointDrain| at.is_some_and(|at| drain.since > at);
                    if !fresh.get(endpoint).is_some_and(|drain| is_newer(drain)) {
                        fresh.remove(endpoint);
                    }
                }
            }
        }
        let before = std::mem::replace(&mut table.drains, fresh);
        let is_gone =
            |(endpoint, _): &(&EndpointId, &Arc<EndpointDrain>)| !table.drains.contains_key(*endpoint);
        let gone: Vec<EndpointId> =
            before.iter().filter(is_gone).map(|(endpoint, _)| endpoint.clone()).collect();
        let is_new = |drain: &&Arc<EndpointDrain>| before.get(&drain.endpoint) != Some(*drain);
        let new: Vec<Arc<EndpointDrain>> = table.drains.values().filter(is_new).cloned().collect();
        let DrainState { drains, undrained, .. } = &mut *table;
        undrained.retain(|endpoint, _| !drains.contains_key(endpoint));
        table.note_undrained(&gone);
        drop(table);
        if !new.is_empty() || !gone.is_empty() {
            self.notify();
        }
        if !is_first {
            new.iter().for_each(|drain| self.publish_drained(drain));
            gone.iter().for_each(|endpoint| self.publish_undrained(endpoint));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn id(port: u16) -> EndpointId {
        EndpointId { upstream: "api".into(), url: format!("http://127.0.0.1:{port}") }
    }

    fn drain(port: u16, by: &str) -> EndpointDrain {
        EndpointDrain { endpoint: id(port), since: 1, reason: "a new disk".into(), by: by.into() }
    }

    fn endpoints(table: &DrainTable) -> Vec<EndpointId> {
        table.all().iter().map(|drain| drain.endpoint.clone()).collect()
    }

    #[test]
    fn an_endpoint_is_drained_once_and_by_the_last_who_did() {
        let table = DrainTable::new(Events::new(), false);
        assert_eq!(table.drain(drain(1, "one")), Ok(false));
        assert_eq!(table.drain(drain(1, "two")), Ok(true));
        assert_eq!(table.get(&id(1)).map(|drain| drain.by.clone()).as_deref(), Some("two"));
        assert_eq!(table.undrain(&id(1)).map(|drain| drain.by.clone()).as_deref(), Some("two"));
        assert_eq!((table.undrain(&id(1)), table.get(&id(1))), (None, None));
        assert_eq!(table.pending_updates(), [], "there are no other instances");
    }

    #[test]
    fn changes_that_were_not_sent_yet_outlast_a_snapshot() {
        let table = DrainTable::new(Events::new(), true);
        let lost = Cell::new(false);
        let replace_all =
            |drains: &[EndpointDrain]| table.replace_all(drains.to_vec(), |_| lost.get(), false);
        table.replace_all([drain(2, "other")], |_| false, true);
        let _ = table.drain(drain(1, "one"));
        table.undrain(&id(2));
        let sent = table.pending_updates();
        let _ = table.drain(drain(1, "two"));
        table.ack_updates(&sent);
        assert_eq!(table.pending_updates().len(), 1, "one was changed after it was sent");
        replace_all(&[drain(2, "other"), drain(3, "other")]);
        assert_eq!(endpoints(&table), [id(1), id(2), id(3)]);
        table.ack_updates(&table.pending_updates());
        replace_all(&[drain(3, "other"), drain(4, "other")]);
        assert_eq!(endpoints(&table), [id(3), id(4)]);

        table.undrain(&id(3));
        lost.set(true);
        replace_all(&[]);
        assert_eq!(endpoints(&table), [id(4)], "it holds here all the time");
        let pending: Vec<_> = table.pending_updates().into_iter().map(|pending| pending.update).collect();
        assert_eq!(
            pending,
            [
                DrainUpdate::Undrain { endpoint: id(3), at: None },
                DrainUpdate::Restore(Arc::new(drain(4, "other")))
            ],
            "nobody restores what was undrained"
        );
        replace_all(&[drain(4, "another")]);
        assert_eq!(table.get(&id(4)).map(|drain| drain.by.clone()).as_deref(), Some("another"));
    }

    #[test]
    fn there_is_a_most() {
        let table = DrainTable::new(Events::new(), false);
        for port in 0..1_000 {
            assert_eq!(table.drain(drain(port, "one")), Ok(false));
        }
        assert_eq!(table.drain(drain(1_000, "one")), Err(TooManyDrains));
        assert_eq!(table.drain(drain(1, "two")), Ok(true));
    }
}
