//! The file in which keys are kept that are made and changed here, where there is no Redis.
//!
//! A process that takes over reads it while the old one may still change it. So both look for changes of it and merge
//! them, as instances do with Redis.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use compact_str::CompactString;
use foldhash::HashSet;
use serde::{Deserialize, Serialize};

use super::{ApiKey, ApiKeys, ChangeState, PendingChange, Stamp, record::MAX_RECORD};
use crate::file::{self, FileVersion, LockedFile};

/// How often changes are written.
const ROUND: Duration = Duration::from_millis(50);
/// How often it is looked whether another process has changed the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often last uses are written.
const USES_EVERY: Duration = Duration::from_secs(300);
/// Delay after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often tombstones are removed that are not kept any more.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
/// Most bytes of the file: 1 KiB for each of as many keys as there may be.
const MAX_BYTES: u64 = 256 << 20;

/// Why the data file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    #[error("the API keys in {} can't be read: {error}", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// It was not written to its end, or is another file. It is never overwritten.
    #[error("{} has no API keys that can be read: {error}; restore it, or remove it to begin without keys", .path.display())]
    Torn { path: PathBuf, error: String },
    #[error("the API keys can't be written to {}: {error}; `api_keys.data` names another file", .path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

/// The file, and the thread that writes it.
#[derive(Debug)]
pub struct DataFile {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

/// The file as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct KeysDocument<K, U> {
    /// 1.
    version: u32,
    keys: K,
    /// Minutes since the Unix epoch, by ID.
    last_uses: U,
}

type OwnedDocument = KeysDocument<Vec<ApiKey>, Vec<(CompactString, i64)>>;

impl DataFile {
    /// Reads the keys, and writes their changes from now on.
    ///
    /// # Errors
    /// The file can't be read or written, or holds something else.
    pub fn open(path: &Path, keys: &Arc<ApiKeys>) -> Result<Self, DataFileError> {
        let (own_path, own_keys) = (path.to_owned(), Arc::clone(keys));
        let mut writer = ChangeWriter { path: own_path, keys: own_keys, max_bytes: MAX_BYTES, version: None };
        writer.round(false)?;
        keys.set_store_up(true);
        let (end, ends) = mpsc::channel();
        let thread = thread::Builder::new().name("key-data".into()).spawn(move || writer.run(&ends));
        Ok(Self { end, thread: thread.map_err(|error| unwritable(path, error))? })
    }

    /// Writes the last changes and uses, and ends the thread.
    pub fn close(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes API keys crashed");
        }
    }
}

/// The changes that are made by this writing of the file, by ID.
type MadeChanges = BTreeMap<CompactString, Arc<PendingChange>>;

/// The decisions on the changes that wait.
#[derive(Default)]
struct DecidedChanges {
    made: MadeChanges,
    outdated: Vec<Arc<PendingChange>>,
}

struct ChangeWriter {
    path: PathBuf,
    keys: Arc<ApiKeys>,
    max_bytes: u64,
    /// Of the file that was read or written last. `None`: there is none.
    version: Option<FileVersion>,
}

impl ChangeWriter {
    fn run(mut self, ends: &mpsc::Receiver<()>) {
        let (mut look_at, mut retry_at) = (Instant::now() + LOOK_EVERY, Instant::now());
        let (mut uses_at, mut sweep_at) = (Instant::now() + USES_EVERY, Instant::now() + SWEEP_EVERY);
        let mut last_error = String::new();
        loop {
            let is_end = matches!(ends.recv_timeout(ROUND), Err(RecvTimeoutError::Disconnected));
            let now = Instant::now();
            let are_uses_due = (uses_at <= now || is_end) && self.keys.uses().has_unsent();
            let is_due = self.keys.has_unsent() || self.keys.has_pending() || are_uses_due || look_at <= now;
            if !is_end && (!is_due || retry_at > now) {
                continue;
            }
            if are_uses_due {
                uses_at = now + USES_EVERY;
            }
            if sweep_at <= now {
                sweep_at = now + SWEEP_EVERY;
                self.keys.sweep(self::now());
            }
            look_at = now + LOOK_EVERY;
            match self.round(are_uses_due) {
                Ok(()) => {
                    self.keys.set_store_up(true);
                    last_error.clear();
                }
                Err(error) => {
                    self.keys.set_store_up(false);
                    for change in self.keys.pending(usize::MAX) {
                        self.keys.decide(&change, ChangeState::Failed);
                    }
                    retry_at = now + RETRY_AFTER;
                    let error = error.to_string();
                    if error != last_error {
                        tracing::error!("API keys can't be changed: {error}");
                        last_error = error;
                    }
                }
            }
            if is_end {
                return;
            }
        }
    }

    /// Takes changes of other processes, and writes the changes of this one.
    fn round(&mut self, are_uses_due: bool) -> Result<(), DataFileError> {
        // No other process replaces the file between the reading and the writing.
        let locked = LockedFile::open(&self.path).map_err(|error| unwritable(&self.path, error))?;
        let found = FileVersion::of(&self.path);
        if found.is_none() || found != self.version {
            self.merge()?;
        }
        let DecidedChanges { made, outdated } = self.decide();
        if self.version.is_none() || self.keys.has_unsent() || are_uses_due || !made.is_empty() {
            self.write(&locked, &made)?;
        }
        made.values().for_each(|change| self.keys.decide(change, ChangeState::Made));
        outdated.iter().for_each(|change| self.keys.decide(change, ChangeState::Outdated));
        Ok(())
    }

    /// Accepts each waiting change whose base is the version in the file. The registry was merged with the file before.
    fn decide(&self) -> DecidedChanges {
        let mut decided = DecidedChanges::default();
        for change in self.keys.pending(usize::MAX) {
            let id = &change.key.id;
            // A second change of the same key is tried again on the version that the first one makes.
            let is_made = !decided.made.contains_key(id) && self.keys.version(id) == change.base;
            match is_made {
                true => drop(decided.made.insert(id.clone(), change)),
                false => decided.outdated.push(change),
            }
        }
        decided
    }

    /// Takes the keys of the file. Keys that it lacks are to be written.
    fn merge(&mut self) -> Result<(), DataFileError> {
        let found = FileVersion::of(&self.path);
        let bytes = match file::read_file(&self.path, self.max_bytes) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.keys.finish_snapshot(&HashSet::default(), now());
                self.version = None;
                return Ok(());
            }
            Err(error) => return Err(DataFileError::Unreadable { path: self.path.clone(), error }),
        };
        let torn = |error: String| DataFileError::Torn { path: self.path.clone(), error };
        let document: OwnedDocument =
            serde_json::from_slice(&bytes).map_err(|error| torn(error.to_string()))?;
        drop(bytes);
        if document.version != 1 {
            return Err(torn(format!("its version is {}, not 1", document.version)));
        }
        for key in &document.keys {
            key.check().map_err(|error| torn(format!("key {}: {error}", key.id)))?;
        }
        let mut current = HashSet::default();
        for key in document.keys {
            let (id, stamp) = (key.id.clone(), Stamp::of(&key));
            if self.keys.merge(key, stamp) {
                current.insert(id);
            }
        }
        for (id, minute) in document.last_uses {
            self.keys.merge_use(&id, minute);
        }
        self.keys.finish_snapshot(&current, now());
        self.version = found;
        Ok(())
    }

    fn write(&mut self, locked: &LockedFile, made: &MadeChanges) -> Result<(), DataFileError> {
        // Before the keys are read: keys that are changed meanwhile are written again.
        let unsent = self.keys.unsent(usize::MAX);
        let uses = self.keys.uses().take_unsent(usize::MAX);
        match locked.replace(0o600, |file| self.write_to(file, made)) {
            Ok(version) => {
                self.keys.ack(&unsent);
                self.version = Some(version);
                Ok(())
            }
            Err(error) => {
                self.keys.uses().put_back(uses);
                Err(unwritable(&self.path, error))
            }
        }
    }

    /// Writes the keys with the changes that are `made`.
    fn write_to(&self, file: &File, made: &MadeChanges) -> io::Result<()> {
        let mut to = BufWriter::with_capacity(MAX_RECORD, file);
        let stored = self.keys.stored();
        let mut keys: BTreeMap<&str, &ApiKey> = stored.iter().map(|key| (&*key.id, &**key)).collect();
        for (id, change) in made {
            // A tombstone that was put here meanwhile is greater.
            let known = keys.entry(id).or_insert(&change.key);
            if Stamp::of(&change.key) > Stamp::of(known) {
                *known = &change.key;
            }
        }
        let document = KeysDocument {
            version: 1,
            keys: keys.into_values().collect::<Vec<&ApiKey>>(),
            last_uses: self.keys.uses().all(),
        };
        serde_json::to_writer(&mut to, &document)?;
        to.write_all(b"\n")?;
        to.flush()?;
        if file.metadata()?.len() <= self.max_bytes {
            return Ok(());
        }
        // It could not be read again.
        let max = self.max_bytes >> 20;
        let words = format!("it would be longer than {max} MiB; restart Tollgate and delete keys");
        Err(io::Error::new(ErrorKind::FileTooLarge, words))
    }
}

fn unwritable(path: &Path, error: io::Error) -> DataFileError {
    DataFileError::Unwritable { path: path.to_owned(), error }
}

/// Microseconds since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{
        super::{KeyFault, KeyHash, KeyState, KeyStore, testing::key},
        *,
    };

    fn open(path: &Path) -> Result<(Arc<ApiKeys>, DataFile), DataFileError> {
        let keys = Arc::new(ApiKeys::new(KeyStore::DataFile));
        let file = DataFile::open(path, &keys)?;
        Ok((keys, file))
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < give_up, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn keys_and_uses_outlast_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let (keys, file) = open(&path).unwrap();
        assert!(keys.is_loaded() && keys.all().is_empty());
        let mark = keys.put(key("a")).unwrap();
        wait_until("it is written", || keys.is_shared(&mark));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        keys.put(key("b")).unwrap();
        keys.put(ApiKey { state: KeyState::Deleted { at: now() }, ..key("b") }).unwrap();
        keys.note_use("a", 120_000_000);
        file.close();
        let (again, file) = open(&path).unwrap();
        assert!(again.is_loaded());
        assert_eq!(again.find(&KeyHash::of(b"a"), 1).unwrap().id, "a");
        assert_eq!(again.find(&KeyHash::of(b"b"), 1), Err(KeyFault::Revoked));
        assert_eq!(again.last_use("a"), Some(120_000_000));
        file.close();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn uses_of_keys_of_the_file_of_keys_outlast_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        for minute in 1..4 {
            let (keys, file) = open(&path).unwrap();
            // The file of keys is read after the data file.
            let last = (minute > 1).then_some((minute - 1) * 60_000_000);
            keys.set_file(vec![Arc::new(key("b")), Arc::new(key("f"))]);
            assert_eq!((keys.last_use("f"), keys.last_use("b")), (last, last.map(|_| 60_000_000)));
            keys.note_use("f", minute * 60_000_000);
            keys.note_use("b", 60_000_000);
            file.close();
        }
        // Keys that are in neither any more are forgotten.
        let keys = Arc::new(ApiKeys::new(KeyStore::DataFile));
        let file = DataFile::open(&path, &keys).unwrap();
        keys.set_file(vec![Arc::new(key("f"))]);
        keys.sweep(1);
        assert_eq!((keys.last_use("f"), keys.last_use("b")), (Some(180_000_000), None));
        file.close();
    }

    #[test]
    fn a_file_is_neither_read_nor_written_above_its_longest_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.ends_with("keys.json can't be read: it is longer than 256MiB"), "{error}");
        fs::remove_file(&path).unwrap();
        let keys = Arc::new(ApiKeys::new(KeyStore::DataFile));
        let mut writer = ChangeWriter { path: path.clone(), keys, max_bytes: 1 << 20, version: None };
        writer.round(false).unwrap();
        let before = fs::read(&path).unwrap();
        writer.keys.set_store_up(true);
        for n in 0..100 {
            let labels = [("a".to_owned(), "x".repeat(15_000))].into();
            writer.keys.put(ApiKey { labels, ..key(&n.to_string()) }).unwrap();
        }
        let error = writer.round(false).unwrap_err().to_string();
        assert!(error.contains("keys.json: it would be longer than 1 MiB"), "{error}");
        assert!(fs::read(&path).unwrap() == before && writer.keys.has_unsent());
    }

    #[test]
    fn a_change_between_two_rounds_of_another_process_is_not_missed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let writer = || {
            let keys = Arc::new(ApiKeys::new(KeyStore::DataFile));
            keys.set_store_up(true);
            ChangeWriter { path: path.clone(), keys, max_bytes: MAX_BYTES, version: None }
        };
        let (mut one, mut other) = (writer(), writer());
        for id in ["a", "b", "c"] {
            one.keys.put(key(id)).unwrap();
            other.keys.put(key(&id.to_uppercase())).unwrap();
            one.round(false).unwrap();
            other.round(false).unwrap();
            assert_eq!(other.keys.counts().1, one.keys.counts().1 + 1, "it has read what was written before");
        }
        one.round(false).unwrap();
        assert_eq!(one.keys.all(), other.keys.all());
    }

    #[test]
    fn a_torn_file_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        for torn in ["", "{\"version\":1,\"keys\":[", "[]", "{\"version\":2,\"keys\":[],\"last_uses\":[]}"] {
            fs::write(&path, torn).unwrap();
            let error = open(&path).unwrap_err().to_string();
            assert!(error.contains("keys.json has no API keys that can be read"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), torn);
        }
        let error = open(Path::new("/nowhere/keys.json")).unwrap_err().to_string();
        assert!(error.contains("can't be written to /nowhere/keys.json"), "{error}");
    }

    #[test]
    fn a_file_that_is_torn_while_it_is_used_refuses_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let (keys, file) = open(&path).unwrap();
        let mark = keys.put(key("a")).unwrap();
        wait_until("it is written", || keys.is_shared(&mark));
        fs::write(&path, "{").unwrap();
        wait_until("it is noticed", || keys.put(key("b")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "{");
        assert!(keys.find(&KeyHash::of(b"a"), 1).is_ok(), "what is known goes on to hold");
        fs::remove_file(&path).unwrap();
        wait_until("it is written anew", || {
            fs::read_to_string(&path).is_ok_and(|text| text.contains("\"a\""))
        });
        file.close();
    }

    #[test]
    fn two_processes_on_one_file_find_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let ((one, first), (other, second)) = (open(&path).unwrap(), open(&path).unwrap());
        for id in ["a", "b", "c", "d"] {
            one.put(key(id)).unwrap();
            other.put(key(&id.to_uppercase())).unwrap();
        }
        one.put(ApiKey { state: KeyState::Deleted { at: now() }, changed: 9, ..key("a") }).unwrap();
        let ids =
            |keys: &ApiKeys| keys.all().iter().map(|key| (key.id.clone(), key.changed)).collect::<Vec<_>>();
        wait_until("they agree", || ids(&one).len() == 8 && ids(&one) == ids(&other));
        assert_eq!(other.find(&KeyHash::of(b"a"), 1), Err(KeyFault::Revoked));
        first.close();
        second.close();
    }
}
