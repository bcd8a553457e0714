//! The version of a file.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// The metadata that changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

impl FileVersion {
    /// The version of the file at `path`. `None`: there is no file, or its metadata can't be read.
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::from_metadata)
    }

    pub(super) fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
        }
    }
}
