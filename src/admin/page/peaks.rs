//! `GET /policies/{name}`: how close clients come to the limits of a policy, and what another limit would do.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    super::{
        context::HandlerContext,
        dto::{KeyPeak, LimitChange, LimitPeaks, PolicyPeaks, ShareOfKeys},
        extract::{PolicyParam, Query},
        peaks::{PeaksQuery, peaks_dto},
        problem::Problem,
    },
    components,
    format::{escape_invisible, format_count},
    layout::{NavItem, Page, PageFrame},
};

/// Limits that the page shows, at most.
const SHOWN: usize = 20;

/// The query as the form sends it: fields that are not filled in are empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FormQuery {
    #[serde(default)]
    limit: String,
    #[serde(default)]
    window: String,
}

pub(super) async fn peaks(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    name: Result<PolicyParam, Problem>,
    query: Result<Query<FormQuery>, Problem>,
) -> Response {
    let page = || {
        let (PolicyParam(name), Query(query)) = (name?, query?);
        // The page is shown with an error in its form, unless there is no such policy.
        match read(&query).and_then(|asked| peaks_dto(&context, &name, &asked)) {
            Ok(peaks) => Ok(view(&peaks, &query, None)),
            Err(problem) => {
                let peaks = peaks_dto(&context, &name, &PeaksQuery::default())?;
                Ok(view(&peaks, &query, Some(&problem)))
            }
        }
    };
    frame.render(NavItem::Policies, page())
}

fn read(query: &FormQuery) -> Result<PeaksQuery, Problem> {
    let limit = query.limit.trim();
    let limit = match limit {
        "" => None,
        limit => Some(
            limit
                .parse()
                .map_err(|_| Problem::bad_request("limit: expected a number from 1 to 1000000000"))?,
        ),
    };
    let window = Some(query.window.clone()).filter(|window| limit.is_some() && !window.is_empty());
    Ok(PeaksQuery { limit, window, spare: None })
}

fn view(peaks: &PolicyPeaks, query: &FormQuery, problem: Option<&Problem>) -> Page {
    let (mut seen, unseen): (Vec<&LimitPeaks>, Vec<&LimitPeaks>) =
        peaks.limits.iter().partition(|limit| limit.quantiles.is_some());
    if seen.len() > SHOWN {
        seen.sort_by_key(|limit| std::cmp::Reverse(limit.keys));
    }
    let mut unseen: Vec<String> = unseen.into_iter().map(title).collect();
    if unseen.len() > SHOWN {
        let more = unseen.len() - SHOWN;
        unseen.truncate(SHOWN);
        unseen.push(format!("and {more} more"));
    }
    let body = html! {
        p.crumbs { a href="/policies" { "Policies" } }
        div.head {
            div {
                h1 { (peaks.policy) }
                p.meta { "How close clients come to its limits: the highest use of each in one window, in the last 24 hours on this instance." }
            }
        }
        @if peaks.limits.is_empty() {
            div.card { (components::empty_state("No route uses this policy", "Nothing is counted.")) }
        } @else {
            (form(peaks, query, problem))
        }
        div.peaks { @for (nth, limit) in seen.iter().take(SHOWN).enumerate() { (section(limit, nth)) } }
        @if seen.len() > SHOWN {
            p.hint { (seen.len() - SHOWN) " more limits, with fewer clients, are not shown: " code { "/v1/policies/" (peaks.policy) "/peaks" } " has all." }
        }
        @if !unseen.is_empty() {
            section.card aria-labelledby="unseen" {
                div.pad { h2 #unseen { "No client was seen" } p.hint { "In the last 24 hours, nothing was counted by:" } (components::chips(&unseen)) }
            }
        }
    };
    Page { title: peaks.policy.clone(), body }
}

/// Asks for the effect of another limit.
fn form(peaks: &PolicyPeaks, query: &FormQuery, problem: Option<&Problem>) -> Markup {
    let mut windows: Vec<&str> = Vec::new();
    for window in peaks.limits.iter().filter_map(|limit| limit.window.as_deref()) {
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    html! {
        form.filter method="get" action={ "/policies/" (components::percent_encode(&peaks.policy)) } data-keep {
            label { span { "What would a limit of … do?" }
                input name="limit" inputmode="numeric" value=(escape_invisible(&query.limit)) placeholder="100" autocomplete="off"
                    aria-invalid=[problem.map(|_| "true")] aria-describedby=[problem.map(|_| "wrong-limit")];
                @if let Some(problem) = problem { span.error #wrong-limit role="alert" { (escape_invisible(problem.detail())) } }
            }
            @if windows.len() > 1 {
                label { span { "Window" }
                    select name="window" { @for window in windows { option value=(window) selected[query.window == window] { (window) } } }
                }
            }
            button.primary type="submit" { "Show" }
            @if !query.limit.is_empty() { a href={ "/policies/" (components::percent_encode(&peaks.policy)) } { "Clear" } }
        }
    }
}

/// `100/1m on api`, `1000/1m on api for plan:pro`
fn title(limit: &LimitPeaks) -> String {
    let condition = limit.condition.as_ref().map(|condition| format!(" for {condition}")).unwrap_or_default();
    format!("{} on {}{condition}", limit.limit, limit.route)
}

fn section(limit: &LimitPeaks, nth: usize) -> Markup {
    let Some(quantiles) = &limit.quantiles else { return Markup::default() };
    let (id, title) = (format!("limit-{nth}"), title(limit));
    html! {
        section aria-labelledby=(id) data-key=(title) {
            div.bar-head { h2 id=(id) { (escape_invisible(&title)) } }
            dl.tiles {
                div { dt { @if limit.exact { "Clients" } @else { "Clients, about" } } dd { (format_count(limit.keys)) } }
                div { dt { "Half stay within" } dd { (format_count(quantiles.p50)) (of(limit)) } }
                div { dt { "99 % stay within" } dd { (format_count(quantiles.p99)) (of(limit)) } }
                div { dt { "The highest" } dd.bad[quantiles.max > limit.units] { (format_count(quantiles.max)) (of(limit)) } }
            }
            @if let Some(change) = &limit.change { (effect(limit, change)) }
            div.columns {
                div.card { (shares(limit)) }
                div.card { (highest(limit)) }
            }
        }
    }
}

fn of(limit: &LimitPeaks) -> Markup {
    html! { span.unit { " of " (format_count(limit.units)) } }
}

/// The share of clients by how much of the limit they use.
fn shares(limit: &LimitPeaks) -> Markup {
    let range = |share: &ShareOfKeys| match share.up_to {
        None => format!("above {} %", share.above),
        Some(up_to) if share.above == 0 => format!("up to {up_to} %"),
        Some(up_to) => format!("{} to {up_to} %", share.above),
    };
    html! {
        table {
            caption.hidden { "Clients by how much of " (limit.limit) " they use on " (limit.route) }
            thead { tr { th scope="col" { "Of the limit" } th.wide scope="col" { "Clients" } th.num scope="col" { span.hidden { "Their number" } } th.num scope="col" { "Share" } } }
            tbody {
                @for share in &limit.shares {
                    tr data-key=(share.above) {
                        th.range scope="row" { (range(share)) }
                        td.wide { (components::bar(share.keys, limit.keys, if share.up_to.is_none() { "fill bad" } else { "fill" })) }
                        td.num { (format_count(share.keys)) }
                        td.num { (percent(share.share)) }
                    }
                }
            }
        }
    }
}

/// The keys with the highest peaks. Marked: those that are denied now, would be denied, or would be spared.
fn highest(limit: &LimitPeaks) -> Markup {
    let change = limit.change.as_ref().map_or(limit.units, |change| change.limit);
    let mark = |peak: u64| match (peak > limit.units, peak > change) {
        (true, true) => html! { " " span.badge.bad { "denied" } },
        (false, true) => html! { " " span.badge.warn { "would be denied" } },
        (true, false) => html! { " " span.badge.good { "would be spared" } },
        (false, false) => html! {},
    };
    html! {
        table {
            caption.hidden { "The clients with the highest peaks" }
            thead { tr { th scope="col" { "The highest" } th.num scope="col" { "Peak" } } }
            tbody {
                @for KeyPeak { key, peak } in &limit.highest {
                    tr data-key=(key) {
                        th scope="row" { span.mono { (components::untrusted(key)) } (mark(*peak)) }
                        td.num { (format_count(*peak)) }
                    }
                }
            }
        }
    }
}

fn effect(limit: &LimitPeaks, change: &LimitChange) -> Markup {
    let clients =
        |keys: u64| if keys == 1 { "1 client".to_owned() } else { format!("{} clients", format_count(keys)) };
    html! {
        div.card.pad.effect role="status" {
            p {
                "A limit of " strong { (format_count(change.limit)) } @if let Some(window) = &limit.window { " per " (window) }
                " would have denied " strong { (clients(change.denied)) } " (" (percent(change.denied_share)) ")"
                @if change.newly_denied > 0 { ", " (format_count(change.newly_denied)) " of them not denied now" }
                @if change.freed > 0 { ", and spared " strong { (clients(change.freed)) } @if change.freed == 1 { " that is denied now" } @else { " that are denied now" } }
                "."
            }
        }
    }
}

/// `12 %`, `0.4 %`; never 0 or 100 unless it is.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent > 0.0 && percent < 0.1 => "< 0.1 %".to_owned(),
        _ if percent > 99.9 && percent < 100.0 => "> 99.9 %".to_owned(),
        _ if percent < 10.0 && percent > 0.0 || percent > 99.0 && percent < 100.0 => {
            format!("{percent:.1} %")
        }
        _ => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_nobody_or_all() {
        let shown = [0.0, 0.0002, 0.004, 0.123, 0.995, 0.99999, 1.0].map(percent);
        assert_eq!(shown, ["0 %", "< 0.1 %", "0.4 %", "12 %", "99.5 %", "> 99.9 %", "100 %"]);
    }
}
