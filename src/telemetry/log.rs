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
    config::model::{Log, LogFormat, LogLevel},
    text::{is_invisible, json_escape},
};

/// Messages that may wait to be written; their places are kept in memory all the time.
const QUEUE: usize = 1024;

/// Writes the queued messages when it is dropped.
#[must_use = "messages end with it"]
pub struct LogGuard(#[expect(dead_code, reason = "it is there to be dropped")] WorkerGuard);

/// Sends what `tracing` reports to stderr, from `log.level` up, as long as what it returns is kept. The
/// first call of a process holds; later ones change nothing, so that tests may call it freely.
///
/// A thread of its own writes, so that no worker waits for a reader of stderr that has stopped. Messages
/// that find the queue full are lost.
pub fn init(log: Log) -> LogGuard {
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(QUEUE).thread_name("log").finish(stderr());
    let level = filter(log.level);
    // It describes each frame of HTTP/2, of which a client can send millions.
    let filter = Targets::new().with_default(level).with_target("h2", level.min(LevelFilter::ERROR));
    // It writes out each message of DNS. What matters of them is said where names are resolved.
    let dns = ["hickory_net", "hickory_proto", "hickory_resolver"];
    let filter = filter.with_targets(dns.map(|target| (target, level.min(LevelFilter::ERROR))));
    let layer = fmt::layer()
        .with_writer(EscapingWriter { writer, format: log.format })
        .with_target(false)
        // Where stderr is closed, telling so on stderr would panic: the proxy serves on without a word.
        .log_internal_errors(false);
    let result = match log.format {
        // Colours are for terminals alone.
        LogFormat::Text => registry().with(filter).with(layer.with_ansi(stderr().is_terminal())).try_init(),
        LogFormat::Json => registry().with(filter).with(layer.json().flatten_event(true)).try_init(),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "messages go where they went before");
    }
    LogGuard(guard)
}

/// Escapes what would deceive who reads a message: names of users and the like come from clients. Control characters in
/// them are escaped by `tracing_subscriber`; those of ASCII that are left are its own colours and ends of lines.
#[derive(Clone)]
struct EscapingWriter {
    writer: NonBlocking,
    format: LogFormat,
}

impl EscapingWriter {
    fn escaped(&self, message: &str) -> String {
        let mut out = String::with_capacity(message.len());
        for character in message.chars() {
            match self.format {
                _ if !needs_escape(character) => out.push(character),
                LogFormat::Text => out.extend(character.escape_unicode()),
                LogFormat::Json => out += &json_escape(character),
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
