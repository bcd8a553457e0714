//! `GET /`: status, traffic, routes, upstreams and the store at a glance.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        blocked::{self, BlockedQuery},
        client_state, configuration,
        context::HandlerContext,
        dto::{Blocked, Route, Status, Upstream},
        extract::{NoParams, Query},
        problem::Problem,
        status, upstreams,
    },
    certificates, chart, components,
    format::{format_count, format_duration, format_latency, format_rate, parse_micros},
    incidents, key_sets,
    layout::{NavItem, Page, PageFrame},
    store,
};
use crate::{
    abuse::Sort,
    config::model::is_numbered_name,
    telemetry::metrics::{History, HistoryPoint},
};

/// Number of blocked addresses shown.
const TOP_ADDRESSES: usize = 6;

pub(super) async fn overview(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    let page = async {
        query?;
        page(&context).await
    };
    frame.render(NavItem::Overview, page.await)
}

async fn page(context: &HandlerContext) -> Result<Page, Problem> {
    let query = BlockedQuery { sort: Sort::Last, limit: Some(TOP_ADDRESSES), ..BlockedQuery::default() };
    let top = blocked::page(context, &query).await?;
    let now = context.state.clock.now();
    let blocked = client_state::count_active(context).await;
    let status = status::status_dto(&context.state);
    let body = html! {
        (head(&status, now))
        (incidents::now_open(context, now))
        (failed_reload(&status, now))
        (warnings(&status.remaining_warnings().collect::<Vec<_>>()))
        (tiles(context, blocked))
        (routes(&configuration::routes_dto(context).routes, &context.history.lock()))
        div.columns {
            div {
                (addresses(&top, now))
                (upstreams(&upstreams::upstreams_dto(context).upstreams))
            }
            (store::store(&status.store, &status.memory))
        }
        (store::nodes(&status.store))
        (certificates::certificates(&status.tls))
        (key_sets::key_sets(&status.key_sets, now))
    };
    Ok(Page { title: "Overview".to_owned(), body })
}

fn head(status: &Status, now: i64) -> Markup {
    let (class, word) = match (status.ready, status.draining) {
        (true, _) if !status.outages.is_empty() => ("badge bad", "Outage"),
        (true, _) => ("badge good", "Ready"),
        (_, true) => ("badge warn", "Draining"),
        _ => ("badge warn", "Starting"),
    };
    html! {
        div.head {
            div {
                h1 { "Overview" }
                p.meta {
                    span class=(class) { (word) }
                    span { "Up " (format_duration(now - parse_micros(&status.started))) }
                    @if let Some(shared) = &status.store.shared {
                        span { (shared.instances) @if shared.instances == 1 { " instance" } @else { " instances" } }
                    }
                    span { "Configuration " code { (status.configuration.hash) } ", loaded " (components::time_ago(&status.configuration.loaded, now)) }
                }
            }
        }
    }
}

fn failed_reload(status: &Status, now: i64) -> Markup {
    html! {
        @if let Some((time, error)) = status.configuration.failed_reload() {
            section.notice.outages aria-labelledby="reload" {
                h2 #reload { "The last reload failed" span.since { (components::time_ago(time, now)) } }
                p { (components::with_code(error)) }
                p { "The configuration of before is still running. " code { "tollgate check" } " shows all errors." }
            }
        }
    }
}

fn warnings(warnings: &[&String]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            section.notice aria-labelledby="warnings" {
                h2 #warnings { @if warnings.len() == 1 { "1 warning" } @else { (warnings.len()) " warnings" } }
                ul { @for warning in warnings { li { (components::with_code(warning)) } } }
            }
        }
    }
}

fn tiles(context: &HandlerContext, blocked: usize) -> Markup {
    let last = context.history.lock().total().samples().last().copied().unwrap_or_default();
    let rate = |count: u64| html! { (format_rate(per_second(count))) span.unit { "/s" } };
    html! {
        section aria-labelledby="traffic" {
            div.bar-head { h2 #traffic { "Traffic" (window_note()) } }
            dl.tiles {
                div { dt { "Requests" } dd { (rate(last.requests)) } }
                div { dt { "Denied" } dd.bad[last.denied > 0] { (rate(last.denied)) } }
                div { dt { "5xx" } dd.bad[last.errors.total() > 0] { (rate(last.errors.total())) } }
                div { dt { "Latency, p99" } dd { @match last.p99 { Some(p99) => (format_latency(p99)), None => "–" } } }
                div { dt { "Blocked now" } dd { a.plain href="/blocked" { span data-tick="blocked" { (format_count(blocked as u64)) } } } }
            }
        }
    }
}

/// The time window of all figures of traffic.
fn window_note() -> Markup {
    html! { span.faint { " last " (History::EVERY.as_secs()) " s, this instance" } }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn per_second(requests: u64) -> f64 {
    requests as f64 / History::EVERY.as_secs_f64()
}

fn routes(routes: &[Route], history: &History) -> Markup {
    let samples = |name: &str| -> Vec<HistoryPoint> {
        history.route(name).map(|track| track.samples().copied().collect()).unwrap_or_default()
    };
    let unmatched = samples("");
    html! {
        section aria-labelledby="routes" {
            div.bar-head {
                h2 #routes { "Routes" (window_note()) }
                p.legend aria-hidden="true" {
                    span.key.requests { "Requests" } span.key.denied { "Denied" } span.key.errors { "5xx" } span.key.slow { "p99" } span.key.usual { "p50" }
                }
            }
            div.card {
                @for (id, entry) in routes.iter().enumerate() {
                    (route_card(id, (&entry.name, is_numbered_name(&entry.name, &entry.path)), &match_summary(entry), entry.tunnels, &samples(&entry.name), history.last_recorded()))
                }
                // Requests that match no route are shown only if there were any.
                @if unmatched.iter().any(|sample| sample.requests > 0) {
                    (route_card(routes.len(), ("no route", false), "requests that match no route", 0, &unmatched, history.last_recorded()))
                }
                @if routes.is_empty() { (components::empty_state("No routes are configured", "Every request gets a 404 response.")) }
            }
        }
    }
}

/// The match of a route in short: `POST api.example.com /login`.
fn match_summary(route: &Route) -> String {
    let listed = |words: &[String]| (!words.is_empty()).then(|| words.join(", "));
    let parts = [listed(&route.methods), listed(&route.hosts), Some(route.path.clone())];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn route_card(
    id: usize,
    (name, is_numbered): (&str, bool),
    matches: &str,
    tunnels: u64,
    samples: &[HistoryPoint],
    end: i64,
) -> Markup {
    let last = samples.last().copied().unwrap_or_default();
    let numbered = is_numbered.then_some(
        "An earlier route has the same path. Set `name` in proxy.yaml to call this one otherwise.",
    );
    html! {
        article.route data-key={ "route " (name) } {
            div.what {
                h3 title=[numbered] { (name) }
                @if matches != name { p.faint.mono.matches { (matches) } }
                dl {
                    div { dt { "Requests" } dd { (format_rate(per_second(last.requests))) "/s" } }
                    div { dt { "Denied" } dd.bad[last.denied > 0] { (format_rate(per_second(last.denied))) "/s" } }
                    div { dt { "5xx" } dd.bad[last.errors.total() > 0] { (format_rate(per_second(last.errors.total()))) "/s" } }
                    @if last.errors.total() > 0 {
                        div.part { dt { "by the origin" } dd { (format_rate(per_second(last.errors.origin()))) "/s" } }
                        div.part { dt { "by Tollgate" } dd { (format_rate(per_second(last.errors.proxy()))) "/s" } }
                    }
                    div { dt { "p99" } dd { @match last.p99 { Some(p99) => (format_latency(p99)), None => "–" } } }
                    // Most routes never have tunnels.
                    @if tunnels > 0 {
                        div { dt { "Open tunnels" } dd { (format_count(tunnels)) } }
                    }
                }
            }
            div.drawn { (chart::charts(id, name, samples, end)) }
        }
    }
}

fn upstreams(upstreams: &[Upstream]) -> Markup {
    html! {
        section aria-labelledby="upstreams" {
            div.bar-head { h2 #upstreams { "Upstreams" } a href="/upstreams" { "All" span.hidden { " about upstreams" } } }
            div.card {
                table.cards {
                    thead { tr {
                        th scope="col" { "Endpoint" } th scope="col" { "Upstream" } th scope="col" { "State" } th.num scope="col" { "In flight" }
                    } }
                    tbody {
                        @for upstream in upstreams {
                            @for endpoint in &upstream.endpoints {
                                tr data-key={ (upstream.name) " " (endpoint.url) } {
                                    th.mono scope="row" { (components::untrusted(endpoint.url.trim_end_matches('/'))) }
                                    td data-label="Upstream" { (upstream.name) }
                                    td data-label="State" { (components::endpoint_badge(&endpoint.state, endpoint.reason.as_deref())) }
                                    td.num data-label="In flight" { (format_count(endpoint.active)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn addresses(top: &Blocked, now: i64) -> Markup {
    html! {
        section aria-labelledby="top" {
            div.bar-head { h2 #top { "Recently blocked" } a href="/blocked" { "All" span.hidden { " blocked addresses" } } }
            div.card {
                @if top.blocked.is_empty() {
                    (components::empty_state("No blocked addresses", "Addresses that a policy limits are listed here, with the users behind them."))
                } @else {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Address" } th scope="col" { "Hint" }
                            th.num scope="col" { "Denied" } th.num scope="col" { "Time left" }
                        } }
                        tbody {
                            @for found in &top.blocked {
                                tr data-key=(found.address) {
                                    th scope="row" { (components::address_link(&found.address)) (components::state_badge(found)) }
                                    td data-label="Hint" { (components::hint_badge(found)) }
                                    td.num data-label="Denied" { (format_count(found.denied)) }
                                    td.num data-label="Time left" { (components::time_left(&found.until, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
