//! `access_log`, `log` and `tracing`.

use super::{Kind, Mapping, Setting, text};

pub(in crate::config) static ACCESS_LOG: Mapping = Mapping::new(
    "The log of requests, one line each.",
    "observability.md",
    &[
        Setting::new(
            "format",
            Kind::Word(&["json", "combined", "off"]),
            "The format of a line; `off` logs nothing.",
        )
        .default("json")
        .example("combined"),
        Setting::new("to", Kind::File, "`stdout`, or the path of a file, which is reopened on SIGUSR1.")
            .default("stdout")
            .example("/var/log/tollgate/access.log"),
        Setting::new("sample", Kind::Percentage(true, 100), "The share of all requests that is logged.")
            .default("100%")
            .example("10%"),
    ],
);

pub(in crate::config) static LOG: Mapping = Mapping::new(
    "Tollgate's own messages, on stderr.",
    "observability.md",
    &[
        Setting::new(
            "level",
            Kind::Word(&["error", "warn", "info", "debug", "trace"]),
            "The lowest level of messages that is logged.",
        )
        .default("info")
        .example("debug"),
        Setting::new("format", Kind::Word(&["text", "json"]), "The format of a message.")
            .default("text")
            .example("json"),
    ],
);

pub(in crate::config) static TRACING: Mapping = Mapping::new(
    "Traces of requests.",
    "observability.md",
    &[
        Setting::new(
            "otlp",
            Kind::Text(&text::COLLECTOR),
            "The URL of the collector, for OTLP over HTTP in clear text.",
        )
        .example("http://127.0.0.1:4318"),
        Setting::new(
            "sample",
            Kind::Percentage(true, 100),
            "The share of requests that is traced. If a trusted proxy sends `traceparent`, that decides instead.",
        )
        .default("1%")
        .example("10%"),
    ],
)
.sample("otlp: \"http://127.0.0.1:4318\"");
