//! The keys whose newest version the store does not have yet. Pure.

use std::{collections::BTreeMap, sync::Arc};

use compact_str::CompactString;
use foldhash::HashMap;

use super::ApiKey;

/// The IDs of the keys to send, each once: what is sent is the version of that moment.
#[derive(Debug, Default)]
pub(super) struct UnsentKeys {
    by_id: HashMap<CompactString, Place>,
    in_order: BTreeMap<Place, CompactString>,
    next_sequence: u64,
}

/// Whether it is sent again, and the number of the change: those of operators go first.
type Place = (bool, u64);

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
    /// An operator has changed this key.
    pub(super) fn push(&mut self, id: CompactString) {
        if let Some(place) = self.by_id.remove(&id) {
            self.in_order.remove(&place);
        }
        self.insert(id, false);
    }

    /// The store has lost this key. Returns whether it does not wait already.
    pub(super) fn push_again(&mut self, id: CompactString) -> bool {
        let is_new = !self.by_id.contains_key(&id);
        if is_new {
            self.insert(id, true);
        }
        is_new
    }

    fn insert(&mut self, id: CompactString, is_again: bool) {
        let place = (is_again, self.next_sequence);
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
