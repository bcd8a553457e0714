//! `access_log`, `log` and `tracing`: what is written down of requests and of the process, and where.

use std::path::PathBuf;

use strsim::damerau_levenshtein;

use crate::config::{
    model::{AccessLog, AccessLogFormat, Destination, Log, LogFormat, LogLevel, Tracing},
    reader::Cursor,
    value::{Invalid, choice, collector, percentage},
};

const FORMATS: [(&str, AccessLogFormat); 3] =
    [("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined), ("off", AccessLogFormat::Off)];

/// The access log: a mapping, or its format alone.
pub(super) fn access_log(value: Option<Cursor<'_>>) -> AccessLog {
    let default = AccessLog { format: AccessLogFormat::Json, to: Destination::Stdout, sample: 1.0 };
    let Some(value) = value else { return default };
    if value.written().is_some() {
        let format = value.parse(choice(&FORMATS)).unwrap_or(default.format);
        return AccessLog { format, ..default };
    }
    let Some(mut at) = value.mapping() else { return default };
    let log = AccessLog {
        format: at.parse_or("format", default.format, choice(&FORMATS)),
        to: at.parse_or("to", default.to, destination),
        sample: at.parse_or("sample", default.sample, percentage),
    };
    at.finish();
    log
}

fn destination(text: &str) -> Result<Destination, Invalid> {
    let form = "stdout, or the path of a file";
    match text {
        "stdout" => Ok(Destination::Stdout),
        "" => Err(Invalid::new("is no file").form(form)),
        // A slip would otherwise go unnoticed, as a file of that name.
        _ if !text.contains(['/', '.']) && damerau_levenshtein(text, "stdout") <= 3 => {
            Err(Invalid::new("is not a choice here")
                .form(form)
                .guess(format!("did you mean `stdout`? A file of this name is written ./{text}")))
        }
        _ => Ok(Destination::File(PathBuf::from(text))),
    }
}

pub(super) fn log(value: Option<Cursor<'_>>) -> Log {
    let default = Log { level: LogLevel::Info, format: LogFormat::Text };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let levels = choice(&[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ]);
    let formats = choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    let log = Log {
        level: at.parse_or("level", default.level, levels),
        format: at.parse_or("format", default.format, formats),
    };
    at.finish();
    log
}

/// The share that is traced unless the file says otherwise.
const SAMPLE: f64 = 0.01;

pub(super) fn tracing(value: Cursor<'_>) -> Option<Tracing> {
    if value.written().is_some() {
        let help = "such as `tracing: { otlp: http://127.0.0.1:4318 }`; to trace nothing, leave it out";
        value.report("expected a mapping, not a word", help.to_owned());
        return None;
    }
    let mut at = value.mapping()?;
    let otlp = at.require("otlp", "such as `otlp: http://127.0.0.1:4318`");
    let otlp = otlp.and_then(|url| url.parse(collector));
    let sample = at.parse_or("sample", SAMPLE, percentage);
    at.finish();
    Some(Tracing { otlp: otlp?, sample })
}
