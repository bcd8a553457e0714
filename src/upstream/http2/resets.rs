//! Streams that end before their time.
//!
//! A client that goes away has its stream reset, so that the endpoint stops to work for it. Endpoints count resets, and close a
//! connection that has many of them: nginx, Envoy, Netty and others defend themselves so against floods (CVE-2023-44487). All
//! other requests on it would break off. So a connection has a budget, and what is beyond waits.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use super::connection::Http2Connection;

/// Resets that a connection has at once, and how long it takes until it has another. The h2 crate allows 20 of requests that it has
/// not looked at yet, Netty 200 in 30 seconds, Jetty 128 in one, Node 1,000 and then 33 a second.
const BURST: u32 = 16;
const EVERY: Duration = Duration::from_millis(333);

/// So many streams allow for another reset. Envoy closes a connection once half of at least 500 were reset.
const STREAMS_A_RESET: u64 = 4;

/// The resets that a connection may still have.
#[derive(Debug)]
pub(super) struct ResetBudget {
    /// When all of them are there again.
    full_at: Cell<Instant>,
    resets: Cell<u64>,
}

impl ResetBudget {
    /// That of a connection that begins.
    pub(super) fn new() -> Self {
        Self { full_at: Cell::new(Instant::now()), resets: Cell::new(0) }
    }

    /// Takes one, where there is one for a connection of which so many streams were opened.
    pub(super) fn take(&self, opened: u64, now: Instant) -> bool {
        let full_at = self.full_at.get().max(now) + EVERY;
        let may =
            full_at - now <= EVERY * BURST && self.resets.get() < u64::from(BURST) + opened / STREAMS_A_RESET;
        if may {
            self.full_at.set(full_at);
            self.resets.set(self.resets.get() + 1);
        }
        may
    }
}

/// The handles of streams that wait to be reset, which dropping them does. The endpoint sends as much of a response as its stream's
/// window holds at most.
#[derive(Default)]
pub(super) struct AbandonedStreams(RefCell<Vec<Box<dyn Any>>>);

impl AbandonedStreams {
    /// Has a stream of `connection` reset once its budget allows it. If it has no other streams by then, it is closed instead.
    pub(super) fn add(connection: &Rc<Http2Connection>, handle: impl Any) {
        let mut streams = connection.abandoned.0.borrow_mut();
        streams.push(Box::new(handle));
        if streams.len() == 1 {
            tokio::task::spawn_local(reset(Rc::downgrade(connection)));
        }
    }
}

/// Resets the abandoned streams of a connection, one by one.
async fn reset(connection: Weak<Http2Connection>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(connection) = connection.upgrade() else { return };
        let mut streams = connection.abandoned.0.borrow_mut();
        if connection.may_reset(Instant::now()) {
            streams.pop();
        }
        if streams.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_few_at_once_few_in_time_and_few_of_all_streams() {
        let (budget, start) = (ResetBudget::new(), Instant::now() + EVERY);
        let at_once = (0..1_000).filter(|_| budget.take(10_000, start)).count();
        assert_eq!(at_once, BURST as usize);
        let later = start + Duration::from_secs(3);
        let then = (0..1_000).filter(|_| budget.take(10_000, later)).count();
        assert!((8..=10).contains(&then), "{then}");
        let (budget, mut now, mut resets) = (ResetBudget::new(), start, 0);
        for opened in 1..2_000 {
            now += EVERY;
            resets += u64::from(budget.take(opened, now));
            assert!(opened < 500 || resets * 2 < opened, "{resets} of {opened}");
        }
        assert!(resets > 400, "{resets}");
    }
}
