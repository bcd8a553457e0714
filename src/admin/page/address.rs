//! `GET /blocked/{ip}`: the evidence on one address, with unblock and ban.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        dto::{BlockedAddress, Evidence, Record, RecordedUser},
        evidence::evidence_of,
        extract::{ClientParam, NoParams, Query},
        problem::Problem,
    },
    bans, components, dialogs,
    format::format_count,
    layout::{NavItem, Page, PageFrame},
    limits, timeline,
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
        Ok(evidence) if evidence.address.denied > 0 => limited_body(&evidence, now),
        Ok(evidence) => unlimited_body(&shown, Some(&evidence), now),
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => unlimited_body(&shown, None, now),
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

/// The page of an address that was not denied recently. `banned`: its bans, if it has any.
fn unlimited_body(shown: &str, banned: Option<&Evidence>, now: i64) -> Markup {
    let badge = match banned {
        Some(evidence) => components::state_badge(&evidence.address),
        None => html! { span.badge.good { "Not limited" } },
    };
    html! {
        (head(shown, &badge, &html! {
            @if banned.is_some() { (dialogs::open_button("unblock", "Unblock …", "primary")) }
            (dialogs::open_button("ban", "Ban …", "danger"))
        }))
        @if let Some(evidence) = banned {
            dl.tiles {
                div { dt { "Denied" } dd { "0" } }
                div { dt { "Time left" } dd.small { (components::time_left(&evidence.address.until, now)) } }
            }
            (bans::active(&evidence.bans, now))
        }
        div.card { (components::empty_state("Not limited recently", "There is no record of a policy limiting this address.")) }
    }
}

fn limited_body(evidence: &Evidence, now: i64) -> Markup {
    let address = &evidence.address;
    // Otherwise there is nothing to unblock.
    let is_held = ["banned", "limited"].contains(&address.state.as_str())
        || evidence
            .limits
            .iter()
            .any(|limit| limit.used > 0 && abuse::is_identifier_of(&limit.key, &address.address));
    html! {
        (head(&address.address, &html! {
            (components::state_badge(address)) (components::hint_badge(address)) (unblocked(address, now))
        }, &html! {
            @if is_held { (dialogs::open_button("unblock", "Unblock …", "primary")) }
            (dialogs::open_button("ban", "Ban …", "danger"))
        }))
        p.hint { (components::untrusted(&address.hint_reason)) }
        @if let Some(advice) = &address.hint_advice { p.hint { (components::with_code(advice)) } }
        dl.tiles {
            div { dt { "Denied" } dd.bad[address.denied > 0] { (format_count(address.denied)) } }
            div { dt { "Users behind it" } dd { (format_count(address.distinct_users as u64)) } }
            div { dt { "First denied" } dd.small { (components::time_ago(&address.first, now)) } }
            div { dt { "Last denied" } dd.small { (components::time_ago(&address.last, now)) } }
            div { dt { "Time left" } dd.small { (components::time_left(&address.until, now)) } }
        }
        (bans::active(&evidence.bans, now))
        (limits_table(evidence))
        section aria-labelledby="timeline" {
            div.bar-head { h2 #timeline { "Timeline" span.faint { " of the last " (format_count(evidence.records.len() as u64)) " records" } } }
            div.card.pad { (timeline::timeline(&evidence.records)) @if evidence.records.is_empty() { (components::empty_state("No records", "The records of its requests have expired.")) } }
        }
        div.columns {
            (records_table(&evidence.records))
            (users_table(&evidence.users))
        }
    }
}

/// The last unblock and its operator.
fn unblocked(address: &BlockedAddress, now: i64) -> Markup {
    html! {
        @if let Some(unblocked) = &address.unblocked {
            span {
                "Unblocked " (components::time_ago(&unblocked.time, now))
                @if let Some(by) = &unblocked.by { " by " (components::untrusted(by)) }
                // Times of the API sort as text.
                @if address.last > unblocked.time { ", denied again since" }
            }
        }
    }
}

fn limits_table(Evidence { address, limits, unlimited, more_limits, .. }: &Evidence) -> Markup {
    html! {
        section aria-labelledby="limits" {
            div.bar-head { h2 #limits { "Limits" } span.meta { "Limited by " (components::chips(&address.policies)) } }
            div.card {
                @if limits.is_empty() && unlimited.is_empty() { (components::empty_state("No limit to show", "The limits that denied its requests are not in proxy.yaml, or count by users, who are not recorded.")) }
                @else {
                    (limits::table(limits, unlimited))
                    @if *more_limits > 0 { p.meta { "and " (more_limits) " more" } }
                }
            }
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

fn users_table(users: &[RecordedUser]) -> Markup {
    let most = users.iter().map(|user| user.records as u64).max().unwrap_or(0);
    html! {
        section aria-labelledby="users" {
            div.bar-head { h2 #users { "Users" span.faint { " in the records" } } }
            div.card.scroll tabindex="0" role="region" aria-labelledby="users" {
                table {
                    thead { tr { th scope="col" { "User" } th.num scope="col" { "Records" } } }
                    tbody {
                        @for user in users {
                            tr {
                                th scope="row" {
                                    (components::user_link(user.user.as_deref()))
                                    (components::ban_badge(user.banned_until.as_deref()))
                                    (components::bar(user.records as u64, most, "fill"))
                                }
                                td.num { (format_count(user.records as u64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
