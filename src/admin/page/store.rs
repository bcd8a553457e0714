//! The store of the limits, and its Redis servers.

use std::time::Duration;

use maud::{Markup, html};

use super::{
    super::dto::{MemoryBudget, MemoryStatus, StoreNode, StoreStatus},
    components,
    format::{format_count, format_latency, humanize_duration},
};
use crate::memory_budget::format_bytes;

/// The store as a whole.
pub(super) fn store(store: &StoreStatus, memory: &MemoryStatus) -> Markup {
    let up = store.nodes_up();
    html! {
        section aria-labelledby="store" {
            div.bar-head { h2 #store { "Store" } (store_badge(store)) }
            dl.card.facts {
                div { dt { "Type" } dd { (store_type(store)) } }
                @if let Some(shared) = &store.shared {
                    @if shared.nodes.len() > 1 {
                        div { dt { "Nodes up" } dd { (up) " of " (shared.nodes.len()) } }
                    } @else {
                        div { dt { "Role" } dd { (shared.role.as_deref().unwrap_or("unknown")) } }
                    }
                    div { dt { "Version" } dd { (shared.version.as_deref().unwrap_or("unknown")) } }
                    div { dt { "Round trip" } dd { (shared.latency.as_deref().map_or("no answer".to_owned(), humanize_duration)) } }
                    div { dt { "Breaker" } dd { (shared.breaker) } }
                    div { dt { "Instances" } dd { (shared.instances) } }
                }
                div { dt { "Limits in memory" } dd { (format_count(store.keys)) } }
                div { dt { "Evicted" } dd { (format_count(store.evicted)) } }
                div { dt { "Memory of limits" } dd { (held(&memory.limits)) } }
                div { dt { "Memory of evidence" } dd { (held(&memory.evidence)) } }
            }
        }
    }
}

/// `118 MiB of 128 MiB`
fn held(budget: &MemoryBudget) -> String {
    format!("{} of {}", format_bytes(budget.held_bytes), format_bytes(budget.budget_bytes))
}

fn store_type(store: &StoreStatus) -> &str {
    match store.topology.as_str() {
        "redis" => "Redis",
        "sentinel" => "Redis with Sentinel",
        "cluster" => "Redis Cluster",
        other => other,
    }
}

fn store_badge(store: &StoreStatus) -> Markup {
    let (class, word) = match store {
        store if store.is_healthy() => ("badge good", "Healthy"),
        store if store.is_available() => ("badge warn", "Degraded"),
        _ => ("badge bad", "Unavailable"),
    };
    html! { span class=(class) { (word) } }
}

/// Its servers, if there are several: a single one is described by the store as a whole.
pub(super) fn nodes(store: &StoreStatus) -> Markup {
    let nodes = store.nodes();
    let is_cluster = store.topology == "cluster";
    html! {
        @if is_cluster || nodes.len() > 1 {
            section aria-labelledby="nodes" {
                div.bar-head { h2 #nodes { "Redis nodes" span.faint { " as this instance sees them" } } }
                div.card {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Node" } th scope="col" { "Role" }
                            @if is_cluster { th scope="col" { "Slots" } }
                            th scope="col" { "State" } th.num scope="col" { "Round trip" }
                            th.num scope="col" { "Lag" } th.num scope="col" { "Decisions" }
                        } }
                        tbody { @for node in nodes { (node_row(node, is_cluster)) } }
                    }
                }
            }
        }
    }
}

fn node_row(node: &StoreNode, is_cluster: bool) -> Markup {
    let latency = node.latency_us.map(|micros| format_latency(Duration::from_micros(micros).as_secs_f64()));
    let lag = node.lag_bytes.map(|bytes| format!("{} B", format_count(bytes)));
    html! {
        tr data-key=(node.address) {
            th.mono scope="row" { (components::untrusted(&node.address)) }
            td data-label="Role" {
                span {
                    (node.role.as_deref().unwrap_or("unknown"))
                    @if let Some(primary) = &node.primary { span.faint { " of " } (components::untrusted(primary)) }
                }
            }
            @if is_cluster {
                td data-label="Slots" { span title=(node.slots.join(", ")) { (or_dash(Some(node.slots_in_short()))) } }
            }
            td data-label="State" {
                span {
                    (state_badge(node))
                    @if let Some(failure) = &node.failure { " " (components::untrusted(failure)) }
                }
            }
            td.num data-label="Round trip" { (or_dash(latency)) }
            td.num data-label="Lag" { (or_dash(lag)) }
            td.num data-label="Decisions" { (format_count(node.decisions_per_second)) "/s" }
        }
    }
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "–".to_owned())
}

fn state_badge(node: &StoreNode) -> Markup {
    let (class, word) = match node.state.as_str() {
        "up" => ("badge good", "up"),
        "down" => ("badge bad", "down"),
        "breaker_open" => ("badge bad", "breaker open"),
        other => ("badge quiet", other),
    };
    html! { span class=(class) { (word) } }
}
