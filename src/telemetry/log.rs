//! The process' own messages, on stderr.

use std::io::{IsTerminal, stderr};

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt;

use crate::config::model::{Log, LogFormat, LogLevel};

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
    let builder = fmt()
        .with_max_level(filter(log.level))
        .with_writer(writer)
        .with_target(false)
        // Where stderr is closed, telling so on stderr would panic: the proxy serves on without a word.
        .log_internal_errors(false);
    let result = match log.format {
        // Colours are for terminals alone.
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "messages go where they went before");
    }
    LogGuard(guard)
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
