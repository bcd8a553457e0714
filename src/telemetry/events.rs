//! What happens, told to whoever watches at the moment.
//!
//! Nobody who tells waits, and nobody who listens is waited for: whoever is too slow misses some, and is told how many.

use std::sync::Arc;

use tokio::sync::broadcast;

/// Events that a slow listener may be behind.
const BEHIND: usize = 1_024;

/// Something that an operator may want to see at once. Times are microseconds since the Unix epoch; addresses and keys
/// as they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client was held back: the first time, or again after a while.
    Limited { address: String, policies: Vec<String>, denied: u64, distinct_users: usize, until: i64 },
    /// A client was let go.
    Unblocked { address: String },
    /// Somebody was shut out.
    Banned { key: String, until: i64, reason: String, by: String, level: u32, is_shadow: bool },
    /// A ban was lifted.
    Lifted { key: String },
    /// The configuration was read again: what has changed.
    Reloaded { configuration_hash: String, changed: Vec<String> },
    /// The configuration was read again, and is no good: the one before it stays.
    NotReloaded { errors: Vec<String> },
    /// The health of something changed: `store`, `upstream api http://127.0.0.1:3000`.
    Health { what: String, is_healthy: bool, why: String },
    /// A warning came up, or went.
    Warning { text: String, is_raised: bool },
}

impl Event {
    /// As the stream names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limited { .. } => "limited",
            Self::Unblocked { .. } => "unblocked",
            Self::Banned { .. } => "banned",
            Self::Lifted { .. } => "lifted",
            Self::Reloaded { .. } => "reloaded",
            Self::NotReloaded { .. } => "not_reloaded",
            Self::Health { .. } => "health",
            Self::Warning { .. } => "warning",
        }
    }
}

/// Where events are told. Cheap to clone: all are one.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Arc<Event>>);

/// Hears what is told from when it was made.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Arc<Event>>);

/// What a listener hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Event(Arc<Event>),
    /// It was too slow, and missed so many.
    Missed(u64),
    /// Nothing more will be told.
    End,
}

impl Events {
    /// A place where nobody listens yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }

    /// Tells an event. `event` is called only where somebody listens.
    pub fn tell(&self, event: impl FnOnce() -> Event) {
        if self.is_watched() {
            // The last may have gone meanwhile.
            let _nobody = self.0.send(Arc::new(event()));
        }
    }

    /// Whether anybody listens.
    pub fn is_watched(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Hears what is told from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Listener {
    /// The next that is told. Dropped before it is ready, nothing is lost.
    pub async fn next(&mut self) -> Heard {
        match self.0.recv().await {
            Ok(event) => Heard::Event(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Heard::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => Heard::End,
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

    fn heard(listener: &mut Listener) -> Option<Heard> {
        match pin!(listener.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(heard) => Some(heard),
            Poll::Pending => None,
        }
    }

    fn event(n: usize) -> Event {
        Event::Unblocked { address: n.to_string() }
    }

    #[test]
    fn whoever_listens_hears_what_is_told_from_then_on() {
        let events = Events::new();
        events.tell(|| unreachable!("nobody listens"));
        let mut listener = events.listen();
        assert_eq!(heard(&mut listener), None);
        events.tell(|| event(1));
        assert_eq!(heard(&mut listener), Some(Heard::Event(Arc::new(event(1)))));
        drop(events);
        assert_eq!(heard(&mut listener), Some(Heard::End));
    }

    #[test]
    fn whoever_is_slow_is_told_what_he_missed() {
        let events = Events::new();
        let mut listener = events.listen();
        (0..BEHIND + 3).for_each(|n| events.tell(|| event(n)));
        assert_eq!(heard(&mut listener), Some(Heard::Missed(3)));
        assert_eq!(heard(&mut listener), Some(Heard::Event(Arc::new(event(3)))));
    }
}
