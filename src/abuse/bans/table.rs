//! All bans that hold, shared by all workers.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};

use super::{
    Ban, BanChange, BanUpdate, Key, Ladder, MANUAL, MOST, Offense,
    index::{BanIndex, BanPosition, position},
    ladders::Ladders,
    window,
};
use crate::{
    abuse::AuditLog,
    limit::Clock,
    telemetry::{Event, Events, metrics::Metrics},
};

/// Bans that are looked at a call to see whether they have ended.
const SWEEP: usize = 1_000;
/// Bans looked at before the lock is given to whoever else waits: workers wait for it while a request does.
const STRIDE: usize = 125;
/// Orders that the others are still to be told; the oldest go first.
const ORDERS: usize = 2 * MOST;
/// Keys whose denials wait to be counted. Each worker hands over a bounded number a tick.
const PENDING: usize = 16_384;

/// The bans, and what it takes to give them. Nothing here waits for anything but short locks.
pub struct BanTable {
    clock: Arc<dyn Clock>,
    events: Events,
    audit: Arc<AuditLog>,
    metrics: Arc<Metrics>,
    /// Whether there are other instances to tell.
    is_shared: bool,
    /// How many there are: as long as there are none, that is all that a request looks at.
    count: AtomicUsize,
    index: RwLock<BanIndex>,
    desk: Mutex<Desk>,
    /// Whether denials are counted where the instances share their limits.
    is_shared_counting: AtomicBool,
    /// Whether it was said that there are too many.
    was_full: AtomicBool,
}

/// What waits to be counted, or told.
#[derive(Debug, Default)]
struct Desk {
    /// By the rule's name and the key.
    pending: HashMap<(Arc<str>, Key), Offense>,
    /// What was counted here alone, by the part of the window that it fell into, too: it is counted where all count together
    /// as soon as that can be done.
    alone: HashMap<(Arc<str>, Key, i64), Offense>,
    ladders: Ladders,
    orders: VecDeque<BanUpdate>,
    /// Orders taken off the front of the queue since the start.
    told: u64,
}

impl Desk {
    /// Keeps what is counted here alone. Of too many keys, those that come last are not kept.
    fn keep(&mut self, offense: &Offense) {
        let part = window::part(offense.first, offense.rule.terms.window);
        let key = (Arc::clone(&offense.rule.name), offense.key.clone(), part);
        if let Some(known) = self.alone.get_mut(&key) {
            known.merge(offense);
            return;
        }
        if self.alone.len() >= PENDING {
            let last = offense.last;
            self.alone.retain(|_, known| known.last.saturating_add(known.rule.terms.window) > last);
        }
        if self.alone.len() < PENDING {
            self.alone.insert(key, offense.clone());
        }
    }
}

/// Some of the bans, the one that ends last first.
#[derive(Debug)]
pub struct BanPage {
    pub bans: Vec<Arc<Ban>>,
    /// Whether there are more.
    pub goes_on: bool,
}

impl BanTable {
    /// No bans. `is_shared`: whether there are other instances, which somebody tells of [`BanTable::orders`].
    pub fn new(
        clock: Arc<dyn Clock>,
        events: Events,
        audit: Arc<AuditLog>,
        metrics: Arc<Metrics>,
        is_shared: bool,
    ) -> Self {
        Self {
            clock,
            events,
            audit,
            metrics,
            is_shared,
            count: AtomicUsize::new(0),
            index: RwLock::default(),
            desk: Mutex::default(),
            is_shared_counting: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
        }
    }

    /// Whether nobody is banned. Costs next to nothing.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Calls `found` for each ban of this address or this user that holds at `now`, and for those of longer prefixes first.
    /// `user` is asked for only where users are banned.
    pub fn for_each_match(
        &self,
        address: IpAddr,
        user: impl FnOnce() -> Option<Key>,
        now: i64,
        mut found: impl FnMut(&Arc<Ban>),
    ) {
        if !self.is_empty() {
            self.index.read().for_each_match(address, user, |ban| {
                if ban.holds(now) {
                    found(ban);
                }
            });
        }
    }

    /// Those that hold all of this client, the longest prefix first.
    pub fn covering(&self, client: IpNet) -> Vec<Arc<Ban>> {
        let now = self.clock.now();
        let mut found = self.index.read().covering(client);
        found.retain(|ban| ban.holds(now));
        found
    }

    /// Bans by key.
    pub fn by_key(&self, key: &Key) -> Vec<Arc<Ban>> {
        let now = self.clock.now();
        let index = self.index.read();
        let found = [false, true].into_iter().filter_map(|is_shadow| index.get(key, is_shadow));
        found.filter(|ban| ban.holds(now)).cloned().collect()
    }

    /// Those that `wanted` lets through, the one that ends last first; `most` of them, behind the place `after`.
    pub fn page(
        &self,
        mut after: Option<BanPosition>,
        most: usize,
        wanted: impl Fn(&Ban) -> bool,
    ) -> BanPage {
        let now = self.clock.now();
        let mut bans = Vec::new();
        while bans.len() <= most {
            let index = self.index.read();
            let mut looked_at = 0;
            for ban in index.from(after.take()).take_while(|ban| ban.holds(now)).take(STRIDE) {
                looked_at += 1;
                after = (looked_at == STRIDE).then(|| position(ban));
                if wanted(ban) {
                    bans.push(Arc::clone(ban));
                }
            }
            if after.is_none() {
                break;
            }
        }
        let goes_on = bans.len() > most;
        bans.truncate(most);
        BanPage { bans, goes_on }
    }

    /// All that hold.
    fn all(&self) -> Vec<Arc<Ban>> {
        self.page(None, usize::MAX, |_| true).bans
    }

    /// The place of a ban in [`BanTable::page`].
    pub fn position(ban: &Ban) -> BanPosition {
        position(ban)
    }

    /// How many are enforced, and how many only recorded.
    pub fn totals(&self) -> [u64; 2] {
        self.index.read().totals(self.clock.now())
    }

    /// Bans by hand, for so many microseconds, in the place of what there is for the key. Says whether there was something.
    pub fn ban(&self, key: Key, lasts: i64, reason: String, by: String) -> (Arc<Ban>, bool) {
        let since = self.clock.now();
        let until = since.saturating_add(lasts);
        let ban = Arc::new(Ban { key, since, until, reason, by, level: 0, is_shadow: false });
        let replaced = {
            let mut index = self.index.write();
            if index.len() >= MOST && index.get(&ban.key, false).is_none() {
                self.make_room(&mut index);
            }
            let replaced = index.put(Arc::clone(&ban));
            self.count.store(index.len(), Relaxed);
            replaced
        };
        self.order(BanUpdate::Put(Arc::clone(&ban)));
        self.metrics.ban_issued(MANUAL);
        self.tell(&ban);
        (ban, replaced.is_some_and(|replaced| replaced.holds(since)))
    }

    /// Lifts the bans by a key, and forgets its ladders. Gives how many there were.
    pub fn lift(&self, key: &Key) -> u64 {
        let lifted = self.take(key);
        // Even where none is known here: the others may know better, and ladders are forgotten as well.
        self.order(BanUpdate::Lift(key.clone()));
        lifted
    }

    fn take(&self, key: &Key) -> u64 {
        let lifted = {
            let mut index = self.index.write();
            let lifted = index.lift(key);
            self.count.store(index.len(), Relaxed);
            lifted
        };
        let mut desk = self.desk.lock();
        desk.ladders.forget(key);
        desk.pending.retain(|(_, of), _| of != key);
        desk.alone.retain(|(_, of, _), _| of != key);
        drop(desk);
        if lifted > 0 {
            self.events.publish(|| Event::Lifted { key: key.to_string() });
        }
        lifted
    }

    /// Takes what a worker noted. `dropped`: denials that it had no room for.
    pub(super) fn add_offenses(&self, offenses: impl Iterator<Item = Offense>, mut dropped: u64) {
        let mut desk = self.desk.lock();
        for offense in offenses {
            let key = (Arc::clone(&offense.rule.name), offense.key.clone());
            if let Some(known) = desk.pending.get_mut(&key) {
                known.merge(&offense);
            } else if desk.pending.len() < PENDING {
                desk.pending.insert(key, offense);
            } else {
                dropped += offense.count;
            }
        }
        drop(desk);
        if dropped > 0 {
            self.metrics.add_abuse_dropped(dropped);
        }
    }

    /// Looks after what has ended, and counts what waits to be counted, unless that is done where instances share their
    /// limits. To be called every 100 ms.
    pub fn tick(&self) {
        let now = self.clock.now();
        for _ in 0..SWEEP / STRIDE {
            if self.is_empty() {
                break;
            }
            let mut index = self.index.write();
            let goes_on = index.expire(now, STRIDE);
            self.count.store(index.len(), Relaxed);
            if !goes_on {
                break;
            }
        }
        self.desk.lock().ladders.shrink(now);
        if !self.is_shared_counting.load(Relaxed) {
            self.count_locally(self.take_pending(usize::MAX));
        }
    }

    /// Says whether somebody takes [`BanTable::offenses`] and counts them.
    pub fn set_shared_counting(&self, is_shared_counting: bool) {
        if self.is_shared_counting.swap(is_shared_counting, Relaxed) != is_shared_counting
            && is_shared_counting
        {
            // Ladders are where all count together, and so is from now on what was counted alone.
            self.desk.lock().ladders.clear();
        }
    }

    /// What waits to be counted, so much of it. Whoever takes it counts it.
    pub fn take_pending(&self, most: usize) -> Vec<Offense> {
        let mut desk = self.desk.lock();
        if most >= desk.pending.len() {
            let pending = std::mem::take(&mut desk.pending);
            drop(desk);
            return pending.into_values().collect();
        }
        desk.pending.extract_if(|_, _| true).take(most).map(|(_, offense)| offense).collect()
    }

    /// What was counted by [`BanTable::count_locally`] and may still count, so much of it, for whoever counts for all.
    pub fn take_backlog(&self, most: usize) -> Vec<Offense> {
        let now = self.clock.now();
        let counts = |offense: &Offense| offense.last.saturating_add(offense.rule.terms.window) > now;
        let mut desk = self.desk.lock();
        let taken = desk.alone.extract_if(|_, _| true).map(|(_, offense)| offense);
        taken.filter(counts).take(most).collect()
    }

    /// Counts by itself, and bans whoever has had too much. Where there are others, it is counted with them later.
    pub fn count_locally(&self, offenses: Vec<Offense>) {
        if self.is_shared {
            let mut desk = self.desk.lock();
            offenses.iter().for_each(|offense| desk.keep(offense));
        }
        self.count_locally_once(offenses);
    }

    /// [`BanTable::count_locally`] of what may be counted for all already: it is not counted again.
    pub fn count_locally_once(&self, offenses: Vec<Offense>) {
        let now = self.clock.now();
        for offense in offenses {
            let is_shadow = offense.rule.is_shadow;
            let known = self.index.read().get(&offense.key, is_shadow).cloned();
            // Ladders are where all count together: the step that a ban is on tells as much.
            let known = known
                .filter(|ban| ban.by == *offense.rule.name)
                .map(|ban| Ladder::after(ban.level, ban.until.saturating_sub(ban.since), ban.until));
            let jitter = offense.rule.draw();
            let step = self.desk.lock().ladders.count(&offense, jitter, now, known.unwrap_or_default());
            let Some(step) = step else { continue };
            let ban = Arc::new(Ban {
                key: offense.key,
                since: now,
                until: now.saturating_add(step.lasts),
                reason: offense.rule.reason.clone(),
                by: offense.rule.name.to_string(),
                level: step.level,
                is_shadow,
            });
            if self.put(&ban) {
                self.order(BanUpdate::Merge(Arc::clone(&ban)));
                self.record_issued(&ban);
            }
        }
    }

    /// Notes that a rule has banned somebody, on account of this instance: once, wherever it was counted.
    pub fn record_issued(&self, ban: &Ban) {
        self.metrics.ban_issued(ban.name());
        let lasts = ban.until.saturating_sub(ban.since);
        // To the second: people read it.
        let lasts =
            crate::telemetry::time::format_duration(lasts.saturating_add(500_000) / 1_000_000 * 1_000_000);
        let mode = if ban.is_shadow { ", shadow" } else { "" };
        let detail = format!("for {lasts}, {} in a row{mode}: {}", ban.level, ban.reason);
        self.audit.write(&ban.by, "ban", &ban.key.to_string(), &detail);
    }

    /// Puts a ban in the place of what there is, unless that ends later, or there are too many that do.
    fn put(&self, ban: &Arc<Ban>) -> bool {
        let now = self.clock.now();
        let mut index = self.index.write();
        if let Some(known) = index.get(&ban.key, ban.is_shadow) {
            if known.until >= ban.until {
                return false;
            }
        } else if index.len() >= MOST {
            index.expire(now, SWEEP);
            if index.len() >= MOST && index.first().is_some_and(|first| first.until >= ban.until) {
                self.count_dropped();
                return false;
            }
            if index.len() >= MOST {
                self.make_room(&mut index);
            }
        }
        index.put(Arc::clone(ban));
        self.count.store(index.len(), Relaxed);
        drop(index);
        self.tell(ban);
        true
    }

    /// The one that ends first goes.
    fn make_room(&self, index: &mut BanIndex) {
        if let Some(first) = index.first().cloned() {
            index.remove(&first.key, first.is_shadow);
            self.count_dropped();
        }
    }

    /// A ban was given up, or not given, since there are too many.
    pub fn count_dropped(&self) {
        self.metrics.add_ban_dropped();
        if !self.was_full.swap(true, Relaxed) {
            tracing::warn!(
                "the limit of {MOST} bans is reached: bans that end soonest are dropped or not issued"
            );
        }
    }

    fn tell(&self, ban: &Ban) {
        self.events.publish(|| Event::Banned {
            key: ban.key.to_string(),
            until: ban.until,
            reason: ban.reason.clone(),
            by: ban.by.clone(),
            level: ban.level,
            is_shadow: ban.is_shadow,
        });
    }

    fn order(&self, order: BanUpdate) {
        if !self.is_shared {
            return;
        }
        let mut desk = self.desk.lock();
        if desk.orders.len() >= ORDERS {
            desk.orders.pop_front();
            desk.told += 1;
        }
        desk.orders.push_back(order);
    }
}

/// What instances that share their limits tell one another.
impl BanTable {
    /// What the others are still to be told, in order, and a mark for [`BanTable::told`]: some of it.
    pub fn orders(&self, most: usize) -> (Vec<BanUpdate>, u64) {
        let desk = self.desk.lock();
        (desk.orders.iter().take(most).cloned().collect(), desk.told)
    }

    /// They were told so many of the orders that were given with this mark.
    pub fn told(&self, count: usize, mark: u64) {
        let mut desk = self.desk.lock();
        // Some may have had to go meanwhile.
        let gone = usize::try_from(desk.told - mark).unwrap_or(usize::MAX);
        let count = count.saturating_sub(gone).min(desk.orders.len());
        desk.orders.drain(..count);
        desk.told += count as u64;
    }

    /// They have lost what they knew: they are to be told of everything that is held here.
    pub fn resend_all(&self) {
        self.all().into_iter().for_each(|ban| self.order(BanUpdate::Merge(ban)));
    }

    /// Something has changed for all. Says what is new to this instance: a ban that it did not know so.
    pub fn apply(&self, change: BanChange) {
        match change {
            BanChange::Banned(ban) => {
                let ban = Arc::new(ban);
                let replaced = {
                    let mut index = self.index.write();
                    let replaced = index.put(Arc::clone(&ban));
                    self.count.store(index.len(), Relaxed);
                    replaced
                };
                if replaced.is_none_or(|replaced| !is_same(&replaced, &ban)) {
                    self.tell(&ban);
                }
            }
            BanChange::Lifted(key) => drop(self.take(&key)),
            BanChange::Dropped { key, is_shadow } => {
                let mut index = self.index.write();
                index.remove(&key, is_shadow);
                self.count.store(index.len(), Relaxed);
                drop(index);
                self.count_dropped();
            }
        }
    }

    /// These are all that there are, but for what the others are still to be told. `is_first`: nothing was known before.
    pub fn replace_all(&self, bans: impl IntoIterator<Item = Ban>, is_first: bool) {
        let mut fresh = BanIndex::default();
        for ban in bans {
            if fresh.len() < MOST || fresh.get(&ban.key, ban.is_shadow).is_some() {
                fresh.put(Arc::new(ban));
            }
        }
        for order in &self.desk.lock().orders {
            match order {
                BanUpdate::Put(ban) => drop(fresh.put(Arc::clone(ban))),
                BanUpdate::Merge(ban) => {
                    let ends_first =
                        fresh.get(&ban.key, ban.is_shadow).is_none_or(|known| known.until < ban.until);
                    if ends_first {
                        fresh.put(Arc::clone(ban));
                    }
                }
                BanUpdate::Lift(key) => drop(fresh.lift(key)),
            }
        }
        let known = {
            let mut index = self.index.write();
            let known = std::mem::replace(&mut *index, fresh);
            self.count.store(index.len(), Relaxed);
            known
        };
        if !is_first && self.events.has_subscribers() {
            self.announce_differences(&known);
        }
    }

    fn announce_differences(&self, known: &BanIndex) {
        let all = self.all();
        let is_new =
            |ban: &&Arc<Ban>| known.get(&ban.key, ban.is_shadow).is_none_or(|before| !is_same(before, ban));
        all.iter().filter(is_new).for_each(|ban| self.tell(ban));
        let now = self.clock.now();
        let is_held = |ban: &Ban| self.index.read().get(&ban.key, ban.is_shadow).is_some();
        let gone = known.from(None).filter(|ban| ban.holds(now) && !is_held(ban));
        gone.for_each(|ban| self.events.publish(|| Event::Lifted { key: ban.key.to_string() }));
    }
}

/// Whether two of a key are one, as far as clocks tell: what is read back has gone through another's.
fn is_same(one: &Ban, other: &Ban) -> bool {
    const APART: u64 = 5_000_000;
    one.by == other.by
        && one.level == other.level
        && one.reason == other.reason
        && one.until.abs_diff(other.until) < APART
}

impl std::fmt::Debug for BanTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BanTable").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{OffenseRecorder, rule::testing::rule},
        *,
    };
    use crate::{limit::ManualClock, telemetry::testing};

    const SECOND: i64 = 1_000_000;
    const NOW: i64 = 1_783_080_001 * SECOND;

    fn bans(is_shared: bool) -> (Arc<BanTable>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(NOW));
        let audit = AuditLog::new(Arc::clone(&clock) as Arc<dyn Clock>, "one", false);
        let metrics = Metrics::new(&testing::config(), 1);
        let of = Arc::clone(&clock) as Arc<dyn Clock>;
        (Arc::new(BanTable::new(of, Events::new(), Arc::new(audit), metrics, is_shared)), clock)
    }

    fn key(n: usize) -> Key {
        Key::User(n.to_string().into())
    }

    /// Gives bans of this length to the first few users.
    fn give_first(bans: &BanTable, users: usize, seconds: i64) {
        for n in 0..users {
            give(bans, key(n), seconds);
        }
    }

    fn give(bans: &BanTable, key: Key, seconds: i64) -> bool {
        bans.ban(key, seconds * SECOND, String::new(), "operator".into()).1
    }

    fn held(bans: &BanTable) -> Vec<String> {
        bans.page(None, MOST, |_| true).bans.iter().map(|ban| ban.key.to_string()).collect()
    }

    #[test]
    fn what_workers_note_bans_and_the_next_ban_is_longer() {
        let (bans, clock) = bans(false);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        let mut lasts = Vec::new();
        for _ in 0..3 {
            for n in 0..3 {
                assert!(held(&bans).is_empty(), "{n} are too few");
                offenses.note(&rule(), "ip:203.0.113.7".into(), clock.now());
                offenses.flush();
                bans.tick();
            }
            let ban = Arc::clone(&bans.page(None, 1, |_| true).bans[0]);
            lasts.push(((ban.until - ban.since) / SECOND, ban.level));
            clock.set(ban.until);
            bans.tick();
            assert!(bans.is_empty());
        }
        assert_eq!(lasts, [(10, 1), (20, 2), (40, 3)]);
        assert_eq!(bans.audit.entries(None, 9).len(), 3);
    }

    #[test]
    fn what_was_counted_alone_is_counted_with_the_others_later_once() {
        let (bans, clock) = bans(true);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        let deny = |user: &str| {
            offenses.note(&rule(), user.into(), clock.now());
            offenses.flush();
        };
        for seconds in [0, 1, 61] {
            clock.set(NOW + seconds * SECOND);
            deny("user:1");
            bans.tick();
        }
        deny("user:2");
        bans.count_locally_once(bans.take_pending(9));
        deny("user:3");
        bans.tick();
        bans.set_shared_counting(true);
        bans.lift(&Key::from_canonical("user:3").unwrap());
        let late = bans.take_backlog(9);
        let told: Vec<_> =
            late.iter().map(|offense| (offense.key.to_string(), offense.count, offense.first)).collect();
        assert_eq!(
            told,
            [("user:1".to_owned(), 1, NOW + 61 * SECOND)],
            "the others are over, or may be known"
        );
        assert_eq!(bans.take_backlog(9), []);
        deny("user:1");
        bans.tick();
        assert_eq!(bans.take_pending(9).len(), 1, "they count together again");
        (0..2 * PENDING).for_each(|n| bans.count_locally(vec![Offense { key: key(n), ..late[0].clone() }]));
        assert_eq!(bans.desk.lock().alone.len(), PENDING);
    }

    #[test]
    fn a_list_is_looked_through_stride_by_stride() {
        let (bans, _) = bans(false);
        give_first(&bans, 2 * STRIDE, 60);
        assert_eq!(bans.all().len(), 2 * STRIDE);
        give(&bans, key(2 * STRIDE), 50);
        assert_eq!(bans.all().len(), 2 * STRIDE + 1);
        let last = bans.page(None, 1, |ban| ban.until == NOW + 50 * SECOND);
        assert_eq!((last.bans.len(), last.goes_on), (1, false));
        let page = bans.page(None, STRIDE, |_| true);
        let rest = bans.page(page.bans.last().map(|ban| position(ban)), usize::MAX, |_| true);
        assert_eq!((page.goes_on, page.bans.len() + rest.bans.len()), (true, 2 * STRIDE + 1));
        assert!(bans.page(None, 1, |_| true).bans.len() == 1);
    }

    #[test]
    fn lifting_forgets_what_was_counted() {
        let (bans, clock) = bans(false);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        for _ in 0..2 {
            for _ in 0..2 {
                offenses.note(&rule(), "ip:203.0.113.7".into(), clock.now());
            }
            offenses.flush();
            bans.tick();
            assert_eq!(bans.lift(&Key::from_canonical("ip:203.0.113.7").unwrap()), 0);
        }
        assert!(bans.is_empty());
    }

    #[test]
    fn of_too_many_the_one_that_ends_first_goes() {
        let (bans, _) = bans(false);
        for n in 0..MOST {
            give(&bans, key(n), 60 + n as i64);
        }
        let ban = |seconds| {
            let until = NOW + seconds * SECOND;
            let (reason, by) = (String::new(), "bans.hammering".to_owned());
            Arc::new(Ban { key: key(MOST), since: NOW, until, reason, by, level: 1, is_shadow: false })
        };
        assert!(!bans.put(&ban(60)), "all others end later");
        assert!(bans.put(&ban(61)));
        assert!(bans.by_key(&key(0)).is_empty() && !bans.by_key(&key(MOST)).is_empty());
        assert!(!give(&bans, Key::from_canonical("user:x").unwrap(), 1), "a hand's ban finds room");
        assert_eq!(bans.totals(), [MOST as u64, 0]);
    }

    #[test]
    fn others_are_told_in_order_and_once() {
        let (bans, _) = bans(true);
        give_first(&bans, 3, 60);
        let (some, mark) = bans.orders(2);
        bans.lift(&key(0));
        bans.told(some.len(), mark);
        let left: Vec<_> = bans.orders(9).0.iter().map(|order| order.key().to_string()).collect();
        assert_eq!(left, ["user:2", "user:0"]);
        let (_, mark) = bans.orders(9);
        bans.told(2, mark);
        bans.told(2, mark);
        assert_eq!(bans.orders(9).0, []);
    }

    #[test]
    fn what_is_read_takes_the_place_of_all_but_what_is_still_to_be_told() {
        let (bans, _) = bans(true);
        give_first(&bans, 3, 60);
        let known = |n: usize, until| Ban {
            key: key(n),
            since: NOW,
            until: NOW + until * SECOND,
            reason: String::new(),
            by: "operator".into(),
            level: 0,
            is_shadow: false,
        };
        let (orders, mark) = bans.orders(9);
        bans.told(orders.len(), mark);
        give(&bans, key(3), 50);
        bans.lift(&key(4));
        bans.replace_all([known(1, 70), known(4, 80)], false);
        assert_eq!(held(&bans), ["user:1", "user:3"]);
        bans.apply(BanChange::Lifted(key(1)));
        bans.apply(BanChange::Dropped { key: key(3), is_shadow: false });
        assert!(bans.is_empty());
    }
}
