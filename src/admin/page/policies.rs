//! `GET /policies`: the policies in force, and how often each allowed and denied.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        configuration,
        context::HandlerContext,
        dto::{CalendarWindow, Policies, Policy},
        extract::{NoParams, Query},
        problem::Problem,
    },
    components,
    format::format_count,
    layout::{NavItem, Page, PageFrame},
};

pub(super) async fn policies(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    frame.render(NavItem::Policies, query.map(|_| view(&configuration::policies_dto(&context))))
}

fn view(policies: &Policies) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Policies" }
                p.meta { "The running policies, and their decisions since the start of this instance." }
            }
        }
        @if policies.policies.is_empty() {
            div.card { (components::empty_state("No policies are configured", "Every request is forwarded.")) }
        }
        div.grid-cards { @for policy in &policies.policies { (card(policy)) } }
    };
    Page { title: "Policies".to_owned(), body }
}

fn card(policy: &Policy) -> Markup {
    let decisions = policy.allowed + policy.denied + policy.shadow_denied + policy.errors;
    html! {
        article.card.policy data-key=(policy.name) {
            div.bar-head {
                h2 { a.plain href={ "/policies/" (components::percent_encode(&policy.name)) } { (policy.name) } }
                @if !policy.used { span.badge.warn { "not used" } } @else if policy.mode == "shadow" { span.badge.warn { "shadow: never denies" } } @else { span.badge.good { "enforced" } }
            }
            dl.facts {
                div { dt { "Algorithm" } dd.mono { (policy.algorithm) } }
                div { dt { "Key" } dd { (components::chips(&policy.keys)) } }
                div { dt { "Limits" } dd { (components::chips(&policy.limits)) @if policy.overrides > 0 { span.faint { " and " (policy.overrides) " overrides" } } } }
                @for window in &policy.calendar_windows { (window_end(window)) }
                div { dt { "Applies to" } dd { @if policy.implicit { span.faint { "implicit: wrong API keys and tokens" } } @else if policy.routes.is_empty() { span.faint { "no route" } } @else { (components::chips(&policy.priced_routes())) } } }
            }
            div.share {
                (share_bar(policy, decisions))
                dl {
                    (legend("Allowed", policy.allowed, "requests"))
                    (legend("Denied", policy.denied, if policy.denied > 0 { "denied" } else { "usual" }))
                    @if policy.shadow_denied > 0 || policy.mode == "shadow" { (legend("Would be denied", policy.shadow_denied, "slow")) }
                    @if policy.errors > 0 { (legend("Undecided", policy.errors, "usual")) }
                    @if let Some(units) = policy.response_cost {
                        (legend("Units charged", units.charged, "usual"))
                        (legend("Units reserved now", units.reserved, "usual"))
                    }
                }
                @if !policy.routes.is_empty() { p.more { a href={ "/policies/" (components::percent_encode(&policy.name)) } { "How close clients come" span.hidden { " to " (policy.name) } } } }
            }
        }
    }
}

fn window_end(window: &CalendarWindow) -> Markup {
    html! { div { dt { "Ends" } dd { (window.limit) ": " time { (window.ends) } } } }
}

fn legend(name: &str, value: u64, class: &str) -> Markup {
    html! { div { dt class={ "key " (class) } { (name) } dd { (format_count(value)) } } }
}

/// The outcomes as shares of one bar.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn share_bar(policy: &Policy, decisions: u64) -> Markup {
    let outcomes = [
        (policy.allowed, "fill"),
        (policy.denied, "fill bad"),
        (policy.shadow_denied, "fill warn"),
        (policy.errors, "fill usual"),
    ];
    let mut from = 0.0;
    let drawn = outcomes.map(|(value, class)| {
        let share = value as f64 / decisions.max(1) as f64 * 100.0;
        let at = from;
        from += share;
        (class, at, share)
    });
    html! {
        svg.bar width="100%" height="6" aria-hidden="true" {
            rect.track width="100%" height="6" {}
            @for (class, at, share) in drawn {
                @if share > 0.0 { rect class=(class) x={ (format!("{at:.2}")) "%" } width={ (format!("{share:.2}")) "%" } height="6" {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::{ResponseCostUnits, RoutePrice};

    #[test]
    fn the_card_shows_shares_and_whether_the_policy_denies() {
        let policy = Policy {
            name: "per-<ip>".into(),
            algorithm: "sliding_log".into(),
            keys: vec!["ip+path".into()],
            limits: vec!["100/1s".into()],
            calendar_windows: vec![CalendarWindow {
                limit: "1000/month (Europe/Berlin)".into(),
                ends: "2026-12-01T00:00:00+01:00[Europe/Berlin]".into(),
            }],
            mode: "shadow".into(),
            overrides: 2,
            implicit: false,
            routes: vec!["/api/*".into()],
            prices: vec![RoutePrice { route: "/api/*".into(), cost: 5 }],
            used: true,
            allowed: 75_000,
            denied: 0,
            shadow_denied: 25_000,
            errors: 0,
            response_cost: Some(ResponseCostUnits { reserved: 300, charged: 123_456 }),
        };
        let unused = Policy { mode: "enforce".into(), routes: Vec::new(), used: false, ..policy.clone() };
        let html = view(&Policies { policies: vec![policy] }).body.into_string();
        assert!(
            html.contains("per-&lt;ip&gt;") && html.contains("75,000") && html.contains("Would be denied")
        );
        assert!(
            html.contains("Units charged</dt><dd>123,456<")
                && html.contains("Units reserved now</dt><dd>300<")
        );
        assert!(html.contains("width=\"75.00%\"") && html.contains("x=\"75.00%\" width=\"25.00%\""));
        assert!(html.contains("1000/month (Europe/Berlin): <time>2026-12-01T00:00:00+01:00[Europe/Berlin]<"));
        assert!(html.contains("/api/* (cost 5)"));
        assert!(html.contains("shadow: never denies") && html.contains("and 2 overrides"));

        let html = view(&Policies { policies: vec![unused] }).body.into_string();
        assert!(html.contains("not used") && html.contains("no route") && !html.contains("enforced"));
    }
}
