//! A table of limits and their usage.

use maud::{Markup, html};

use super::{
    super::dto::LimitUsage,
    components,
    format::{format_count, humanize_duration},
};

pub(super) fn table(limits: &[LimitUsage]) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Policy" } th scope="col" { "Key" } th.wide scope="col" { "Used" }
                th.num scope="col" { "Remaining" } th.num scope="col" { "Free again in" }
            } }
            tbody { @for limit in limits { (row(limit)) } }
        }
    }
}

fn row(limit: &LimitUsage) -> Markup {
    let class = if limit.remaining == 0 { "fill bad" } else { "fill" };
    html! {
        tr data-key={ (limit.policy) " " (limit.key) " " (limit.limit) } {
            th scope="row" { (limit.policy) }
            td data-label="Key" { span.mono { (components::untrusted(&limit.key)) } }
            td.wide data-label="Used" {
                div.used { (components::bar(limit.used, limit.limit, class)) span.num { (format_count(limit.used)) " of " (format_count(limit.limit)) } }
            }
            td.num data-label="Remaining" { (format_count(limit.remaining)) }
            td.num data-label="Free again in" { @if limit.used == 0 { "–" } @else { (humanize_duration(&limit.reset)) } @if let Some(ends) = &limit.window_ends { " " span.faint { "(" (ends) ")" } } }
        }
    }
}
