//! The certificates that listeners serve.

use maud::{Markup, html};

use super::{
    super::dto::{ListenerTls, ServedCertificate},
    components,
    format::escape_invisible,
};

/// A row for each certificate; nothing without TLS.
pub(super) fn certificates(listeners: &[ListenerTls]) -> Markup {
    html! {
        @if !listeners.is_empty() {
            section aria-labelledby="certificates" {
                div.bar-head { h2 #certificates { "Certificates" span.faint { " this instance" } } }
                div.card {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Names" } th scope="col" { "Listener" } th scope="col" { "State" }
                            th scope="col" { "Expires (UTC)" } th.num scope="col" { "Days left" }
                        } }
                        tbody {
                            @for of in listeners {
                                @for served in &of.certificates { (row(&of.addresses.join(", "), served)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(listener: &str, served: &ServedCertificate) -> Markup {
    let names = served.names.join(", ");
    let about = format!(
        "{names}\n{}\n{}, {}\nSHA-256 {}",
        served.file, served.subject, served.key_type, served.fingerprint
    );
    html! {
        tr data-key={ (listener) " " (served.file) } {
            th.mono scope="row" { span title=(escape_invisible(&about)) { (components::untrusted(&names)) } }
            td.mono data-label="Listener" { (listener) }
            td data-label="State" {
                span {
                    (state_badge(&served.state))
                    @if let Some(error) = &served.reload_error {
                        // The warnings have the whole text.
                        " " span title=(escape_invisible(error)) { span.badge.bad { "not reloaded" } }
                    }
                }
            }
            td data-label="Expires (UTC)" { time datetime=(served.not_after) title=(components::utc(&served.not_after)) { (day(&served.not_after)) } }
            td.num data-label="Days left" { @match served.days_left { Some(days) => (days), None => "–" } }
        }
    }
}

fn state_badge(state: &str) -> Markup {
    let (class, word) = match state {
        "valid" => ("badge good", "valid"),
        "expiring" => ("badge warn", "expires soon"),
        "expired" => ("badge bad", "expired"),
        "not_yet_valid" => ("badge bad", "not yet valid"),
        other => ("badge quiet", other),
    };
    html! { span class=(class) { (word) } }
}

/// The date of a time in RFC 3339.
fn day(time: &str) -> &str {
    time.split_once('T').map_or(time, |(day, _)| day)
}
