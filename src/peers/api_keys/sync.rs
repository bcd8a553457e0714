//! Sends the changes of this instance's operators, and takes the changes of all.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use compact_str::CompactString;
use foldhash::HashSet;
use tokio::{sync::watch, time::Instant};

use super::{
    super::{monitor_config::MonitorConfig, probe::Probes, rounds::Rounds, time::jittered},
    table::{KeyTable, KeyVersion, Replaced, Written},
};
use crate::{
    api_keys::{ApiKey, ChangeState},
    limit::Clock,
    store::redis::{Failure, RoutedConnection},
};

/// How often pending changes are sent, and published ones are read.
const ROUND: Duration = Duration::from_millis(50);
/// How often the version in Redis is compared, to detect missed changes.
const VERSION_CHECK: Duration = Duration::from_millis(500);
/// Delay after a failed call.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Keys in one call of a script, during which Redis does nothing else.
const BATCH: usize = 64;
/// Most calls in a round.
const MAX_CALLS: usize = 32;
/// How often tombstones are removed that are not kept any more.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// Shares API keys, on the monitor's thread.
pub(in crate::peers) struct KeySync<'a> {
    config: &'a MonitorConfig,
    table: &'a KeyTable,
    /// All changes up to this version are known here; `None` before the first read.
    known: RefCell<Option<KeyVersion>>,
    /// Keys may have been changed since.
    is_stale: Cell<bool>,
    /// Redis may have lost some: all are compared.
    is_doubtful: Cell<bool>,
}

impl<'a> KeySync<'a> {
    pub(in crate::peers) fn new(config: &'a MonitorConfig, table: &'a KeyTable) -> Self {
        let (known, is_stale, is_doubtful) = (RefCell::default(), Cell::new(true), Cell::new(true));
        Self { config, table, known, is_stale, is_doubtful }
    }

    /// Keys were changed, or may have been.
    pub(in crate::peers) fn miss(&self) {
        self.is_stale.set(true);
    }

    /// Runs until the process `ends`. `on_round` is called after each attempt to send and read keys.
    pub(in crate::peers) async fn run(
        &self,
        probes: &Probes<'_>,
        ends: &watch::Receiver<bool>,
        on_round: impl Fn(),
    ) {
        let (keys, now) = (&self.config.api_keys, Instant::now());
        let (mut check_at, mut retry_at, mut sweep_at, mut server) = (now, now, now + SWEEP_EVERY, None);
        let mut rounds = Rounds::new(ROUND, ends);
        while rounds.next().await {
            let connection = probes.connection(self.table.slot()).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else {
                keys.set_store_up(false);
                continue;
            };
            let current = probes.server(self.table.slot());
            if server.replace(current.clone()).is_some_and(|before| before != current) {
                self.is_doubtful.set(true);
            }
            if check_at <= Instant::now() {
                check_at = Instant::now() + jittered(VERSION_CHECK);
                self.is_stale.set(true);
            }
            if sweep_at <= Instant::now() {
                sweep_at = Instant::now() + SWEEP_EVERY;
                keys.sweep(self.config.clock.now());
            }
            let round = self.round(&mut connection).await;
            if let Err(failure) = &round {
                tracing::debug!(error = %failure.reason(), "can't share API keys with other instances");
                retry_at = Instant::now() + RETRY_AFTER;
                self.is_stale.set(true);
            }
            keys.set_store_up(round.is_ok());
            on_round();
        }
    }

    async fn round(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        // Before it writes: a loss shows in the version, until others raise it.
        if self.is_doubtful.get() || self.is_stale.replace(false) {
            self.read(connection).await?;
        }
        self.write(connection).await
    }

    /// Sends the keys that Redis does not have, and has it decide on changes.
    async fn write(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let keys = &self.config.api_keys;
        for _ in 0..MAX_CALLS {
            if !keys.has_pending() && !keys.has_unsent() {
                break;
            }
            self.decide(connection).await?;
            let unsent = keys.unsent(BATCH);
            let known: Vec<&ApiKey> = unsent.iter().filter_map(|unsent| unsent.key.as_deref()).collect();
            let written = match known.is_empty() {
                true => Vec::new(),
                false => {
                    let rows = known.iter().map(|&key| (key, Replaced::Lesser));
                    self.table.write(connection, rows).await?
                }
            };
            keys.ack(&unsent);
            for (ApiKey { id, .. }, written) in known.iter().zip(written) {
                if written == Written::NoRoom {
                    tracing::error!(
                        "API key {id} is not kept: there are as many as there may be, made at other instances"
                    );
                    keys.refuse(id);
                }
            }
        }
        Ok(())
    }

    /// Has Redis decide on the changes that wait.
    async fn decide(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let keys = &self.config.api_keys;
        let pending = keys.pending(BATCH);
        if pending.is_empty() {
            return Ok(());
        }
        let rows = pending.iter().map(|change| (&change.key, Replaced::Exactly(change.base)));
        let written = self.table.write(connection, rows).await?;
        for (change, written) in pending.iter().zip(written) {
            let id = &change.key.id;
            let state = match written {
                Written::Stored => ChangeState::Made,
                Written::NoRoom => ChangeState::NoRoom,
                Written::Outdated(Some(other)) => {
                    let (key, stamp) = *other;
                    // Redis may have lost the version that is known here.
                    if !keys.merge(key, stamp) {
                        keys.resend(id);
                    }
                    ChangeState::Outdated
                }
                // It was lost, or not sent yet: it is, and Redis is asked again.
                Written::Outdated(None) if keys.resend(id) => continue,
                Written::Outdated(None) => ChangeState::Outdated,
            };
            keys.decide(change, state);
        }
        Ok(())
    }

    /// Reads the changed keys; all, if Redis may have lost some.
    async fn read(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let keys = &self.config.api_keys;
        let known = self.known.borrow().clone();
        let from = known.clone().filter(|_| !self.is_doubtful.get()).unwrap_or_default();
        let mut page = self.table.read(connection, &from, false).await?;
        let newest = page.version.clone();
        let is_over =
            known.as_ref().is_some_and(|known| known.epoch != newest.epoch || known.number > newest.number);
        // Without an epoch there were no changes to lose.
        let is_lost = is_over && known.as_ref().is_some_and(|known| !known.epoch.is_empty());
        let is_whole = known.is_none() || self.is_doubtful.get() || is_over;
        // The IDs of the keys that Redis has as they are here.
        let mut current: HashSet<CompactString> = HashSet::default();
        loop {
            for (key, stamp) in page.keys {
                let id = key.id.clone();
                if keys.merge(key, stamp) && is_whole {
                    current.insert(id);
                }
            }
            let Some(number) = page.next else { break };
            page = self.table.read(connection, &KeyVersion { number, ..newest.clone() }, true).await?;
            if page.version.epoch != newest.epoch {
                self.is_doubtful.set(true);
                self.is_stale.set(true);
                return Ok(());
            }
        }
        if is_whole {
            let resent = keys.finish_snapshot(&current, self.config.clock.now());
            self.report(resent, is_lost);
            self.is_doubtful.set(false);
        }
        *self.known.borrow_mut() = Some(newest);
        Ok(())
    }

    /// Reports that Redis has lost keys.
    fn report(&self, resent: usize, is_lost: bool) {
        if resent == 0 {
            return;
        }
        if is_lost {
            tracing::warn!("Redis has lost its API keys: this instance restores those that it knows");
        } else {
            tracing::info!(
                "Redis was started anew, or is another server: this instance tells it the API keys that it misses"
            );
        }
        let detail = format!("{resent} API keys that this instance knew were missing in Redis");
        self.config.audit.write("Tollgate", "restore_keys", "Redis", &detail);
    }
}
