//! A wall time that a test sets, for processes that it starts: `libfaketime` gives it to them, and leaves the monotonic clock.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A clock that shows the time of this machine, until it is set.
pub struct FakeClock {
    library: PathBuf,
    directory: TempDir,
}

impl FakeClock {
    /// `None`: the library is not installed.
    pub fn new() -> Option<Self> {
        let libraries = fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
        let found = libraries
            .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
            .find(|path| path.exists());
        let Some(library) = found else {
            eprintln!("left out: faketime is not installed");
            return None;
        };
        let clock = Self { library, directory: TempDir::new().unwrap() };
        clock.set("+0");
        Some(clock)
    }

    /// Gives this time to what `command` starts.
    pub fn wear(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.directory().join("ahead"))
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// How far ahead it is, such as `+10m`.
    pub fn set(&self, ahead: &str) {
        // The library may read it at any moment: it is replaced at once.
        fs::write(self.directory().join("next"), ahead).unwrap();
        fs::rename(self.directory().join("next"), self.directory().join("ahead")).unwrap();
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
