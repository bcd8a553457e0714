//! `GET /blocked/{ip}`: the evidence on one address, with unblock and ban.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        dto::{Ban, Evidence, LimitUsage, Record},
        evidence::evidence_of,
        extract::{ClientParam, NoParams, Query},
        problem::Problem,
    },
    bans, components, dialogs,
    format::{format_count, humanize_duration},
    layout::{NavItem, Page, PageFrame},
    timeline,
};
use crate::abuse;

pub(super) async fn address(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    address: Result<ClientParam, Problem>,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    let page = async {
        query?;
        page(&context, &address?).await
    };
    frame.render(NavItem::Blocked, page.await)
}

async fn page(context: &HandlerContext, address: &ClientParam) -> Result<Page, Problem> {
    let client = address.client(context.state.active_config.snapshot().ipv6_prefix())?;
    let shown = abuse::shown(client);
    let now = context.state.clock.now();
    let body = match evidence_of(context, address).await {
        Ok(evidence) => limited_body(&evidence, now),
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            let bans: Vec<Ban> =
                context.state.bans.covering(client).iter().map(|ban| Ban::from(&**ban)).collect();
            unlimited_body(&shown, &bans, now)
        }
        Err(problem) => return Err(problem),
    };
    Ok(Page { title: shown.to_string(), body })
}

fn head(shown: &str, badge: &Markup, actions: &Markup) -> Markup {
    html! {
        p.crumbs { a href="/blocked" { "Blocked addresses" } }
        div.head {
            div {
                h1.mono { (shown) " " (components::copy_button(shown, "the address")) }
                p.meta { (badge) }
            }
            div.actions.js { (actions) }
        }
        (dialogs::unblock(shown))
        (dialogs::ban(&format!("ip:{shown}")))
    }
}

fn unlimited_body(shown: &str, bans: &[Ban], now: i64) -> Markup {
    let badge = html! {
        @if bans.is_empty() { span.badge.good { "Not limited" } } @else { (banned_badge(bans)) }
    };
    html! {
        (head(shown, &badge, &html! {
            @if !bans.is_empty() { (dialogs::open_button("unblock", "Unblock …", "primary")) }
            (dialogs::open_button("ban", "Ban …", "danger"))
        }))
        (active_bans(bans, now))
        div.card { (components::empty_state("Not limited recently", "There is no record of a policy limiting this address.")) }
    }
}

fn banned_badge(bans: &[Ban]) -> Markup {
    html! { @if bans.iter().any(|ban| ban.mode != "shadow") { span.badge.bad { "Banned" } } }
}

fn active_bans(bans: &[Ban], now: i64) -> Markup {
    html! {
        @if !bans.is_empty() {
            section aria-labelledby="bans" {
                div.bar-head { h2 #bans { "Active bans" } }
                div.card { (bans::table(bans, now, true)) }
            }
            (dialogs::lift())
        }
    }
}

fn limited_body(evidence: &Evidence, now: i64) -> Markup {
    let address = &evidence.address;
    let users = timeline::users(&evidence.records);
    html! {
        (head(&address.address, &html! { (components::hint_badge(&address.hint)) (banned_badge(&evidence.bans)) }, &html! {
            (dialogs::open_button("unblock", "Unblock …", "primary"))
            (dialogs::open_button("ban", "Ban …", "danger"))
        }))
        dl.tiles {
            div { dt { "Denied" } dd.denied { (format_count(address.denied)) } }
            div { dt { "Users behind it" } dd { (format_count(address.distinct_users as u64)) } }
            div { dt { "First denied" } dd.small { (components::time_ago(&address.first, now)) } }
            div { dt { "Last denied" } dd.small { (components::time_ago(&address.last, now)) } }
            div { dt { "Time left" } dd.small { (components::time_left(&address.until, now)) } }
        }
        (active_bans(&evidence.bans, now))
        (limits_table(&evidence.limits, &address.policies))
        section aria-labelledby="timeline" {
            div.bar-head { h2 #timeline { "Timeline" span.faint { " of the last " (format_count(evidence.records.len() as u64)) " records" } } }
            div.card.pad { (timeline::timeline(&evidence.records)) @if evidence.records.is_empty() { (components::empty_state("No records", "The records of its requests have expired.")) } }
        }
        div.columns {
            (records_table(&evidence.records))
            (users_table(&users))
        }
    }
}

fn limits_table(limits: &[LimitUsage], policies: &[String]) -> Markup {
    html! {
        section aria-labelledby="limits" {
            div.bar-head { h2 #limits { "Limits" } span.meta { "Limited by " (components::chips(policies)) } }
            div.card {
                @if limits.is_empty() { (components::empty_state("No limit has this address as its key", "The limits that denied its requests use other keys, such as users.")) }
                @else {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Policy" } th scope="col" { "Key" } th.wide scope="col" { "Used" }
                            th.num scope="col" { "Remaining" } th.num scope="col" { "Free again in" }
                        } }
                        tbody { @for limit in limits { (limit_row(limit)) } }
                    }
                }
            }
        }
    }
}

fn limit_row(limit: &LimitUsage) -> Markup {
    let class = if limit.remaining == 0 { "fill bad" } else { "fill" };
    html! {
        tr data-key={ (limit.policy) " " (limit.key) " " (limit.limit) } {
            th scope="row" { (limit.policy) }
            td data-label="Key" { span.mono { (components::untrusted(&limit.key)) } }
            td.wide data-label="Used" {
                div.used { (components::bar(limit.used, limit.limit, class)) span.num { (format_count(limit.used)) " of " (format_count(limit.limit)) } }
            }
            td.num data-label="Remaining" { (format_count(limit.remaining)) }
            td.num data-label="Free again in" { @if limit.used == 0 { "–" } @else { (humanize_duration(&limit.reset)) } }
        }
    }
}

fn records_table(records: &[Record]) -> Markup {
    html! {
        section.main aria-labelledby="records" {
            div.bar-head { h2 #records { "Records" span.faint { " newest first" } } }
            div.card.scroll tabindex="0" role="region" aria-labelledby="records" {
                table {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "User" } th scope="col" { "Request" } th scope="col" { "Policy" }
                    } }
                    tbody {
                        @for record in records {
                            tr {
                                td { (components::time_of_day(&record.time)) }
                                td { (components::user_link(record.user.as_deref())) }
                                td.request { span.method { (record.method) } " " span.mono { (components::untrusted(&record.path)) } }
                                td { span.chip { (record.policy) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn users_table(users: &[(Option<&str>, usize)]) -> Markup {
    let most = users.iter().map(|&(_, records)| records as u64).max().unwrap_or(0);
    html! {
        section aria-labelledby="users" {
            div.bar-head { h2 #users { "Users" span.faint { " in the records" } } }
            div.card.scroll tabindex="0" role="region" aria-labelledby="users" {
                table {
                    thead { tr { th scope="col" { "User" } th.num scope="col" { "Records" } } }
                    tbody {
                        @for &(user, records) in users {
                            tr {
                                th scope="row" { (components::user_link(user)) (components::bar(records as u64, most, "fill")) }
                                td.num { (format_count(records as u64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
