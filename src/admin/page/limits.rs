//! A table of limits and their usage.

use maud::{Markup, html};

use super::{
    super::dto::{LimitUsage, Unlimited},
    components,
    format::{format_count, humanize_duration},
};

pub(super) fn table(limits: &[LimitUsage], unlimited: &[Unlimited]) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Policy" } th scope="col" { "Key" } th.wide scope="col" { "Used" }
                th.num scope="col" { "Remaining" } th.num scope="col" { "Free again in" }
            } }
            tbody {
                @for limit in limits { (row(limit)) }
                @for Unlimited { policy, key, condition } in unlimited {
                    tr data-key={ (policy) " " (key) } {
                        th scope="row" { (policy) }
                        td data-label="Key" { span.mono { (components::untrusted(key)) } }
                        td.wide data-label="Used" { span.num { "unlimited" } (of(condition.as_deref())) }
                        td.num data-label="Remaining" { "–" }
                        td.num data-label="Free again in" { "–" }
                    }
                }
            }
        }
    }
}

/// The requests for which a limit holds.
fn of(condition: Option<&str>) -> Markup {
    html! { @if let Some(condition) = condition { " " span.faint { "(" (components::untrusted(condition)) ")" } } }
}

fn row(limit: &LimitUsage) -> Markup {
    let class = if limit.remaining == 0 { "fill bad" } else { "fill" };
    html! {
        tr data-key={ (limit.policy) " " (limit.key) " " (limit.limit) } {
            th scope="row" { (limit.policy) }
            td data-label="Key" { span.mono { (components::untrusted(&limit.key)) } }
            td.wide data-label="Used" {
                div.used { (components::bar(limit.used, limit.limit, class)) span.num { (format_count(limit.used)) " of " (format_count(limit.limit)) } (of(limit.condition.as_deref())) }
            }
            td.num data-label="Remaining" { (format_count(limit.remaining)) }
            td.num data-label="Free again in" { @if limit.used == 0 { "–" } @else { (humanize_duration(&limit.reset)) } @if let Some(ends) = &limit.window_ends { " " span.faint { "(" (ends) ")" } } }
        }
    }
}
