//! The access log, the log of the process, and traces.

use std::path::PathBuf;

use http::Uri;
use serde::Serialize;
use strsim::damerau_levenshtein;
use tollgate_derive::{Settings, Word};

use crate::config::{
    reader::Cursor,
    settings::{ReadOver, Value},
    value::{Invalid, collector_url, resource_name},
    written::serialize,
};

/// The log of requests, one line each.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(page = "observability.md")]
pub struct AccessLog {
    /// The format of a line; `off` logs nothing.
    #[setting(default = "json", example = "combined")]
    pub format: AccessLogFormat,
    /// `stdout`, or the path of a file, which is reopened on SIGUSR1.
    #[setting(file, read = Destination::read, default = "stdout", value = Destination::Stdout)]
    #[setting(example = "/var/log/tollgate/access.log", restart)]
    pub to: Destination,
    /// The share of all requests that is logged.
    #[setting(share = "0..=100", default = "100%", example = "10%")]
    pub sample: f64,
    /// The values of `values` that are logged, with `format: json` alone. They may be names of people.
    #[setting(list(text = RESOURCE, Unique), read = value_names, omit_if = Vec::is_empty)]
    #[setting(unset = "none", example = "[model]", see = ["values"])]
    pub values: Vec<String>,
}

fn value_names(list: Cursor<'_>) -> Option<Vec<String>> {
    Some(list.unique_items(|item| item.parse(resource_name)))
}

impl AccessLog {
    /// Reads a mapping, or only the format.
    pub(in crate::config) fn read(value: Option<Cursor<'_>>) -> Self {
        let default = Self::default();
        if let Some(word) = value.filter(|value| value.scalar().is_some()) {
            return Self { format: word.parse(AccessLogFormat::parse).unwrap_or(default.format), ..default };
        }
        let log = Self::or(value, default);
        if let (Some(to), Destination::File(path)) = (value.and_then(|value| value.entry("to")), &log.to)
            && log.format != AccessLogFormat::Off
        {
            to.warn_without_directory(path);
        }
        log
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum AccessLogFormat {
    Json,
    Combined,
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    Stdout,
    /// Appended to, and reopened on SIGUSR1.
    #[serde(untagged)]
    File(PathBuf),
}

impl Destination {
    fn read(value: Cursor<'_>) -> Option<Self> {
        value.parse(|text| destination(text, |path| value.is_directory(path)))
    }
}

fn destination(text: &str, is_directory: impl FnOnce(&str) -> bool) -> Result<Destination, Invalid> {
    let expected = "stdout, or the path of a file";
    match text {
        "stdout" => Ok(Destination::Stdout),
        "" => Err(Invalid::new("is not a file").expected(expected)),
        "-" => Err(Invalid::new("is not valid here").expected(expected).suggestion("did you mean `stdout`?")),
        _ if text.starts_with("syslog:") => {
            Err(Invalid::new("is not valid here: there is no log to syslog").expected(expected))
        }
        _ if text.ends_with('/') || is_directory(text) => {
            Err(Invalid::new("is a directory").expected(expected))
        }
        // A misspelling would otherwise become a file of that name.
        _ if !text.contains(['/', '.']) && damerau_levenshtein(text, "stdout") <= 3 => {
            Err(Invalid::new("is not valid here")
                .expected(expected)
                .suggestion(format!("did you mean `stdout`? For a file of this name, write ./{text}")))
        }
        _ => Ok(Destination::File(PathBuf::from(text))),
    }
}

/// Tollgate's own messages, on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "observability.md", such_as = "log: { level: VALUE }")]
pub struct Log {
    /// The lowest level of messages that is logged.
    #[setting(default = "info", example = "debug")]
    pub level: LogLevel,
    /// The format of a message.
    #[setting(default = "text", example = "json")]
    pub format: ProcessLogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum ProcessLogFormat {
    Text,
    Json,
}

/// Traces of requests.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(page = "observability.md", sample = "otlp: \"http://127.0.0.1:4318\"")]
pub struct Tracing {
    /// The URL of the collector, for OTLP over HTTP in clear text.
    #[setting(text = COLLECTOR, parse = collector_url, example = "http://127.0.0.1:4318", shown = serialize::displayed)]
    #[setting(missing = "such as `otlp: http://127.0.0.1:4318`")]
    pub otlp: Uri,
    /// The share of requests that is traced. If a trusted proxy sends `traceparent`, that decides instead.
    #[setting(share = "0..=100", default = "1%", example = "10%")]
    pub sample: f64,
}
