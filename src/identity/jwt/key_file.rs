//! A key file, which is read again when it changes.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::{Mutex, RwLock};

use crate::{
    config::model::JwtAlgorithm,
    identity::keys::{KeyError, Keys},
};

/// The largest key file, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// A file modified within this time before it was read may be modified again without a change of its
/// modification time.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

/// A key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the keys in {} can't be used: it {reason}", .path.display())]
pub struct UnusableKeys {
    path: PathBuf,
    reason: KeyFileError,
}

#[derive(Debug, thiserror::Error)]
enum KeyFileError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Wrong(#[from] KeyError),
}

/// The metadata that changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

impl FileVersion {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
        }
    }
}

/// The keys in force, and how often they were replaced.
#[derive(Clone)]
pub(super) struct CurrentKeys {
    pub(super) keys: Arc<Keys>,
    pub(super) generation: u64,
}

/// A key file and its keys.
pub(super) struct KeyFile {
    path: PathBuf,
    algorithm: Option<JwtAlgorithm>,
    current: RwLock<CurrentKeys>,
    /// What was read last.
    last: Mutex<LastRead>,
}

struct LastRead {
    /// `None` if the file could not be read, or may have changed since without a trace.
    version: Option<FileVersion>,
    bytes: Vec<u8>,
    /// The last error that was logged, so that it is logged once.
    logged_error: Option<String>,
}

impl KeyFile {
    /// Reads the keys at `path`.
    pub(super) fn open(path: PathBuf, algorithm: Option<JwtAlgorithm>) -> Result<Self, UnusableKeys> {
        match read(&path).map_err(KeyFileError::from).and_then(|(version, bytes)| {
            let keys = Keys::read(&bytes, algorithm)?;
            Ok((Arc::new(keys), LastRead { version, bytes, logged_error: None }))
        }) {
            Ok((keys, last)) => {
                let current = RwLock::new(CurrentKeys { keys, generation: 0 });
                Ok(Self { path, algorithm, current, last: Mutex::new(last) })
            }
            Err(reason) => Err(UnusableKeys { path, reason }),
        }
    }

    /// The keys in force.
    pub(super) fn current(&self) -> CurrentKeys {
        self.current.read().clone()
    }

    /// Reads the file again if it has changed. Blocks: not for a worker's thread.
    pub(super) fn reload_if_changed(&self) {
        let mut last = self.last.lock();
        let version = std::fs::metadata(&self.path).map(|metadata| FileVersion::from_metadata(&metadata));
        if version.as_ref().is_ok_and(|version| last.version == Some(*version)) {
            return;
        }
        match read(&self.path) {
            Ok((version, bytes)) => {
                last.version = version;
                if bytes != last.bytes {
                    let keys = Keys::read(&bytes, self.algorithm);
                    last.bytes = bytes;
                    self.replace(keys.map_err(KeyFileError::from), &mut last);
                } else if last.logged_error.is_some() && Keys::read(&last.bytes, self.algorithm).is_ok() {
                    last.logged_error = None;
                    tracing::info!(file = %self.path.display(), "the JWT key file is readable again");
                }
            }
            Err(error) => {
                last.version = None;
                self.replace(Err(error.into()), &mut last);
            }
        }
    }

    fn replace(&self, keys: Result<Keys, KeyFileError>, last: &mut LastRead) {
        match keys {
            Ok(keys) => {
                let mut current = self.current.write();
                current.keys = Arc::new(keys);
                current.generation += 1;
                last.logged_error = None;
                tracing::info!(file = %self.path.display(), "JWT keys reloaded");
            }
            Err(reason) => {
                let logged_error = reason.to_string();
                if last.logged_error.as_ref() != Some(&logged_error) {
                    let file = self.path.display();
                    tracing::warn!(%file, "keeping the previous JWT keys: the file {logged_error}");
                    last.logged_error = Some(logged_error);
                }
            }
        }
    }
}

/// The bytes of the file, and its version unless it may still change without a trace.
fn read(path: &PathBuf) -> io::Result<(Option<FileVersion>, Vec<u8>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4MiB"));
    }
    let age = metadata.modified().map(|written| SystemTime::now().duration_since(written));
    let is_settled = matches!(age, Ok(Ok(age)) if age > MTIME_GRANULARITY);
    Ok((is_settled.then(|| FileVersion::from_metadata(&metadata)), bytes))
}
