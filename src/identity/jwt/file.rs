//! A file of keys that may change.

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

/// The longest file of keys, in bytes.
const LONGEST: u64 = 4 << 20;
/// A file that was written so shortly before it was read may have been written again in the same tick of its
/// clock.
const UNSETTLED: Duration = Duration::from_secs(2);

/// Keys of a token can't be had.
#[derive(Debug, thiserror::Error)]
#[error("the keys in {} can't be used: it {why}", .path.display())]
pub struct UnusableKeys {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Wrong(#[from] KeyError),
}

/// What of a file changes when it is written anew or another takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
        }
    }
}

/// The keys that hold now, and how often they were replaced.
#[derive(Clone)]
pub(super) struct Current {
    pub(super) keys: Arc<Keys>,
    pub(super) generation: u64,
}

/// A file of keys, which is read again when it changes.
pub(super) struct KeyFile {
    path: PathBuf,
    algorithm: Option<JwtAlgorithm>,
    current: RwLock<Current>,
    /// The last look at it.
    seen: Mutex<Seen>,
}

struct Seen {
    /// None where it could not be read, or may have changed since without a trace.
    stamp: Option<Stamp>,
    bytes: Vec<u8>,
    /// What was complained of, so that it is said once.
    complaint: Option<String>,
}

impl KeyFile {
    /// Reads the keys at `path`.
    pub(super) fn open(path: PathBuf, algorithm: Option<JwtAlgorithm>) -> Result<Self, UnusableKeys> {
        match read(&path).map_err(Why::from).and_then(|(stamp, bytes)| {
            let keys = Keys::read(&bytes, algorithm)?;
            Ok((Arc::new(keys), Seen { stamp, bytes, complaint: None }))
        }) {
            Ok((keys, seen)) => {
                let current = RwLock::new(Current { keys, generation: 0 });
                Ok(Self { path, algorithm, current, seen: Mutex::new(seen) })
            }
            Err(why) => Err(UnusableKeys { path, why }),
        }
    }

    /// The keys that hold now.
    pub(super) fn current(&self) -> Current {
        self.current.read().clone()
    }

    /// Reads it again if it has changed. Blocks, so it is not for a thread that serves.
    pub(super) fn look(&self) {
        let mut seen = self.seen.lock();
        let stamp = std::fs::metadata(&self.path).map(|metadata| Stamp::of(&metadata));
        if stamp.as_ref().is_ok_and(|stamp| seen.stamp == Some(*stamp)) {
            return;
        }
        match read(&self.path) {
            Ok((stamp, bytes)) => {
                seen.stamp = stamp;
                if bytes != seen.bytes {
                    let keys = Keys::read(&bytes, self.algorithm);
                    seen.bytes = bytes;
                    self.take(keys.map_err(Why::from), &mut seen);
                } else if seen.complaint.is_some() && Keys::read(&seen.bytes, self.algorithm).is_ok() {
                    seen.complaint = None;
                    tracing::info!(file = %self.path.display(), "the keys of tokens can be read again");
                }
            }
            Err(error) => {
                seen.stamp = None;
                self.take(Err(error.into()), &mut seen);
            }
        }
    }

    fn take(&self, keys: Result<Keys, Why>, seen: &mut Seen) {
        match keys {
            Ok(keys) => {
                let mut current = self.current.write();
                current.keys = Arc::new(keys);
                current.generation += 1;
                seen.complaint = None;
                tracing::info!(file = %self.path.display(), "the keys of tokens were read anew");
            }
            Err(why) => {
                let complaint = why.to_string();
                if seen.complaint.as_ref() != Some(&complaint) {
                    let file = self.path.display();
                    tracing::warn!(%file, "the keys of tokens stay as they were, since the file {complaint}");
                    seen.complaint = Some(complaint);
                }
            }
        }
    }
}

/// What is in the file, and its stamp, unless it may change yet without showing it.
fn read(path: &PathBuf) -> io::Result<(Option<Stamp>, Vec<u8>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4MiB"));
    }
    let age = metadata.modified().map(|written| SystemTime::now().duration_since(written));
    let settled = matches!(age, Ok(Ok(age)) if age > UNSETTLED);
    Ok((settled.then(|| Stamp::of(&metadata)), bytes))
}
