//! A file of certificates, keys or addresses, reread when it changes.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{
    FileVersion,
    read::{self, READ_LIMIT, ReadAttempt},
};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// A file modified within this time before it was read may be modified again without a change of its
/// modification time.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);
/// How long a slow file may delay the files that are reread after it. A read that takes longer is checked the next
/// time.
const HOLD_UP: Duration = Duration::from_millis(100);

/// A file, and its contents when it was last read.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    /// `None` if the file could not be read, or may have changed since without a new version.
    version: Option<FileVersion>,
    /// `None`: they were forgotten.
    bytes: Option<Vec<u8>>,
    /// The read in progress, and its start.
    attempt: Option<(Instant, ReadAttempt<io::Result<Option<VersionedBytes>>>)>,
}

/// The bytes of a file, and its version, unless the file may still change without a new version.
type VersionedBytes = (Option<FileVersion>, Vec<u8>);

impl WatchedFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It can't be read within [`READ_LIMIT`], is not a regular file, or is larger than 64 MiB.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let owned = path.clone();
        let read = ReadAttempt::start(move || read(&owned))?.wait(READ_LIMIT);
        let (version, bytes) = read.unwrap_or_else(|| Err(read::too_slow()))?;
        Ok(Self { path, version, bytes: Some(bytes), attempt: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents when the file was last read; empty once they are forgotten.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    /// Forgets the contents, until the file is read again: whatever is read then has changed.
    pub(super) fn forget_contents(&mut self) {
        self.bytes = None;
    }

    /// Rereads the file if it may have changed. Returns whether its bytes have. Blocks for a moment even if the disk
    /// hangs: not for a worker's thread.
    ///
    /// # Errors
    /// It can't be read, is not a regular file, is larger than 64 MiB, or reading it takes longer than [`READ_LIMIT`].
    /// The previous bytes are kept.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let (since, attempt) = match self.attempt.take() {
            Some(attempt) => attempt,
            None => {
                let (path, version) = (self.path.clone(), self.version);
                (Instant::now(), ReadAttempt::start(move || read_if_changed(&path, version))?)
            }
        };
        let Some(read) = attempt.wait(if since.elapsed() < HOLD_UP { HOLD_UP } else { Duration::ZERO })
        else {
            self.attempt = Some((since, attempt));
            return if since.elapsed() < READ_LIMIT { Ok(false) } else { Err(read::too_slow()) };
        };
        let Some((version, bytes)) = read.inspect_err(|_| self.version = None)? else { return Ok(false) };
        self.version = version;
        let has_changed = self.bytes.as_ref() != Some(&bytes);
        self.bytes = Some(bytes);
        Ok(has_changed)
    }
}

/// Reads the file. `None`: it still has the `known` version.
fn read_if_changed(path: &Path, known: Option<FileVersion>) -> io::Result<Option<VersionedBytes>> {
    if known.is_some() && FileVersion::of(path) == known {
        return Ok(None);
    }
    read(path).map(Some)
}

fn read(path: &Path) -> io::Result<VersionedBytes> {
    let (file, metadata) = read::open_file(path)?;
    let bytes = read::read_to_end(file, MAX_FILE)?;
    let age = metadata.modified().map(|written| SystemTime::now().duration_since(written));
    let is_settled = matches!(age, Ok(Ok(age)) if age > MTIME_GRANULARITY);
    Ok((is_settled.then(|| FileVersion::from_metadata(&metadata)), bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_is_seen_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "one").unwrap();
        let mut file = WatchedFile::open(path.clone()).unwrap();
        assert!(!file.refresh().unwrap());
        // The same number of bytes, at nearly the same time.
        fs::write(&path, "two").unwrap();
        assert!(file.refresh().unwrap());
        assert_eq!(file.bytes(), b"two");
        assert!(!file.refresh().unwrap());
    }

    #[test]
    fn the_bytes_stay_while_the_file_is_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "one").unwrap();
        let mut file = WatchedFile::open(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(file.refresh().is_err());
        assert_eq!(file.bytes(), b"one");
        fs::write(&path, "one").unwrap();
        assert!(!file.refresh().unwrap(), "the same bytes are no change");
    }
}
