//! The access log of the process: opened at the start, reopened on a signal, closed at the end.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    WorkerLog,
    writer::{Sink, Writer, WriterMessage},
};
use crate::{
    config::model::{self, AccessLogFormat, Destination},
    telemetry::metrics::Metrics,
};

/// Maximum number of buffers waiting for the disk: 4 MiB of lines.
const QUEUE: usize = 64;

/// The access log can't be started.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    #[error("cannot open the access log {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot start the access log thread: {0}")]
    Thread(#[source] io::Error),
}

/// The access log of the process.
#[derive(Debug)]
pub struct AccessLogHandle {
    format: AccessLogFormat,
    sample: f64,
    metrics: Arc<Metrics>,
    /// `None`: nothing is logged.
    writer: Option<WriterHandle>,
}

#[derive(Debug)]
struct WriterHandle {
    queue: SyncSender<WriterMessage>,
    reopen: Arc<AtomicBool>,
    /// Disconnects when the thread has ended.
    ended: Receiver<()>,
}

impl AccessLogHandle {
    /// Opens the destination in `config` and starts the thread that writes to it.
    ///
    /// # Errors
    /// The file can't be opened or created, or the thread can't be started.
    pub fn open(config: &model::AccessLog, metrics: Arc<Metrics>) -> Result<Self, AccessLogError> {
        let sink = match (config.format, &config.to) {
            (AccessLogFormat::Off, _) => None,
            (_, Destination::Stdout) => Some(Sink::Stream(Box::new(io::stdout()))),
            (_, Destination::File(path)) => {
                Some(Sink::file(path).map_err(|source| AccessLogError::File { path: path.clone(), source })?)
            }
        };
        let writer = sink.map(|sink| start(sink, Arc::clone(&metrics))).transpose()?;
        Ok(Self { format: config.format, sample: config.sample, metrics, writer })
    }

    /// Creates the log of one worker.
    pub fn worker(&self) -> WorkerLog {
        let queue = self.writer.as_ref().map(|writer| writer.queue.clone());
        WorkerLog::new(self.format, self.sample, queue, Arc::clone(&self.metrics))
    }

    /// Makes the writer reopen the file, after it was renamed. Does not wait for that.
    pub fn reopen(&self) {
        if let Some(writer) = &self.writer {
            writer.reopen.store(true, Ordering::Relaxed);
            // If it is full, the next write sees the flag.
            let _full = writer.queue.try_send(WriterMessage::Wake);
        }
    }

    /// Writes the queued lines and ends the thread. Call it once the workers have ended: later lines are dropped and
    /// counted. Waits at most `within`, because a reader of stdout may have stalled. Returns whether everything was
    /// written in time.
    pub fn close(self, within: Duration) -> bool {
        let Some(writer) = self.writer else { return true };
        let deadline = Instant::now() + within;
        let mut message = WriterMessage::Close;
        while let Err(TrySendError::Full(back)) = writer.queue.try_send(message) {
            if Instant::now() >= deadline {
                return false;
            }
            message = back;
            thread::sleep(Duration::from_millis(1));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        // Nothing is ever sent; the end of the thread disconnects the channel.
        writer.ended.recv_timeout(left) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    }
}

fn start(sink: Sink, metrics: Arc<Metrics>) -> Result<WriterHandle, AccessLogError> {
    let (queue, messages) = sync_channel(QUEUE);
    let (end, ended) = sync_channel(0);
    let reopen = Arc::new(AtomicBool::new(false));
    let is_torn = sink.is_torn();
    let writer = Writer { sink, reopen: Arc::clone(&reopen), metrics, is_torn, last_complaint: None };
    thread::Builder::new()
        .name("access-log".into())
        .spawn(move || {
            writer.run(&messages);
            drop::<SyncSender<()>>(end);
        })
        .map_err(AccessLogError::Thread)?;
    Ok(WriterHandle { queue, reopen, ended })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        sync::{atomic::AtomicUsize, mpsc},
    };

    use parking_lot::Mutex;

    use super::{super::line::sample, *};
    use crate::telemetry::testing;

    const SOON: Duration = Duration::from_secs(10);

    fn metrics() -> Arc<Metrics> {
        Metrics::new(&testing::config(), 1)
    }

    fn config(to: Destination) -> model::AccessLog {
        model::AccessLog { format: AccessLogFormat::Combined, to, sample: 1.0, values: Vec::new() }
    }

    fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + SOON;
        while !what() {
            assert!(Instant::now() < deadline, "never came true");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn closing_writes_every_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        fs::write(&path, "before\n").unwrap();
        let log = AccessLogHandle::open(&config(Destination::File(path.clone())), metrics()).unwrap();
        let workers = [log.worker(), log.worker()];
        for worker in workers {
            assert!(worker.samples_next());
            for _ in 0..1_000 {
                worker.write(&sample::line());
            }
        }
        assert!(log.close(SOON));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2_001);
        assert!(text.starts_with("before\n203.0.113.7 - acme"));
    }

    #[test]
    fn a_file_moved_away_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let log = AccessLogHandle::open(&config(Destination::File(path.clone())), metrics()).unwrap();
        let worker = log.worker();
        worker.write(&sample::line());
        worker.flush();
        wait_for(|| fs::read_to_string(&path).is_ok_and(|text| !text.is_empty()));
        let moved = directory.path().join("access.log.1");
        fs::rename(&path, &moved).unwrap();
        log.reopen();
        wait_for(|| path.exists());
        worker.write(&sample::line());
        drop(worker);
        assert!(log.close(SOON));
        for file in [path, moved] {
            assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 1);
        }
    }

    #[test]
    fn a_line_that_another_process_has_torn_stays_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        fs::write(&path, "whole\nto").unwrap();
        let log = AccessLogHandle::open(&config(Destination::File(path.clone())), metrics()).unwrap();
        let worker = log.worker();
        worker.write(&sample::line());
        worker.flush();
        wait_for(|| fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 3));
        // The file that logrotate created.
        fs::write(&path, "to").unwrap();
        log.reopen();
        worker.write(&sample::line());
        drop(worker);
        assert!(log.close(SOON));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("to\n203.0.113.7"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let to = Destination::File("/nonexistent/access.log".into());
        let error = AccessLogHandle::open(&config(to), metrics()).unwrap_err();
        assert!(error.to_string().starts_with("cannot open the access log /nonexistent/access.log: "));
    }

    /// Blocks until it is released.
    struct BlockedWriter(mpsc::Receiver<()>);

    impl Write for BlockedWriter {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _gone = self.0.recv();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_never_time() {
        let (let_go, stuck) = mpsc::channel();
        let metrics = metrics();
        let writer = start(Sink::Stream(Box::new(BlockedWriter(stuck))), Arc::clone(&metrics)).unwrap();
        let config = config(Destination::Stdout);
        let log = AccessLogHandle {
            format: config.format,
            sample: config.sample,
            metrics: Arc::clone(&metrics),
            writer: Some(writer),
        };
        let worker = log.worker();
        for _ in 0..QUEUE + 10 {
            worker.write(&sample::line());
            worker.flush();
        }
        // One is being written, and the queue is full.
        wait_for(|| metrics.access_log_dropped() >= 9);
        assert!(metrics.access_log_dropped() <= 10);
        drop(worker);
        assert!(!log.close(Duration::from_millis(20)));
        drop(let_go);
    }

    /// Takes bytes until it is full.
    struct FullDisk {
        room: Arc<AtomicUsize>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for FullDisk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let room = self.room.load(Ordering::SeqCst).min(text.len());
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(room, Ordering::SeqCst);
            self.taken.lock().extend(&text[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_tears_one_line_and_costs_those_behind_it() {
        let (room, taken) = (Arc::new(AtomicUsize::new(8)), Arc::new(Mutex::new(Vec::new())));
        let disk = FullDisk { room: Arc::clone(&room), taken: Arc::clone(&taken) };
        let metrics = metrics();
        let writer = start(Sink::Stream(Box::new(disk)), Arc::clone(&metrics)).unwrap();
        let hand_over = |text: &[u8]| {
            writer.queue.send(WriterMessage::Lines(text.to_vec())).unwrap();
        };
        hand_over(b"one\ntwotwo\nthree\n");
        wait_for(|| metrics.access_log_dropped() == 2);
        hand_over(b"four\nfive\nsix\n");
        wait_for(|| metrics.access_log_dropped() == 5);
        room.store(usize::MAX, Ordering::SeqCst);
        hand_over(b"seven\neight\nnine\n");
        let expected = b"one\ntwot\nseven\neight\nnine\n";
        wait_for(|| taken.lock().len() >= expected.len());
        assert_eq!(*taken.lock(), expected);
        assert_eq!(metrics.access_log_dropped(), 5);
    }

    #[test]
    fn off_wants_nothing_and_opens_nothing() {
        let to = Destination::File("/nonexistent/access.log".into());
        let off = model::AccessLog { format: AccessLogFormat::Off, to, sample: 1.0, values: Vec::new() };
        let log = AccessLogHandle::open(&off, metrics()).unwrap();
        assert!(!log.worker().samples_next());
        assert!(log.close(Duration::ZERO));
    }

    #[test]
    fn a_share_is_a_share() {
        let some = model::AccessLog { sample: 0.5, ..config(Destination::Stdout) };
        let log = AccessLogHandle::open(&some, metrics()).unwrap();
        let worker = log.worker();
        let wanted = (0..10_000).filter(|_| worker.samples_next()).count();
        assert!((4_500..5_500).contains(&wanted), "{wanted} of 10000");
    }
}
