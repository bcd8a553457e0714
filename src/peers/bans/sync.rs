//! Keeps the bans of this instance what they are for all.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    mem,
    time::Duration,
};

use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::time::{Instant, interval, timeout};

use super::{
    super::{Duties, audit_log::Journal, heartbeat::Pulse, subscription::jittered},
    change::{self, Version},
    keys::Keys,
    read::{self, PAGE},
    write::{self, Outcome},
};
use crate::{
    abuse::bans::{Ban, Change},
    limit::Clock,
    store::redis::Failure,
};

/// How often it is looked whether there is something to count or to tell.
const ROUND: Duration = Duration::from_millis(50);
/// How often the number of the last change is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long a change that is known to have been made may take to be told, before all is read anew.
const PATIENCE: Duration = Duration::from_millis(250);
/// Changes that may wait for those before them.
const EARLY: usize = 1_024;
/// For one call, unless decisions may take longer.
const TIMEOUT: Duration = Duration::from_millis(500);
/// After a call that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// Keys counted, or bans told of, by one call of a script: Redis does nothing else meanwhile.
const CHUNK: usize = 32;
/// Calls a round.
const CALLS: usize = 32;

/// Reads, counts and tells. Lives on the monitor's thread.
pub(in crate::peers) struct Keeper<'a> {
    duties: &'a Duties,
    keys: Keys,
    journal: Journal,
    /// Up to where all changes are known; `None` until all was read once.
    seen: RefCell<Option<Version>>,
    /// Something was missed: all is to be read anew.
    is_behind: Cell<bool>,
    /// What was told ahead of its turn, by number: messages, and answers of scripts, come on connections of their own.
    early: RefCell<BTreeMap<u64, Vec<u8>>>,
    /// The number of a change that was made and was not told yet, and until when it is waited for.
    awaited: Cell<Option<(u64, Instant)>>,
    /// What is heard while all is read anew.
    heard_meanwhile: RefCell<Option<Vec<Vec<u8>>>>,
}

impl<'a> Keeper<'a> {
    pub(in crate::peers) fn new(duties: &'a Duties) -> Self {
        Self {
            duties,
            keys: Keys::new(&duties.config.prefix),
            journal: Journal::default(),
            seen: RefCell::new(None),
            is_behind: Cell::new(true),
            early: RefCell::default(),
            awaited: Cell::new(None),
            heard_meanwhile: RefCell::new(None),
        }
    }

    /// A change was heard; `None` whenever some may have been missed.
    pub(in crate::peers) fn heard(&self, said: Option<&str>) {
        match said {
            None => self.is_behind.set(true),
            Some(said) => self.apply(said.as_bytes()),
        }
    }

    /// Goes on for as long as it is polled.
    pub(in crate::peers) async fn keep(&self, pulse: &Pulse<'_>) {
        let Duties { breaker, bans, .. } = self.duties;
        let (mut rounds, mut look, mut rest) = (interval(ROUND), Instant::now(), Instant::now());
        loop {
            rounds.tick().await;
            let connection = pulse.connection().filter(|_| !breaker.is_open() && rest <= Instant::now());
            let Some(mut connection) = connection else {
                bans.set_in_touch(false);
                continue;
            };
            let is_due = look <= Instant::now();
            if is_due {
                look = Instant::now() + jittered(LOOK);
            }
            let round = self.round(&mut connection, is_due).await;
            if let Err(failure) = &round {
                tracing::debug!(error = %failure.why, "bans can't be shared with other instances");
                rest = Instant::now() + AGAIN;
            }
            bans.set_in_touch(round.is_ok());
        }
    }

    async fn round(&self, connection: &mut MultiplexedConnection, look: bool) -> Result<(), Failure> {
        if look {
            self.look(connection).await?;
            self.bounded(self.journal.read(connection, &self.keys, &self.duties.audit)).await?;
        }
        self.tell(connection).await?;
        self.wait_no_longer();
        if self.is_behind.get() {
            self.read(connection).await?;
        }
        self.count(connection).await?;
        self.bounded(self.journal.write(connection, &self.keys, &self.duties.audit)).await
    }

    /// Looks whether something was missed, or lost.
    async fn look(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let version = self.bounded(read::version(connection, &self.keys)).await?;
        let seen = self.seen.borrow().clone();
        let Some(seen) = seen.filter(|seen| *seen != version) else { return Ok(()) };
        if seen.epoch == version.epoch && version.n > seen.n {
            self.wait_for(version.n);
            return Ok(());
        }
        self.is_behind.set(true);
        let is_lost = !seen.epoch.is_empty() && (seen.epoch != version.epoch || version.n < seen.n);
        // Where there are none, the number is forgotten a day after the last.
        if is_lost && !self.duties.bans.is_empty() {
            tracing::warn!("Redis has lost its bans: it is told of those that are known here");
            self.duties.bans.tell_all_anew();
        }
        Ok(())
    }

    /// Tells of what was done here.
    async fn tell(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let Duties { bans, clock, .. } = self.duties;
        for _ in 0..CALLS {
            let (orders, mark) = bans.orders(CHUNK);
            if orders.is_empty() {
                break;
            }
            let told = write::order(connection, &self.keys, &orders, clock.now());
            let outcome = self.bounded(told).await?;
            bans.told(orders.len(), mark);
            self.heed(&outcome);
        }
        Ok(())
    }

    /// Has counted what was denied here.
    async fn count(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let Duties { bans, clock, .. } = self.duties;
        for _ in 0..CALLS {
            let mut some = bans.counted_alone(CHUNK);
            some.extend(bans.strikes(CHUNK - some.len()));
            if some.is_empty() {
                break;
            }
            let now = clock.now();
            match self.bounded(write::strike(connection, &self.keys, &some, now)).await {
                Ok(outcome) => {
                    self.heed(&outcome);
                    self.given(&outcome, now);
                }
                Err(failure) => {
                    // It may have been counted: told again, it would count twice.
                    bans.count_once(some);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    fn heed(&self, outcome: &Outcome) {
        outcome.changes.iter().for_each(|change| self.apply(change));
        (0..outcome.refused).for_each(|_| self.duties.bans.say_full());
    }

    fn given(&self, outcome: &Outcome, now: i64) {
        for message in &outcome.given {
            if let Some((_, Change::Banned(ban))) = change::read(message, now) {
                self.duties.bans.issued(&ban);
            }
        }
    }

    /// Takes up a change, if it is the next.
    fn apply(&self, message: &[u8]) {
        if let Some(heard) = &mut *self.heard_meanwhile.borrow_mut() {
            heard.push(message.to_vec());
            return;
        }
        let Some((version, change)) = change::read(message, self.duties.clock.now()) else {
            self.is_behind.set(true);
            return;
        };
        let mut seen = self.seen.borrow_mut();
        let Some(seen) = &mut *seen else { return };
        let begins = seen.epoch.is_empty() && version.n == 1;
        if begins || seen.epoch == version.epoch && seen.n + 1 == version.n {
            *seen = version;
            self.duties.bans.learn(change);
            self.catch_up(seen);
        } else if seen.epoch != version.epoch {
            self.is_behind.set(true);
        } else if version.n > seen.n {
            self.wait_for(version.n);
            let mut early = self.early.borrow_mut();
            if early.len() < EARLY {
                early.insert(version.n, message.to_vec());
            }
        }
    }

    /// Takes up what was told ahead of its turn, as far as that has come.
    fn catch_up(&self, seen: &mut Version) {
        let mut early = self.early.borrow_mut();
        while let Some(next) = early.first_entry().filter(|next| *next.key() <= seen.n + 1) {
            let change = change::read(&next.remove(), self.duties.clock.now());
            if let Some((version, change)) = change.filter(|(version, _)| version.n == seen.n + 1) {
                *seen = version;
                self.duties.bans.learn(change);
            }
        }
    }

    /// This change was made.
    fn wait_for(&self, n: u64) {
        if self.awaited.get().is_none() {
            self.awaited.set(Some((n, Instant::now() + PATIENCE)));
        }
    }

    fn wait_no_longer(&self) {
        let Some((n, until)) = self.awaited.get() else { return };
        let is_known = self.seen.borrow().as_ref().is_some_and(|seen| seen.n >= n);
        if is_known || until <= Instant::now() {
            self.awaited.set(None);
            self.is_behind.set(self.is_behind.get() || !is_known);
        }
    }

    /// Reads all bans anew.
    async fn read(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        self.heard_meanwhile.replace(Some(Vec::new()));
        let read = self.read_all(connection).await;
        let heard = self.heard_meanwhile.take().unwrap_or_default();
        let (version, bans) = read?;
        self.is_behind.set(false);
        self.awaited.set(None);
        drop(mem::take(&mut *self.early.borrow_mut()));
        let is_first = self.seen.replace(Some(version)).is_none();
        self.duties.bans.replace(bans, is_first);
        heard.iter().for_each(|message| self.apply(message));
        Ok(())
    }

    async fn read_all(&self, connection: &mut MultiplexedConnection) -> Result<(Version, Vec<Ban>), Failure> {
        let clock = &self.duties.clock;
        let mut page = self.bounded(read::page(connection, &self.keys, "", PAGE, clock.now())).await?;
        let (version, mut bans) = (page.version, page.bans);
        while let Some(from) = page.next {
            page = self.bounded(read::page(connection, &self.keys, &from, PAGE, clock.now())).await?;
            bans.extend(page.bans);
        }
        Ok((version, bans))
    }

    async fn bounded<T>(&self, call: impl Future<Output = RedisResult<T>>) -> Result<T, Failure> {
        let longest = TIMEOUT.max(self.duties.config.timeout);
        Ok(timeout(longest, call).await.map_err(|_| Failure::timeout())??)
    }
}
