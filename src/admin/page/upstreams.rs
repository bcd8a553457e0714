//! `GET /upstreams`: the state of each endpoint, with buttons that drain it.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        dto::{Drain, Endpoint, EndpointAddress, Resolution, Upstream, Upstreams},
        extract::{NoParams, Query},
        problem::Problem,
        upstreams,
    },
    components, dialogs,
    format::format_count,
    layout::{NavItem, Page, PageFrame},
};

pub(super) async fn upstreams(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    let now = context.state.clock.now();
    frame.render(NavItem::Upstreams, query.map(|_| view(&upstreams::upstreams_dto(&context), now)))
}

fn view(upstreams: &Upstreams, now: i64) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Upstreams" }
                p.meta { "The services behind this instance, and the state of their endpoints. Counts are those of this instance since its start." }
            }
        }
        @for upstream in &upstreams.upstreams { (section(upstream, now)) }
        @if !upstreams.other_drains.is_empty() { (other_drains(&upstreams.other_drains, now)) }
        (dialogs::drain())
        (dialogs::undrain())
    };
    Page { title: "Upstreams".to_owned(), body }
}

fn section(upstream: &Upstream, now: i64) -> Markup {
    let usable = upstream.endpoints.iter().filter(|endpoint| endpoint.state == "healthy").count();
    let id = format!("upstream-{}", upstream.name);
    html! {
        section data-key={ "upstream " (upstream.name) } aria-labelledby=(id) {
            div.bar-head {
                h2 id=(id) { (upstream.name) }
                p.faint {
                    (usable) " of " (upstream.endpoints.len()) " healthy · "
                    (format_count(upstream.connections.active)) " connections active, " (format_count(upstream.connections.idle)) " idle · "
                    (format_count(upstream.retries)) " retries"
                }
            }
            div.card {
                table.cards {
                    caption.hidden { "Endpoints of " (upstream.name) }
                    thead { tr {
                        th scope="col" { "Endpoint" } th scope="col" { "State" }
                        th.num scope="col" { "Since" } th.num scope="col" { "In flight" } th.num scope="col" { "Requests" }
                        th.num scope="col" { "Errors" } th.num scope="col" { "Ejections" }
                        th.js scope="col" { span.hidden { "Action" } }
                    } }
                    tbody {
                        @for endpoint in &upstream.endpoints {
                            (row(&upstream.name, endpoint, now))
                            @if endpoint.addresses.len() > 1 {
                                @for address in &endpoint.addresses { (address_row(&endpoint.url, address, now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(upstream: &str, endpoint: &Endpoint, now: i64) -> Markup {
    let is_drained_here = endpoint.by.as_deref() == Some("configuration");
    html! {
        tr data-key=(endpoint.url) {
            th.mono scope="row" {
                (components::untrusted(&endpoint.url))
                @if endpoint.weight != 1 { " " span.badge.quiet { "weight " (endpoint.weight) } }
                @if let Some(resolution) = &endpoint.resolution { (resolved(resolution, endpoint.addresses.len(), now)) }
                (reason_line(endpoint.reason.as_deref(), endpoint.by.as_deref()))
            }
            td data-label="State" { (components::endpoint_badge(&endpoint.state, None)) }
            td.num data-label="Since" { (since(endpoint.changed.as_deref(), now)) }
            td.num data-label="In flight" { (format_count(endpoint.active)) }
            td.num data-label="Requests" { (format_count(endpoint.requests)) }
            td.num data-label="Errors" { (format_count(endpoint.errors)) }
            td.num data-label="Ejections" { (format_count(endpoint.ejections)) }
            td.num.js {
                @if endpoint.state != "drained" { (action("drain", "Drain …", upstream, &endpoint.url)) }
                @else if !is_drained_here { (action("undrain", "Undrain …", upstream, &endpoint.url)) }
            }
        }
    }
}

fn address_row(url: &str, address: &EndpointAddress, now: i64) -> Markup {
    html! {
        tr data-key={ (url) " " (address.address) } {
            th.mono scope="row" {
                span.faint { "↳ " (address.address) }
                (reason_line(address.reason.as_deref(), address.by.as_deref()))
            }
            td data-label="State" { (components::endpoint_badge(&address.state, None)) }
            td.num data-label="Since" { (since(address.changed.as_deref(), now)) }
            td.num data-label="In flight" { (format_count(address.active)) }
            td.num data-label="Requests" { (format_count(address.requests)) }
            td.num data-label="Errors" { (format_count(address.errors)) }
            td.num data-label="Ejections" { (format_count(address.ejections)) }
            td.num.js {}
        }
    }
}

/// The resolution of an endpoint's name.
fn resolved(resolution: &Resolution, addresses: usize, now: i64) -> Markup {
    html! {
        p.faint.small {
            (addresses) @if addresses == 1 { " address" } @else { " addresses" }
            @if let Some(resolved) = &resolution.resolved { ", last resolved " (components::time_ago(resolved, now)) }
            @if let Some(error) = &resolution.error { "; the resolver fails: " (components::untrusted(error)) }
        }
    }
}

/// The reason for an endpoint's state: below its name, where a sentence has room.
fn reason_line(text: Option<&str>, by: Option<&str>) -> Markup {
    let is_known = by.is_some() || text.is_some_and(|text| !text.is_empty());
    html! { @if is_known { p.small.wrap.reason { (reason(text, by)) } } }
}

fn reason(reason: Option<&str>, by: Option<&str>) -> Markup {
    html! {
        @match reason { Some(reason) if !reason.is_empty() => (components::untrusted(reason)), _ => span.faint { "–" } }
        @if let Some(by) = by { span.faint { " by " (by) } }
    }
}

fn since(time: Option<&str>, now: i64) -> Markup {
    html! { @match time { Some(time) => (components::time_ago(time, now)), None => span.faint { "–" } } }
}

/// A button that opens a dialog about an endpoint.
fn action(dialog: &str, words: &str, upstream: &str, endpoint: &str) -> Markup {
    html! {
        button type="button" data-dialog=(dialog) data-about={ (endpoint) " of " (upstream) }
            data-upstream=(upstream) data-endpoint=(endpoint) aria-haspopup="dialog" { (words) }
    }
}

fn other_drains(drains: &[Drain], now: i64) -> Markup {
    html! {
        section aria-labelledby="others" {
            div.bar-head { h2 #others { "Drained, and not configured here" } }
            div.card {
                table.cards {
                    caption.hidden { "Drains of endpoints that this instance does not have" }
                    thead { tr {
                        th scope="col" { "Endpoint" } th scope="col" { "Upstream" } th scope="col" { "Reason" }
                        th.num scope="col" { "Since" } th.js scope="col" { span.hidden { "Action" } }
                    } }
                    tbody {
                        @for drain in drains {
                            tr data-key={ (drain.upstream) " " (drain.endpoint) } {
                                th.mono scope="row" { (components::untrusted(&drain.endpoint)) }
                                td data-label="Upstream" { (components::untrusted(&drain.upstream)) }
                                td.wrap data-label="Reason" { (reason(Some(&drain.reason), Some(&drain.by))) }
                                td.num data-label="Since" { (since(Some(&drain.since), now)) }
                                td.num.js { (action("undrain", "Undrain …", &drain.upstream, &drain.endpoint)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{AddressFacts, EndpointFacts, EndpointState, StateChange};

    #[test]
    fn each_endpoint_has_its_state_and_what_an_operator_can_do() {
        let change = |by: &str| StateChange { time: None, reason: "<b>new</b> disk".into(), by: by.into() };
        let endpoint = |url: &str, drain, addresses: &[EndpointState]| {
            let address = |(n, state): (usize, &EndpointState)| AddressFacts {
                address: format!("10.0.0.{n}:3000"),
                state: *state,
                change: Some(change("outlier")).filter(|_| *state != EndpointState::Healthy),
                ..AddressFacts::default()
            };
            Endpoint::from(EndpointFacts {
                url: url.into(),
                weight: 1,
                drain,
                addresses: addresses.iter().enumerate().map(address).collect(),
                ..EndpointFacts::default()
            })
        };
        let (healthy, ejected) = (EndpointState::Healthy, EndpointState::Ejected);
        let upstream = Upstream {
            name: "api".into(),
            policies: Vec::new(),
            endpoints: vec![
                endpoint("http://a", None, &[healthy, ejected]),
                endpoint("http://b", Some(change("operator at ::1")), &[healthy]),
                endpoint("http://c", Some(change("configuration")), &[healthy]),
            ],
            attempts: Default::default(),
            retries: 0,
            connections: super::super::super::dto::Connections { active: 0, idle: 0 },
        };
        let html =
            view(&Upstreams { upstreams: vec![upstream], other_drains: Vec::new() }, 0).body.into_string();
        let row = |key: &str| {
            let start =
                html.find(&format!("<tr data-key=\"{key}\"")).unwrap_or_else(|| panic!("{key}: {html}"));
            html[start..].split("</tr>").next().unwrap().to_owned()
        };
        assert!(html.contains("1 of 3 healthy") && !html.contains("<b>new"), "{html}");
        assert!(row("http://a").contains(">healthy<") && row("http://a").contains("data-dialog=\"drain\""));
        assert!(row("http://a 10.0.0.1:3000").contains(">ejected<"));
        assert!(row("http://b").contains(">drained<") && row("http://b").contains("data-dialog=\"undrain\""));
        assert!(row("http://b").contains("by operator at ::1"));
        assert!(!html.contains("data-label=\"Reason\""), "a column beside seven others is narrow");
        assert!(!row("http://c").contains("data-dialog"), "the configuration has to be changed");
    }
}
