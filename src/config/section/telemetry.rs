//! `access_log`, `log` and `tracing`.

use std::path::PathBuf;

use strsim::damerau_levenshtein;

use crate::config::{
    model::{AccessLog, AccessLogFormat, Destination, Log, LogFormat, LogLevel, Tracing},
    reader::Cursor,
    settings,
    value::{Invalid, choice, collector_url, percentage},
};

const FORMATS: [(&str, AccessLogFormat); 3] =
    [("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined), ("off", AccessLogFormat::Off)];

/// The access log: a mapping, or only its format.
pub(super) fn access_log(value: Option<Cursor<'_>>) -> AccessLog {
    let default = AccessLog { format: AccessLogFormat::Json, to: Destination::Stdout, sample: 1.0 };
    let Some(value) = value else { return default };
    if value.scalar().is_some() {
        let format = value.parse(choice(&FORMATS)).unwrap_or(default.format);
        return AccessLog { format, ..default };
    }
    let Some(mapping) = value.mapping() else { return default };
    let mut mapping = mapping.of(&settings::ACCESS_LOG);
    let to = mapping.take("to");
    let destination = to.and_then(|to| to.parse(|text| destination(text, |path| to.is_directory(path))));
    let format = mapping.parse_or("format", default.format, choice(&FORMATS));
    if let (Some(to), Some(Destination::File(path))) = (to, &destination)
        && format != AccessLogFormat::Off
    {
        to.warn_without_directory(path);
    }
    let log = AccessLog {
        format,
        to: destination.unwrap_or(default.to),
        sample: mapping.parse_or("sample", default.sample, percentage),
    };
    mapping.finish();
    log
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

pub(super) fn log(value: Option<Cursor<'_>>) -> Log {
    let default = Log { level: LogLevel::Info, format: LogFormat::Text };
    let Some(mapping) = value.and_then(|value| value.mapping_such_as("log: { level: VALUE }")) else {
        return default;
    };
    let mut mapping = mapping.of(&settings::LOG);
    let levels = choice(&[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ]);
    let formats = choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    let log = Log {
        level: mapping.parse_or("level", default.level, levels),
        format: mapping.parse_or("format", default.format, formats),
    };
    mapping.finish();
    log
}

/// The share of requests that is traced by default.
const DEFAULT_TRACE_SAMPLE: f64 = 0.01;

pub(super) fn tracing(value: Cursor<'_>) -> Option<Tracing> {
    if value.scalar().is_some() {
        let help = "such as `tracing: { otlp: http://127.0.0.1:4318 }`; to turn tracing off, remove it";
        value.report("expected a mapping, not a single value", help.to_owned());
        return None;
    }
    let mut mapping = value.mapping()?.of(&settings::TRACING);
    let otlp = mapping.require("otlp", "such as `otlp: http://127.0.0.1:4318`");
    let otlp = otlp.and_then(|url| url.parse(collector_url));
    let sample = mapping.parse_or("sample", DEFAULT_TRACE_SAMPLE, percentage);
    mapping.finish();
    Some(Tracing { otlp: otlp?, sample })
}
