//! Places for connections: there is always one for whoever comes.
//!
//! Where all are taken, a connection goes that nobody was let in by, the oldest first; only where there is none, the oldest
//! of all. So whoever may not ask can't keep out those who may, however many connections he opens and however slow he is.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Connections in the order in which they came, and how to tell each to go.
type Line = BTreeMap<u64, Arc<Notify>>;

/// All places.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Held>);

#[derive(Debug)]
struct Held {
    room: usize,
    lines: Mutex<Lines>,
    /// How many are taken.
    taken: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Lines {
    next: u64,
    /// By whom nobody was let in yet.
    strangers: Line,
    known: Line,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    held: Arc<Held>,
    number: u64,
    is_known: AtomicBool,
    go: Arc<Notify>,
}

impl Places {
    pub(super) fn new(room: usize) -> Self {
        Self(Arc::new(Held { room, lines: Mutex::default(), taken: watch::Sender::new(0) }))
    }

    /// A place. If there was none left, another connection is told to go.
    pub(super) fn take(&self) -> Arc<Place> {
        let go = Arc::new(Notify::new());
        let mut lines = self.0.lines.lock();
        if lines.strangers.len() + lines.known.len() >= self.0.room {
            let Lines { strangers, known, .. } = &mut *lines;
            if let Some((_, gone)) = strangers.pop_first().or_else(|| known.pop_first()) {
                gone.notify_one();
            }
        }
        let number = lines.next;
        lines.next += 1;
        lines.strangers.insert(number, Arc::clone(&go));
        drop(lines);
        self.0.taken.send_modify(|taken| *taken += 1);
        Arc::new(Place { held: Arc::clone(&self.0), number, is_known: AtomicBool::new(false), go })
    }

    /// Ready once every place was given back.
    pub(super) async fn all_free(&self) {
        let mut taken = self.0.taken.subscribe();
        // The sender lives as long as this does.
        let _free = taken.wait_for(|&taken| taken == 0).await;
    }
}

impl Place {
    /// Somebody was let in by this connection: it goes after all others.
    pub(super) fn let_in(&self) {
        if self.is_known.swap(true, Relaxed) {
            return;
        }
        let mut lines = self.held.lines.lock();
        // One that was told to go is in neither line.
        if let Some(go) = lines.strangers.remove(&self.number) {
            lines.known.insert(self.number, go);
        }
    }

    /// Ready once another needs the place.
    pub(super) async fn told_to_go(&self) {
        self.go.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.held.lines.lock();
        lines.strangers.remove(&self.number);
        lines.known.remove(&self.number);
        drop(lines);
        self.held.taken.send_modify(|taken| *taken -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn goes(place: &Place) -> bool {
        place.told_to_go().now_or_never().is_some()
    }

    #[test]
    fn whoever_was_let_in_goes_last() {
        let places = Places::new(3);
        let (operator, stranger, other) = (places.take(), places.take(), places.take());
        operator.let_in();
        let newcomer = places.take();
        assert!(goes(&stranger) && !goes(&operator) && !goes(&other));
        stranger.let_in();
        drop(stranger);
        newcomer.let_in();
        other.let_in();
        let last = places.take();
        assert!(goes(&operator), "where all were let in, the oldest goes");
        assert!(!goes(&newcomer) && !goes(&other) && !goes(&last));
    }

    #[test]
    fn places_are_given_back() {
        let places = Places::new(1);
        let first = places.take();
        assert!(places.all_free().now_or_never().is_none());
        drop(first);
        let second = places.take();
        assert!(!goes(&second), "the first had gone by itself");
        drop(second);
        assert!(places.all_free().now_or_never().is_some());
    }
}
