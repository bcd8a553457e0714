//! Who is shut out, and what was changed by whom.

use std::sync::Arc;

use crate::{
    abuse::{AuditLog, bans::Bans},
    limit::{Clock, SystemClock},
    telemetry::{
        Events,
        metrics::{BanFacts, Metrics},
    },
};

/// Nobody is banned, and nothing was changed. `instance`: how this one is told from others. `is_shared`: whether there may
/// be others, which are told.
pub(super) fn open(
    instance: &str,
    clock: &SystemClock,
    events: &Events,
    metrics: &Arc<Metrics>,
    is_shared: bool,
) -> (Arc<Bans>, Arc<AuditLog>) {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let audit = Arc::new(AuditLog::new(Arc::clone(&clock), instance, is_shared));
    let bans = Bans::new(clock, events.clone(), Arc::clone(&audit), Arc::clone(metrics), is_shared);
    let bans = Arc::new(bans);
    let gauge = Arc::downgrade(&bans);
    metrics.watch_bans(move || {
        let [enforced, shadow] = gauge.upgrade().map_or([0; 2], |bans| bans.totals());
        BanFacts { enforced, shadow }
    });
    (bans, audit)
}
