//! `GET /blocked/{ip}`: who was behind an address, and letting it go or shutting it out.

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
    format::{count, lasting},
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
    let client = address.client(context.state.in_force.snapshot().ipv6_prefix())?;
    let shown = abuse::shown(client);
    let now = context.state.clock.now();
    let body = match evidence_of(context, address).await {
        Ok(evidence) => known(&evidence, now),
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            let bans: Vec<Ban> =
                context.state.bans.covering(client).iter().map(|ban| Ban::from(&**ban)).collect();
            unknown(&shown, &bans, now)
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
                h1.mono { (shown) " " (components::copy(shown, "the address")) }
                p.meta { (badge) }
            }
            div.actions.js { (actions) }
        }
        (dialogs::unblock(shown))
        (dialogs::ban(&format!("ip:{shown}")))
    }
}

fn unknown(shown: &str, bans: &[Ban], now: i64) -> Markup {
    let badge = html! {
        @if bans.is_empty() { span.badge.good { "Not limited" } } @else { (banned(bans)) }
    };
    html! {
        (head(shown, &badge, &html! {
            @if !bans.is_empty() { (dialogs::open("unblock", "Unblock …", "primary")) }
            (dialogs::open("ban", "Ban …", "danger"))
        }))
        (holding(bans, now))
        div.card { (components::nothing("It was not limited lately", "No policy has held this address back as far as is remembered.")) }
    }
}

fn banned(bans: &[Ban]) -> Markup {
    html! { @if bans.iter().any(|ban| ban.mode != "shadow") { span.badge.bad { "Banned" } } }
}

fn holding(bans: &[Ban], now: i64) -> Markup {
    html! {
        @if !bans.is_empty() {
            section aria-labelledby="bans" {
                div.bar-head { h2 #bans { "Bans that hold" } }
                div.card { (bans::table(bans, now, true)) }
            }
            (dialogs::lift())
        }
    }
}

fn known(evidence: &Evidence, now: i64) -> Markup {
    let of = &evidence.address;
    let users = timeline::users(&evidence.records);
    html! {
        (head(&of.address, &html! { (components::hint(&of.hint)) (banned(&evidence.bans)) }, &html! {
            (dialogs::open("unblock", "Unblock …", "primary"))
            (dialogs::open("ban", "Ban …", "danger"))
        }))
        dl.tiles {
            div { dt { "Denied" } dd.denied { (count(of.denied)) } }
            div { dt { "Users behind it" } dd { (count(of.distinct_users as u64)) } }
            div { dt { "First denied" } dd.small { (components::ago(&of.first, now)) } }
            div { dt { "Last denied" } dd.small { (components::ago(&of.last, now)) } }
            div { dt { "Time left" } dd.small { (components::left(&of.until, now)) } }
        }
        (holding(&evidence.bans, now))
        (limits(&evidence.limits, &of.policies))
        section aria-labelledby="timeline" {
            div.bar-head { h2 #timeline { "Timeline" span.faint { " of the last " (count(evidence.records.len() as u64)) " records" } } }
            div.card.pad { (timeline::timeline(&evidence.records)) @if evidence.records.is_empty() { (components::nothing("No records", "What it asked for is not remembered any more.")) } }
        }
        div.columns {
            (records(&evidence.records))
            (who(&users))
        }
    }
}

fn limits(limits: &[LimitUsage], policies: &[String]) -> Markup {
    html! {
        section aria-labelledby="limits" {
            div.bar-head { h2 #limits { "Limits" } span.meta { "Held back by " (components::policies(policies)) } }
            div.card {
                @if limits.is_empty() { (components::nothing("No limit is kept of this address itself", "What held it back counts something else, such as its users.")) }
                @else {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Policy" } th scope="col" { "Key" } th.wide scope="col" { "Used" }
                            th.num scope="col" { "Remaining" } th.num scope="col" { "Free again in" }
                        } }
                        tbody { @for limit in limits { (row(limit)) } }
                    }
                }
            }
        }
    }
}

fn row(limit: &LimitUsage) -> Markup {
    let class = if limit.remaining == 0 { "fill bad" } else { "fill" };
    html! {
        tr data-key={ (limit.policy) " " (limit.key) " " (limit.limit) } {
            th scope="row" { (limit.policy) }
            td data-label="Key" { span.mono { (components::foreign(&limit.key)) } }
            td.wide data-label="Used" {
                div.used { (components::bar(limit.used, limit.limit, class)) span.num { (count(limit.used)) " of " (count(limit.limit)) } }
            }
            td.num data-label="Remaining" { (count(limit.remaining)) }
            td.num data-label="Free again in" { @if limit.used == 0 { "–" } @else { (lasting(&limit.reset)) } }
        }
    }
}

fn records(records: &[Record]) -> Markup {
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
                                td { (components::clock(&record.time)) }
                                td { (components::user(record.user.as_deref())) }
                                td.request { span.method { (record.method) } " " span.mono { (components::foreign(&record.path)) } }
                                td { span.chip { (record.policy) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn who(users: &[(Option<&str>, usize)]) -> Markup {
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
                                th scope="row" { (components::user(user)) (components::bar(records as u64, most, "fill")) }
                                td.num { (count(records as u64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
