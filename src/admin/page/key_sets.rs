//! The key sets of the providers of tokens.

use maud::{Markup, html};

use super::{super::dto::KeySetStatus, components, format::escape_invisible};

/// A row for each provider; nothing without providers.
pub(super) fn key_sets(sets: &[KeySetStatus], now: i64) -> Markup {
    html! {
        @if !sets.is_empty() {
            section aria-labelledby="key-sets" {
                div.bar-head { h2 #key-sets { "Token keys" span.faint { " this instance" } } }
                div.card {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Provider" } th scope="col" { "State" } th.num scope="col" { "Keys" }
                            th scope="col" { "Fetched" } th scope="col" { "Used until (UTC)" }
                        } }
                        tbody { @for set in sets { (row(set, now)) } }
                    }
                }
            }
        }
    }
}

fn row(set: &KeySetStatus, now: i64) -> Markup {
    let (class, word) = match (&set.error, set.keys) {
        (None, 0) => ("badge warn", "not fetched yet"),
        (None, _) => ("badge good", "current"),
        (Some(_), 0) => ("badge bad", "no keys"),
        (Some(_), _) => ("badge warn", "not refreshed"),
    };
    html! {
        tr data-key=(set.source) {
            th.mono scope="row" { (components::untrusted(&set.source)) }
            td data-label="State" {
                // The warnings have the whole text.
                span title=(escape_invisible(set.error.as_deref().unwrap_or_default())) { span class=(class) { (word) } }
            }
            td.num data-label="Keys" { (set.keys) }
            td data-label="Fetched" { @match &set.fetched { Some(time) => (components::time_ago(time, now)), None => "–" } }
            td data-label="Used until (UTC)" {
                @match &set.usable_until { Some(time) => time datetime=(time) { (components::utc(time)) }, None => "–" }
            }
        }
    }
}
