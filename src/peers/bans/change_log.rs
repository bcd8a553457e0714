//! Orders changes that arrive by several ways: decides which is applied, which waits for earlier ones, and when a
//! snapshot is needed. Pure: versions and the time are passed in.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long to wait for a change that was made but has not arrived, before reading a snapshot.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
/// Most changes that wait for earlier ones.
const MAX_EARLY: usize = 1_024;
/// Most changes kept while a snapshot is read.
const MAX_DURING_SNAPSHOT: usize = 65_536;

/// A position in the sequence of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BanVersion {
    /// A new one begins when Redis has lost all bans. Empty if there never was a change.
    pub(super) epoch: String,
    /// The number of the last change in this epoch, from 1.
    pub(super) number: u64,
}

/// How to handle a change that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogStep<T> {
    /// Apply these in this order: the change, then the changes that waited for it.
    Apply(Vec<T>),
    /// Nothing now: the change waits for earlier ones, or for the snapshot in progress.
    Wait,
    /// Nothing: already applied.
    Known,
    /// Read a snapshot: the changes can't be brought into order.
    Resync,
}

/// The state of the log relative to the version in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Observation {
    /// All changes have arrived.
    Current,
    /// Some changes have not arrived yet.
    Wait,
    /// Read a snapshot.
    Resync,
}

/// Brings changes of type `T` into the order of their versions.
#[derive(Debug)]
pub(super) struct ChangeLog<T> {
    /// All changes up to this version are applied; `None` before the first snapshot.
    applied: Option<BanVersion>,
    needs_snapshot: bool,
    /// Changes ahead of their turn, by number, in the epoch of `applied`.
    early: BTreeMap<u64, T>,
    /// The number of a change that was made but has not arrived in order, and the deadline for it.
    awaited: Option<(u64, Instant)>,
    /// Changes that arrived while a snapshot is read.
    during_snapshot: Option<Vec<(BanVersion, T)>>,
}

impl<T> ChangeLog<T> {
    /// An empty log, which needs a snapshot.
    pub(super) fn new() -> Self {
        Self {
            applied: None,
            needs_snapshot: true,
            early: BTreeMap::new(),
            awaited: None,
            during_snapshot: None,
        }
    }

    /// Takes a change, which may have arrived before.
    pub(super) fn accept(&mut self, version: BanVersion, change: T, now: Instant) -> LogStep<T> {
        if let Some(held) = &mut self.during_snapshot {
            if held.len() >= MAX_DURING_SNAPSHOT {
                return self.resync();
            }
            held.push((version, change));
            return LogStep::Wait;
        }
        let Some(applied) = &mut self.applied else { return self.resync() };
        let begins_epoch = applied.epoch.is_empty() && version.number == 1;
        if applied.epoch != version.epoch && !begins_epoch {
            return self.resync();
        }
        if version.number <= applied.number {
            return LogStep::Known;
        }
        if version.number > applied.number + 1 {
            if self.early.len() >= MAX_EARLY && !self.early.contains_key(&version.number) {
                return self.resync();
            }
            self.wait_for(version.number, now);
            self.early.insert(version.number, change);
            return LogStep::Wait;
        }
        *applied = version;
        let mut changes = vec![change];
        while let Some(change) = self.early.remove(&(applied.number + 1)) {
            applied.number += 1;
            changes.push(change);
        }
        if self.awaited.is_some_and(|(number, _)| number <= applied.number) {
            // The early changes still wait for another one.
            self.awaited = self.early.last_key_value().map(|(&last, _)| (last, now + PATIENCE));
        }
        LogStep::Apply(changes)
    }

    /// All changes up to this version are applied.
    pub(super) fn applied(&self) -> Option<&BanVersion> {
        self.applied.as_ref()
    }

    /// Compares the log with the version in Redis. `before`: [`ChangeLog::applied`] when Redis was asked, since changes
    /// may have arrived after its reply.
    pub(super) fn observe(
        &mut self,
        newest: &BanVersion,
        before: Option<&BanVersion>,
        now: Instant,
    ) -> Observation {
        let Some(applied) = &self.applied else { return Observation::Resync };
        let is_overtaken = before.is_some_and(|before| {
            before.epoch == newest.epoch && (before.number..=applied.number).contains(&newest.number)
        });
        if applied == newest || applied.epoch == newest.epoch && is_overtaken {
            return Observation::Current;
        }
        if applied.epoch == newest.epoch && newest.number > applied.number {
            self.wait_for(newest.number, now);
            return Observation::Wait;
        }
        self.needs_snapshot = true;
        Observation::Resync
    }

    /// Whether Redis, at `version`, has lost changes that are applied here.
    pub(super) fn is_lost_at(&self, version: &BanVersion) -> bool {
        let applied = self.applied.as_ref().filter(|applied| !applied.epoch.is_empty());
        applied.is_some_and(|applied| applied.epoch != version.epoch || version.number < applied.number)
    }

    /// Changes may have been missed.
    pub(super) fn miss(&mut self) {
        self.needs_snapshot = true;
    }

    /// Whether to read a snapshot: one is needed, or an awaited change did not arrive in time.
    pub(super) fn needs_snapshot(&mut self, now: Instant) -> bool {
        if self.awaited.take_if(|(_, until)| *until <= now).is_some() {
            self.needs_snapshot = true;
        }
        self.needs_snapshot
    }

    /// Begins a snapshot: changes that arrive meanwhile are kept.
    pub(super) fn begin_snapshot(&mut self) {
        self.needs_snapshot = false;
        self.during_snapshot = Some(Vec::new());
    }

    /// The snapshot could not be read and is still needed.
    pub(super) fn abort_snapshot(&mut self) {
        self.needs_snapshot = true;
        self.during_snapshot = None;
    }

    /// Ends a snapshot, which contains all changes up to `version` and perhaps later ones. Returns the changes to apply
    /// to it.
    pub(super) fn finish_snapshot(&mut self, version: BanVersion, now: Instant) -> Vec<T> {
        self.applied = Some(version);
        self.early.clear();
        self.awaited = None;
        let held = self.during_snapshot.take().unwrap_or_default();
        let mut changes = Vec::new();
        for (version, change) in held {
            if let LogStep::Apply(next) = self.accept(version, change, now) {
                changes.extend(next);
            }
        }
        changes
    }

    fn resync(&mut self) -> LogStep<T> {
        self.needs_snapshot = true;
        LogStep::Resync
    }

    /// Waits for the change of this number, which was made.
    fn wait_for(&mut self, number: u64, now: Instant) {
        self.awaited.get_or_insert((number, now + PATIENCE));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A key and its new value; `None` removes it.
    type Change = (u8, Option<u32>);
    type Table = BTreeMap<u8, u32>;

    fn apply(table: &mut Table, (key, value): Change) {
        match value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }

    /// The content of Redis, and the history of all changes.
    struct Server {
        epoch: u32,
        table: Table,
        /// Changes in this epoch.
        count: u64,
        history: Vec<(BanVersion, Change)>,
    }

    impl Server {
        fn new() -> Self {
            Self { epoch: 0, table: Table::new(), count: 0, history: Vec::new() }
        }

        fn version(&self) -> BanVersion {
            let epoch = if self.count == 0 { String::new() } else { self.epoch.to_string() };
            BanVersion { epoch, number: self.count }
        }

        fn make(&mut self, change: Change) {
            apply(&mut self.table, change);
            self.count += 1;
            self.history.push((self.version(), change));
        }

        fn lose_all(&mut self) {
            (self.epoch, self.count, self.table) = (self.epoch + 1, 0, Table::new());
        }
    }

    /// An instance that follows it.
    struct Follower {
        log: ChangeLog<Change>,
        table: Table,
        now: Instant,
        /// The first page of a snapshot that is being read: the version, and the keys below [`SPLIT`].
        page: Option<(BanVersion, Table)>,
    }

    /// Keys from here on are on the second page of a snapshot.
    const SPLIT: u8 = 4;

    impl Follower {
        fn new() -> Self {
            Self { log: ChangeLog::new(), table: Table::new(), now: Instant::now(), page: None }
        }

        fn hear(&mut self, (version, change): (BanVersion, Change)) {
            if let LogStep::Apply(changes) = self.log.accept(version, change, self.now) {
                changes.into_iter().for_each(|change| apply(&mut self.table, change));
            }
        }

        /// Begins to read a snapshot, or ends it.
        fn read(&mut self, server: &Server) {
            let Some((version, mut table)) = self.page.take() else {
                self.log.begin_snapshot();
                let first = server.table.range(..SPLIT).map(|(&key, &value)| (key, value));
                self.page = Some((server.version(), first.collect()));
                return;
            };
            // Without any change there is no second page.
            if version.number > 0 {
                table.extend(server.table.range(SPLIT..).map(|(&key, &value)| (key, value)));
            }
            self.table = table;
            let late = self.log.finish_snapshot(version, self.now);
            late.into_iter().for_each(|change| apply(&mut self.table, change));
        }

        fn fail_to_read(&mut self) {
            if self.page.take().is_some() {
                self.log.abort_snapshot();
            }
        }

        fn look(&mut self, server: &Server) {
            let before = self.log.applied().cloned();
            self.log.observe(&server.version(), before.as_ref(), self.now);
        }
    }

    #[derive(Debug, Clone)]
    enum Event {
        Make(Change),
        LoseAll,
        /// Delivers a change, by its index in the history.
        Deliver(prop::sample::Index),
        Read,
        FailToRead,
        Look,
        Miss,
        Pass(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        (0..2 * SPLIT, prop::option::weighted(0.7, any::<u32>()))
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => change().prop_map(Event::Make),
            16 => any::<prop::sample::Index>().prop_map(Event::Deliver),
            3 => Just(Event::Read),
            1 => Just(Event::FailToRead),
            1 => Just(Event::LoseAll),
            1 => Just(Event::Look),
            1 => Just(Event::Miss),
            1 => (0..300_u64).prop_map(Event::Pass),
        ]
    }

    fn version(epoch: &str, number: u64) -> BanVersion {
        BanVersion { epoch: epoch.to_owned(), number }
    }

    /// A log that has applied all changes up to this version.
    fn log_at(epoch: &str, number: u64) -> ChangeLog<u64> {
        let mut log = ChangeLog::new();
        log.begin_snapshot();
        assert!(log.finish_snapshot(version(epoch, number), Instant::now()).is_empty());
        log
    }

    proptest! {
        /// After any sequence of deliveries, losses and reads: once no snapshot is needed and all changes have arrived,
        /// the table equals the content of Redis. Missing changes are found by reading the version and waiting.
        #[test]
        fn the_table_becomes_what_redis_holds(
            events in prop::collection::vec(event(), 0..200),
            order in any::<u64>(),
            are_delivered in any::<bool>(),
        ) {
            let (mut server, mut follower) = (Server::new(), Follower::new());
            for event in events {
                match event {
                    Event::Make(change) => server.make(change),
                    Event::LoseAll => server.lose_all(),
                    Event::Deliver(index) if !server.history.is_empty() => {
                        follower.hear(index.get(&server.history).clone());
                    }
                    Event::Deliver(_) => {}
                    Event::Read => follower.read(&server),
                    Event::FailToRead => follower.fail_to_read(),
                    Event::Look => follower.look(&server),
                    Event::Miss => follower.log.miss(),
                    Event::Pass(millis) => follower.now += Duration::from_millis(millis),
                }
            }
            if follower.page.is_some() {
                follower.read(&server);
            }
            if are_delivered {
                let mut all = server.history.clone();
                all.sort_by_key(|(version, _)| version.number.wrapping_mul(order | 1));
                all.into_iter().for_each(|message| follower.hear(message));
            }
            // An instance that missed the loss notices it by the version.
            follower.look(&server);
            follower.now += PATIENCE;
            if follower.log.needs_snapshot(follower.now) {
                follower.read(&server);
                follower.read(&server);
                prop_assert!(!follower.log.needs_snapshot(follower.now));
            }
            prop_assert_eq!(&follower.table, &server.table);
            let applied = follower.log.applied().cloned();
            prop_assert_eq!(applied, Some(server.version()));
        }

        /// Without losses, delivery in any order with any repetition needs no snapshot, and each change is applied
        /// once, in order.
        #[test]
        fn each_change_is_applied_once_and_in_order(
            order in Just((1..=60_u64).collect::<Vec<_>>()).prop_shuffle(),
            again in prop::collection::vec(1..=60_u64, 0..60),
        ) {
            let (mut log, now) = (log_at("e", 0), Instant::now());
            let mut applied = Vec::new();
            for (index, number) in order.into_iter().enumerate() {
                for number in [Some(number), again.get(index).copied()].into_iter().flatten() {
                    match log.accept(version("e", number), number, now) {
                        LogStep::Apply(changes) => applied.extend(changes),
                        LogStep::Wait | LogStep::Known => {}
                        LogStep::Resync => panic!("{number} asks for a snapshot"),
                    }
                }
            }
            prop_assert!(!log.needs_snapshot(now + PATIENCE));
            prop_assert_eq!(applied, (1..=60).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_gap_is_waited_for_and_then_asks_for_a_snapshot() {
        let (mut log, now) = (log_at("e", 3), Instant::now());
        assert_eq!(log.accept(version("e", 5), 5, now), LogStep::Wait);
        assert!(!log.needs_snapshot(now + PATIENCE / 2));
        assert!(log.needs_snapshot(now + PATIENCE));
        assert_eq!(
            log.accept(version("e", 4), 4, now),
            LogStep::Apply(vec![4, 5]),
            "late is better than never"
        );
    }

    #[test]
    fn a_second_gap_is_waited_for_from_the_end_of_the_first() {
        let (mut log, now) = (log_at("e", 0), Instant::now());
        for number in [2, 4] {
            assert_eq!(log.accept(version("e", number), number, now), LogStep::Wait);
        }
        let later = now + PATIENCE / 2;
        assert_eq!(log.accept(version("e", 1), 1, later), LogStep::Apply(vec![1, 2]));
        assert!(!log.needs_snapshot(now + PATIENCE));
        assert!(log.needs_snapshot(later + PATIENCE));
    }

    #[test]
    fn more_early_changes_than_may_wait_ask_for_a_snapshot() {
        let (mut log, now) = (log_at("e", 0), Instant::now());
        for number in 2..2 + MAX_EARLY as u64 {
            assert_eq!(log.accept(version("e", number), number, now), LogStep::Wait);
        }
        assert_eq!(log.accept(version("e", 2), 2, now), LogStep::Wait, "that one waits already");
        assert_eq!(log.accept(version("e", 9_999), 9_999, now), LogStep::Resync);
        assert!(log.needs_snapshot(now));
    }

    #[test]
    fn more_changes_than_fit_during_a_snapshot_ask_for_another() {
        let (mut log, now) = (log_at("e", 0), Instant::now());
        log.begin_snapshot();
        for number in 1..=MAX_DURING_SNAPSHOT as u64 {
            assert_eq!(log.accept(version("e", number), number, now), LogStep::Wait);
        }
        assert_eq!(log.accept(version("e", 70_000), 70_000, now), LogStep::Resync);
        assert_eq!(log.finish_snapshot(version("e", 0), now).len(), MAX_DURING_SNAPSHOT);
        assert!(log.needs_snapshot(now));
    }

    #[test]
    fn the_version_in_redis_is_compared_with_the_applied_one() {
        let (mut log, now) = (log_at("e", 3), Instant::now());
        let before = log.applied().cloned();
        let mut observe = |newest| log.observe(&newest, before.as_ref(), now);
        assert_eq!(observe(version("e", 3)), Observation::Current);
        assert_eq!(observe(version("e", 4)), Observation::Wait);
        for lost in [version("e", 2), version("f", 1), version("", 0)] {
            assert_eq!(observe(lost), Observation::Resync);
        }
        assert_eq!(log_at("", 0).observe(&version("e", 2), None, now), Observation::Resync);
        assert_eq!(ChangeLog::<u64>::new().observe(&version("e", 2), None, now), Observation::Resync);
    }

    #[test]
    fn applied_changes_that_redis_no_longer_has_are_lost() {
        for (newest, is_lost) in
            [(("e", 3), false), (("e", 4), false), (("e", 2), true), (("f", 9), true), (("", 0), true)]
        {
            assert_eq!(log_at("e", 3).is_lost_at(&version(newest.0, newest.1)), is_lost, "{newest:?}");
        }
        assert!(!log_at("", 0).is_lost_at(&version("e", 2)), "there was nothing");
        assert!(!ChangeLog::<u64>::new().is_lost_at(&version("e", 2)), "nothing was known");
    }

    #[test]
    fn an_answer_that_a_change_has_overtaken_is_no_loss() {
        let (mut log, now) = (log_at("e", 3), Instant::now());
        let before = log.applied().cloned();
        assert_eq!(log.accept(version("e", 4), 4, now), LogStep::Apply(vec![4]));
        assert_eq!(log.observe(&version("e", 3), before.as_ref(), now), Observation::Current);
        assert!(!log.needs_snapshot(now));
    }

    #[test]
    fn another_epoch_asks_for_a_snapshot_unless_it_is_the_first() {
        let now = Instant::now();
        assert_eq!(log_at("", 0).accept(version("e", 1), 1, now), LogStep::Apply(vec![1]));
        assert_eq!(log_at("", 0).accept(version("e", 2), 2, now), LogStep::Resync);
        assert_eq!(log_at("e", 1).accept(version("f", 1), 1, now), LogStep::Resync);
        assert_eq!(ChangeLog::new().accept(version("e", 1), 1, now), LogStep::Resync);
    }

    #[test]
    fn a_change_missed_while_a_snapshot_is_read_needs_another_snapshot() {
        let (mut log, now) = (log_at("e", 1), Instant::now());
        log.begin_snapshot();
        log.miss();
        assert!(log.finish_snapshot(version("e", 2), now).is_empty());
        assert!(log.needs_snapshot(now));
    }
}
