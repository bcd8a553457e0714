//! The file in which keys are kept that are made and changed here, where there is no Redis.
//!
//! A process that takes over reads it while the old one may still change it. So both look for changes of it and merge
//! them, as instances do with Redis.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
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

use super::{ApiKey, ApiKeys, Stamp, record::MAX_RECORD};
use crate::file;

/// How often changes are written.
const ROUND: Duration = Duration::from_millis(50);
/// How often it is looked whether another process has changed the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often last uses are written.
const USES_EVERY: Duration = Duration::from_secs(300);
/// Delay after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Most bytes of the file.
const MAX_BYTES: u64 = 1 << 30;

/// Why the data file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    #[error("the API keys in {} can't be read: {error}", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// It was not written to its end, or is another file. It is never overwritten.
    #[error("{} has no API keys that can be read: {error}; restore it, or remove it to begin without keys", .path.display())]
    Torn { path: PathBuf, error: String },
    #[error("the API keys can't be written to {}: {error}", .path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

/// The file, and the thread that writes it.
#[derive(Debug)]
pub struct DataFile {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Contents<K, U> {
    /// 1.
    version: u32,
    keys: K,
    /// Minutes since the Unix epoch, by ID.
    last_uses: U,
}

type Read = Contents<Vec<ApiKey>, Vec<(CompactString, i64)>>;

impl DataFile {
    /// Reads the keys, and writes their changes from now on.
    ///
    /// # Errors
    /// The file can't be read or written, or holds something else.
    pub fn open(path: &Path, keys: &Arc<ApiKeys>) -> Result<Self, DataFileError> {
        let mut writer = Writer { path: path.to_owned(), keys: Arc::clone(keys), version: None };
        writer.merge()?;
        if writer.version.is_none() {
            writer.write()?;
        }
        keys.set_store_up(true);
        let (end, ends) = mpsc::channel();
        let unwritable = |error| DataFileError::Unwritable { path: path.to_owned(), error };
        let thread = thread::Builder::new().name("key-data".into()).spawn(move || writer.run(&ends));
        Ok(Self { end, thread: thread.map_err(unwritable)? })
    }

    /// Writes the last changes and uses, and ends the thread.
    pub fn close(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes API keys crashed");
        }
    }
}

struct Writer {
    path: PathBuf,
    keys: Arc<ApiKeys>,
    /// Of the file that was read or written last. `None`: there is none.
    version: Option<FileVersion>,
}

/// Changes with each replacement of the file.
type FileVersion = (u64, u64, i64, i64);

impl Writer {
    fn run(mut self, ends: &mpsc::Receiver<()>) {
        let (mut look_at, mut retry_at) = (Instant::now() + LOOK_EVERY, Instant::now());
        let mut uses_at = Instant::now() + USES_EVERY;
        let mut last_error = String::new();
        loop {
            let is_end = matches!(ends.recv_timeout(ROUND), Err(RecvTimeoutError::Disconnected));
            let now = Instant::now();
            let are_uses_due = (uses_at <= now || is_end) && self.keys.uses().has_unsent();
            let is_due = self.keys.has_unsent() || are_uses_due || look_at <= now;
            if !is_end && (!is_due || retry_at > now) {
                continue;
            }
            if are_uses_due {
                uses_at = now + USES_EVERY;
            }
            look_at = now + LOOK_EVERY;
            match self.round(are_uses_due) {
                Ok(()) => {
                    self.keys.set_store_up(true);
                    last_error.clear();
                }
                Err(error) => {
                    self.keys.set_store_up(false);
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

    fn round(&mut self, are_uses_due: bool) -> Result<(), DataFileError> {
        self.keys.sweep(now());
        if version(&self.path) != self.version {
            self.merge()?;
        }
        if self.keys.has_unsent() || are_uses_due {
            self.write()?;
        }
        Ok(())
    }

    /// Takes what is in the file. What it lacks is to be written.
    fn merge(&mut self) -> Result<(), DataFileError> {
        let found = version(&self.path);
        let bytes = match file::read_file(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.keys.finish_snapshot(&HashSet::default(), now());
                self.version = None;
                return Ok(());
            }
            Err(error) => return Err(DataFileError::Unreadable { path: self.path.clone(), error }),
        };
        let torn = |error: String| DataFileError::Torn { path: self.path.clone(), error };
        let contents: Read = serde_json::from_slice(&bytes).map_err(|error| torn(error.to_string()))?;
        if contents.version != 1 {
            return Err(torn(format!("its version is {}, not 1", contents.version)));
        }
        for key in &contents.keys {
            key.check().map_err(|error| torn(format!("key {}: {error}", key.id)))?;
        }
        let mut current = HashSet::default();
        for key in contents.keys {
            let (id, stamp) = (key.id.clone(), Stamp::of(&key));
            if self.keys.merge(key, stamp) {
                current.insert(id);
            }
        }
        for (id, minute) in contents.last_uses {
            self.keys.merge_use(&id, minute);
        }
        self.keys.finish_snapshot(&current, now());
        self.version = found;
        Ok(())
    }

    /// Replaces the file at once: whoever reads it finds all of the old or all of the new one.
    fn write(&mut self) -> Result<(), DataFileError> {
        let unwritable = |error| DataFileError::Unwritable { path: self.path.clone(), error };
        // Before the keys are read: what is changed meanwhile is written again.
        let unsent = self.keys.unsent(usize::MAX);
        let uses = self.keys.uses().take_unsent(usize::MAX);
        if let Err(error) = self.replace() {
            self.keys.uses().put_back(uses);
            return Err(unwritable(error));
        }
        self.keys.ack(&unsent);
        self.version = version(&self.path);
        Ok(())
    }

    fn replace(&self) -> io::Result<()> {
        let directory =
            self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = directory.join(format!(".{name}.{}", std::process::id()));
        let written = self.write_to(&temporary).and_then(|()| fs::rename(&temporary, &self.path));
        if let Err(error) = written {
            // It may not be there.
            let _gone = fs::remove_file(&temporary);
            return Err(error);
        }
        // The new name, too, outlasts a power failure.
        File::open(directory)?.sync_all()
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut to = BufWriter::with_capacity(MAX_RECORD, file);
        let keys = self.keys.stored();
        let contents = Contents {
            version: 1,
            keys: keys.iter().map(AsRef::as_ref).collect::<Vec<&ApiKey>>(),
            last_uses: self.keys.uses().all(),
        };
        serde_json::to_writer(&mut to, &contents)?;
        to.write_all(b"\n")?;
        to.into_inner()?.sync_all()
    }
}

/// `None`: there is no file.
fn version(path: &Path) -> Option<FileVersion> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Microseconds since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
