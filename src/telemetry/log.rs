//! The process' own messages, on stderr.

use std::io::{self, IsTerminal, Write, stderr};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry,
    util::SubscriberInitExt,
};

use crate::{
    config::model::{Log, LogLevel, ProcessLogFormat},
    text::{is_invisible, json_escape},
};

/// Maximum number of messages waiting to be written; the queue is allocated at the start.
const QUEUE: usize = 1024;

/// Writes the queued messages when dropped.
#[must_use = "dropping it ends logging"]
pub struct LogGuard(#[expect(dead_code, reason = "kept for its Drop")] WorkerGuard);

/// Sends messages of `tracing` from `log.level` up to stderr, until the guard is dropped. Only the first call of a
/// process has an effect, so tests may call it freely.
///
/// A separate thread writes, so that no worker waits for a stalled reader of stderr. Messages are lost when the queue
/// is full.
pub fn init(log: Log) -> LogGuard {
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUE).thread_name("log").finish(stderr());
    let level = filter(log.level);
    // h2 logs each frame of HTTP/2, of which a client can send millions.
    let filter = Targets::new().with_default(level).with_target("h2", level.min(LevelFilter::ERROR));
    // hickory logs each DNS message; the resolver logs the important ones itself.
    let dns = ["hickory_net", "hickory_proto", "hickory_resolver"];
    let filter = filter.with_targets(dns.map(|target| (target, level.min(LevelFilter::ERROR))));
    let layer = fmt::layer()
        .with_writer(EscapingWriter { writer, format: log.format })
        .with_target(false)
        // If stderr is closed, reporting that on stderr would panic; the proxy keeps serving without logging.
        .log_internal_errors(false);
    let result = match log.format {
        // Colours only for terminals.
        ProcessLogFormat::Text => {
            registry().with(filter).with(layer.with_ansi(stderr().is_terminal())).try_init()
        }
        ProcessLogFormat::Json => registry().with(filter).with(layer.json().flatten_event(true)).try_init(),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "messages go where they went before");
    }
    LogGuard(guard)
}

/// Escapes invisible characters, which could deceive a reader: messages contain text from clients. `tracing_subscriber`
/// escapes ASCII control characters in it; the remaining ones are its own colours and line ends.
#[derive(Clone)]
struct EscapingWriter {
    writer: NonBlocking,
    format: ProcessLogFormat,
}

impl EscapingWriter {
    fn escaped(&self, message: &str) -> String {
        let mut out = String::with_capacity(message.len());
        for character in message.chars() {
            match self.format {
                _ if !needs_escape(character) => out.push(character),
                ProcessLogFormat::Text => out.extend(character.escape_unicode()),
                ProcessLogFormat::Json => out += &json_escape(character),
            }
        }
        out
    }
}

impl Write for EscapingWriter {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(message) {
            Ok(text) if text.contains(needs_escape) => {
                self.writer.write_all(self.escaped(text).as_bytes())?;
                Ok(message.len())
            }
            _ => self.writer.write(message),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl MakeWriter<'_> for EscapingWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn needs_escape(character: char) -> bool {
    !character.is_ascii() && is_invisible(character)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
