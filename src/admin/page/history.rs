//! `GET /usage`, `/history` and `/customers`: what was used, why requests were denied, and whose keys there are.

use std::{cmp::Reverse, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use jiff::{ToSpan, civil::Date, tz::TimeZone};
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        customers::{self, CustomersQuery},
        dto::{Customer, DenialSummary, Denials, Usage, UsageRow},
        extract::Query,
        history::{DenialsQuery, MAX_USAGE, UsageQuery, page_of_denials, page_of_usage, summary},
        problem::Problem,
    },
    components::{self, percent_encode},
    format::{escape_invisible, format_count, parse_micros},
    layout::{NavItem, Page, PageFrame},
};

/// What the page *Usage* can tell apart, by the name of the parameter.
const BY: [(&str, &str); 8] = [
    ("customer", "Customer"),
    ("user", "User"),
    ("plan", "Plan"),
    ("route", "Route"),
    ("value", "Value"),
    ("policy", "Policy"),
    ("day", "Day"),
    ("status", "Status"),
];
/// Rows of a page of the list, and of an export.
const ROWS: usize = 200;
const EXPORTED: usize = 1_000;
/// Customers that are shown: those who are closest to their limits.
const CUSTOMERS: usize = 1_000;
/// Columns of a chart of days.
const MAX_DAYS: usize = 400;
/// Columns of the timeline.
const BUCKETS: i64 = 60;

pub(super) async fn usage(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<UsageQuery>, Problem>,
) -> Response {
    let page = async {
        let mut query = filled_usage(query?.0);
        query.limit = Some(query.limit.unwrap_or(ROWS));
        let usage = page_of_usage(&context, &query).await?;
        // A bar for each day, of the same requests.
        let of_days =
            UsageQuery { by: Some("day".to_owned()), limit: Some(EXPORTED), cursor: None, ..copied(&query) };
        let days = page_of_usage(&context, &of_days).await?;
        Ok(usage_view(&usage, &days, &query))
    };
    frame.render(NavItem::Usage, page.await)
}

/// The same as CSV, all pages.
pub(super) async fn usage_csv(
    State(context): State<Arc<HandlerContext>>,
    query: Result<Query<UsageQuery>, Problem>,
) -> Response {
    let table = async {
        let mut query = UsageQuery { limit: Some(MAX_USAGE), cursor: None, ..filled_usage(query?.0) };
        let mut all = page_of_usage(&context, &query).await?;
        while let Some(cursor) = all.cursor.take() {
            query.cursor = Some(cursor);
            let next = page_of_usage(&context, &query).await?;
            all.rows.extend(next.rows);
            all.cursor = next.cursor;
        }
        Ok::<_, Problem>(all.csv())
    };
    match table.await {
        Ok(table) => as_file(table, "usage.csv"),
        Err(problem) => problem.into_response(),
    }
}

pub(super) async fn history(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<DenialsQuery>, Problem>,
) -> Response {
    let page = async {
        let mut query = filled_denials(query?.0);
        query.limit = Some(query.limit.unwrap_or(ROWS));
        let denials = page_of_denials(&context, &query).await?;
        let of_all = DenialsQuery { limit: None, cursor: None, ..denials_copied(&query) };
        let summary = summary(&context, &of_all).await?;
        Ok(history_view(&denials, &summary, &query))
    };
    frame.render(NavItem::History, page.await)
}

/// Denials as CSV, all pages.
pub(super) async fn denials_csv(
    State(context): State<Arc<HandlerContext>>,
    query: Result<Query<DenialsQuery>, Problem>,
) -> Response {
    let table = async {
        let mut query = DenialsQuery { limit: Some(EXPORTED), cursor: None, ..filled_denials(query?.0) };
        let mut all = page_of_denials(&context, &query).await?;
        while let Some(cursor) = all.cursor.take() {
            query.cursor = Some(cursor);
            let next = page_of_denials(&context, &query).await?;
            all.denials.extend(next.denials);
            all.cursor = next.cursor;
        }
        Ok::<_, Problem>(all.csv())
    };
    match table.await {
        Ok(table) => as_file(table, "denials.csv"),
        Err(problem) => problem.into_response(),
    }
}

pub(super) async fn customers(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<CustomersQuery>, Problem>,
) -> Response {
    let page = async {
        let mut query = query?.0;
        for field in [&mut query.customer, &mut query.plan] {
            *field = filled(field.take());
        }
        query.limit = Some(CUSTOMERS);
        let mut all = customers::page(&context, &query).await?;
        all.customers.sort_by_key(|customer| Reverse(customer.share));
        let now = context.state.clock.now();
        Ok(customers_view(&all.customers, all.month.as_deref(), all.cursor.is_some(), &query, now))
    };
    frame.render(NavItem::Customers, page.await)
}

/// Forms also send empty fields.
fn filled(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn filled_usage(query: UsageQuery) -> UsageQuery {
    let UsageQuery { month, from, to, zone, customer, user, by, limit, cursor } = query;
    let [month, from, to, zone, customer, user, by, cursor] =
        [month, from, to, zone, customer, user, by, cursor].map(filled);
    UsageQuery { month, from, to, zone, customer, user, by, limit, cursor }
}

fn copied(query: &UsageQuery) -> UsageQuery {
    let UsageQuery { month, from, to, zone, customer, user, by, limit, cursor } = query;
    let [month, from, to, zone, customer, user, by, cursor] =
        [month, from, to, zone, customer, user, by, cursor].map(Clone::clone);
    UsageQuery { month, from, to, zone, customer, user, by, limit: *limit, cursor }
}

fn filled_denials(query: DenialsQuery) -> DenialsQuery {
    let DenialsQuery { from, to, customer, user, address, request, policy, route, status, limit, cursor } =
        query;
    let [from, to, customer, user, address, request, policy, route, cursor] =
        [from, to, customer, user, address, request, policy, route, cursor].map(filled);
    // `datetime-local` has no zone; the page says that times are UTC.
    let [from, to] =
        [from, to].map(|time| time.map(|time| if time.len() == 16 { time + ":00Z" } else { time }));
    DenialsQuery { from, to, customer, user, address, request, policy, route, status, limit, cursor }
}

fn denials_copied(query: &DenialsQuery) -> DenialsQuery {
    let DenialsQuery { from, to, customer, user, address, request, policy, route, status, limit, cursor } =
        query;
    let [from, to, customer, user, address, request, policy, route, cursor] =
        [from, to, customer, user, address, request, policy, route, cursor].map(Clone::clone);
    DenialsQuery {
        from,
        to,
        customer,
        user,
        address,
        request,
        policy,
        route,
        status: *status,
        limit: *limit,
        cursor,
    }
}

fn as_file(text: String, name: &str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    if let Ok(disposition) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

/// A link to `path` with these parameters.
fn link(path: &str, fields: &[(&str, Option<&str>)]) -> String {
    let fields =
        fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode((*value)?))));
    let query = fields.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn usage_link(path: &str, query: &UsageQuery, by: Option<&str>, cursor: Option<&str>) -> String {
    let text = |field: &Option<String>| field.clone();
    let [month, from, to, zone, customer, user] =
        [&query.month, &query.from, &query.to, &query.zone, &query.customer, &query.user].map(text);
    link(
        path,
        &[
            ("month", month.as_deref()),
            ("from", from.as_deref()),
            ("to", to.as_deref()),
            ("zone", zone.as_deref()),
            ("customer", customer.as_deref()),
            ("user", user.as_deref()),
            ("by", by),
            ("cursor", cursor),
        ],
    )
}

fn usage_view(usage: &Usage, days: &Usage, query: &UsageQuery) -> Page {
    let by = query.by.as_deref().unwrap_or("customer");
    let state = match usage.state.as_str() {
        "closed" => "This month is closed: its sums stay as they are.",
        "incomplete" => "This month is closed, without what some process had not reported.",
        _ => "It may still grow, and lags a few seconds behind.",
    };
    let body = html! {
        div.head {
            div {
                h1 { "Usage" }
                p.meta { (usage.from) " to " (usage.to) " (" (escape_invisible(&usage.zone)) "). " (state) }
            }
            nav.chips aria-label="By" {
                @for (name, label) in BY {
                    a.chip href=(usage_link("/usage", query, Some(name), None)) aria-current=[(by == name).then_some("true")] { (label) }
                }
            }
        }
        form.filter role="search" method="get" action="/usage" data-keep {
            label { span { "Month" } input type="month" name="month" value=[query.month.as_deref().or(usage.from.get(..7))] autocomplete="off"; }
            label { span { "Customer" } input type="search" name="customer" value=[query.customer.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false"; }
            label { span { "User" } input type="search" name="user" value=[query.user.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false"; }
            input type="hidden" name="by" value=(by);
            button.primary type="submit" { "Show" }
            a href=(usage_link("/usage.csv", query, Some(by), None)) { "Export CSV" }
        }
        (bars("Requests by day", &day_bars(days)))
        div.card.scroll tabindex="0" role="region" aria-label="Usage" {
            @if usage.rows.is_empty() { (components::empty_state("Nothing was used", "No request of this time and filter is in the history.")) }
            @else { (usage_table(usage, by)) }
        }
        nav.pages aria-label="Pages of the list" {
            @if query.cursor.is_some() { a.button href=(usage_link("/usage", query, Some(by), None)) { "First page" } }
            @if let Some(next) = &usage.cursor { a.button rel="next" href=(usage_link("/usage", query, Some(by), Some(next))) { "Next page" } }
        }
    };
    Page { title: "Usage".to_owned(), body }
}

/// The key of a row in words.
fn row_name(row: &UsageRow) -> String {
    let keys = [
        &row.customer,
        &row.user,
        &row.plan,
        &row.route,
        &row.value,
        &row.day,
        &row.hour,
        &row.policy,
        &row.status,
    ];
    let names = keys.into_iter().flatten().map(|name| if name.is_empty() { "(none)" } else { name });
    names.collect::<Vec<_>>().join(", ")
}

fn usage_table(usage: &Usage, by: &str) -> Markup {
    let label = BY.iter().find(|(name, _)| *name == by).map_or("Of", |(_, label)| *label);
    html! {
        table.cards {
            caption.hidden { "Usage" }
            thead { tr {
                th scope="col" { (label) }
                th.num scope="col" { "Requests" } th.num scope="col" { "Denied" }
                th.num scope="col" { "2xx" } th.num scope="col" { "4xx" } th.num scope="col" { "5xx" }
                th scope="col" { "Units" }
            } }
            tbody {
                @for row in &usage.rows {
                    tr {
                        th scope="row" {
                            @match &row.customer {
                                Some(customer) if !customer.is_empty() => a.plain href=(link("/history", &[("customer", Some(customer))])) { (components::untrusted(customer)) },
                                _ => (components::untrusted(&row_name(row))),
                            }
                            @if row.late { " " span.badge.warn title="It came after the month was closed." { "late" } }
                        }
                        @for (label, count) in [("Requests", row.requests), ("Denied", row.denied), ("2xx", row.status_2xx), ("4xx", row.status_4xx), ("5xx", row.status_5xx)] {
                            td.num data-label=(label) { (format_count(count)) }
                        }
                        td data-label="Units" {
                            @if row.units.is_empty() { "–" }
                            @for units in &row.units { div { (escape_invisible(&units.policy)) ": " (format_count(units.units)) } }
                        }
                    }
                }
            }
        }
    }
}

/// One column of a chart: what it is, how many, and how many of them were denied.
struct Bar {
    label: String,
    count: u64,
    denied: u64,
}

fn day_bars(days: &Usage) -> Vec<Bar> {
    let (Ok(first), Ok(last)) = (days.from.parse::<Date>(), days.to.parse::<Date>()) else {
        return Vec::new();
    };
    let all = first.series(1.day()).take_while(|day| *day <= last).take(MAX_DAYS);
    let bar = |day: Date| {
        let label = day.to_string();
        let rows = days.rows.iter().filter(|row| row.day.as_ref() == Some(&label));
        let (count, denied) =
            rows.fold((0, 0), |(count, denied), row| (count + row.requests, denied + row.denied));
        Bar { label, count, denied }
    };
    if days.rows.is_empty() { Vec::new() } else { all.map(bar).collect() }
}

/// A chart of columns. The table beside it has the numbers.
fn bars(title: &str, bars: &[Bar]) -> Markup {
    const HEIGHT: u64 = 64;
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default().max(1);
    let of = |count: u64| count.saturating_mul(HEIGHT) / most;
    html! {
        @if !bars.is_empty() {
            figure.chart.days {
                svg.columns viewBox={ "0 0 " (bars.len() * 10) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(title) {
                    @for (nth, bar) in bars.iter().enumerate() {
                        g {
                            title { (bar.label) ": " (format_count(bar.count)) ", " (format_count(bar.denied)) " denied" }
                            rect.all x=(nth * 10) y=(HEIGHT - of(bar.count).max(u64::from(bar.count > 0))) width="8" height=(of(bar.count).max(u64::from(bar.count > 0))) {}
                            @if bar.denied > 0 {
                                rect.denied x=(nth * 10) y=(HEIGHT - of(bar.denied).max(1)) width="8" height=(of(bar.denied).max(1)) {}
                            }
                        }
                    }
                }
                span.top aria-hidden="true" { (format_count(most)) }
                @if let (Some(first), Some(last)) = (bars.first(), bars.last()) {
                    div.axis aria-hidden="true" { span { (first.label) } span { (last.label) } }
                }
            }
        }
    }
}

fn denials_link(path: &str, query: &DenialsQuery, cursor: Option<&str>) -> String {
    let status = query.status.map(|status| status.to_string());
    link(
        path,
        &[
            ("from", query.from.as_deref()),
            ("to", query.to.as_deref()),
            ("customer", query.customer.as_deref()),
            ("user", query.user.as_deref()),
            ("address", query.address.as_deref()),
            ("request", query.request.as_deref()),
            ("policy", query.policy.as_deref()),
            ("route", query.route.as_deref()),
            ("status", status.as_deref()),
            ("cursor", cursor),
        ],
    )
}

fn history_view(denials: &Denials, summary: &DenialSummary, query: &DenialsQuery) -> Page {
    let shown = |time: &str| components::utc(time);
    let local = |time: &Option<String>| time.as_deref().and_then(|time| time.get(..16)).map(str::to_owned);
    let body = html! {
        div.head {
            div {
                h1 { "History" }
                p.meta { "Why requests were denied, from " (shown(&summary.from)) " to " (shown(&summary.to)) "." }
            }
        }
        form.filter role="search" method="get" action="/history" data-keep {
            label { span { "From (UTC)" } input type="datetime-local" name="from" value=[local(&query.from)] autocomplete="off"; }
            label { span { "To (UTC)" } input type="datetime-local" name="to" value=[local(&query.to)] autocomplete="off"; }
            @for (name, label, value) in [
                ("customer", "Customer", &query.customer),
                ("user", "User", &query.user),
                ("address", "Address or network", &query.address),
                ("policy", "Policy", &query.policy),
                ("route", "Route", &query.route),
            ] {
                label { span { (label) } input type="search" name=(name) value=[value.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false"; }
            }
            button.primary type="submit" { "Show" }
            a href=(denials_link("/history.csv", query, None)) { "Export CSV" }
        }
        (bars("Denied requests", &timeline(summary)))
        section aria-labelledby="why" {
            h2 #why { "Why" }
            div.card.pad {
                @if summary.groups.is_empty() { p { "No request was denied." } }
                ul.facts { @for group in &summary.groups { li { (components::untrusted(&group.sentence(&TimeZone::UTC))) } } }
                @if summary.truncated { p.faint { "There are more: filter them, or choose a shorter time." } }
            }
        }
        @if !summary.events.is_empty() {
            section aria-labelledby="meanwhile" {
                h2 #meanwhile { "Meanwhile" }
                div.card.pad { ul.facts { @for event in &summary.events {
                    li { (components::time_of_day(&event.time)) " " (components::untrusted(&format!("{}: {} {} {}", event.by, event.action, event.target, event.detail))) }
                } } }
            }
        }
        section aria-labelledby="denials" {
            h2 #denials { "Denials" }
            div.card.scroll tabindex="0" role="region" aria-labelledby="denials" {
                @if denials.denials.is_empty() { (components::empty_state("No denials", "No denied request of this time and filter is in the history.")) }
                @else { (denials_table(denials)) }
            }
            nav.pages aria-label="Pages of the list" {
                @if query.cursor.is_some() { a.button href=(denials_link("/history", query, None)) { "First page" } }
                @if let Some(next) = &denials.cursor { a.button rel="next" href=(denials_link("/history", query, Some(next))) { "Next page" } }
            }
        }
    };
    Page { title: "History".to_owned(), body }
}

fn denials_table(denials: &Denials) -> Markup {
    html! {
        table.cards {
            caption.hidden { "Denials" }
            thead { tr {
                th scope="col" { "Minute (UTC)" } th scope="col" { "Client" } th scope="col" { "Of" }
                th scope="col" { "By" } th scope="col" { "Request" } th.num scope="col" { "Count" }
            } }
            tbody {
                @for denial in &denials.denials {
                    tr {
                        td.mono data-label="Minute (UTC)" { (denial.time.get(..16).unwrap_or_default().replace('T', " ")) }
                        td.mono data-label="Client" {
                            @if denial.address.contains('/') && !denial.address.contains(':') { (denial.address) } @else { (components::address_link(&denial.address)) }
                        }
                        td data-label="Of" { (components::untrusted(denial.customer.as_deref().or(denial.user.as_deref()).unwrap_or("–"))) }
                        td data-label="By" {
                            (escape_invisible(denial.policy.as_deref().unwrap_or(&denial.kind)))
                            @if let Some(limit) = &denial.limit { " " span.faint { (limit) } }
                            @if let Some(plan) = &denial.plan { " " span.faint { "plan " (escape_invisible(plan)) } }
                        }
                        td.mono.wrap data-label="Request" { (escape_invisible(&denial.method)) " " (components::untrusted(&denial.sample.path)) }
                        td.num data-label="Count" { (format_count(denial.count)) }
                    }
                }
            }
        }
    }
}

/// Denied requests over the time that was asked for.
fn timeline(summary: &DenialSummary) -> Vec<Bar> {
    let (from, to) = (parse_micros(&summary.from), parse_micros(&summary.to));
    let width = ((to - from) / BUCKETS).max(60_000_000);
    let count = usize::try_from((to - from) / width + 1).unwrap_or_default().min(BUCKETS as usize + 1);
    let mut bars: Vec<Bar> = (0..count)
        .map(|nth| {
            let begins = from + width * nth as i64;
            let label = crate::telemetry::time::rfc3339(begins);
            Bar { label: label.get(5..16).unwrap_or_default().replace('T', " "), count: 0, denied: 0 }
        })
        .collect();
    for minute in &summary.timeline {
        let nth = (parse_micros(&minute.time) - from).max(0) / width;
        if let Some(bar) = usize::try_from(nth).ok().and_then(|nth| bars.get_mut(nth)) {
            bar.count += minute.count;
            bar.denied += minute.count;
        }
    }
    if summary.timeline.is_empty() { Vec::new() } else { bars }
}

fn customers_view(
    customers: &[Customer],
    month: Option<&str>,
    has_more: bool,
    query: &CustomersQuery,
    now: i64,
) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Customers" }
                p.meta {
                    "Those who are closest to their limits come first."
                    @if let Some(month) = month { " Requests are those of " (month) "." }
                }
            }
        }
        form.filter role="search" method="get" action="/customers" data-keep {
            label { span { "Customer" } input type="search" name="customer" value=[query.customer.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false"; }
            label { span { "Plan" } input type="search" name="plan" value=[query.plan.as_deref().map(escape_invisible)] autocomplete="off" spellcheck="false"; }
            button.primary type="submit" { "Search" }
            @if query.customer.is_some() || query.plan.is_some() { a href="/customers" { "Clear" } }
        }
        div.card.scroll tabindex="0" role="region" aria-label="Customers" {
            @if customers.is_empty() { (components::empty_state("No customers", "Customers of valid API keys are listed here.")) }
            @else {
                table.cards {
                    caption.hidden { "Customers" }
                    thead { tr {
                        th scope="col" { "Customer" } th scope="col" { "Plans" } th.num scope="col" { "Keys" }
                        th.wide scope="col" { "Used of the limits" }
                        @if month.is_some() { th.num scope="col" { "Requests" } th.num scope="col" { "Denied" } th.num scope="col" { "Last denied" } }
                    } }
                    tbody { @for customer in customers { (customer_row(customer, month.is_some(), now)) } }
                }
            }
        }
        @if has_more { p.faint { "There are more than " (format_count(CUSTOMERS as u64)) " customers: search for one." } }
    };
    Page { title: "Customers".to_owned(), body }
}

fn customer_row(customer: &Customer, has_history: bool, now: i64) -> Markup {
    let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), format_count);
    html! {
        tr data-key=(customer.name) {
            th scope="row" { a.plain href=(link("/keys", &[("customer", Some(&customer.name))])) { (components::untrusted(&customer.name)) } }
            td data-label="Plans" { @if customer.plans.is_empty() { span.faint { "none" } } @else { (components::chips(&customer.plans)) } }
            td.num data-label="Keys" { (customer.keys) }
            td.wide data-label="Used of the limits" {
                @if customer.limits.is_empty() && customer.unlimited.is_empty() { "–" }
                @for limit in &customer.limits {
                    div.used {
                        (components::bar(limit.used, limit.limit, if limit.remaining == 0 { "fill bad" } else { "fill" }))
                        span.num { (limit.policy) ": " (format_count(limit.used)) " of " (format_count(limit.limit)) }
                    }
                }
                @for limit in &customer.unlimited { div.used { span.num { (limit.policy) ": unlimited" } } }
            }
            @if has_history {
                td.num data-label="Requests" {
                    a.plain href=(link("/usage", &[("customer", Some(&customer.name)), ("by", Some("day"))])) { (number(customer.requests)) }
                }
                td.num data-label="Denied" { (number(customer.denied)) }
                td.num data-label="Last denied" {
                    @match &customer.last_denied {
                        Some(last) => a.plain href=(link("/history", &[("customer", Some(&customer.name)), ("from", last.get(..16))])) { (components::time_ago(last, now)) },
                        None => "–",
                    }
                }
            }
        }
    }
}
