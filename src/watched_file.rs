//! A file that is read again when it changes: of certificates, or of keys.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// A file modified within this time before it was read may be modified again without a change of its
/// modification time.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

/// A file, and what was in it when it was last read.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    /// `None` if the file could not be read, or may have changed since without a trace.
    version: Option<FileVersion>,
    bytes: Vec<u8>,
}

impl WatchedFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It can't be read, or is larger than 4 MiB.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let (version, bytes) = read(&path)?;
        Ok(Self { path, version, bytes })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was in it when it was last read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the file again if it may have changed. Returns whether its bytes have. Blocks: not for a worker's thread.
    ///
    /// # Errors
    /// It can't be read, or is larger than 4 MiB. The bytes stay as they were.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let version = fs::metadata(&self.path).map(|metadata| FileVersion::from_metadata(&metadata));
        if version.is_ok_and(|version| self.version == Some(version)) {
            return Ok(false);
        }
        self.version = None;
        let (version, bytes) = read(&self.path)?;
        self.version = version;
        let has_changed = bytes != self.bytes;
        self.bytes = bytes;
        Ok(has_changed)
    }
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

/// The bytes of the file, and its version unless it may still change without a trace.
fn read(path: &Path) -> io::Result<(Option<FileVersion>, Vec<u8>)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "one").unwrap();
        let mut file = WatchedFile::open(path.clone()).unwrap();
        assert!(!file.refresh().unwrap());
        // As many bytes, at nearly the same time.
        fs::write(&path, "two").unwrap();
        assert!(file.refresh().unwrap());
        assert_eq!(file.bytes(), b"two");
        assert!(!file.refresh().unwrap());
    }

    #[test]
    fn what_was_read_stays_while_the_file_is_away() {
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
