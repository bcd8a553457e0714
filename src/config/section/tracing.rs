//! `tracing`: where traces go, and of how many requests.

use crate::config::{
    model::Tracing,
    value::{collector, percentage},
    walk::Cursor,
};

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
