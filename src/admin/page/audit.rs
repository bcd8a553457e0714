//! `GET /audit`: the operators' audit log.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::{
    super::{
        audit::{self, AuditQuery},
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
        Ok(view(&audit, query.cursor.is_none(), context.state.clock.now()))
    });
    frame.render(NavItem::Audit, page)
}

fn view(audit: &Audit, is_first: bool, now: i64) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Audit" }
                p.meta { "Who changed what, on all instances, newest first." }
            }
        }
        div.card {
            @if audit.entries.is_empty() { (components::empty_state("No changes yet", "Unblocks, bans, resets and reloads are listed here.")) }
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
            @if !is_first { a.button href="/audit" { "First page" } }
            @if let Some(next) = &audit.cursor { a.button rel="next" href={ "/audit?cursor=" (percent_encode(next)) } { "Next page" } }
        }
    };
    Page { title: "Audit".to_owned(), body }
}
