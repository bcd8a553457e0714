//! The state of the history that is kept in a database, and of the alerts.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::families::{count, counter, gauge};

/// The state of the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptHistoryFacts {
    /// Whether history is kept.
    pub is_kept: bool,
    /// Why it can't be written.
    pub fault: Option<String>,
    /// The age of the oldest part that is not written yet, in seconds.
    pub lag_seconds: u64,
    pub waiting_batches: u64,
    pub waiting_bytes: u64,
    /// The part of `waiting_bytes` that is on disk.
    pub spooled_bytes: u64,
    /// Why the spool can't be written.
    pub spool_fault: Option<String>,
    /// Batches that were lost, because there was no room for them.
    pub dropped: u64,
    /// Microseconds that this clock is ahead of the database's or Redis', if that is too much for months to be closed.
    pub clock_offset: Option<i64>,
    /// The month that is not closed, and the processes that it waits for: their IDs, and when each was last heard of, in
    /// seconds since the Unix epoch.
    pub waits: Option<(String, Vec<(String, i64)>)>,
}

/// Writes the metrics, if history is kept.
pub(super) fn expose(facts: &KeptHistoryFacts, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if !facts.is_kept {
        return Ok(());
    }
    for (name, help, value) in [
        (
            "tollgate_history_lag_seconds",
            "Age of the oldest part of the history that is not written yet",
            facts.lag_seconds,
        ),
        ("tollgate_history_waiting_bytes", "History that is not written yet", facts.waiting_bytes),
        (
            "tollgate_history_spooled_bytes",
            "History that is not written yet and is in the spool",
            facts.spooled_bytes,
        ),
        (
            "tollgate_history_up",
            "Whether the last attempt to write the history succeeded",
            u64::from(facts.fault.is_none()),
        ),
    ] {
        gauge(out, name, help)?.encode_gauge(&value)?;
    }
    let help = "Batches of the history that were lost because there was no room for them";
    counter(out, "tollgate_history_dropped", help)?.encode_counter::<NoLabelSet, _, u64>(&facts.dropped, None)
}

/// The state of the alerts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertFacts {
    /// Whether there are any.
    pub is_on: bool,
    /// Messages that webhooks have taken.
    pub delivered: u64,
    /// Messages that no webhook has taken within an hour.
    pub given_up: u64,
    /// Messages that were not sent, because there were too many; those of this hour.
    pub dropped: u64,
    pub dropped_now: u64,
    /// Why messages can't be noted.
    pub fault: Option<String>,
    /// The webhooks that have not taken all messages, and why.
    pub failing: Vec<(String, String)>,
}

/// Writes the metrics, if there are alerts.
pub(super) fn expose_alerts(facts: &AlertFacts, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if !facts.is_on {
        return Ok(());
    }
    let mut family = counter(out, "tollgate_alerts", "Messages to webhooks, by what became of them")?;
    for (result, value) in
        [("delivered", facts.delivered), ("given_up", facts.given_up), ("dropped", facts.dropped)]
    {
        count(&mut family, [("result", result)], value)?;
    }
    Ok(())
}
