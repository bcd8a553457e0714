//! Events for operators.
//!
//! Publishers never wait. A subscriber that is too slow misses events and gets their number.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio::sync::{Notify, broadcast};

/// Maximum number of events that a slow subscriber may lag behind.
const CAPACITY: usize = 1_024;

/// Something that operators may want to see immediately. Times are microseconds since the Unix epoch; addresses and
/// keys are in the form that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client was limited: the first time, or again after a while.
    Limited { address: String, policies: Vec<String>, denied: u64, distinct_users: usize, until: i64 },
    /// A client's limits were cleared.
    Unblocked { address: String },
    /// A client was banned.
    Banned { key: String, until: i64, reason: String, by: String, level: u32, is_shadow: bool },
    /// A ban was lifted.
    Lifted { key: String },
    /// An operator drained an endpoint: it takes no new requests.
    Drained { upstream: String, endpoint: String, reason: String, by: String },
    /// An operator undrained an endpoint.
    Undrained { upstream: String, endpoint: String },
    /// The configuration was reloaded.
    Reloaded { configuration_hash: String, changed: Vec<String> },
    /// A reload failed: the configuration in force is kept.
    NotReloaded { errors: Vec<String> },
    /// The health of something changed: `store`, `upstream api http://127.0.0.1:3000`.
    Health { what: String, is_healthy: bool, why: String },
    /// The addresses of a name or the endpoints in a file changed.
    Endpoints(EndpointsChange),
    /// A warning was raised or cleared.
    Warning { text: String, is_raised: bool },
    /// Many clients do something together: an attack, or refusals.
    Incident(IncidentNews),
    /// An operator has banned or unblocked members of an incident.
    IncidentAct(IncidentAct),
}

/// An incident that has begun, or is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentNews {
    pub id: String,
    pub kind: &'static str,
    /// Whether somebody attacks.
    pub is_attack: bool,
    /// It in a sentence.
    pub text: String,
    pub start: i64,
    pub is_over: bool,
}

/// What an operator has done to members of an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentAct {
    pub id: String,
    /// `ban`, `unblock`
    pub act: &'static str,
    pub addresses: usize,
    pub by: String,
}

/// The changes since the last event about the same name or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointsChange {
    pub upstream: String,
    /// The URL of the endpoint, or the path of the file.
    pub source: String,
    pub is_file: bool,
    /// Current number of addresses or endpoints.
    pub count: usize,
    pub added: usize,
    pub removed: usize,
    /// The first few of the added ones.
    pub first_added: Vec<String>,
}

impl Event {
    /// Its name in the event stream.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limited { .. } => "limited",
            Self::Unblocked { .. } => "unblocked",
            Self::Banned { .. } => "banned",
            Self::Lifted { .. } => "lifted",
            Self::Drained { .. } => "drained",
            Self::Undrained { .. } => "undrained",
            Self::Reloaded { .. } => "reloaded",
            Self::NotReloaded { .. } => "not_reloaded",
            Self::Health { .. } => "health",
            Self::Endpoints(_) => "endpoints",
            Self::Warning { .. } => "warning",
            Self::Incident(_) => "incident",
            Self::IncidentAct(_) => "incident_act",
        }
    }
}

/// Publishes events. Clones share one channel.
#[derive(Clone)]
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    /// Keeps events for longer.
    keeper: Arc<OnceLock<Keeper>>,
    /// Notified by each new subscriber.
    subscribed: Arc<Notify>,
}

type Keeper = Box<dyn Fn(&Event) + Send + Sync>;

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// Receives events published after its creation.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Arc<Event>>);

/// An item of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventDelivery {
    Event(Arc<Event>),
    /// The subscriber was too slow and missed this many events.
    Missed(u64),
    /// No more events will be published.
    Closed,
}

impl Events {
    pub fn new() -> Self {
        let (sender, keeper) = (broadcast::Sender::new(CAPACITY), Arc::default());
        Self { sender, keeper, subscribed: Arc::default() }
    }

    /// Hands each event to `keeper` from now on, which must not block. To be called once.
    pub fn keep_with(&self, keeper: impl Fn(&Event) + Send + Sync + 'static) {
        let _once = self.keeper.set(Box::new(keeper));
    }

    /// Publishes an event. `event` is called only if there is a subscriber, or events are kept.
    pub fn publish(&self, event: impl FnOnce() -> Event) {
        let keeper = self.keeper.get();
        if keeper.is_none() && !self.has_subscribers() {
            return;
        }
        let event = event();
        if let Some(keep) = keeper {
            keep(&event);
        }
        // The last subscriber may have been dropped in between.
        let _no_subscriber = self.sender.send(Arc::new(event));
    }

    /// Whether there is a subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Ready while there is a subscriber, or once there is one.
    pub async fn subscribed(&self) {
        loop {
            // Created before the check, so that no subscriber in between is missed.
            let subscribed = self.subscribed.notified();
            if self.has_subscribers() {
                return;
            }
            subscribed.await;
        }
    }

    /// Subscribes to the events from now on.
    pub fn subscribe(&self) -> Subscription {
        let subscription = Subscription(self.sender.subscribe());
        self.subscribed.notify_waiters();
        subscription
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Subscription {
    /// The next delivery. Cancel-safe.
    pub async fn next(&mut self) -> EventDelivery {
        match self.0.recv().await {
            Ok(event) => EventDelivery::Event(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => EventDelivery::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => EventDelivery::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll(subscription: &mut Subscription) -> Option<EventDelivery> {
        match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(delivery) => Some(delivery),
            Poll::Pending => None,
        }
    }

    fn event(n: usize) -> Event {
        Event::Unblocked { address: n.to_string() }
    }

    #[test]
    fn a_subscriber_receives_later_events() {
        let events = Events::new();
        events.publish(|| unreachable!("there is no subscriber"));
        let mut subscription = events.subscribe();
        assert_eq!(poll(&mut subscription), None);
        events.publish(|| event(1));
        assert_eq!(poll(&mut subscription), Some(EventDelivery::Event(Arc::new(event(1)))));
        drop(events);
        assert_eq!(poll(&mut subscription), Some(EventDelivery::Closed));
    }

    #[test]
    fn a_slow_subscriber_learns_how_many_it_missed() {
        let events = Events::new();
        let mut subscription = events.subscribe();
        (0..CAPACITY + 3).for_each(|n| events.publish(|| event(n)));
        assert_eq!(poll(&mut subscription), Some(EventDelivery::Missed(3)));
        assert_eq!(poll(&mut subscription), Some(EventDelivery::Event(Arc::new(event(3)))));
    }
}
