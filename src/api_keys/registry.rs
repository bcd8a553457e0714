//! The API keys that are known, and the lookup of a request's key.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use compact_str::CompactString;
use foldhash::HashSet;
use parking_lot::{Mutex, RwLock};

use super::{
    ApiKey, KeyHash, KeyState,
    key_set::ApiKeySet,
    last_uses::LastUses,
    merge::{Stamp, is_forgotten},
    pending::{ChangeState, PendingChange, PendingChanges},
    unsent::{SentFor, UnsentKey, UnsentKeys},
};
use crate::changes;

/// Most keys in the store, tombstones included: some 110 MiB of memory.
pub const MAX_STORED_KEYS: usize = 250_000;

/// Most keys in the file.
pub const MAX_FILE_KEYS: usize = 250_000;

/// Why a request's key is not valid. Clients are not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// No key has this hash.
    Unknown,
    /// Its own expiry, or that of a rotated secret, has passed.
    Expired,
    /// It was revoked or deleted.
    Revoked,
}

/// Where keys are kept that operators make and change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStore {
    /// Nowhere: `store` is false.
    None,
    /// In the file `data`: there is no Redis.
    DataFile,
    /// In Redis, for all instances.
    Redis,
}

/// Why a record can't be stored. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    #[error(
        "no keys can be made or changed here: `api_keys.store` is not set; with `--file`, `tollgate keys` changes a file of keys"
    )]
    NoStore,
    #[error("the store of keys is away: nothing was changed; the keys that are known stay valid")]
    Away,
    #[error("too many changes of keys wait for the store: nothing was changed, try again")]
    Busy,
    /// Its file is to be changed instead.
    #[error("key {0} is in the file of keys: change it there")]
    InFile(CompactString),
    #[error("there is a key {0} already")]
    IdInUse(CompactString),
    /// It was revoked or deleted, and would be valid again.
    #[error("key {0} was revoked or deleted, which is final: make a new key with another ID")]
    Revoked(CompactString),
    /// Another key, with this ID, has one of its hashes.
    #[error("key {0} has the same secret, or had it until it was revoked or deleted")]
    SecretInUse(CompactString),
    #[error(
        "there are {MAX_STORED_KEYS} keys already, which is the most; those that were revoked or deleted in the last 366 days count"
    )]
    TooMany,
    #[error("{0}")]
    Invalid(String),
}

/// Waits for the moment from which other instances can know a change: see [`ApiKeys::is_shared`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMark(CompactString);

/// All API keys, shared by all threads.
///
/// A key of the file hides the one of the store that has its ID, or one of its hashes.
#[derive(Debug)]
pub struct ApiKeys {
    keys: RwLock<ApiKeySet>,
    /// Held by who changes the keys, so that a large change can be prepared while requests look keys up.
    changing: Mutex<()>,
    store: KeyStore,
    is_store_read: AtomicBool,
    is_store_up: AtomicBool,
    /// How often a known key may have ended.
    changes: AtomicU64,
    unsent: Mutex<UnsentKeys>,
    pending: PendingChanges,
    uses: LastUses,
    file_error: Mutex<Option<String>>,
}

impl Default for ApiKeys {
    fn default() -> Self {
        Self::new(KeyStore::None)
    }
}

impl ApiKeys {
    /// Without any key.
    pub fn new(store: KeyStore) -> Self {
        Self {
            keys: RwLock::default(),
            changing: Mutex::default(),
            store,
            is_store_read: AtomicBool::new(store == KeyStore::None),
            is_store_up: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            unsent: Mutex::default(),
            pending: PendingChanges::default(),
            uses: LastUses::default(),
            file_error: Mutex::default(),
        }
    }

    /// Whether the keys of the store were read. Until then, a key that is unknown may be a good one.
    pub fn is_loaded(&self) -> bool {
        self.is_store_read.load(Acquire)
    }

    pub fn store(&self) -> KeyStore {
        self.store
    }

    /// The key with this hash, if it is valid at the time `now`. All faults take the same time.
    ///
    /// # Errors
    /// The key is not valid.
    pub fn find(&self, hash: &KeyHash, now: i64) -> Result<Arc<ApiKey>, KeyFault> {
        let key = self.keys.read().by_hash(hash).cloned().ok_or(KeyFault::Unknown)?;
        match &key.state {
            KeyState::Active => {}
            KeyState::Revoked { .. } | KeyState::Deleted { .. } => return Err(KeyFault::Revoked),
        }
        match key.has_expired(hash, now) {
            true => Err(KeyFault::Expired),
            false => Ok(key),
        }
    }

    /// Whether the key with this ID is still valid at the time `now`, for exchanges that its requests have begun. A
    /// rotation ends nothing.
    pub fn is_in_use(&self, id: &str, now: i64) -> bool {
        let keys = self.keys.read();
        let key = keys.get(id).filter(|key| key.state == KeyState::Active);
        key.is_some_and(|key| key.expires.is_none_or(|expires| expires > now))
    }

    /// A number that grows whenever a known key is revoked, deleted or removed, or expires earlier than before: it may not
    /// be [`ApiKeys::is_in_use`] any more. Other changes do not count. Costs next to nothing.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// The record with this ID, whatever its state.
    pub fn get(&self, id: &str) -> Option<Arc<ApiKey>> {
        self.keys.read().get(id).cloned()
    }

    /// The record that has this hash, whatever its state; one in use, if there is one.
    pub fn holder(&self, hash: &KeyHash) -> Option<Arc<ApiKey>> {
        self.keys.read().by_hash(hash).cloned()
    }

    /// Whether the key with this ID is in the file of keys.
    pub fn is_in_file(&self, id: &str) -> bool {
        self.keys.read().is_in_file(id)
    }

    /// Some records after this ID, in the order of their IDs: so few that a request which waits for the lock is not
    /// delayed. The second is the last ID that was looked at, if there are more.
    pub fn some_after(&self, after: Option<&str>) -> (Vec<Arc<ApiKey>>, Option<CompactString>) {
        self.keys.read().some_after(after)
    }

    /// All records, in the order of their IDs.
    pub fn all(&self) -> Vec<Arc<ApiKey>> {
        all_of(|after| self.some_after(after))
    }

    /// The number of records of the file, and of the store.
    pub fn counts(&self) -> (usize, usize) {
        self.keys.read().counts()
    }

    /// Asks the store to replace the version `base` of a key, or to add a new one (`None`). It holds here as soon as the
    /// store has made it. A version is always later than the one that it replaces: `changed` is raised if need be.
    ///
    /// # Errors
    /// It can't be stored.
    pub fn propose(&self, mut key: ApiKey, base: Option<Stamp>) -> Result<Arc<PendingChange>, PutError> {
        self.check(&key, base.is_none())?;
        if let Some(base) = base {
            key.changed = key.changed.max(base.changed.saturating_add(1));
        }
        self.pending.push(key, base).ok_or(PutError::Busy)
    }

    /// Nobody waits for this change any more. Returns how far it has come.
    pub fn withdraw(&self, change: &Arc<PendingChange>) -> ChangeState {
        let state = change.state();
        self.pending.remove(change, state);
        state
    }

    /// Up to `max` changes, of which the store is asked now, in their order.
    pub fn pending(&self, max: usize) -> Vec<Arc<PendingChange>> {
        self.pending.ask(max)
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The store has decided on this change.
    pub fn decide(&self, change: &Arc<PendingChange>, state: ChangeState) {
        if state == ChangeState::Made {
            self.merge(change.key.clone(), Stamp::of(&change.key));
        }
        self.pending.remove(change, state);
    }

    /// Stores a new key, or a new version of one, without a look at the version that the store has: for tombstones, which
    /// no other version replaces. It holds here at once, and for all instances when [`ApiKeys::is_shared`].
    ///
    /// # Errors
    /// It can't be stored.
    pub fn put(&self, key: ApiKey) -> Result<KeyMark, PutError> {
        self.put_as(key, SentFor::Change, false)
    }

    /// Stores a new key, whose ID no other key ever had.
    ///
    /// # Errors
    /// As [`ApiKeys::put`].
    pub fn create(&self, key: ApiKey) -> Result<KeyMark, PutError> {
        self.put_as(key, SentFor::Change, true)
    }

    /// As [`ApiKeys::create`], for one of many. Other changes are shared first.
    ///
    /// # Errors
    /// As [`ApiKeys::put`].
    pub fn import(&self, key: ApiKey) -> Result<KeyMark, PutError> {
        self.put_as(key, SentFor::Import, true)
    }

    fn put_as(&self, mut key: ApiKey, sent_for: SentFor, is_new: bool) -> Result<KeyMark, PutError> {
        let _changing = self.changing.lock();
        if let Some(known) = self.check(&key, is_new)? {
            key.changed = key.changed.max(known.changed.saturating_add(1));
        }
        let id = key.id.clone();
        self.replace(key);
        self.unsent.lock().push(id.clone(), sent_for);
        Ok(KeyMark(id))
    }

    /// Checks that a version of a key can be stored. `is_new`: no other key may have its ID. Returns the version that is
    /// known.
    fn check(&self, key: &ApiKey, is_new: bool) -> Result<Option<Arc<ApiKey>>, PutError> {
        if self.store == KeyStore::None {
            return Err(PutError::NoStore);
        }
        key.check().map_err(PutError::Invalid)?;
        if !self.is_store_up() {
            return Err(PutError::Away);
        }
        let keys = self.keys.read();
        if is_new && keys.get(&key.id).is_some_and(|known| known.state == KeyState::Active) {
            return Err(PutError::IdInUse(key.id.clone()));
        }
        if keys.is_in_file(&key.id) {
            return Err(PutError::InFile(key.id.clone()));
        }
        let known = keys.stored(&key.id);
        if known.is_some_and(|known| known.state.finality() > key.state.finality()) {
            return Err(PutError::Revoked(key.id.clone()));
        }
        let is_live = key.state == KeyState::Active;
        if let Some(other) = keys.other_holder(key).filter(|_| is_live) {
            return Err(PutError::SecretInUse(other.id.clone()));
        }
        if known.is_none() && keys.counts().1 >= MAX_STORED_KEYS {
            return Err(PutError::TooMany);
        }
        Ok(known.cloned())
    }

    /// Whether the change is where other instances, or a restarted one, can read it.
    pub fn is_shared(&self, mark: &KeyMark) -> bool {
        !self.unsent.lock().has(&mark.0)
    }

    /// Notes that the key was used. Costs a lookup, and no more if it was used in this minute already.
    pub fn note_use(&self, id: &str, now: i64) {
        self.uses.note(id, now);
    }

    /// The minute in which the key was last used at any instance, in microseconds since the Unix epoch.
    pub fn last_use(&self, id: &str) -> Option<i64> {
        self.uses.last(id)
    }

    /// Takes the minute, since the Unix epoch, of a use at another instance or before a restart. Its key may not be known
    /// yet: the file of keys is read after the store.
    pub fn merge_use(&self, id: &str, minute: i64) {
        self.uses.merge(id, minute);
    }

    /// The notes of last uses, for the store.
    pub fn uses(&self) -> &LastUses {
        &self.uses
    }

    /// Adds the keys of a file that will replace the one in force. Of two with the same ID, the new one is valid.
    pub fn add_file(&self, keys: &[Arc<ApiKey>]) {
        let known = self.keys.read();
        if keys.iter().any(|key| known.get(&key.id) != Some(key)) {
            let both = known.file().chain(keys).cloned().collect();
            drop(known);
            self.set_file(both);
        }
    }

    /// Replaces the keys of the file. Returns the IDs of the keys of the store that they hide.
    pub fn set_file(&self, keys: Vec<Arc<ApiKey>>) -> Vec<CompactString> {
        let _changing = self.changing.lock();
        let (fresh, has_ended) = {
            let before = self.keys.read();
            let fresh = before.with_file(keys);
            let ends = |key: &Arc<ApiKey>| ends_earlier(before.get(&key.id), fresh.get(&key.id));
            let has_ended = before.file().chain(fresh.file()).any(ends);
            (fresh, has_ended)
        };
        let hidden = fresh.hidden();
        let old = std::mem::replace(&mut *self.keys.write(), fresh);
        if has_ended {
            self.announce_change();
        }
        drop(old);
        hidden
    }

    /// Why the keys of the file are older than its contents, if they are.
    pub fn file_error(&self) -> Option<String> {
        self.file_error.lock().clone()
    }

    pub fn set_file_error(&self, error: Option<String>) {
        *self.file_error.lock() = error;
    }

    /// Whether changes can be stored now.
    pub fn is_store_up(&self) -> bool {
        self.is_store_up.load(Acquire)
    }

    pub fn set_store_up(&self, is_up: bool) {
        self.is_store_up.store(is_up, Release);
    }

    /// Takes a version from the store: it holds if it is greater than the one that is known. Returns whether the store
    /// has what is known here now.
    pub fn merge(&self, key: ApiKey, stamp: Stamp) -> bool {
        let _changing = self.changing.lock();
        let known = {
            let keys = self.keys.read();
            let known = keys.stored(&key.id).cloned();
            if known.is_none() && keys.counts().1 >= MAX_STORED_KEYS {
                return true;
            }
            known
        };
        match known {
            Some(known) if *known == key => true,
            Some(known) if Stamp::of(&known) > stamp => false,
            _ => {
                self.replace(key);
                true
            }
        }
    }

    /// Sends the known version of this key to the store again, which has lost it. Returns false if the key is unknown.
    pub fn resend(&self, id: &str) -> bool {
        let is_known = self.version(id).is_some();
        if is_known {
            self.unsent.lock().push(id.into(), SentFor::Change);
        }
        is_known
    }

    /// The version of the store that is known here.
    pub fn version(&self, id: &str) -> Option<Stamp> {
        self.keys.read().stored(id).map(|key| Stamp::of(key))
    }

    /// All records of the store were read, and it has what is known here of the `current` ones. The others are sent
    /// again. Returns their number.
    pub fn finish_snapshot(&self, current: &HashSet<CompactString>, now: i64) -> usize {
        let (mut after, mut resent) = (None, 0);
        loop {
            let (some, last) = self.keys.read().some_stored_after(after.as_deref());
            let mut unsent = self.unsent.lock();
            for key in some.iter().filter(|key| !current.contains(&key.id) && !is_forgotten(key, now)) {
                resent += usize::from(unsent.push_again(key.id.clone()));
            }
            after = last;
            if after.is_none() {
                break;
            }
        }
        self.is_store_read.store(true, Release);
        resent
    }

    /// Whether the store lacks some records.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.lock().is_empty()
    }

    /// All records of the store.
    pub fn stored(&self) -> Vec<Arc<ApiKey>> {
        all_of(|after| self.keys.read().some_stored_after(after))
    }

    /// Up to `max` records that the store does not have yet: single changes first, then imports.
    pub fn unsent(&self, max: usize) -> Vec<UnsentKey> {
        let ids = self.unsent.lock().first(max);
        let keys = self.keys.read();
        let record = |(id, sequence): (CompactString, u64)| {
            let key = keys.stored(&id).cloned();
            UnsentKey { id, sequence, key }
        };
        ids.into_iter().map(record).collect()
    }

    /// The store has these.
    pub fn ack(&self, sent: &[UnsentKey]) {
        let mut unsent = self.unsent.lock();
        sent.iter().for_each(|sent| unsent.ack(&sent.id, sent.sequence));
    }

    /// The store has no room for the key with this ID.
    pub fn refuse(&self, id: &str) {
        self.forget(id);
    }

    /// Forgets tombstones of which no key can come back any more, and the uses of keys that are not there.
    pub fn sweep(&self, now: i64) {
        let forgotten = |key: &Arc<ApiKey>| is_forgotten(key, now);
        let mut after = None;
        loop {
            let (some, last) = self.keys.read().some_stored_after(after.as_deref());
            some.iter().filter(|key| forgotten(key)).for_each(|key| self.forget(&key.id));
            after = last;
            if after.is_none() {
                break;
            }
        }
        self.uses.retain(|id| self.get(id).is_some());
    }

    /// Changes wait until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hold_changes(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Keys that were valid are not valid any more.
    fn announce_change(&self) {
        self.changes.fetch_add(1, Release);
        changes::announce();
    }

    fn forget(&self, id: &str) {
        let _changing = self.changing.lock();
        let removed = self.keys.write().remove_stored(id);
        if ends_earlier(removed.as_ref(), None) {
            self.announce_change();
        }
    }

    /// Replaces the stored version of a key, under the lock of changes.
    fn replace(&self, key: ApiKey) {
        let key = Arc::new(key);
        let replaced = self.keys.write().put_stored(&key);
        if ends_earlier(replaced.as_ref(), Some(&key)) {
            // Published after the key, so that who sees the number finds the new version.
            self.announce_change();
        }
    }
}

/// All records, of which `some_after` gives some after an ID, and the last ID if there are more.
fn all_of(
    some_after: impl Fn(Option<&str>) -> (Vec<Arc<ApiKey>>, Option<CompactString>),
) -> Vec<Arc<ApiKey>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (some, last) = some_after(after.as_deref());
        all.extend(some);
        after = last;
        if after.is_none() {
            return all;
        }
    }
}

/// Whether a key that was `known` ends earlier as it is `now`; `None`: there is none.
fn ends_earlier(known: Option<&Arc<ApiKey>>, now: Option<&Arc<ApiKey>>) -> bool {
    let end = |key: Option<&Arc<ApiKey>>| {
        let active = key.filter(|key| key.state == KeyState::Active);
        active.map_or(i64::MIN, |key| key.expires.unwrap_or(i64::MAX))
    };
    end(now) < end(known)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use proptest::prelude::*;

    use super::{
        super::{KeySecret, testing::key},
        *,
    };

    /// Versions of few keys, many of them changed at the same time.
    fn versions() -> impl Strategy<Value = Vec<ApiKey>> {
        let version = (0..3_u8, 0..4_i64, 0..3_u8, 0..3_u8).prop_map(|(id, changed, state, name)| ApiKey {
            name: name.to_string().as_str().into(),
            changed,
            state: match state {
                0 => KeyState::Active,
                1 => KeyState::Revoked { at: changed, reason: String::new() },
                _ => KeyState::Deleted { at: changed },
            },
            ..key(&id.to_string())
        });
        prop::collection::vec(version, 0..40)
    }

    fn merged<'k>(keys: impl Iterator<Item = &'k ApiKey>) -> Vec<ApiKey> {
        let registry = ApiKeys::new(KeyStore::Redis);
        for key in keys {
            registry.merge(key.clone(), Stamp::of(key));
        }
        registry.all().iter().map(|key| ApiKey::clone(key)).collect()
    }

    proptest! {
        /// Any order of the same versions, some of them twice, gives the same keys; and each is the greatest version.
        #[test]
        fn the_order_of_changes_does_not_matter(versions in versions(), seed in any::<u64>()) {
            let in_order = merged(versions.iter());
            let mut shuffled: Vec<&ApiKey> = versions.iter().chain(&versions).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            prop_assert_eq!(&merged(shuffled.into_iter()), &in_order);
            for key in &in_order {
                let greatest = versions.iter().filter(|other| other.id == key.id).max_by_key(|key| Stamp::of(key));
                prop_assert_eq!(greatest, Some(key));
            }
        }

        /// What is found by a hash is what a search through all records finds.
        #[test]
        fn the_index_by_hash_has_exactly_the_keys(
            changes in prop::collection::vec((0..4_u8, prop::collection::vec(0..5_u8, 1..3), any::<bool>(), any::<bool>()), 0..40),
        ) {
            let registry = ApiKeys::new(KeyStore::Redis);
            let mut file: Vec<Arc<ApiKey>> = Vec::new();
            for (at, (id, hashes, is_active, is_in_file)) in (1..).zip(changes) {
                let secret = |hash: &u8| KeySecret { hash: KeyHash::of(&[*hash]), created: 1, expires: None };
                let state = if is_active { KeyState::Active } else { KeyState::Deleted { at: 1 } };
                let secrets = hashes.iter().map(secret).collect();
                let key = ApiKey { secrets, state, changed: at, ..key(&id.to_string()) };
                if is_in_file {
                    file.retain(|known| known.id != key.id);
                    file.push(Arc::new(ApiKey { state: KeyState::Active, ..key }));
                    registry.set_file(file.clone());
                } else {
                    registry.merge(key.clone(), Stamp::of(&key));
                }
                let (all, keys) = (registry.all(), registry.keys.read());
                for hash in 0..5_u8 {
                    let hash = KeyHash::of(&[hash]);
                    let has = |key: &&Arc<ApiKey>| key.secrets.iter().any(|secret| secret.hash == hash);
                    let found = all.iter().filter(has);
                    let best = found.min_by_key(|key| {
                        (!keys.is_in_file(&key.id), key.state == KeyState::Active, key.created, key.id.clone())
                    });
                    prop_assert_eq!(keys.by_hash(&hash), best);
                }
            }
        }
    }

    fn put(registry: &ApiKeys, key: ApiKey) -> Result<(), PutError> {
        registry.put(key).map(drop)
    }

    #[test]
    fn a_change_is_refused_where_it_cannot_be_kept() {
        assert_eq!(put(&ApiKeys::default(), key("a")), Err(PutError::NoStore));
        let registry = ApiKeys::new(KeyStore::Redis);
        assert!(!registry.is_loaded());
        assert_eq!(put(&registry, key("a")), Err(PutError::Away));
        registry.set_store_up(true);
        assert_eq!(put(&registry, key("a")), Ok(()));
        let copy = ApiKey { id: "b".into(), ..key("a") };
        assert_eq!(put(&registry, copy), Err(PutError::SecretInUse("a".into())));
        let deleted = ApiKey { state: KeyState::Deleted { at: 1 }, ..key("a") };
        assert_eq!(put(&registry, deleted), Ok(()));
        assert_eq!(registry.get("a").unwrap().changed, 2, "it is later than the one that it replaces");
        registry.set_file(vec![Arc::new(key("c"))]);
        assert_eq!(put(&registry, key("c")), Err(PutError::InFile("c".into())));
        assert!(matches!(put(&registry, key("a b")), Err(PutError::Invalid(_))));
    }

    #[test]
    fn a_new_key_takes_no_id_that_is_in_use_and_an_import_is_sent_after_other_changes() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        registry.set_file(vec![Arc::new(key("file"))]);
        assert!(registry.import(key("imported")).is_ok());
        assert!(registry.create(key("a")).is_ok());
        for id in ["a", "imported", "file"] {
            assert_eq!(registry.create(key(id)).err(), Some(PutError::IdInUse(id.into())));
            assert_eq!(registry.import(key(id)).err(), Some(PutError::IdInUse(id.into())));
        }
        let unsent = |registry: &ApiKeys| {
            registry.unsent(9).into_iter().map(|unsent| unsent.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(unsent(&registry), ["a", "imported"]);
        put(&registry, ApiKey { state: KeyState::Deleted { at: 1 }, ..key("a") }).unwrap();
        for made in [registry.import(key("a")), registry.create(key("a"))] {
            assert_eq!(made.err(), Some(PutError::Revoked("a".into())));
        }
    }

    #[test]
    fn neither_the_id_nor_the_secret_of_a_tombstone_is_used_again() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        put(&registry, key("a")).unwrap();
        let revoked = ApiKey { state: KeyState::Revoked { at: 1, reason: String::new() }, ..key("a") };
        let deleted = ApiKey { state: KeyState::Deleted { at: 1 }, ..key("a") };
        let copy = ApiKey { id: "b".into(), ..key("a") };
        put(&registry, revoked.clone()).unwrap();
        assert_eq!(put(&registry, key("a")), Err(PutError::Revoked("a".into())));
        assert_eq!(put(&registry, copy.clone()), Err(PutError::SecretInUse("a".into())));
        put(&registry, deleted).unwrap();
        assert_eq!(put(&registry, revoked), Err(PutError::Revoked("a".into())));
        assert_eq!(put(&registry, key("a")), Err(PutError::Revoked("a".into())));
        assert_eq!(put(&registry, copy.clone()), Err(PutError::SecretInUse("a".into())));
        // Another instance made it before it knew.
        registry.merge(copy.clone(), Stamp::of(&copy));
        assert_eq!(registry.find(&KeyHash::of(b"a"), 1), Err(KeyFault::Revoked));
    }

    #[test]
    fn a_revocation_wins_over_a_later_change() {
        let at = |changed, state| ApiKey { changed, state, ..key("a") };
        let changed = at(9, KeyState::Active);
        let revoked = at(5, KeyState::Revoked { at: 5, reason: "leaked".into() });
        let deleted = at(3, KeyState::Deleted { at: 3 });
        for (less, greater) in [(&changed, &revoked), (&changed, &deleted), (&revoked, &deleted)] {
            assert_eq!(merged([less, greater].into_iter()), slice::from_ref(greater));
            assert_eq!(merged([greater, less].into_iter()), slice::from_ref(greater));
        }
    }

    #[test]
    fn the_number_of_stored_keys_has_a_bound() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        let (any, stamp) = (key("any"), Stamp::of(&key("any")));
        let numbered = |n: usize| {
            let mut key = ApiKey { id: n.to_string().as_str().into(), ..any.clone() };
            key.secrets[0].hash.0[..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        for n in 0..MAX_STORED_KEYS {
            registry.merge(numbered(n), stamp);
        }
        assert_eq!(registry.counts().1, MAX_STORED_KEYS);
        assert_eq!(put(&registry, numbered(MAX_STORED_KEYS)), Err(PutError::TooMany));
        registry.merge(numbered(MAX_STORED_KEYS), stamp);
        assert_eq!(
            (registry.counts().1, registry.get(&MAX_STORED_KEYS.to_string())),
            (MAX_STORED_KEYS, None)
        );
        let renamed = ApiKey { name: "known ones are changed".into(), ..numbered(7) };
        assert_eq!(put(&registry, renamed), Ok(()));
    }

    #[test]
    fn only_what_can_end_a_key_counts_as_a_change() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        let counts = |change: &dyn Fn()| {
            let before = registry.changes();
            change();
            registry.changes() > before
        };
        let store = |key: ApiKey| counts(&|| put(&registry, key.clone()).unwrap());
        let expiring = |expires| ApiKey { expires, ..key("a") };
        assert!(!store(key("a")), "it is new");
        assert!(!store(ApiKey { plan: Some("pro".into()), name: "n".into(), ..key("a") }));
        assert!(!store(ApiKey { secrets: key("b").secrets, ..key("a") }), "a rotation ends nothing");
        assert!(store(expiring(Some(100))));
        assert!(!store(expiring(Some(200))) && !store(expiring(None)));
        let file = |ids: &[(&str, Option<i64>)]| {
            let key = |(id, expires): &(&str, _)| Arc::new(ApiKey { expires: *expires, ..key(id) });
            counts(&|| drop(registry.set_file(ids.iter().map(key).collect())))
        };
        assert!(!file(&[("f", None), ("g", None)]));
        assert!(!file(&[("f", None), ("g", None), ("h", None)]));
        assert!(file(&[("f", Some(5)), ("g", None), ("h", None)]));
        assert!(file(&[("f", Some(5)), ("g", None)]), "one is removed");
        assert!(file(&[("f", Some(5)), ("g", None), ("a", Some(7))]), "it hides a longer one of the store");
        assert!(!file(&[("f", Some(5)), ("g", None)]), "and that comes back");
        let deleted = ApiKey { state: KeyState::Deleted { at: 1 }, ..key("a") };
        assert!(store(ApiKey { state: KeyState::Revoked { at: 1, reason: String::new() }, ..key("a") }));
        assert!(!store(deleted), "it had ended already");
        assert!(!counts(&|| registry.sweep(i64::MAX)), "it is forgotten");
        put(&registry, key("c")).unwrap();
        assert!(counts(&|| registry.refuse("c")));
    }

    #[test]
    fn a_key_of_the_file_hides_those_of_the_store_and_they_come_back() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        put(&registry, key("a")).unwrap();
        put(&registry, key("b")).unwrap();
        let same_id = ApiKey { id: "a".into(), ..key("other") };
        let same_hash = ApiKey { id: "c".into(), ..key("b") };
        assert_eq!(registry.set_file(vec![Arc::new(same_id), Arc::new(same_hash)]), ["a", "b"]);
        assert_eq!(registry.find(&KeyHash::of(b"a"), 1), Err(KeyFault::Unknown));
        assert_eq!(registry.find(&KeyHash::of(b"b"), 1).unwrap().id, "c");
        assert_eq!(registry.set_file(Vec::new()), [""; 0]);
        assert_eq!(registry.find(&KeyHash::of(b"a"), 1).unwrap().id, "a");
        assert_eq!(registry.find(&KeyHash::of(b"b"), 1).unwrap().id, "b");
    }

    #[test]
    fn all_records_have_each_key_once() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        for n in 0..1_700 {
            put(&registry, key(&format!("k{n:05}"))).unwrap();
        }
        registry.set_file((1_600..2_300).map(|n| Arc::new(key(&format!("k{n:05}")))).collect());
        let found: Vec<String> = registry.all().iter().map(|key| key.id.to_string()).collect();
        let expected: Vec<String> = (0..2_300).map(|n| format!("k{n:05}")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tombstones_are_kept_until_no_key_can_come_back() {
        const DAY: i64 = 86_400_000_000;
        let registry = ApiKeys::new(KeyStore::Redis);
        let deleted = |id: &str, expires| ApiKey { expires, state: KeyState::Deleted { at: 0 }, ..key(id) };
        // The expiry may have been a later one, which an instance that was away still knows.
        for key in [deleted("a", None), deleted("b", Some(400 * DAY)), deleted("c", Some(1)), key("d")] {
            registry.merge(key.clone(), Stamp::of(&key));
        }
        let ids = |now| {
            registry.sweep(now);
            registry.all().iter().map(|key| key.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(366 * DAY - 1), ["a", "b", "c", "d"]);
        assert_eq!(ids(366 * DAY), ["b", "d"]);
        assert_eq!(ids(400 * DAY), ["d"]);
    }

    #[test]
    fn a_rotated_secret_is_valid_until_its_own_expiry() {
        let registry = ApiKeys::new(KeyStore::Redis);
        registry.set_store_up(true);
        let secret =
            |text: &str, expires| KeySecret { hash: KeyHash::of(text.as_bytes()), created: 1, expires };
        let secrets = vec![secret("old", Some(100)), secret("new", None)];
        put(&registry, ApiKey { secrets, expires: Some(200), ..key("a") }).unwrap();
        let find = |text: &str, now| registry.find(&KeyHash::of(text.as_bytes()), now).map(drop);
        assert_eq!(
            [find("old", 99), find("old", 100), find("new", 199), find("new", 200)],
            [Ok(()), Err(KeyFault::Expired), Ok(()), Err(KeyFault::Expired)]
        );
        assert!(registry.is_in_use("a", 199) && !registry.is_in_use("a", 200));
    }
}
