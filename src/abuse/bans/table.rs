//! All bans in force, shared by all workers.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};

use super::{
    Ban, BanClass, BanUpdate, BannedKey, Ladder, MAX_BANS, Offense,
    announcements::Announcements,
    index::{BanIndex, BanPosition, position},
    lifts::Lifts,
    offense_counter::OffenseCounter,
};
use crate::{
    abuse::{AuditLog, UserNaming, outbox::Outbox},
    changes,
    limit::Clock,
    telemetry::{Events, metrics::Metrics},
};

/// Maximum number of ended bans removed per tick.
const MAX_EXPIRED: usize = 1_000;
/// Bans examined under one lock, because a worker that waits for it delays a request.
const MAX_PER_LOCK: usize = 125;
/// Updates by operators, and by rules, that wait to be sent to the other instances; the oldest are dropped first.
const MAX_UPDATES: usize = 2 * MAX_BANS;

/// The bans, and everything needed to issue them. Nothing here waits, except for short locks; no two are held at
/// once.
pub struct BanTable {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) announcements: Announcements,
    /// Whether there are other instances.
    pub(super) is_shared: bool,
    /// The number of bans. While it is 0, a request examines nothing else.
    count: AtomicUsize,
    addresses_banned: AtomicU64,
    enforced: AtomicU64,
    pub(super) index: RwLock<BanIndex>,
    counter: Mutex<OffenseCounter>,
    /// Whether offenses are counted where the instances share their limits.
    is_shared_counting: AtomicBool,
    /// By class: operators, then rules.
    pub(super) outbox: Mutex<Outbox<BanUpdate, 2>>,
    pub(super) lifts: Mutex<Lifts>,
    /// The form of users in bans.
    pub(super) names: RwLock<UserNaming>,
    /// Keys by name that hold here by the pseudonym, and that other instances may need.
    named: Mutex<HashSet<BannedKey>>,
    /// Whether operators were told that some do.
    warned_of_names: AtomicBool,
}

/// A page of bans, the one that ends last first.
#[derive(Debug)]
pub struct BanPage {
    pub bans: Vec<Arc<Ban>>,
    /// Whether there are more.
    pub has_more: bool,
}

impl BanTable {
    /// An empty table. `is_shared`: whether there are other instances, to which the monitor sends
    /// [`BanTable::pending_updates`].
    pub fn new(
        clock: Arc<dyn Clock>,
        events: Events,
        audit: Arc<AuditLog>,
        metrics: Arc<Metrics>,
        is_shared: bool,
    ) -> Self {
        Self {
            clock,
            announcements: Announcements::new(events, audit, metrics),
            is_shared,
            count: AtomicUsize::new(0),
            addresses_banned: AtomicU64::new(0),
            enforced: AtomicU64::new(0),
            index: RwLock::default(),
            counter: Mutex::default(),
            is_shared_counting: AtomicBool::new(false),
            outbox: Mutex::new(Outbox::new(MAX_UPDATES)),
            lifts: Mutex::default(),
            names: RwLock::default(),
            named: Mutex::default(),
            warned_of_names: AtomicBool::new(false),
        }
    }

    /// Whether there are no bans. Costs next to nothing.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// A number that grows with each enforced ban of an address. Costs next to nothing.
    pub fn addresses_banned(&self) -> u64 {
        self.addresses_banned.load(Relaxed)
    }

    /// A number that grows with each enforced ban. Costs next to nothing.
    pub fn enforced(&self) -> u64 {
        self.enforced.load(Relaxed)
    }

    /// Calls `found` for each ban of this address or this user that is in force at `now`, the longest prefix first.
    /// `user` is called only if any user is banned.
    pub fn for_each_match(
        &self,
        address: IpAddr,
        user: impl FnOnce() -> Option<BannedKey>,
        now: i64,
        mut found: impl FnMut(&Arc<Ban>),
    ) {
        if !self.is_empty() {
            self.index.read().for_each_match(address, user, |ban| {
                if ban.is_active(now) {
                    found(ban);
                }
            });
        }
    }

    /// The bans whose prefix contains all of this client, the longest prefix first.
    pub fn covering(&self, client: IpNet) -> Vec<Arc<Ban>> {
        let now = self.clock.now();
        let mut found = self.index.read().covering(client);
        found.retain(|ban| ban.is_active(now));
        found
    }

    /// Whether all requests of this client are denied.
    pub fn is_banned(&self, client: IpNet) -> bool {
        !self.is_empty() && self.covering(client).iter().any(|ban| !ban.is_shadow)
    }

    /// The addresses and prefixes whose requests are denied. None of them contains another.
    pub fn banned_prefixes(&self) -> Vec<IpNet> {
        let denies = |ban: &Ban| !ban.is_shadow && matches!(ban.key, BannedKey::Address(_));
        let bans = self.page(None, usize::MAX, denies).bans;
        let prefix = |ban: &Arc<Ban>| match ban.key {
            BannedKey::Address(net) => Some(net),
            BannedKey::User(_) => None,
        };
        IpNet::aggregate(&bans.iter().filter_map(prefix).collect())
    }

    /// The bans of a key.
    pub fn by_key(&self, key: &BannedKey) -> Vec<Arc<Ban>> {
        let now = self.clock.now();
        let index = self.index.read();
        let found = [false, true].into_iter().filter_map(|is_shadow| index.get(key, is_shadow));
        found.filter(|ban| ban.is_active(now)).cloned().collect()
    }

    /// Up to `max` bans that `filter` accepts, the one that ends last first, after the position `after`.
    pub fn page(&self, mut after: Option<BanPosition>, max: usize, filter: impl Fn(&Ban) -> bool) -> BanPage {
        let now = self.clock.now();
        let mut bans = Vec::new();
        while bans.len() <= max {
            let index = self.index.read();
            let mut looked_at = 0;
            let active = index.latest_first(after.take()).take_while(|ban| ban.is_active(now));
            for ban in active.take(MAX_PER_LOCK) {
                looked_at += 1;
                after = (looked_at == MAX_PER_LOCK).then(|| position(ban));
                if filter(ban) {
                    bans.push(Arc::clone(ban));
                }
            }
            if after.is_none() {
                break;
            }
        }
        let has_more = bans.len() > max;
        bans.truncate(max);
        BanPage { bans, has_more }
    }

    /// All bans in force.
    pub(super) fn all(&self) -> Vec<Arc<Ban>> {
        self.page(None, usize::MAX, |_| true).bans
    }

    /// The position of a ban in [`BanTable::page`].
    pub fn position(ban: &Ban) -> BanPosition {
        position(ban)
    }

    /// The number of enforced bans, and of shadow bans.
    pub fn totals(&self) -> [u64; 2] {
        self.index.read().totals(self.clock.now())
    }

    /// Bans a key for an operator for `duration` microseconds, replacing its ban if there is one. Returns whether
    /// there was one.
    pub fn ban(&self, key: BannedKey, duration: i64, reason: String, by: String) -> (Arc<Ban>, bool) {
        let (ban, replaced) = self.enter(key, duration, reason, by);
        self.announcements.publish_banned(&ban);
        (ban, replaced)
    }

    /// Bans many keys, as [`BanTable::ban`] does one, but for those that are banned for longer. The caller announces it.
    pub fn ban_all(&self, keys: impl Iterator<Item = BannedKey>, duration: i64, reason: &str, by: &str) {
        let until = self.clock.now().saturating_add(duration);
        for key in keys {
            if !self.by_key(&key).iter().any(|ban| !ban.is_shadow && ban.until > until) {
                self.enter(key, duration, reason.to_owned(), by.to_owned());
            }
        }
    }

    fn enter(&self, key: BannedKey, duration: i64, reason: String, by: String) -> (Arc<Ban>, bool) {
        let since = self.clock.now();
        let until = since.saturating_add(duration);
        let ban = Arc::new(Ban { key, since, until, reason, by, level: 0, is_shadow: false });
        let replaced = self.change_index(|index| {
            let is_more = index.get(&ban.key, false).is_none_or(|known| !known.is_manual());
            if is_more && index.len_of(BanClass::Manual) >= MAX_BANS {
                self.drop_earliest(index, BanClass::Manual);
            }
            index.insert(Arc::clone(&ban))
        });
        self.lifts.lock().note_ban(&ban.key, ban.since);
        self.queue_update(BanUpdate::Replace(Arc::clone(&ban)));
        self.announcements.record_manual();
        (ban, replaced.is_some_and(|replaced| replaced.is_active(since)))
    }

    /// Names users in the form that `names` gives from now on. If names are not stored, bans by name become bans by
    /// pseudonym. Once all instances are alike, the names are forgotten.
    pub fn set_names(&self, names: UserNaming) {
        *self.names.write() = names.clone();
        self.announcements.audit.set_names(names);
        self.mask_users();
    }

    /// Replaces names that must not be stored by their pseudonyms.
    pub(super) fn mask_users(&self) {
        let names = self.names.read().clone();
        for ban in self.page(None, usize::MAX, |ban| ban.key.masked(&names).is_some()).bans {
            let Some(key) = ban.key.masked(&names) else { continue };
            let masked = Arc::new(Ban { key, ..Ban::clone(&ban) });
            self.change_index(|index| {
                index.remove(&ban.key, ban.is_shadow);
                index.insert(Arc::clone(&masked));
            });
            self.queue_update(BanUpdate::Merge(masked));
            let mut named = self.named.lock();
            if self.is_shared && named.len() < MAX_BANS {
                named.insert(ban.key.clone());
            }
        }
    }

    /// Forgets bans by name, unless another instance has another configuration: it may still name users.
    pub fn forget_names(&self, are_alike: bool) {
        let named = match are_alike {
            true => std::mem::take(&mut *self.named.lock()),
            false => HashSet::new(),
        };
        named.into_iter().for_each(|key| self.queue_update(BanUpdate::Forget(key)));
        let is_needed = !self.named.lock().is_empty();
        if !are_alike && is_needed && !self.warned_of_names.swap(true, Relaxed) {
            tracing::warn!(
                "another instance may store the names of users, which this one hashes (abuse.users): bans by name are kept \
                 for it until all instances have the same configuration"
            );
        }
    }

    /// Takes note that this key, by name, was lifted elsewhere. Returns the key that holds here.
    pub(super) fn lifted_name(&self, key: &BannedKey) -> Option<BannedKey> {
        // One lock at a time.
        let is_named = self.named.lock().remove(key);
        is_named.then(|| key.masked(&self.names.read())).flatten()
    }

    /// Lifts the bans of a key, and removes its ladders. Returns the number of bans.
    pub fn lift(&self, key: &BannedKey) -> u64 {
        let (now, lifted) = (self.clock.now(), self.remove(key));
        if self.is_shared {
            self.lifts.lock().note(key.clone(), now);
        }
        // Even if none is known here: other instances may have one, and also remove its ladders.
        self.queue_update(BanUpdate::Lift { key: key.clone(), at: now });
        let names = self.names.read().clone();
        let is_named = |named: &BannedKey| named.masked(&names).as_ref() == Some(key);
        let named: Vec<_> = self.named.lock().extract_if(is_named).collect();
        named.into_iter().for_each(|key| self.queue_update(BanUpdate::Lift { key, at: now }));
        lifted
    }

    /// Removes the bans of a key, and its counts. Returns the number of bans.
    pub(super) fn remove(&self, key: &BannedKey) -> u64 {
        let removed = self.change_index(|index| index.remove_all(key));
        self.counter.lock().forget(key);
        if removed > 0 {
            self.announcements.publish_lifted(key);
        }
        removed
    }

    /// Changes the index, and the number of bans with it. Announces enforced bans.
    pub(super) fn change_index<T>(&self, change: impl FnOnce(&mut BanIndex) -> T) -> T {
        let mut index = self.index.write();
        let result = change(&mut index);
        self.count.store(index.len(), Relaxed);
        self.addresses_banned.store(index.addresses_banned, Relaxed);
        let before = self.enforced.swap(index.enforced, Relaxed);
        let is_enforced = before != index.enforced;
        drop(index);
        if is_enforced {
            changes::announce();
        }
        result
    }

    /// Inserts a ban by a rule, unless its key has one that ends later or is by an operator, or there are too many
    /// that end later. Returns whether it did.
    fn insert_if_later(&self, ban: &Arc<Ban>) -> bool {
        let (now, class) = (self.clock.now(), ban.class());
        let is_inserted = self.change_index(|index| {
            let known = index.get(&ban.key, ban.is_shadow);
            // A ban by an operator is not replaced.
            let holds = |known: &Ban| known.until >= ban.until || known.is_manual() && known.is_active(now);
            if known.is_some_and(|known| holds(known)) {
                return false;
            }
            let is_more = known.is_none_or(|known| known.class() != class);
            if is_more && index.len_of(class) >= MAX_BANS {
                index.expire(now, MAX_EXPIRED);
                let is_full = index.len_of(class) >= MAX_BANS;
                if is_full && index.earliest(class).is_some_and(|earliest| earliest.until >= ban.until) {
                    self.announcements.record_dropped();
                    return false;
                }
                if is_full {
                    self.drop_earliest(index, class);
                }
            }
            index.insert(Arc::clone(ban));
            true
        });
        if is_inserted {
            self.lifts.lock().note_ban(&ban.key, ban.since);
            self.announcements.publish_banned(ban);
        }
        is_inserted
    }

    /// Drops the ban of this class that ends first, to make room for another.
    fn drop_earliest(&self, index: &mut BanIndex, class: BanClass) {
        if let Some(earliest) = index.earliest(class).cloned() {
            index.remove(&earliest.key, earliest.is_shadow);
            self.announcements.record_dropped();
        }
    }

    /// Counts a ban for which another instance, or Redis, had no room.
    pub fn record_dropped(&self) {
        self.announcements.record_dropped();
    }

    /// Removes ended bans, and counts the offenses that wait, unless they are counted where instances share their
    /// limits. To be called soon after a worker has handed over offenses. Returns whether more bans may have ended.
    pub fn tick(&self) -> bool {
        let now = self.clock.now();
        let expire = |_| !self.is_empty() && self.change_index(|index| index.expire(now, MAX_PER_LOCK));
        let has_more = (0..MAX_EXPIRED / MAX_PER_LOCK).all(expire);
        self.counter.lock().expire(now);
        if !self.is_shared_counting.load(Relaxed) {
            self.count_locally(self.take_pending(usize::MAX));
        }
        has_more
    }
}

/// Counting offenses. Workers hand them over; this instance counts them by itself, or Redis does.
impl BanTable {
    /// Adds a worker's offenses. `dropped`: denials without room there.
    pub(super) fn add_offenses(&self, offenses: impl Iterator<Item = Offense>, dropped: u64) {
        let more = self.counter.lock().add(offenses);
        self.announcements.record_uncounted(dropped + more);
    }

    /// Sets whether the monitor takes [`BanTable::take_pending`] to be counted for all instances.
    pub fn set_shared_counting(&self, is_shared_counting: bool) {
        let was_shared_counting = self.is_shared_counting.swap(is_shared_counting, Relaxed);
        if is_shared_counting && !was_shared_counting {
            // From now on the common ladders in Redis apply, and the backlog is added to them.
            self.counter.lock().clear_ladders();
        }
    }

    /// Takes up to `max` of the offenses that wait, for the caller to count.
    pub fn take_pending(&self, max: usize) -> Vec<Offense> {
        self.counter.lock().take_pending(max)
    }

    /// Takes up to `max` of the offenses that [`BanTable::count_locally`] counted and that are still within their
    /// windows, to be counted for all instances.
    pub fn take_backlog(&self, max: usize) -> Vec<Offense> {
        let now = self.clock.now();
        self.counter.lock().take_backlog(max, now)
    }

    /// Counts offenses by itself, and bans keys with too many. If there are other instances, the offenses are kept to
    /// be counted with theirs later.
    pub fn count_locally(&self, offenses: Vec<Offense>) {
        if self.is_shared {
            let mut counter = self.counter.lock();
            offenses.iter().for_each(|offense| counter.add_to_backlog(offense));
        }
        self.count_locally_once(offenses);
    }

    /// [`BanTable::count_locally`] for offenses that may already be counted for all instances, and are not kept.
    pub fn count_locally_once(&self, offenses: Vec<Offense>) {
        let now = self.clock.now();
        for offense in offenses {
            let is_shadow = offense.rule.is_shadow;
            let known = self.index.read().get(&offense.key, is_shadow).cloned();
            // While the common ladders are unavailable, the level of the key's ban gives its step.
            let known = known
                .filter(|ban| ban.by == *offense.rule.name)
                .map(|ban| Ladder::from_ban(ban.level, ban.until.saturating_sub(ban.since), ban.until));
            let jitter = offense.rule.draw_jitter();
            let step = self.counter.lock().count(&offense, jitter, now, known.unwrap_or_default());
            let Some(step) = step else { continue };
            let ban = Arc::new(Ban {
                key: offense.key,
                since: now,
                until: now.saturating_add(step.duration),
                reason: offense.rule.reason(&offense.policy),
                by: offense.rule.name.to_string(),
                level: step.level,
                is_shadow,
            });
            if self.insert_if_later(&ban) {
                self.queue_update(BanUpdate::Merge(Arc::clone(&ban)));
                self.record_issued(&ban);
            }
        }
    }

    /// Records a ban by a rule for denials at this instance, wherever they were counted. Called once per ban.
    pub fn record_issued(&self, ban: &Ban) {
        self.announcements.record_issued(ban);
    }
}

impl std::fmt::Debug for BanTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BanTable").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::{limit::ManualClock, telemetry::testing};

    pub(in crate::abuse::bans) const SECOND: i64 = 1_000_000;
    pub(in crate::abuse::bans) const NOW: i64 = 1_783_080_001 * SECOND;

    pub(in crate::abuse::bans) fn bans(is_shared: bool) -> (Arc<BanTable>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(NOW));
        let audit = AuditLog::new(Arc::clone(&clock) as Arc<dyn Clock>, "one", false);
        let metrics = Metrics::new(&testing::config(), 1);
        let shared_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        (Arc::new(BanTable::new(shared_clock, Events::new(), Arc::new(audit), metrics, is_shared)), clock)
    }

    pub(in crate::abuse::bans) fn user(n: usize) -> BannedKey {
        BannedKey::User(n.to_string().into())
    }

    /// Bans the first few users for an operator.
    pub(in crate::abuse::bans) fn ban_users(bans: &BanTable, users: usize, seconds: i64) {
        for n in 0..users {
            ban_user(bans, user(n), seconds);
        }
    }

    pub(in crate::abuse::bans) fn ban_user(bans: &BanTable, key: BannedKey, seconds: i64) -> bool {
        bans.ban(key, seconds * SECOND, String::new(), "operator".into()).1
    }

    pub(in crate::abuse::bans) fn active_keys(bans: &BanTable) -> Vec<String> {
        bans.page(None, MAX_BANS, |_| true).bans.iter().map(|ban| ban.key.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{OffenseRecorder, offense_counter::MAX_PENDING, rule::testing::rule},
        testing::{NOW, SECOND, active_keys, ban_user, ban_users, bans, user},
        *,
    };

    #[test]
    fn noted_offenses_ban_a_key_and_its_next_ban_is_longer() {
        let (bans, clock) = bans(false);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        let mut durations = Vec::new();
        for _ in 0..3 {
            for n in 0..3 {
                assert!(active_keys(&bans).is_empty(), "{n} are too few");
                offenses.note(&rule(), "ip:203.0.113.7".into(), "per-ip", clock.now());
                offenses.flush();
                bans.tick();
            }
            let ban = Arc::clone(&bans.page(None, 1, |_| true).bans[0]);
            durations.push(((ban.until - ban.since) / SECOND, ban.level));
            clock.set(ban.until);
            bans.tick();
            assert!(bans.is_empty());
        }
        assert_eq!(durations, [(10, 1), (20, 2), (40, 3)]);
        assert_eq!(bans.announcements.audit.entries(None, None, 9).len(), 3);
    }

    #[test]
    fn offenses_counted_locally_are_taken_once_to_be_counted_for_all() {
        let (bans, clock) = bans(true);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        let deny = |user: &str| {
            offenses.note(&rule(), user.into(), "per-ip", clock.now());
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
        bans.lift(&BannedKey::from_canonical("user:3").unwrap());
        let backlog = bans.take_backlog(9);
        let taken: Vec<_> =
            backlog.iter().map(|offense| (offense.key.to_string(), offense.count, offense.first)).collect();
        assert_eq!(
            taken,
            [("user:1".to_owned(), 1, NOW + 61 * SECOND)],
            "the others are outside their windows, or may be counted already"
        );
        assert_eq!(bans.take_backlog(9), []);
        deny("user:1");
        bans.tick();
        assert_eq!(bans.take_pending(9).len(), 1, "it is counted for all again");
        (0..2 * MAX_PENDING)
            .for_each(|n| bans.count_locally(vec![Offense { key: user(n), ..backlog[0].clone() }]));
        assert_eq!(bans.counter.lock().backlog_len(), MAX_PENDING);
    }

    #[test]
    fn a_page_is_collected_under_several_short_locks() {
        let (bans, _) = bans(false);
        ban_users(&bans, 2 * MAX_PER_LOCK, 60);
        assert_eq!(bans.all().len(), 2 * MAX_PER_LOCK);
        ban_user(&bans, user(2 * MAX_PER_LOCK), 50);
        assert_eq!(bans.all().len(), 2 * MAX_PER_LOCK + 1);
        let last = bans.page(None, 1, |ban| ban.until == NOW + 50 * SECOND);
        assert_eq!((last.bans.len(), last.has_more), (1, false));
        let page = bans.page(None, MAX_PER_LOCK, |_| true);
        let rest = bans.page(page.bans.last().map(|ban| position(ban)), usize::MAX, |_| true);
        assert_eq!((page.has_more, page.bans.len() + rest.bans.len()), (true, 2 * MAX_PER_LOCK + 1));
        assert!(bans.page(None, 1, |_| true).bans.len() == 1);
    }

    #[test]
    fn lifting_forgets_counted_offenses() {
        let (bans, clock) = bans(false);
        let offenses = OffenseRecorder::new(Arc::clone(&bans));
        for _ in 0..2 {
            for _ in 0..2 {
                offenses.note(&rule(), "ip:203.0.113.7".into(), "per-ip", clock.now());
            }
            offenses.flush();
            bans.tick();
            assert_eq!(bans.lift(&BannedKey::from_canonical("ip:203.0.113.7").unwrap()), 0);
        }
        assert!(bans.is_empty());
    }

    fn by_rule(key: BannedKey, seconds: i64) -> Arc<Ban> {
        let until = NOW + seconds * SECOND;
        let (reason, by) = (String::new(), "bans.hammering".to_owned());
        Arc::new(Ban { key, since: NOW, until, reason, by, level: 1, is_shadow: false })
    }

    #[test]
    fn of_too_many_bans_of_a_class_the_one_that_ends_first_is_dropped() {
        let (bans, _) = bans(false);
        let address = || BannedKey::from_canonical("ip:203.0.113.7").unwrap();
        assert!(bans.insert_if_later(&by_rule(address(), 2)));
        ban_user(&bans, BannedKey::from_canonical("user:x").unwrap(), 1);
        for n in 0..MAX_BANS {
            assert!(bans.insert_if_later(&by_rule(user(n), 60 + n as i64)));
        }
        assert!(!bans.insert_if_later(&by_rule(user(MAX_BANS), 60)), "all others end later");
        assert!(bans.insert_if_later(&by_rule(user(MAX_BANS), 61)));
        assert!(bans.by_key(&user(0)).is_empty() && !bans.by_key(&user(MAX_BANS)).is_empty());
        assert_eq!(
            bans.totals(),
            [MAX_BANS as u64 + 2, 0],
            "neither the address nor what an operator banned"
        );
        for n in 1..=MAX_BANS {
            ban_user(&bans, BannedKey::User(format!("o{n}").into()), 60 + n as i64);
        }
        assert!(!bans.by_key(&BannedKey::User("o1".into())).is_empty());
        assert!(
            bans.by_key(&BannedKey::User("x".into())).is_empty(),
            "a ban by hand makes room among those by hand"
        );
        assert_eq!(bans.totals(), [2 * MAX_BANS as u64 + 1, 0]);
    }

    #[test]
    fn a_rule_leaves_a_ban_by_hand_as_it_is() {
        let (bans, clock) = bans(false);
        ban_user(&bans, user(1), 60);
        assert!(!bans.insert_if_later(&by_rule(user(1), 600)));
        clock.set(NOW + 60 * SECOND);
        assert!(bans.insert_if_later(&by_rule(user(1), 600)), "it has ended");
    }
}
