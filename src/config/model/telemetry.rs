//! The access log, the log of the process, and traces.

use std::path::PathBuf;

use http::Uri;
use serde::Serialize;

use super::serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessLog {
    pub format: AccessLogFormat,
    pub to: Destination,
    /// The share of requests that is logged, 0 to 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub sample: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

/// The messages of the process, on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// Where traces are sent, and for how many requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tracing {
    /// Scheme `http`, an authority, and the path that takes spans: `/v1/traces`.
    #[serde(serialize_with = "serialize::displayed")]
    pub otlp: Uri,
    /// The share of requests that is traced if no earlier hop has decided it, 0 to 1.
    #[serde(serialize_with = "serialize::percentage")]
    pub sample: f64,
}
