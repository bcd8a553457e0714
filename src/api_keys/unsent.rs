//! The keys whose newest version the store does not have yet. Pure.

use std::{collections::BTreeMap, sync::Arc};

use compact_str::CompactString;
use foldhash::HashMap;

use super::ApiKey;

/// The IDs of the keys to send, each once: the version of that moment is sent.
#[derive(Debug, Default)]
pub(super) struct UnsentKeys {
    by_id: HashMap<CompactString, Place>,
    in_order: BTreeMap<Place, CompactString>,
    next_sequence: u64,
}

/// Why a key is sent; the first reason goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SentFor {
    /// An operator has changed this key.
    Change,
    /// An import has up to 100,000 keys: a revocation does not wait for them.
    Import,
    /// The store has lost it.
    Loss,
}

/// Why it is sent, and the number of the change.
type Place = (SentFor, u64);

/// A key to send.
#[derive(Debug, Clone)]
pub struct UnsentKey {
    pub id: CompactString,
    /// The number of its last change, for the acknowledgement.
    pub(super) sequence: u64,
    /// `None`: it was forgotten meanwhile.
    pub key: Option<Arc<ApiKey>>,
}

impl UnsentKeys {
    /// This key has a new version. It takes the place of one that waits already.
    pub(super) fn push(&mut self, id: CompactString, sent_for: SentFor) {
        if let Some(place) = self.by_id.remove(&id) {
            self.in_order.remove(&place);
        }
        self.insert(id, sent_for);
    }

    /// The store has lost this key. Returns whether it does not wait already.
    pub(super) fn push_again(&mut self, id: CompactString) -> bool {
        let is_new = !self.by_id.contains_key(&id);
        if is_new {
            self.insert(id, SentFor::Loss);
        }
        is_new
    }

    fn insert(&mut self, id: CompactString, sent_for: SentFor) {
        let place = (sent_for, self.next_sequence);
        self.next_sequence += 1;
        self.in_order.insert(place, id.clone());
        self.by_id.insert(id, place);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The first ones, with their numbers.
    pub(super) fn first(&self, max: usize) -> Vec<(CompactString, u64)> {
        self.in_order.iter().take(max).map(|(&(_, sequence), id)| (id.clone(), sequence)).collect()
    }

    /// This one was sent. If it was changed since, it is still to be sent.
    pub(super) fn ack(&mut self, id: &str, sequence: u64) {
        if let Some(&place) = self.by_id.get(id).filter(|place| place.1 == sequence) {
            self.in_order.remove(&place);
            self.by_id.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_changes_go_before_an_import_and_both_before_lost_keys() {
        let mut unsent = UnsentKeys::default();
        let ids = |unsent: &UnsentKeys| {
            unsent.first(9).into_iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>()
        };
        assert!(unsent.push_again("lost".into()));
        unsent.push("imported-1".into(), SentFor::Import);
        unsent.push("imported-2".into(), SentFor::Import);
        unsent.push("revoked".into(), SentFor::Change);
        assert_eq!(ids(&unsent), ["revoked", "imported-1", "imported-2", "lost"]);
        // Revoked before it was sent.
        let sequence = unsent.first(3)[2].1;
        unsent.push("imported-2".into(), SentFor::Change);
        assert_eq!(ids(&unsent), ["revoked", "imported-2", "imported-1", "lost"]);
        unsent.ack("imported-2", sequence);
        assert!(unsent.has("imported-2"), "an earlier version was sent");
        assert!(!unsent.push_again("imported-1".into()), "it waits already");
        for (id, sequence) in unsent.first(9) {
            unsent.ack(&id, sequence);
        }
        assert!(unsent.is_empty() && unsent.first(9).is_empty());
    }
}
