//! Shares when keys were last used.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

use super::{
    super::{monitor_config::MonitorConfig, probe::Probes, rounds::Rounds},
    table::{KeyTable, USES_PAGE_SIZE},
};
use crate::{
    limit::Clock,
    store::redis::{Failure, RoutedConnection},
};

/// How often uses are sent and read.
const ROUND: Duration = Duration::from_secs(2);
/// How often, if there are many.
const LONG_ROUND: Duration = Duration::from_secs(60);
/// So many uses in a round are many.
const MANY: usize = 10_000;
/// Keys in one call of a script.
const BATCH: usize = 200;
/// Uses of the minutes before the last one that was read are read again: instances send them a moment later, and their
/// clocks differ.
const OVERLAP: i64 = 2;
/// How often all uses are read again: some were sent late, after an outage, or are of keys that a file has since.
const READ_ALL_EVERY: Duration = Duration::from_hours(1);

/// Sends the last uses at this instance, and reads those at others, until the process `ends`.
pub(in crate::peers) async fn share_uses(
    config: &MonitorConfig,
    table: &KeyTable,
    probes: &Probes<'_>,
    ends: &watch::Receiver<bool>,
) {
    let (mut rounds, mut read_at, mut read_all_at) =
        (Rounds::new(ROUND, ends), Instant::now(), Instant::now());
    let mut newest = 0;
    while rounds.next().await {
        let Some(mut connection) = probes.connection(table.slot()) else { continue };
        let round = async {
            send(config, table, &mut connection).await?;
            // Only uses of known keys are kept: before the keys are read, all would be dropped.
            if read_at <= Instant::now() && config.api_keys.is_loaded() {
                if read_all_at <= Instant::now() {
                    (newest, read_all_at) = (0, Instant::now() + READ_ALL_EVERY);
                }
                let found = read(config, table, &mut connection, &mut newest).await?;
                read_at = Instant::now() + if found < MANY { Duration::ZERO } else { LONG_ROUND };
            }
            Result::<(), Failure>::Ok(())
        };
        if let Err(failure) = round.await {
            tracing::debug!(error = %failure.reason(), "can't share the last uses of API keys");
        }
    }
}

async fn send(
    config: &MonitorConfig,
    table: &KeyTable,
    connection: &mut RoutedConnection,
) -> Result<(), Failure> {
    let uses = config.api_keys.uses();
    loop {
        let some = uses.take_unsent(BATCH);
        if some.is_empty() {
            return Ok(());
        }
        if let Err(error) = table.write_uses(connection, &some).await {
            uses.put_back(some);
            return Err(error.into());
        }
    }
}

/// Returns the number of uses that were read.
async fn read(
    config: &MonitorConfig,
    table: &KeyTable,
    connection: &mut RoutedConnection,
    newest: &mut i64,
) -> Result<usize, Failure> {
    let (since, mut found) = (newest.saturating_sub(OVERLAP).max(1), 0);
    // Anybody may write later minutes there, which would hide the instances' own.
    let this_minute = config.clock.now() / 60_000_000;
    loop {
        let page = table.read_uses(connection, since, found).await?;
        found += page.len();
        for (id, minute) in &page {
            // Redis' numbers are floating-point.
            let minute = *minute as i64;
            *newest = minute.min(this_minute).max(*newest);
            let Ok(id) = str::from_utf8(id) else { continue };
            if config.api_keys.get(id).is_some() {
                config.api_keys.merge_use(id, minute);
            }
        }
        if page.len() < USES_PAGE_SIZE {
            return Ok(found);
        }
    }
}
