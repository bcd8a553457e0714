//! The access logs that a command reads: arguments that several commands have.

use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::offline::access_logs::{FormatError, InputLog, LogFormat, LogReader, ReadError, ReadOptions};

/// The logs, and their format. The command decides whether it needs a log.
#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// The access logs; - for standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    logs: Vec<PathBuf>,
    /// The format, as in the configuration of nginx ('$remote_addr …'), Apache ('%h …') or Envoy ('%START_TIME% …'), or the name of
    /// a known one: combined, haproxy, json, …; may be repeated
    #[arg(long, value_name = "FORMAT", value_parser = parse_format, value_hint = ValueHint::Other)]
    format: Vec<Formats>,
    /// The nginx.conf whose log_format the logs have
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    nginx_conf: Option<PathBuf>,
}

/// The formats that one argument gives.
#[derive(Debug, Clone)]
struct Formats(Vec<LogFormat>);

fn parse_format(text: &str) -> Result<Formats, FormatError> {
    LogFormat::parse(text).map(Formats)
}

impl LogArgs {
    /// Whether the logs can be read again: pipes cannot.
    pub(super) fn are_files(&self) -> bool {
        self.logs
            .iter()
            .all(|path| path != Path::new("-") && path.metadata().is_ok_and(|file| file.is_file()))
    }

    /// Opens the logs. The formats in `options` come from the arguments.
    ///
    /// # Errors
    /// A log or the nginx.conf can't be read.
    pub(super) fn open(&self, mut options: ReadOptions) -> Result<LogReader, ReadError> {
        options.formats = self.format.iter().flat_map(|formats| formats.0.clone()).collect();
        if let Some(path) = &self.nginx_conf {
            options.formats.extend(LogFormat::of_nginx_conf(path)?);
        }
        let logs = self.logs.iter().map(|path| InputLog::open(path)).collect::<Result<_, _>>()?;
        LogReader::new(logs, options)
    }
}
