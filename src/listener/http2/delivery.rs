//! How much of its responses a client has received, when no stream is left to show it.
//!
//! hyper and the kernel buffer megabytes of a response long before its client has received it.

use std::time::{Duration, Instant};

use crate::{
    config::model::ClientLimits,
    listener::slow_reader::SlowReader,
    proxy::RateBudget,
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason},
};

/// How often the kernel is asked about a slow client.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The bytes sent on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBytes {
    /// Bytes written to the socket.
    pub(super) written: u64,
    /// How many of them the client has acknowledged. All of them if the kernel does not tell.
    pub(super) acknowledged: u64,
    /// Bytes still to be written.
    pub(super) unwritten: u64,
}

impl SentBytes {
    fn are_taken(self) -> bool {
        self.acknowledged >= self.written && self.unwritten == 0
    }
}

/// How much of its responses a client has received.
pub(super) enum DeliveryState {
    /// The client's system has acknowledged everything.
    All,
    /// The client is reading; check again at this time.
    Partly(Instant),
    /// The client is too slow.
    TooSlowly(CutOff),
}

/// Measures how a client reads, by the same limits as for a response over HTTP/1.
pub(super) struct DeliveryMonitor {
    idle_timeout: Duration,
    budget: RateBudget,
    /// While something is undelivered: the measurement, and when to check again.
    reader: Option<(SlowReader, Instant)>,
}

impl DeliveryMonitor {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        let idle_timeout = limits.idle_timeout;
        Self { idle_timeout, budget: RateBudget::new(limits.min_rate, idle_timeout), reader: None }
    }

    /// When to check again, if something is undelivered.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.reader.as_ref().map(|(_, next_check)| *next_check)
    }

    pub(super) fn check(&mut self, sent: SentBytes) -> DeliveryState {
        if sent.are_taken() {
            self.reader = None;
            return DeliveryState::All;
        }
        let now = Instant::now();
        let budget = self.budget;
        let (reader, next_check) =
            self.reader.get_or_insert_with(|| (SlowReader::new(budget, sent.acknowledged, now), now));
        reader.measure(sent.acknowledged, now);
        let (deadline, is_for_rate) = reader.deadline(self.idle_timeout);
        if now < deadline {
            *next_check = deadline.min(now + CHECK_INTERVAL);
            return DeliveryState::Partly(*next_check);
        }
        let reason = if is_for_rate { CutOffReason::MinRate } else { CutOffReason::IdleTimeout };
        DeliveryState::TooSlowly(CutOff { body: CutOffBody::Response, reason })
    }
}
