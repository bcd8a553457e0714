//! Lines that HAProxy knows and the converter does not: what they do is unknown, so that it closes, or has no equal.

use super::{super::dice::Dice, generator::Kind};

const LINES: [(Kind, &str); 24] = [
    (Kind::Frontend, "http-request set-method POST"),
    (Kind::Frontend, "http-request set-uri /exact"),
    (Kind::Frontend, "http-request set-query debug=1"),
    (Kind::Frontend, "http-request replace-header X-Key (.*) x\\\\1"),
    (Kind::Frontend, "http-request replace-value X-Plan gold silver"),
    (Kind::Frontend, "http-request set-src hdr(x-forwarded-for)"),
    (Kind::Frontend, "http-request sc-inc-gpc0(0)"),
    (Kind::Frontend, "http-request wait-for-body time 10ms"),
    (Kind::Frontend, "http-request set-var(txn.kind) str(x)"),
    (Kind::Frontend, "http-request deny if { rand(100) lt 50 }"),
    (Kind::Frontend, "http-request deny if { nbsrv(app) lt 1 }"),
    (Kind::Frontend, "http-request deny if { url_len gt 20 }"),
    (Kind::Frontend, "http-response set-status 418"),
    (Kind::Frontend, "http-response deny if { status 404 }"),
    (Kind::Frontend, "http-response replace-header Set-Cookie (.*) \\\\1;\\ Secure"),
    (Kind::Frontend, "http-error status 403 content-type text/plain string text-error"),
    (Kind::Frontend, "tcp-request connection reject if { src 127.0.0.9 }"),
    (Kind::Frontend, "errorloc302 403 /denied"),
    (Kind::Backend, "http-request set-method POST"),
    (Kind::Backend, "http-request use-service prometheus-exporter"),
    (Kind::Backend, "http-request set-uri /exact"),
    (Kind::Backend, "http-response set-status 418"),
    (Kind::Backend, "http-request replace-header X-Key (.*) x\\\\1"),
    (Kind::Backend, "http-send-name-header X-Server"),
];

pub fn line(dice: &mut Dice) -> (Kind, &'static str) {
    dice.pick(&LINES)
}

/// Whether the line may have a condition behind it.
pub fn has_condition(line: &str) -> bool {
    line.starts_with("http-request ") && !line.contains(" if ")
}

/// The word that a note has to have.
pub fn word(line: &str) -> &str {
    let mut words = line.split(' ');
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    match first {
        "http-request" | "http-response" => second.split('(').next().unwrap_or_default(),
        first => first,
    }
}
