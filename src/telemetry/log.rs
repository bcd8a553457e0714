//! The process' own messages, on stderr.

use std::io::{IsTerminal, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use crate::config::model::{Log, LogFormat, LogLevel};

/// Sends what `tracing` reports to stderr, from `log.level` up. The first call of a process holds; later
/// ones change nothing, so that tests may call it freely.
pub fn init(log: Log) {
    let builder = fmt()
        .with_max_level(filter(log.level))
        .with_writer(stderr)
        .with_target(false)
        // Where stderr is closed, telling so on stderr would panic: the proxy serves on without a word.
        .log_internal_errors(false);
    let result = match log.format {
        // Colours are for people: whoever collects stderr gets none.
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "messages go where they went before");
    }
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
