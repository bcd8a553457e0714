//! The report as one HTML page that needs nothing else, to send to others.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{ChangedClient, Closeness, LimitedKey, Minute, PolicyReport, ReplayComparison, Report, Timeline};
use crate::text::{count, printable, thousands};

const STYLE: &str = include_str!("report.css");
/// The timeline, in units of its view box.
const BAR_WIDTH: usize = 5;
const HEIGHT: u64 = 120;

/// The page. Lists up to `most_rows` keys and clients.
pub fn page(report: &Report, most_rows: usize) -> String {
    let Report { requests, denied, shadow_denied, forbidden, refused, unchecked, unknown, .. } = report;
    let tiles = [
        ("Requests", *requests, ""),
        ("Denied", *denied, "bad"),
        ("Denied by mode: shadow alone", *shadow_denied, "warn"),
        ("Refused by deny or allow", *forbidden, ""),
        ("Without a route, or malformed", *refused, ""),
        ("Refused before the policies", *unchecked, ""),
        ("Not decided", *unknown, ""),
    ];
    let has_shadow = report.policies.iter().any(|policy| policy.mode == "shadow");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Replay: " (count(*denied, "denied request")) " of " (*requests) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "What these limits would have done" }
                    @if let (Some(first), Some(last)) = (&report.first, &report.last) { p.soft { (time(first)) " to " (time(last)) " UTC" } }
                    dl.tiles {
                        @for (name, number, class) in tiles.into_iter().filter(|(_, number, class)| *number > 0 || *class == "bad" || has_shadow && *class == "warn") {
                            div { dt { (name) } dd class=(if number > 0 { class } else { "" }) { (thousands(number)) @if name != "Requests" { (share(number, *requests)) } } }
                        }
                    }
                    @if let Some(last) = &report.last { (timeline(&report.timeline, last)) }
                    h2 { "Policies" }
                    (policies(&report.policies))
                    (limited(&report.keys, most_rows))
                    @if let Some(comparison) = &report.comparison { (compared(comparison, most_rows)) }
                    @let notes = report.notes();
                    @if !notes.is_empty() {
                        h2 { "Notes" }
                        ul { @for note in &notes { li { (printable(note)) } } }
                    }
                }
            }
        }
    };
    markup.into_string()
}

fn timeline(Timeline { first, step, bars }: &Timeline, last: &str) -> Markup {
    let highest = bars.iter().map(|bar| bar.requests).max().unwrap_or(0).max(1);
    let height = |part: u64| (part * HEIGHT).div_ceil(highest);
    html! {
        figure {
            figcaption {
                "Requests over time, " (step) " a bar, at most " (thousands(highest)) ": "
                span.key.requests { "all" } " " span.key.shadow { "denied by mode: shadow" } " " span.key.denied { "denied" }
            }
            svg viewBox={ "0 0 " (bars.len() * BAR_WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label={ "Requests over time, from " (time(first)) } {
                @for (nth, bar) in bars.iter().enumerate() {
                    @let parts = [
                        ("requests", bar.requests), ("shadow", bar.denied + bar.shadow_denied), ("denied", bar.denied),
                    ];
                    @for (class, part) in parts.into_iter().filter(|(_, part)| *part > 0) {
                        rect class=(class) x=(nth * BAR_WIDTH) y=(HEIGHT - height(part)) width=(BAR_WIDTH - 1) height=(height(part)) {
                            title { (thousands(bar.requests)) " requests, " (thousands(bar.denied)) " denied, " (thousands(bar.shadow_denied)) " by mode: shadow" }
                        }
                    }
                }
            }
            p.axis { span { (time(first)) } span { (time(last)) } }
        }
    }
}

fn policies(policies: &[PolicyReport]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "Policy" } th { "Mode" } th.number { "Checked" } th.number { "Denied" } th.number { "Delayed" }
                th.number { "Not in log" } th { "Worst minute (UTC)" } th { "How close keys come to their limit" }
            } }
            tbody { @for policy in policies {
                tr {
                    th scope="row" { (policy.policy) }
                    td { (policy.mode) }
                    td.number { (thousands(policy.checked)) }
                    td.number { (thousands(policy.denied)) }
                    td.number { (thousands(policy.delayed)) }
                    td.number { (thousands(policy.not_in_log)) }
                    td { (minute(policy.worst_minute.as_ref())) }
                    td { (closeness(&policy.closeness)) }
                }
            } }
        } }
    }
}

fn minute(worst: Option<&Minute>) -> Markup {
    html! {
        @if let Some(Minute { minute, requests, denied }) = worst {
            (time(minute)) br; span.soft { (thousands(*denied)) " of " (thousands(*requests)) " denied" }
        } @else { "–" }
    }
}

/// The shares of keys by the most that they used of their limit.
fn closeness(closeness: &Closeness) -> Markup {
    let Closeness { keys, to_25, to_50, to_75, to_90, to_100, denied } = *closeness;
    let parts = [
        ("≤ 25 %", "a", to_25),
        ("≤ 50 %", "b", to_50),
        ("≤ 75 %", "c", to_75),
        ("≤ 90 %", "d", to_90),
        ("≤ 100 %", "e", to_100),
        ("denied", "denied", denied),
    ];
    html! {
        @if keys == 0 { "–" } @else {
            dl.closeness { @for (name, class, part) in parts {
                div {
                    dt { (name) }
                    dd { meter.(class) min="0" max=(keys) value=(part) {} " " (thousands(part)) " " span.soft { (share(part, keys)) } }
                }
            } }
        }
    }
}

fn limited(keys: &[LimitedKey], most_rows: usize) -> Markup {
    html! {
        h2 { "Denied keys" }
        @if keys.is_empty() { p { "None." } } @else {
            div.scroll { table {
                thead { tr {
                    th { "Key" } th { "Policy" } th.number { "Requests" } th.number { "Denied" }
                    th { "What it seems to be" } th { "Users" } th { "First and last denial (UTC)" }
                } }
                tbody { @for key in keys.iter().take(most_rows) {
                    tr {
                        th scope="row" { bdi { (printable(&key.key)) } }
                        td { (key.policy) @if key.mode == "shadow" { br; span.soft { "shadow" } } }
                        td.number { (thousands(key.requests)) }
                        td.number { (thousands(key.denied)) }
                        td {
                            @match (key.hint, &key.reasons) {
                                (Some(hint), Some(reasons)) => { (hint) br; span.soft { bdi { (printable(reasons)) } } }
                                _ => { "–" }
                            }
                        }
                        td {
                            @if key.users == 0 { "not in log" } @else {
                                bdi { (printable(&key.named_users.join(", "))) }
                                @if key.users > key.named_users.len() as u64 { " and " (key.users - key.named_users.len() as u64) " more" }
                            }
                        }
                        td { (time(&key.first)) br; (time(&key.last)) }
                    }
                } }
            } }
            (more(keys.len(), most_rows, "more key"))
        }
    }
}

fn compared(comparison: &ReplayComparison, most_rows: usize) -> Markup {
    let ReplayComparison { config, newly_denied, freed, clients, policies: others, .. } = comparison;
    html! {
        h2 { "With " bdi { (printable(config)) } }
        p { (count(*newly_denied, "request")) " newly denied, " (count(*freed, "request")) " freed." }
        (policies(others))
        @if !clients.is_empty() {
            h3 { "Who would notice" }
            div.scroll { table {
                thead { tr {
                    th { "Client" } th.number { "Newly denied" } th { "By" } th.number { "Freed" } th { "From" }
                    th { "First and last (UTC)" }
                } }
                tbody { @for ChangedClient { client, newly_denied, freed, denied_by, freed_from, first, last } in clients.iter().take(most_rows) {
                    tr {
                        th scope="row" { bdi { (printable(client)) } }
                        td.number { (thousands(*newly_denied)) } td { (denied_by.join(", ")) }
                        td.number { (thousands(*freed)) } td { (freed_from.join(", ")) }
                        td { (time(first)) br; (time(last)) }
                    }
                } }
            } }
            (more(clients.len(), most_rows, "more client"))
        }
    }
}

fn more(rows: usize, most_rows: usize, what: &str) -> Markup {
    let more = rows.saturating_sub(most_rows);
    html! { @if more > 0 { p.soft { "and " (count(more as u64, what)) "; --limit lists more" } } }
}

/// ` 1.25 %`
fn share(part: u64, of: u64) -> String {
    if of == 0 { String::new() } else { format!(" {:.2} %", part as f64 * 100.0 / of as f64) }
}

/// `2026-07-03 12:00:01`
fn time(rfc3339: &str) -> String {
    rfc3339.chars().take(19).map(|character| if character == 'T' { ' ' } else { character }).collect()
}
