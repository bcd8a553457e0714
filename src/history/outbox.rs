//! Batches that the database has not taken yet: on disk, in the spool, or in memory where there is none.
//!
//! Each process has a directory in the spool, with a name of its own, and a lock on it. A process that finds the directory of
//! another without a lock sends what is in it, under the other's name.

use std::{
    collections::VecDeque,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};
use parking_lot::{Condvar, Mutex};

use super::batch::Batch;

/// The most bytes of batches in memory.
const MAX_MEMORY: usize = 32 << 20;
/// How long batches are kept that the database has acknowledged: if it fails over to a copy that lags, they are sent again.
const KEEP_SENT: Duration = Duration::from_secs(600);
/// The end of the names of batches.
const SUFFIX: &str = "batch";

/// The batches of one process.
pub(super) struct Outbox {
    inner: Mutex<Inner>,
    changed: Condvar,
    spool: Option<Spool>,
    /// Whether acknowledged batches are kept.
    keeps_sent: bool,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    sent: VecDeque<(u64, Instant, Arc<[u8]>)>,
    /// The number of the last batch.
    last: u64,
    in_memory: usize,
    on_disk: u64,
    sent_bytes: usize,
    dropped: u64,
    /// Why the last batch could not be written to the spool.
    fault: Option<String>,
    is_closed: bool,
}

/// A batch, by its number.
struct Waiting {
    number: u64,
    size: usize,
    /// `None`: it is on disk.
    bytes: Option<Arc<[u8]>>,
}

/// How much waits, and how much was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OutboxFacts {
    pub(super) batches: u64,
    pub(super) bytes: u64,
    pub(super) on_disk: u64,
    pub(super) dropped: u64,
    pub(super) fault: Option<String>,
}

impl Outbox {
    /// `keeps_sent`: whether the database may lose what it has acknowledged.
    pub(super) fn new(spool: Option<Spool>, keeps_sent: bool) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), spool, keeps_sent }
    }

    /// Adds a batch. If there is no room, the oldest is dropped, and counted.
    pub(super) fn push(&self, batch: &Batch) {
        let bytes: Arc<[u8]> = batch.encode().into();
        let size = bytes.len();
        let mut inner = self.inner.lock();
        inner.last += 1;
        let number = inner.last;
        while self.spool.as_ref().is_some_and(|spool| {
            inner.on_disk > 0 && inner.on_disk + size as u64 > spool.max && size as u64 <= spool.max
        }) {
            self.drop_oldest(&mut inner, |waiting| waiting.bytes.is_none());
        }
        let is_on_disk = self.spool.as_ref().is_some_and(|spool| {
            let written = match inner.on_disk + size as u64 <= spool.max {
                true => spool.write(number, &bytes).map_err(|error| error.to_string()),
                false => Err("it has its largest size".to_owned()),
            };
            inner.fault =
                written.as_ref().err().map(|error| format!("{}: {error}", spool.directory.display()));
            written.is_ok()
        });
        match is_on_disk {
            true => inner.on_disk += size as u64,
            false => inner.in_memory += size,
        }
        inner.waiting.push_back(Waiting { number, size, bytes: (!is_on_disk).then_some(bytes) });
        while inner.in_memory > MAX_MEMORY {
            self.drop_oldest(&mut inner, |waiting| waiting.bytes.is_some());
        }
        self.changed.notify_all();
    }

    /// Drops the oldest of these batches. It may be on its way: what it adds, it adds once in any case.
    fn drop_oldest(&self, inner: &mut Inner, is_one: impl Fn(&Waiting) -> bool) {
        let oldest = inner.waiting.iter().position(is_one);
        if let Some(dropped) = oldest.and_then(|at| inner.waiting.remove(at)) {
            self.remove(inner, &dropped);
            inner.dropped += 1;
        }
    }

    /// Puts the first batch aside, which has this `number`: the database can't take it.
    pub(super) fn put_aside(&self, number: u64) {
        let mut inner = self.inner.lock();
        if inner.waiting.front().is_none_or(|first| first.number != number) {
            return;
        }
        if let Some(first) = inner.waiting.pop_front() {
            if let (None, Some(spool)) = (&first.bytes, &self.spool) {
                spool.put_aside(number);
            }
            self.remove(&mut inner, &first);
            inner.dropped += 1;
        }
    }

    /// No batch will be added.
    pub(super) fn close(&self) {
        self.inner.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends the wait for a batch.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Whether no batch will be added, and none waits.
    pub(super) fn is_over(&self) -> bool {
        let inner = self.inner.lock();
        inner.is_closed && inner.waiting.is_empty()
    }

    /// Whether no batch will be added.
    pub(super) fn is_closed(&self) -> bool {
        self.inner.lock().is_closed
    }

    /// Waits until a batch waits, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let mut inner = self.inner.lock();
        if inner.waiting.is_empty() && !inner.is_closed {
            self.changed.wait_for(&mut inner, limit);
        }
    }

    /// The first batch that waits.
    pub(super) fn first(&self) -> Option<(u64, Arc<[u8]>)> {
        loop {
            let mut inner = self.inner.lock();
            let first = inner.waiting.front()?;
            let number = first.number;
            if let Some(bytes) = &first.bytes {
                return Some((number, Arc::clone(bytes)));
            }
            drop(inner);
            match self.spool.as_ref().map(|spool| spool.read(number)) {
                Some(Ok(bytes)) => return Some((number, bytes.into())),
                _ => {
                    // Somebody has removed it.
                    inner = self.inner.lock();
                    if inner.waiting.front().is_some_and(|first| first.number == number)
                        && let Some(lost) = inner.waiting.pop_front()
                    {
                        inner.on_disk -= lost.size as u64;
                        inner.dropped += 1;
                    }
                }
            }
        }
    }

    /// The database has acknowledged the batch of this `number`, whose content is `bytes`.
    pub(super) fn acknowledged(&self, number: u64, bytes: Arc<[u8]>) {
        let mut inner = self.inner.lock();
        if inner.waiting.front().is_some_and(|first| first.number == number)
            && let Some(first) = inner.waiting.pop_front()
        {
            self.remove(&mut inner, &first);
        }
        if self.keeps_sent {
            inner.sent_bytes += bytes.len();
            inner.sent.push_back((number, Instant::now(), bytes));
            while inner.sent_bytes > MAX_MEMORY
                || inner.sent.front().is_some_and(|(_, sent, _)| sent.elapsed() > KEEP_SENT)
            {
                let Some((_, _, bytes)) = inner.sent.pop_front() else { break };
                inner.sent_bytes -= bytes.len();
            }
        }
    }

    /// The batches after the one of this `number` that were acknowledged: the database has lost them.
    pub(super) fn sent_after(&self, number: u64) -> Vec<(u64, Arc<[u8]>)> {
        let inner = self.inner.lock();
        let lost = inner.sent.iter().filter(|(sent, _, _)| *sent > number);
        lost.map(|(sent, _, bytes)| (*sent, Arc::clone(bytes))).collect()
    }

    /// How much waits, and how much was lost.
    pub(super) fn facts(&self) -> OutboxFacts {
        let inner = self.inner.lock();
        OutboxFacts {
            batches: inner.waiting.len() as u64,
            bytes: inner.in_memory as u64 + inner.on_disk,
            on_disk: inner.on_disk,
            dropped: inner.dropped,
            fault: inner.fault.clone(),
        }
    }

    fn remove(&self, inner: &mut Inner, waiting: &Waiting) {
        match (&waiting.bytes, &self.spool) {
            (Some(_), _) => inner.in_memory -= waiting.size,
            (None, Some(spool)) => {
                inner.on_disk -= waiting.size as u64;
                spool.remove(waiting.number);
            }
            (None, None) => {}
        }
    }
}

/// The directory of one process in the spool, and the lock on it.
pub(super) struct Spool {
    directory: PathBuf,
    max: u64,
    _lock: Flock<File>,
}

impl Spool {
    /// Makes the directory of the process called `process` in the spool at `path`, of at most `max` bytes.
    ///
    /// # Errors
    /// It can't be made or locked.
    pub(super) fn create(path: &Path, process: &str, max: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = path.join(process);
        DirBuilder::new().mode(0o700).create(&directory)?;
        Self::open(directory, max)
    }

    fn open(directory: PathBuf, max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(directory.join("lock"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io::Error::from_raw_os_error(errno as i32))?;
        Ok(Self { directory, max, _lock: lock })
    }

    /// The directories in the spool at `path` whose processes have ended, by the processes' names.
    pub(super) fn abandoned(path: &Path) -> Vec<(String, Self)> {
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let open = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            // One without a lock file was not made here, or is being made.
            entry.path().join("lock").exists().then_some(())?;
            Some((name, Self::open(entry.path(), 0).ok()?))
        };
        directories.filter_map(open).collect()
    }

    /// The numbers of its batches, in their order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let number = |entry: fs::DirEntry| {
            let path = entry.path();
            let is_batch = path.extension().is_some_and(|end| end == SUFFIX);
            path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()).filter(|_| is_batch)
        };
        let mut numbers: Vec<u64> = entries.flatten().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Writes a batch. It is there as a whole, or not at all; what it takes to survive a power failure is not waited for.
    fn write(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.directory.join("unfinished");
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
        let written = file.write_all(bytes);
        if written.is_err() {
            // It would take the space that is missing.
            let _removed = fs::remove_file(&unfinished);
        }
        written?;
        fs::rename(&unfinished, self.path(number))
    }

    /// # Errors
    /// It can't be read.
    pub(super) fn read(&self, number: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(number))
    }

    pub(super) fn remove(&self, number: u64) {
        if let Err(error) = fs::remove_file(self.path(number))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", self.path(number).display());
        }
    }

    /// Puts a batch aside that can't be read.
    pub(super) fn put_aside(&self, number: u64) {
        let _kept = fs::rename(self.path(number), self.directory.join(format!("{number}.unreadable")));
    }

    /// Removes the directory, unless something is left in it.
    pub(super) fn finish(self) {
        let is_empty = fs::read_dir(&self.directory).is_ok_and(|entries| {
            entries.flatten().all(|entry| matches!(entry.file_name().to_str(), Some("lock" | "unfinished")))
        });
        if is_empty {
            let _gone = fs::remove_dir_all(&self.directory);
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:012}.{SUFFIX}"))
    }
}

impl Outbox {
    /// Removes the directory of the spool, as nothing is left in it.
    pub(super) fn finish(&self) {
        if let Some(spool) = &self.spool
            && spool.numbers().is_empty()
        {
            let _gone = fs::remove_dir_all(&spool.directory);
        }
    }
}
