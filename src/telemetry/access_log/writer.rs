//! The thread that does the I/O.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use crate::{file, telemetry::metrics::Metrics};

/// Between two messages about write errors: a full disk stays full for a while.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// What the writer is sent.
#[derive(Debug)]
pub(super) enum Message {
    Lines {
        text: Vec<u8>,
        lines: u64,
    },
    /// See whether the file is to be reopened.
    Wake,
    /// Write what is in the queue, and end.
    Close,
}

/// Where lines go.
pub(super) enum Sink {
    File { path: PathBuf, file: File },
    Stream(Box<dyn Write + Send>),
}

impl Sink {
    pub(super) fn file(path: &Path) -> io::Result<Self> {
        Ok(Self::File { path: path.to_owned(), file: file::append(path)? })
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(text),
            Self::Stream(stream) => stream.write_all(text).and_then(|()| stream.flush()),
        }
    }
}

/// Writes what workers hand over, in the order in which it comes.
pub(super) struct Writer {
    pub(super) sink: Sink,
    pub(super) reopen: Arc<AtomicBool>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) last_complaint: Option<Instant>,
}

impl Writer {
    /// Ends on `Close`, or when all senders are gone.
    pub(super) fn run(mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            match message {
                Message::Lines { text, lines } => self.write(&text, lines),
                Message::Wake => self.reopen(),
                Message::Close => break,
            }
        }
        while let Ok(message) = queue.try_recv() {
            if let Message::Lines { text, lines } = message {
                self.write(&text, lines);
            }
        }
    }

    fn write(&mut self, text: &[u8], lines: u64) {
        // A wake that found the queue full is made good here.
        self.reopen();
        if let Err(error) = self.sink.write(text) {
            self.metrics.add_access_log_dropped(lines);
            self.complain(&error);
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if self.last_complaint.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            self.last_complaint = Some(Instant::now());
            tracing::error!(%error, "the access log can't be written, and lines are dropped: {error}");
        }
    }

    /// Reopens the file if requested. On an error the open file stays.
    fn reopen(&mut self) {
        if !self.reopen.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Sink::File { path, file } = &mut self.sink {
            match file::append(path) {
                Ok(new) => *file = new,
                Err(error) => {
                    let path = path.display();
                    tracing::error!(%error, %path, "the access log {path} can't be reopened: {error}");
                }
            }
        }
    }
}
