//! Announces bans: by events, entries of the audit log, and metrics.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::{Ban, BannedKey, MANUAL, MAX_BANS};
use crate::{
    abuse::AuditLog,
    telemetry::{Event, Events, metrics::Metrics, time::format_duration},
};

pub(super) struct Announcements {
    events: Events,
    pub(super) audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Whether the log has already reported that there are too many bans.
    was_full: AtomicBool,
}

impl Announcements {
    pub(super) fn new(events: Events, audit: Arc<AuditLog>, metrics: Arc<Metrics>) -> Self {
        Self { events, audit, metrics, was_full: AtomicBool::new(false) }
    }

    /// Publishes that a ban is in force, whichever instance issued it.
    pub(super) fn publish_banned(&self, ban: &Ban) {
        self.events.publish(|| Event::Banned {
            key: self.audit.mask_key(&ban.key.to_string()),
            until: ban.until,
            reason: ban.reason.clone(),
            by: ban.by.clone(),
            level: ban.level,
            is_shadow: ban.is_shadow,
        });
    }

    /// Publishes that the bans of a key are lifted.
    pub(super) fn publish_lifted(&self, key: &BannedKey) {
        self.events.publish(|| Event::Lifted { key: self.audit.mask_key(&key.to_string()) });
    }

    /// Counts a ban by an operator. The admin API writes it to the audit log.
    pub(super) fn record_manual(&self) {
        self.metrics.ban_issued(MANUAL);
    }

    /// Counts a ban by a rule, and writes it to the audit log.
    pub(super) fn record_issued(&self, ban: &Ban) {
        self.metrics.ban_issued(ban.name());
        let duration = ban.until.saturating_sub(ban.since);
        // To the second, for readability.
        let duration = format_duration(duration.saturating_add(500_000) / 1_000_000 * 1_000_000);
        let mode = if ban.is_shadow { ", shadow" } else { "" };
        let detail = format!("for {duration}, {} in a row{mode}: {}", ban.level, ban.reason);
        self.audit.write(&ban.by, "ban", &ban.key.to_string(), &detail);
    }

    /// Counts a ban that was dropped, or not issued, because there are too many.
    pub(super) fn record_dropped(&self) {
        self.metrics.add_ban_dropped();
        if !self.was_full.swap(true, Relaxed) {
            tracing::warn!(
                "the limit of {MAX_BANS} bans (by hand, of addresses by rules or of users by rules: of each as many) is \
                 reached: those of them that end soonest are dropped or not issued"
            );
        }
    }

    /// Counts denials that no rule counts, because there was no room for them.
    pub(super) fn record_uncounted(&self, denials: u64) {
        if denials > 0 {
            self.metrics.add_abuse_dropped(denials);
        }
    }
}
