//! Changes that wait for the store's decision. Pure.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::{ApiKey, Stamp};

/// Most changes that wait at a time. Only operators make them.
const MAX_PENDING: usize = 1_000;

/// A change of a key. The store makes it only if it has the version that the change was made of: otherwise a change
/// that another instance has made meanwhile would be undone.
#[derive(Debug)]
pub struct PendingChange {
    /// The version that `key` replaces. `None`: the key is new.
    pub base: Option<Stamp>,
    pub key: ApiKey,
    state: Mutex<ChangeState>,
}

/// How far a [`PendingChange`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeState {
    /// The store was not asked yet.
    Waiting,
    /// The store was asked. Its reply may have been lost.
    Asked,
    /// The store has made it. It holds here, too.
    Made,
    /// The store has another version, which is known here now.
    Outdated,
    /// The store has no room for another key.
    NoRoom,
    /// The store has failed, and has changed nothing.
    Failed,
}

impl PendingChange {
    pub fn state(&self) -> ChangeState {
        *self.state.lock()
    }

    pub fn is_decided(&self) -> bool {
        !matches!(self.state(), ChangeState::Waiting | ChangeState::Asked)
    }
}

/// The changes that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    in_order: Mutex<VecDeque<Arc<PendingChange>>>,
}

impl PendingChanges {
    /// `None`: too many wait already.
    pub(super) fn push(&self, key: ApiKey, base: Option<Stamp>) -> Option<Arc<PendingChange>> {
        let mut in_order = self.in_order.lock();
        let change = Arc::new(PendingChange { base, key, state: Mutex::new(ChangeState::Waiting) });
        (in_order.len() < MAX_PENDING).then(|| in_order.push_back(Arc::clone(&change)))?;
        Some(change)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_order.lock().is_empty()
    }

    /// The first ones, of which the store is asked now.
    pub(super) fn ask(&self, max: usize) -> Vec<Arc<PendingChange>> {
        let first: Vec<_> = self.in_order.lock().iter().take(max).cloned().collect();
        first.iter().for_each(|change| *change.state.lock() = ChangeState::Asked);
        first
    }

    /// The change has come to its end, or nobody waits for it any more.
    pub(super) fn remove(&self, change: &Arc<PendingChange>, state: ChangeState) {
        self.in_order.lock().retain(|other| !Arc::ptr_eq(other, change));
        *change.state.lock() = state;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::key, *};

    #[test]
    fn changes_wait_in_their_order_until_they_are_decided_and_have_a_bound() {
        let pending = PendingChanges::default();
        let changes: Vec<_> =
            (0..MAX_PENDING).map(|n| pending.push(key(&n.to_string()), None).unwrap()).collect();
        assert!(pending.push(key("more"), None).is_none());
        let asked = pending.ask(2);
        assert_eq!([&*asked[0].key.id, &*asked[1].key.id], ["0", "1"]);
        pending.remove(&changes[0], ChangeState::Made);
        let states = [0, 1, 2].map(|nth| changes[nth].state());
        assert_eq!(states, [ChangeState::Made, ChangeState::Asked, ChangeState::Waiting]);
        assert_eq!(pending.ask(1)[0].key.id, "1", "its reply may have been lost");
        changes.iter().for_each(|change| pending.remove(change, ChangeState::Failed));
        assert!(pending.is_empty() && pending.push(key("more"), None).is_some());
    }
}
