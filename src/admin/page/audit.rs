//! `GET /audit`: the operators' audit log.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::{
    super::{
        audit::{self, AuditAuthor, AuditQuery},
        context::HandlerContext,
        dto::Audit,
        extract::Query,
        problem::Problem,
    },
    components::{self, percent_encode},
    layout::{NavItem, Page, PageFrame},
};

pub(super) async fn audit(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<AuditQuery>, Problem>,
) -> Response {
    let page = query.and_then(|Query(query)| {
        let audit = audit::page(&context, &query)?;
        Ok(view(&audit, &query, context.state.clock.now()))
    });
    frame.render(NavItem::Audit, page)
}

fn view(audit: &Audit, query: &AuditQuery, now: i64) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Audit" }
                p.meta { "Who changed what, on all instances, newest first." }
            }
            nav.chips aria-label="Changes by" {
                @for (name, by) in [("All", None), ("By operators", Some(AuditAuthor::Operator)), ("By rules", Some(AuditAuthor::Rule))] {
                    a.chip href=(link(by, None)) aria-current=[(query.by == by).then_some("true")] { (name) }
                }
            }
        }
        div.card {
            @if audit.entries.is_empty() && query.by.is_some() { (components::empty_state("No matches", "No change in the list was made by these.")) }
            @else if audit.entries.is_empty() { (components::empty_state("No changes yet", "Unblocks, bans, resets and reloads are listed here.")) }
            @else {
                table.cards {
                    caption.hidden { "Changes" }
                    thead { tr {
                        th scope="col" { "When" } th scope="col" { "What" } th scope="col" { "Key" }
                        th scope="col" { "Detail" } th scope="col" { "By" } th scope="col" { "Instance" }
                    } }
                    tbody {
                        @for entry in &audit.entries {
                            tr {
                                td data-label="When" { (components::time_ago(&entry.time, now)) }
                                td data-label="What" { span.chip { (entry.action) } }
                                td.mono data-label="Key" { (components::untrusted(&entry.target)) }
                                td.wrap data-label="Detail" { (components::untrusted(&entry.detail)) }
                                td data-label="By" { (components::untrusted(&entry.by)) }
                                td.mono data-label="Instance" { (components::untrusted(&entry.instance)) }
                            }
                        }
                    }
                }
            }
        }
        nav.pages aria-label="Pages of the list" {
            @if query.cursor.is_some() { a.button href=(link(query.by, None)) { "First page" } }
            @if let Some(next) = &audit.cursor { a.button rel="next" href=(link(query.by, Some(next))) { "Next page" } }
        }
    };
    Page { title: "Audit".to_owned(), body }
}

fn link(by: Option<AuditAuthor>, cursor: Option<&str>) -> String {
    let by = by.map(|by| format!("by={}", by.name()));
    let cursor = cursor.map(|cursor| format!("cursor={}", percent_encode(cursor)));
    let query = by.into_iter().chain(cursor).collect::<Vec<_>>().join("&");
    if query.is_empty() { "/audit".to_owned() } else { format!("/audit?{query}") }
}
