//! The thread that merges the sums of workers, and makes batches of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    batch::{EventRow, Sums},
    outbox::Outbox,
    plan::Zone,
    recorder::TickTallies,
};
use crate::limit::{Clock, WallClock};

/// How often a batch is made.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// How often one is made if there is nothing to add: it says that the process is there.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// What workers have summed is here after this time, in seconds.
const LATENESS: i64 = 15;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    Tick(TickTallies),
    Event(EventRow),
    /// Makes a batch at once.
    Flush,
    /// The process ends: nothing follows.
    End,
}

pub(super) struct Collector {
    pub(super) messages: Receiver<Message>,
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) zones: Arc<Mutex<Vec<Zone>>>,
    pub(super) clock: WallClock,
    /// When the process began to serve, in seconds since the Unix epoch.
    pub(super) started: i64,
}

impl Collector {
    /// Merges until the process ends.
    pub(super) fn run(self) {
        let mut sums = Sums::default();
        let (mut due, mut heartbeat) = (Instant::now() + INTERVAL, Instant::now());
        let mut watermark = self.started;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let is_due = match self.messages.recv_timeout(wait) {
                Ok(Message::Tick(tick)) => {
                    self.queued.fetch_sub(tick.usage.len() + tick.denials.len(), Relaxed);
                    self.note_zones(&tick.plan.zones);
                    sums.add_tick(tick);
                    Instant::now() >= due
                }
                Ok(Message::Event(event)) => {
                    sums.add_event(event);
                    Instant::now() >= due
                }
                Ok(Message::Flush) | Err(RecvTimeoutError::Timeout) => true,
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
            };
            if !is_due {
                continue;
            }
            due = Instant::now() + INTERVAL;
            // A clock that was set back doesn't change what is past.
            watermark = watermark.max(self.now() - LATENESS);
            if !sums.is_empty() || heartbeat.elapsed() >= HEARTBEAT {
                heartbeat = Instant::now();
                self.outbox.push(&sums.take(self.started, watermark, false));
            }
        }
        self.outbox.push(&sums.take(self.started, watermark.max(self.now()), true));
        self.outbox.close();
    }

    fn note_zones(&self, zones: &[Zone]) {
        let mut known = self.zones.lock();
        for zone in zones {
            if !known.iter().any(|known| known.name == zone.name) {
                known.push(zone.clone());
            }
        }
    }

    fn now(&self) -> i64 {
        self.clock.now().div_euclid(1_000_000)
    }
}
