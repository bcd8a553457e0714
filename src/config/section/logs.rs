//! `access_log` and `log`.

use std::path::PathBuf;

use strsim::damerau_levenshtein;

use crate::config::{
    model::{AccessLog, AccessLogFormat, Destination, Log, LogFormat, LogLevel},
    value::{Invalid, choice, percentage},
    walk::Cursor,
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
