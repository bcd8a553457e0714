//! Opens and reads files named by an operator. They may be pipes or devices, or on a disk that hangs: no caller waits
//! longer than a limit.

use std::{
    cell::RefCell,
    fs::{self, File, FileType, Metadata, OpenOptions},
    io::{self, ErrorKind, Read},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
        mpsc::{Receiver, Sender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// The time limit for reading a file.
pub const READ_LIMIT: Duration = Duration::from_secs(10);
/// Extra time for a reading thread, which enforces the limit itself.
const GRACE: Duration = Duration::from_millis(200);
/// Threads that may read, or hang, at a time.
const MAX_THREADS: usize = 64;

/// Reads a file, or a pipe or a terminal until its end.
///
/// # Errors
/// It can't be read within [`READ_LIMIT`], or has more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let owned = path.to_owned();
    within_limit(move || read_by(&owned, max_bytes, Some(Instant::now() + READ_LIMIT)))
}

/// Like [`read`], without a time limit. Blocks.
///
/// # Errors
/// It can't be read, or has more than `max_bytes`.
pub fn read_patiently(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_by(path, max_bytes, None)
}

/// Reads the regular file at `path`. A pipe is refused, since it could not be reread.
///
/// # Errors
/// It can't be read within [`READ_LIMIT`], is not a regular file, or has more than `max_bytes`.
pub fn read_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let owned = path.to_owned();
    within_limit(move || {
        let (file, metadata) = open_file(&owned)?;
        // Not read before it is refused.
        check_length(metadata.len(), max_bytes)?;
        read_to_end(file, max_bytes)
    })
}

/// Whether `path` is a directory.
///
/// # Errors
/// It does not exist, or its metadata can't be read within [`READ_LIMIT`].
pub fn is_directory(path: &Path) -> io::Result<bool> {
    let owned = path.to_owned();
    within_limit(move || Ok(fs::metadata(owned)?.is_dir()))
}

/// Opens the regular file at `path`, and never waits for the other end of a pipe. Blocks while the disk hangs.
///
/// # Errors
/// It can't be opened, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let (file, metadata) = open(path)?;
    check_is_file(metadata.file_type())?;
    Ok((file, metadata))
}

/// Refuses everything but a regular file.
pub(super) fn check_is_file(file_type: FileType) -> io::Result<()> {
    match kind(file_type) {
        None => Ok(()),
        Some(kind) => Err(io::Error::other(format!("it is {kind}, not a file"))),
    }
}

/// Reads to the end.
///
/// # Errors
/// It can't be read, or has more than `max_bytes`.
pub fn read_to_end(from: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max_bytes + 1).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64, max_bytes)?;
    Ok(bytes)
}

/// Opens the file at `path` for appending. A pipe without a reader buffers as much as it has room for.
///
/// # Errors
/// It can't be opened or created.
pub fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    if !fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return options.create(true).open(path);
    }
    // A pipe that is also open for reading needs no other reader.
    match options.clone().read(true).open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
            fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
            Ok(file)
        }
        opened => opened,
    }
}

/// The error if reading takes longer than [`READ_LIMIT`].
pub fn too_slow() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("reading it takes longer than {READ_LIMIT:?}"))
}

fn within_limit<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    ReadAttempt::start(work)?.wait(READ_LIMIT + GRACE).unwrap_or_else(|| Err(too_slow()))
}

fn read_by(path: &Path, max_bytes: u64, deadline: Option<Instant>) -> io::Result<Vec<u8>> {
    let (file, metadata) = open(path)?;
    let file_type = metadata.file_type();
    match kind(file_type) {
        None => read_to_end(file, max_bytes),
        Some(kind) if file_type.is_dir() => Err(io::Error::other(format!("it is {kind}, not a file"))),
        Some(_) => read_stream(&file, max_bytes, deadline),
    }
}

/// Opens a file for reading. A pipe without a writer is opened at once.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        // Another process has a lease on the file, and releases it on request.
        Err(error) if error.kind() == ErrorKind::WouldBlock => File::open(path),
        Err(error) if is_nobody_there(&error) => {
            Err(io::Error::other("it is a socket, or a device that is not there, not a file"))
        }
        opened => opened,
    }?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Whether the path is a socket, a pipe without a reader, or a device without a driver.
fn is_nobody_there(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENXIO as i32)
}

/// The kind of file, unless it is a regular one.
fn kind(file_type: FileType) -> Option<&'static str> {
    match () {
        () if file_type.is_file() => None,
        () if file_type.is_dir() => Some("a directory"),
        () if file_type.is_fifo() => Some("a pipe"),
        () => Some("a device"),
    }
}

/// Reads a pipe or a device, opened non-blocking, until its end.
fn read_stream(mut stream: &File, max_bytes: u64, deadline: Option<Instant>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        wait_until_readable(stream, deadline)?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        check_length(bytes.len() as u64, max_bytes)?;
    }
}

fn wait_until_readable(stream: &File, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        match poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => {
                let words = format!("it is a pipe that nobody has written to its end within {READ_LIMIT:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, words));
            }
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn check_length(bytes: u64, max_bytes: u64) -> io::Result<()> {
    if bytes <= max_bytes {
        return Ok(());
    }
    let max = match max_bytes >> 20 {
        0 => format!("{}KiB", max_bytes >> 10),
        mib => format!("{mib}MiB"),
    };
    Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {max}")))
}

/// Work that may hang, on its own thread. It continues there if the caller stops waiting.
#[derive(Debug)]
pub struct ReadAttempt<T>(Receiver<T>);

impl<T: Send + 'static> ReadAttempt<T> {
    /// Starts `work`. Each calling thread has a helper thread, and gets a new one while that hangs.
    ///
    /// # Errors
    /// The system has no thread left, or too many threads hang already.
    pub fn start(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (done, result) = sync_channel(1);
        HELPER.with_borrow_mut(|current| {
            let helper = match current.take().filter(|helper| helper.is_idle.load(Acquire)) {
                Some(idle) => idle,
                None => Helper::spawn()?,
            };
            helper.is_idle.store(false, Relaxed);
            let is_idle = Arc::clone(&helper.is_idle);
            let job = move || {
                let value = work();
                is_idle.store(true, Release);
                // The caller may have stopped waiting.
                drop(done.send(value));
            };
            // An idle helper has not ended.
            drop(helper.jobs.send(Box::new(job)));
            *current = Some(helper);
            Ok(Self(result))
        })
    }

    /// The result, unless the work takes longer than `limit`.
    pub fn wait(&self, limit: Duration) -> Option<T> {
        self.0.recv_timeout(limit).ok()
    }
}

thread_local! {
    /// The helper of the calling thread.
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// A thread that runs jobs one after another. It ends once it is dropped and its job is done.
struct Helper {
    jobs: Sender<Box<dyn FnOnce() + Send>>,
    is_idle: Arc<AtomicBool>,
}

impl Helper {
    fn spawn() -> io::Result<Self> {
        let counted = CountedThread::new()?;
        let (jobs, received) = channel::<Box<dyn FnOnce() + Send>>();
        let run = move || {
            let _counted = counted;
            received.into_iter().for_each(|job| job());
        };
        thread::Builder::new().name("files".into()).spawn(run)?;
        Ok(Self { jobs, is_idle: Arc::new(AtomicBool::new(true)) })
    }
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A guard that counts one of [`MAX_THREADS`].
struct CountedThread;

impl CountedThread {
    fn new() -> io::Result<Self> {
        let counted = Self;
        match THREADS.fetch_add(1, Relaxed) {
            0..MAX_THREADS => Ok(counted),
            _ => Err(io::Error::other(format!("reading {MAX_THREADS} other files has not ended yet"))),
        }
    }
}

impl Drop for CountedThread {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn directories_pipes_and_sockets_are_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let [fifo, socket] = ["fifo", "socket"].map(|name| directory.path().join(name));
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (directory.path(), "a directory"),
            (&fifo, "a pipe"),
            (&socket, "a socket"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let error = read_file(path, 9).unwrap_err().to_string();
            assert!(error.starts_with(&format!("it is {kind}")) && error.ends_with("not a file"), "{error}");
        }
        assert!(read(directory.path(), 9).unwrap_err().to_string().contains("a directory"));
        assert_eq!(read(Path::new("/dev/null"), 9).unwrap(), b"");
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let late = Some(Instant::now() + Duration::from_millis(50));
        let error = read_by(&fifo, 9, late).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let writer = {
            let fifo = fifo.clone();
            thread::spawn(move || fs::write(fifo, "text").unwrap())
        };
        assert_eq!(read(&fifo, 4).unwrap(), b"text");
        writer.join().unwrap();
        assert_eq!(read(Path::new("/dev/zero"), 4_096).unwrap_err().to_string(), "it is longer than 4KiB");
    }

    #[test]
    fn a_read_that_hangs_delays_no_later_one() {
        let (let_go, hung) = channel::<()>();
        let hanging = ReadAttempt::start(move || hung.recv().is_err()).unwrap();
        assert_eq!(hanging.wait(Duration::from_millis(10)), None);
        let [first, second] =
            [(); 2].map(|()| ReadAttempt::start(|| thread::current().id()).unwrap().wait(SECOND).unwrap());
        assert_eq!(first, second, "a helper that is idle is used again");
        drop(let_go);
        assert_eq!(hanging.wait(SECOND), Some(true));
    }
}
