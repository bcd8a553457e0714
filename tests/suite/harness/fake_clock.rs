//! A wall time that a test sets, for processes that it starts: a library gives it to them, and leaves the monotonic clock.

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
    /// By `libfaketime`. `None`: it is not installed.
    pub fn new() -> Option<Self> {
        let libraries = fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
        let found = libraries
            .map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"))
            .find(|path| path.exists());
        let Some(library) = found else {
            eprintln!("left out: faketime is not installed");
            return None;
        };
        Some(Self::by(library, TempDir::new().unwrap()))
    }

    /// For `redis-server`.
    pub fn of_redis() -> Self {
        let directory = TempDir::new().unwrap();
        let (source, library) =
            (directory.path().join("redis_clock.c"), directory.path().join("redis_clock.so"));
        fs::write(&source, include_str!("redis_clock.c")).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        Self::by(library, directory)
    }

    fn by(library: PathBuf, directory: TempDir) -> Self {
        let clock = Self { library, directory };
        clock.set("+0");
        clock
    }

    /// Gives this time to what `command` starts.
    pub fn wear(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.directory().join("ahead"))
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// How far ahead it is: seconds, such as `+600`. `libfaketime` also knows `+1h`.
    pub fn set(&self, ahead: &str) {
        // The library may read it at any moment: it is replaced at once.
        fs::write(self.directory().join("next"), ahead).unwrap();
        fs::rename(self.directory().join("next"), self.directory().join("ahead")).unwrap();
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
