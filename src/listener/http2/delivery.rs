//! How far a client has taken what it was sent, where no stream is left that tells.
//!
//! A response is handed over to hyper and to the kernel long before its client has it: they hold megabytes of it.

use std::time::{Duration, Instant};

use crate::{
    config::model::ClientLimits,
    listener::slow_reader::SlowReader,
    proxy::RateBudget,
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
};

/// How often the kernel is asked about a client that is slow.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The bytes of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBytes {
    /// Bytes that were written to the socket.
    pub(super) written: u64,
    /// How many of them the client has acknowledged: all, where the kernel does not tell.
    pub(super) acknowledged: u64,
    /// Bytes that wait to be written.
    pub(super) unwritten: u64,
}

impl SentBytes {
    fn are_taken(self) -> bool {
        self.acknowledged >= self.written && self.unwritten == 0
    }
}

/// How far a client has taken what it was sent.
pub(super) enum DeliveryState {
    /// Its system has all.
    All,
    /// It is taking it, and is to be looked at again at this time.
    Partly(Instant),
    /// Too slowly to wait for it.
    TooSlowly(CutOff),
}

/// Watches how a client takes what it was sent, by the same limits as those of a response over HTTP/1.
pub(super) struct Delivery {
    idle_timeout: Duration,
    budget: RateBudget,
    /// While the client has something to take; and when to look at it again.
    reader: Option<(SlowReader, Instant)>,
}

impl Delivery {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        let idle_timeout = limits.idle_timeout;
        Self { idle_timeout, budget: RateBudget::new(limits.min_rate, idle_timeout), reader: None }
    }

    /// When to look again, if the client has something to take.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.reader.as_ref().map(|(_, next_look)| *next_look)
    }

    pub(super) fn look(&mut self, sent: SentBytes) -> DeliveryState {
        if sent.are_taken() {
            self.reader = None;
            return DeliveryState::All;
        }
        let now = Instant::now();
        let budget = self.budget;
        let (reader, next_look) =
            self.reader.get_or_insert_with(|| (SlowReader::new(budget, sent.acknowledged, now), now));
        reader.measure(sent.acknowledged, now);
        let (deadline, is_for_rate) = reader.deadline(self.idle_timeout);
        if now < deadline {
            *next_look = deadline.min(now + LOOK_AGAIN);
            return DeliveryState::Partly(*next_look);
        }
        let reason = if is_for_rate { CutOffReason::MinRate } else { CutOffReason::IdleTimeout };
        DeliveryState::TooSlowly(CutOff { body: CutOffBody::Response, reason })
    }
}
