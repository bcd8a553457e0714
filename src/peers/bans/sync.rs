//! Replicates bans: sends the changes and offenses of this instance, and applies the changes of all.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::{
    super::{monitor_config::MonitorConfig, probe::Probes, rounds::Rounds, time::jittered},
    change_log::{BanVersion, ChangeLog, LogStep},
    codec,
    keys::BanKeys,
    read::{self, PAGE_SIZE},
    write::{self, BanReply},
};
use crate::{
    abuse::bans::{Ban, BanChange},
    limit::Clock,
    store::redis::{Failure, RoutedConnection},
};

/// How often pending offenses and updates are sent.
const ROUND: Duration = Duration::from_millis(50);
/// How often the version in Redis is read, to detect missed changes.
const VERSION_CHECK: Duration = Duration::from_millis(500);
/// Delay after a failed call.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Offenses or updates in one call of a script, during which Redis does nothing else.
const BATCH: usize = 32;
/// Most calls in a round.
const MAX_CALLS: usize = 32;

/// Replicates bans, on the monitor's thread.
pub(in crate::peers) struct BanSync<'a> {
    config: &'a MonitorConfig,
    keys: BanKeys,
    log: RefCell<ChangeLog<BanChange>>,
    /// Whether all known bans were sent again since the last snapshot.
    is_restored: Cell<bool>,
}

impl<'a> BanSync<'a> {
    pub(in crate::peers) fn new(config: &'a MonitorConfig) -> Self {
        let prefix = config.redis.key_prefix();
        Self {
            config,
            keys: BanKeys::new(&prefix),
            log: RefCell::new(ChangeLog::new()),
            is_restored: Cell::default(),
        }
    }

    /// Messages may have been missed.
    pub(in crate::peers) fn miss(&self) {
        self.log.borrow_mut().miss();
    }

    /// Takes a published change, and applies it in its order.
    pub(in crate::peers) fn receive(&self, message: &[u8]) {
        let mut log = self.log.borrow_mut();
        let Some((version, change)) = codec::parse(message, self.config.clock.now()) else {
            log.miss();
            return;
        };
        // The log handles all other cases itself.
        if let LogStep::Apply(changes) = log.accept(version, change, Instant::now().into_std()) {
            changes.into_iter().for_each(|change| self.config.bans.apply(change));
        }
    }

    /// Runs until the process `ends`. `on_round` is called after each attempt to send and read bans.
    pub(in crate::peers) async fn run(
        &self,
        probes: &Probes<'_>,
        ends: &watch::Receiver<bool>,
        on_round: impl Fn(),
    ) {
        let MonitorConfig { bans, .. } = self.config;
        let (mut check_at, mut retry_at, mut server) = (Instant::now(), Instant::now(), None);
        let mut rounds = Rounds::new(ROUND, ends);
        while rounds.next().await {
            let connection = probes.connection(self.keys.version()).filter(|_| retry_at <= Instant::now());
            let Some(mut connection) = connection else {
                bans.set_shared_counting(false);
                continue;
            };
            let current = probes.server(self.keys.version());
            if server.replace(current.clone()).is_some_and(|before| before != current) {
                self.restore();
            }
            let is_check_due = check_at <= Instant::now();
            if is_check_due {
                check_at = Instant::now() + jittered(VERSION_CHECK);
            }
            let round = self.round(&mut connection, is_check_due).await;
            if let Err(failure) = &round {
                tracing::debug!(error = %failure.reason(), "can't share bans with other instances");
                retry_at = Instant::now() + RETRY_AFTER;
            }
            bans.set_shared_counting(round.is_ok());
            on_round();
        }
    }

    async fn round(&self, connection: &mut RoutedConnection, is_check_due: bool) -> Result<(), Failure> {
        if is_check_due {
            self.check_version(connection).await?;
        }
        self.send_updates(connection).await?;
        if self.log.borrow_mut().needs_snapshot(Instant::now().into_std()) {
            self.resync(connection).await?;
        }
        self.count_offenses(connection).await
    }

    /// Redis may have lost some bans and lifts: sends all that are known here, and reads all that Redis has.
    fn restore(&self) {
        let mut log = self.log.borrow_mut();
        if log.applied().is_some() && self.config.bans.resend_all() {
            self.is_restored.set(true);
        }
        log.miss();
    }

    /// Checks whether changes were missed.
    async fn check_version(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let before = self.log.borrow().applied().cloned();
        let newest = read::read_version(connection, &self.keys).await?;
        let now = Instant::now().into_std();
        // The log keeps the result.
        let _observation = self.log.borrow_mut().observe(&newest, before.as_ref(), now);
        Ok(())
    }

    /// Sends the bans that were issued and lifted at this instance.
    async fn send_updates(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let MonitorConfig { bans, clock, .. } = self.config;
        for _ in 0..MAX_CALLS {
            let updates = bans.pending_updates(BATCH);
            if updates.is_empty() {
                break;
            }
            let outcome = write::send_updates(connection, &self.keys, &updates, clock.now()).await?;
            bans.ack_updates(&updates);
            self.apply(&outcome);
        }
        Ok(())
    }

    /// Counts the offenses of this instance in Redis, with those of the others.
    async fn count_offenses(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        let MonitorConfig { bans, clock, .. } = self.config;
        for _ in 0..MAX_CALLS {
            let mut offenses = bans.take_backlog(BATCH);
            offenses.extend(bans.take_pending(BATCH - offenses.len()));
            if offenses.is_empty() {
                break;
            }
            let now = clock.now();
            match write::count_offenses(connection, &self.keys, &offenses, now).await {
                Ok(outcome) => {
                    self.apply(&outcome);
                    self.report_issued(&outcome, now);
                }
                Err(error) => {
                    // They may have been counted: sending them again would count them twice.
                    bans.count_locally_once(offenses);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn apply(&self, outcome: &BanReply) {
        outcome.changes.iter().for_each(|change| self.receive(change));
        (0..outcome.refused).for_each(|_| self.config.bans.record_dropped());
    }

    fn report_issued(&self, outcome: &BanReply, now: i64) {
        for message in &outcome.issued {
            if let Some((_, BanChange::Banned(ban))) = codec::parse(message, now) {
                self.config.bans.record_issued(&ban);
            }
        }
    }

    /// Reads all bans anew.
    async fn resync(&self, connection: &mut RoutedConnection) -> Result<(), Failure> {
        self.log.borrow_mut().begin_snapshot();
        let snapshot = self.read_snapshot(connection).await;
        let mut log = self.log.borrow_mut();
        let (version, bans) = snapshot.inspect_err(|_| log.abort_snapshot())?;
        // Without bans, Redis forgets the number a day after the last one. A change may have begun a new epoch before
        // the loss was noticed.
        let is_restored = self.is_restored.replace(false);
        if log.is_lost_at(&version) && !self.config.bans.is_empty() {
            tracing::warn!("Redis has lost its bans: this instance restores those that it knows");
            if !is_restored {
                self.config.bans.resend_all();
            }
        } else if is_restored {
            tracing::info!(
                "Redis was started anew, or is another server: this instance tells it the bans that it knows"
            );
        }
        let is_first = log.applied().is_none();
        let late = log.finish_snapshot(version, Instant::now().into_std());
        self.config.bans.replace_all(bans, is_first);
        late.into_iter().for_each(|change| self.config.bans.apply(change));
        Ok(())
    }

    async fn read_snapshot(
        &self,
        connection: &mut RoutedConnection,
    ) -> Result<(BanVersion, Vec<Ban>), Failure> {
        let clock = &self.config.clock;
        let mut page = read::read_page(connection, &self.keys, "", PAGE_SIZE, clock.now()).await?;
        let (version, mut bans) = (page.version, page.bans);
        while let Some(from) = page.next {
            page = read::read_page(connection, &self.keys, &from, PAGE_SIZE, clock.now()).await?;
            bans.extend(page.bans);
        }
        Ok((version, bans))
    }
}
