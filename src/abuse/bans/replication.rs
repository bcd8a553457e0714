//! The updates of bans between instances that share their limits.

use std::sync::Arc;

use super::{Ban, BanChange, BanTable, BanUpdate, BannedKey, MAX_BANS, index::BanIndex};
use crate::abuse::outbox::Pending;

/// Classes of the outbox.
const BY_OPERATORS: usize = 0;
const BY_RULES: usize = 1;

/// A point in the order of updates.
#[derive(Debug, Clone, Copy)]
pub struct UpdateMark(i64);

impl BanTable {
    /// Up to `max` updates that were not sent to the other instances yet, oldest first.
    pub fn pending_updates(&self, max: usize) -> Vec<Pending<BanUpdate>> {
        self.outbox.lock().pending(max)
    }

    /// Acknowledges that these updates were sent.
    pub fn ack_updates(&self, sent: &[Pending<BanUpdate>]) {
        self.outbox.lock().ack(sent);
    }

    /// Marks the updates by operators that were queued until now.
    pub fn mark_updates(&self) -> UpdateMark {
        UpdateMark(self.outbox.lock().next_sequence())
    }

    /// Whether all updates by operators up to `mark` were sent.
    pub fn is_sent(&self, mark: UpdateMark) -> bool {
        !self.outbox.lock().waits_before(BY_OPERATORS, mark.0)
    }

    /// Queues all known bans and lifts again, before the updates that wait already, because the others may have lost
    /// some. Returns whether there are any.
    pub fn resend_all(&self) -> bool {
        let now = self.clock.now();
        let lifts = self.lifts.lock().recent(now);
        let lifts = lifts.into_iter().map(|(key, at)| BanUpdate::Lift { key, at });
        let bans = self.all().into_iter().map(BanUpdate::Merge);
        let all: Vec<BanUpdate> = lifts.chain(bans).collect();
        let (has_any, mut outbox) = (!all.is_empty(), self.outbox.lock());
        for update in all.into_iter().rev() {
            outbox.prepend_to(outbox_class(&update), update);
        }
        has_any
    }

    /// Queues an update for the other instances, if there are any.
    pub(super) fn queue_update(&self, update: BanUpdate) {
        if self.is_shared {
            self.outbox.lock().push_to(outbox_class(&update), update);
        }
    }

    /// Applies a change for all instances.
    pub fn apply(&self, change: BanChange) {
        match change {
            BanChange::Banned(ban) => {
                let ban = Arc::new(ban);
                let replaced = self.change_index(|index| index.insert(Arc::clone(&ban)));
                self.lifts.lock().note_ban(&ban.key, ban.since);
                if replaced.is_none_or(|replaced| !is_same(&replaced, &ban)) {
                    self.announcements.publish_banned(&ban);
                }
                // From an instance that still stores names.
                if ban.key.masked(&self.names.read()).is_some() {
                    self.mask_users();
                }
            }
            BanChange::Lifted(key) => {
                self.lifts.lock().note(key.clone(), self.clock.now());
                self.remove(&key);
                if let Some(masked) = self.lifted_name(&key) {
                    self.lift(&masked);
                }
            }
            BanChange::Forgotten(key) => {
                self.lifted_name(&key);
                self.change_index(|index| index.remove_all(&key));
            }
            BanChange::Dropped { key, is_shadow } => {
                self.change_index(|index| index.remove(&key, is_shadow));
                self.announcements.record_dropped();
            }
        }
    }

    /// Replaces all bans by `bans`, and then applies the updates that were not sent yet. `is_first`: nothing was
    /// known before, so no differences are announced.
    pub fn replace_all(&self, bans: impl IntoIterator<Item = Ban>, is_first: bool) {
        let mut fresh = BanIndex::default();
        for ban in bans {
            if fresh.len_of(ban.class()) < MAX_BANS || fresh.get(&ban.key, ban.is_shadow).is_some() {
                fresh.insert(Arc::new(ban));
            }
        }
        for update in self.outbox.lock().iter() {
            match update {
                BanUpdate::Replace(ban) => drop(fresh.insert(Arc::clone(ban))),
                BanUpdate::Merge(ban) => {
                    if fresh.get(&ban.key, ban.is_shadow).is_none_or(|known| ban.outdoes(known)) {
                        fresh.insert(Arc::clone(ban));
                    }
                }
                BanUpdate::Forget(key) => drop(fresh.remove_all(key)),
                BanUpdate::Lift { key, at } => {
                    for is_shadow in [false, true] {
                        if fresh.get(key, is_shadow).is_some_and(|ban| ban.since <= *at) {
                            fresh.remove(key, is_shadow);
                        }
                    }
                }
            }
        }
        let before = self.change_index(|index| {
            fresh.addresses_banned += index.addresses_banned;
            fresh.enforced += index.enforced;
            std::mem::replace(index, fresh)
        });
        if !is_first {
            self.note_differences(&before);
        }
        self.mask_users();
    }

    fn note_differences(&self, before: &BanIndex) {
        let now = self.clock.now();
        let is_known = |key: &BannedKey, is_shadow| self.index.read().get(key, is_shadow).is_some();
        let is_gone = |ban: &&Arc<Ban>| ban.is_active(now) && !is_known(&ban.key, ban.is_shadow);
        for gone in before.latest_first(None).filter(is_gone) {
            // A ban with a moment left may have ended by another clock, and a lift would have ended both bans of the
            // key.
            if gone.until.saturating_sub(now) > CLOCK_TOLERANCE && !is_known(&gone.key, !gone.is_shadow) {
                self.lifts.lock().note(gone.key.clone(), now);
            }
            self.announcements.publish_lifted(&gone.key);
        }
        let is_new =
            |ban: &&Arc<Ban>| before.get(&ban.key, ban.is_shadow).is_none_or(|known| !is_same(known, ban));
        for new in self.all().iter().filter(is_new) {
            self.lifts.lock().note_ban(&new.key, new.since);
            self.announcements.publish_banned(new);
        }
    }
}

/// By how much a time may differ when it is read back via another clock, in microseconds.
const CLOCK_TOLERANCE: i64 = 5_000_000;

/// Updates by rules push out none by operators.
fn outbox_class(update: &BanUpdate) -> usize {
    match update {
        BanUpdate::Merge(ban) if !ban.is_manual() => BY_RULES,
        _ => BY_OPERATORS,
    }
}

/// Whether two bans of a key are the same, within the tolerance of clocks: a ban that is read back went through
/// another clock.
fn is_same(one: &Ban, other: &Ban) -> bool {
    one.by == other.by
        && one.level == other.level
        && one.reason == other.reason
        && one.until.abs_diff(other.until) < CLOCK_TOLERANCE.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::{
        super::table::testing::{NOW, SECOND, active_keys, ban_user, ban_users, bans, user},
        *,
    };

    /// Connections of banned clients are closed when the numbers grow.
    #[test]
    fn the_numbers_of_bans_grow_by_each_snapshot_that_has_some() {
        let (bans, _) = bans(true);
        ban_users(&bans, 1, 60);
        let known = |key| Ban {
            key,
            since: NOW,
            until: NOW + 60 * SECOND,
            reason: String::new(),
            by: "operator".into(),
            level: 0,
            is_shadow: false,
        };
        let before = (bans.addresses_banned(), bans.enforced());
        bans.ack_updates(&bans.pending_updates(9));
        bans.replace_all([known(user(7))], false);
        assert_eq!((bans.addresses_banned(), bans.enforced()), (before.0, before.1 + 1));
    }

    fn keys(sent: &[Pending<BanUpdate>]) -> Vec<String> {
        let name = |update: &BanUpdate| match update {
            BanUpdate::Lift { key, .. } => format!("lift {key}"),
            update => update.key().to_string(),
        };
        sent.iter().map(|sent| name(&sent.item)).collect()
    }

    /// A lift applies to all bans of a key.
    #[test]
    fn bans_that_are_sent_again_lift_no_ban_that_stands() {
        let (bans, clock) = bans(true);
        let ban = |n: usize, is_shadow, seconds| Ban {
            key: user(n),
            since: NOW,
            until: NOW + seconds * SECOND,
            reason: String::new(),
            by: "bans.hammering".into(),
            level: 1,
            is_shadow,
        };
        let all = [ban(1, false, 60), ban(1, true, 60), ban(2, false, 60), ban(3, false, 3)];
        bans.replace_all(all, true);
        clock.set(NOW + SECOND);
        // The first has lost its shadow ban, the second was lifted, the third has ended by the other clock.
        bans.replace_all([ban(1, false, 60)], false);
        assert!(bans.resend_all());
        assert_eq!(keys(&bans.pending_updates(9)), ["lift user:2", "user:1"]);
        // A new ban is sent after them.
        ban_user(&bans, user(4), 60);
        assert_eq!(keys(&bans.pending_updates(9)), ["lift user:2", "user:1", "user:4"]);
    }

    #[test]
    fn updates_are_sent_in_order_and_once() {
        let (bans, _) = bans(true);
        ban_users(&bans, 3, 60);
        let sent = bans.pending_updates(2);
        bans.lift(&user(0));
        let lifted = bans.mark_updates();
        bans.ack_updates(&sent);
        assert!(!bans.is_sent(lifted));
        let keys = |sent: &[Pending<BanUpdate>]| -> Vec<String> {
            sent.iter().map(|sent| sent.item.key().to_string()).collect()
        };
        let sent = bans.pending_updates(9);
        assert_eq!(keys(&sent), ["user:2", "user:0"]);
        ban_users(&bans, 1, 60);
        bans.ack_updates(&sent);
        assert!(bans.is_sent(lifted) && !bans.is_sent(bans.mark_updates()));
        bans.ack_updates(&bans.pending_updates(1));
        bans.ack_updates(&sent);
        assert_eq!(bans.pending_updates(9), []);
    }

    #[test]
    fn a_snapshot_replaces_all_but_updates_not_sent_yet() {
        let (bans, _) = bans(true);
        ban_users(&bans, 3, 60);
        let known = |n: usize, until| Ban {
            key: user(n),
            since: NOW,
            until: NOW + until * SECOND,
            reason: String::new(),
            by: "operator".into(),
            level: 0,
            is_shadow: false,
        };
        bans.ack_updates(&bans.pending_updates(9));
        ban_user(&bans, user(3), 50);
        bans.lift(&user(4));
        bans.replace_all([known(1, 70), known(4, 80)], false);
        assert_eq!(active_keys(&bans), ["user:1", "user:3"]);
        bans.apply(BanChange::Lifted(user(1)));
        bans.apply(BanChange::Dropped { key: user(3), is_shadow: false });
        assert!(bans.is_empty());
        assert_eq!(bans.by_key(&BannedKey::User("1".into())), []);
    }
}
