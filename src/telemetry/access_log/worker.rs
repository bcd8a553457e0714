//! A worker's buffer of lines, passed to the writer when it is full or at regular intervals.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError},
    },
};

use super::{Line, combined, json, timestamp::TimestampCache, writer::WriterMessage};
use crate::{config::model::AccessLogFormat, telemetry::metrics::Metrics};

/// A buffer of at least this many bytes is passed to the writer immediately.
const MAX_BUFFER: usize = 64 << 10;

/// The access log of one worker. Used by one thread.
#[derive(Debug)]
pub struct WorkerLog {
    format: Cell<AccessLogFormat>,
    sample: Cell<f64>,
    buffer: RefCell<Buffer>,
    /// `None`: nothing is logged.
    queue: Option<SyncSender<WriterMessage>>,
    metrics: Arc<Metrics>,
}

/// A line that is not written yet.
#[derive(Debug)]
pub struct ComposedLine {
    text: Vec<u8>,
    format: AccessLogFormat,
}

#[derive(Debug)]
struct Buffer {
    text: Vec<u8>,
    lines: u64,
    timestamps: TimestampCache,
}

impl WorkerLog {
    pub(super) fn new(
        format: AccessLogFormat,
        sample: f64,
        queue: Option<SyncSender<WriterMessage>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let buffer = Buffer { text: Vec::new(), lines: 0, timestamps: TimestampCache::new() };
        let (format, sample) = (Cell::new(format), Cell::new(sample));
        Self { format, sample, buffer: RefCell::new(buffer), queue, metrics }
    }

    /// Logs this share of requests in this format from now on. No effect if the log was off at the start.
    pub fn reconfigure(&self, format: AccessLogFormat, sample: f64) {
        self.format.set(format);
        self.sample.set(sample);
    }

    /// Whether to log the current request, chosen at random if only a share is logged. To be called once per request,
    /// before the line is composed.
    pub fn samples_next(&self) -> bool {
        let sample = self.sample.get();
        let is_on = self.queue.is_some() && self.format.get() != AccessLogFormat::Off;
        is_on && (sample >= 1.0 || fastrand::f64() < sample)
    }

    /// Writes a line. Never waits.
    pub fn write(&self, line: &Line<'_>) {
        let mut buffer = self.buffer.borrow_mut();
        let Buffer { text, timestamps, .. } = &mut *buffer;
        compose(text, line, self.format.get(), timestamps);
        self.end_line(&mut buffer);
    }

    /// Composes a line without a cost, which is to be written once the cost is known.
    pub fn compose(&self, line: &Line<'_>) -> ComposedLine {
        let (mut text, format) = (Vec::new(), self.format.get());
        compose(&mut text, line, format, &mut self.buffer.borrow_mut().timestamps);
        ComposedLine { text, format }
    }

    /// Writes a composed line. Never waits.
    pub fn write_composed(&self, line: ComposedLine, cost: (u64, u64)) {
        let ComposedLine { mut text, format } = line;
        if format == AccessLogFormat::Json {
            json::add_cost(&mut text, cost);
        }
        let mut buffer = self.buffer.borrow_mut();
        buffer.text.append(&mut text);
        self.end_line(&mut buffer);
    }

    fn end_line(&self, buffer: &mut Buffer) {
        buffer.lines += 1;
        if buffer.text.len() >= MAX_BUFFER {
            self.hand_over(buffer);
        }
    }

    /// Passes the buffer to the writer. Never waits: if the queue is full, the lines are dropped and counted.
    pub fn flush(&self) {
        self.hand_over(&mut self.buffer.borrow_mut());
    }

    fn hand_over(&self, buffer: &mut Buffer) {
        let Some(queue) = self.queue.as_ref().filter(|_| buffer.lines > 0) else { return };
        // Room for the line that exceeds MAX_BUFFER, so that the buffer is never reallocated.
        let next = Vec::with_capacity(MAX_BUFFER + (MAX_BUFFER >> 3));
        let text = std::mem::replace(&mut buffer.text, next);
        let lines = std::mem::take(&mut buffer.lines);
        match queue.try_send(WriterMessage::Lines(text)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.metrics.add_access_log_dropped(lines);
            }
        }
    }
}

fn compose(text: &mut Vec<u8>, line: &Line<'_>, format: AccessLogFormat, timestamps: &mut TimestampCache) {
    match format {
        AccessLogFormat::Off => {}
        AccessLogFormat::Json => json::write(text, line, timestamps),
        AccessLogFormat::Combined => combined::write(text, line, timestamps),
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.flush();
    }
}
