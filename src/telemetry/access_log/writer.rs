//! The thread that writes the access log.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use crate::{file, telemetry::metrics::Metrics};

/// Time between two messages about write errors, since a full disk remains full for a while.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// A message to the writer.
#[derive(Debug)]
pub(super) enum WriterMessage {
    /// Complete lines, each with its newline.
    Lines(Vec<u8>),
    /// Check whether the file is to be reopened.
    Wake,
    /// Write the queued lines, then end.
    Close,
}

/// The destination of lines.
pub(super) enum Sink {
    File { path: PathBuf, file: File },
    Stream(Box<dyn Write + Send>),
}

impl Sink {
    pub(super) fn file(path: &Path) -> io::Result<Self> {
        Ok(Self::File { path: path.to_owned(), file: file::append(path)? })
    }

    /// Whether it is a file that ends in the middle of a line, for example because a process crashed.
    pub(super) fn is_torn(&self) -> bool {
        match self {
            Self::File { path, .. } => last_byte(path).is_ok_and(|last| last != b'\n'),
            Self::Stream(_) => false,
        }
    }

    /// Writes `text`; an error includes the number of bytes that were written before.
    fn write(&mut self, text: &[u8]) -> Result<(), (usize, io::Error)> {
        let stream: &mut dyn Write = match self {
            Self::File { file, .. } => file,
            Self::Stream(stream) => stream,
        };
        let mut written = 0;
        while written < text.len() {
            match stream.write(&text[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        // Unflushed bytes are kept in the stream's buffer.
        stream.flush().map_err(|error| (written, error))
    }
}

/// The last byte of the file at `path`. An error if it is empty, not a regular file, or not readable.
fn last_byte(path: &Path) -> io::Result<u8> {
    let (mut file, _) = file::open_file(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

/// Writes the lines of workers in the order of arrival.
pub(super) struct Writer {
    pub(super) sink: Sink,
    pub(super) reopen: Arc<AtomicBool>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether the last line is incomplete: the next one must begin with a newline.
    pub(super) is_torn: bool,
    pub(super) last_complaint: Option<Instant>,
}

impl Writer {
    /// Ends on `Close`, or when all senders are dropped.
    pub(super) fn run(mut self, queue: &Receiver<WriterMessage>) {
        while let Ok(message) = queue.recv() {
            match message {
                WriterMessage::Lines(text) => self.write(&text),
                WriterMessage::Wake => self.reopen(),
                WriterMessage::Close => break,
            }
        }
        while let Ok(message) = queue.try_recv() {
            if let WriterMessage::Lines(text) = message {
                self.write(&text);
            }
        }
    }

    fn write(&mut self, text: &[u8]) {
        // `Wake` may have been lost because the queue was full.
        self.reopen();
        if let Err((written, error)) = self.end_torn_line().and_then(|()| self.sink.write(text)) {
            let (written, lost) = text.split_at(written);
            self.is_torn |= written.last().is_some_and(|byte| *byte != b'\n');
            let lines = lost.iter().filter(|byte| **byte == b'\n').count();
            self.metrics.add_access_log_dropped(lines as u64);
            self.complain(&error);
        }
    }

    fn end_torn_line(&mut self) -> Result<(), (usize, io::Error)> {
        if self.is_torn {
            self.sink.write(b"\n").map_err(|(_, error)| (0, error))?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn complain(&mut self, error: &io::Error) {
        if self.last_complaint.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            self.last_complaint = Some(Instant::now());
            tracing::error!(%error, "the access log can't be written, and lines are dropped: {error}");
        }
    }

    /// Reopens the file if requested. On an error the current file is kept.
    fn reopen(&mut self) {
        if !self.reopen.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Sink::File { path, .. } = &self.sink {
            match Sink::file(path) {
                Ok(new) => {
                    self.is_torn = new.is_torn();
                    self.sink = new;
                }
                Err(error) => {
                    let path = path.display();
                    tracing::error!(%error, %path, "the access log {path} can't be reopened: {error}");
                }
            }
        }
    }
}
