//! `GET /audit`: who changed what.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::{
    super::{
        audit::{self, Wanted},
        params::Params,
        problem::Problem,
        shapes::Audit,
        state::Shared,
    },
    layout::{Look, Page, Place},
    parts::{self, encoded},
};

pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    look: Look,
    query: Result<Params<Wanted>, Problem>,
) -> Response {
    let page = query.and_then(|Params(wanted)| {
        let audit = audit::listed(&shared, &wanted)?;
        Ok(view(&audit, wanted.cursor.is_none(), shared.state.clock.now()))
    });
    look.show(Place::Audit, page)
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
            @if audit.entries.is_empty() { (parts::nothing("Nothing was changed", "Unblocks, bans, resets and reloads are listed here.")) }
            @else {
                table.cards {
                    caption.hidden { "What was changed" }
                    thead { tr {
                        th scope="col" { "When" } th scope="col" { "What" } th scope="col" { "Whom or which" }
                        th scope="col" { "Detail" } th scope="col" { "By" } th scope="col" { "Instance" }
                    } }
                    tbody {
                        @for entry in &audit.entries {
                            tr {
                                td data-label="When" { (parts::ago(&entry.time, now)) }
                                td data-label="What" { span.chip { (entry.action) } }
                                td.mono data-label="Whom or which" { (parts::foreign(&entry.target)) }
                                td data-label="Detail" { (parts::foreign(&entry.detail)) }
                                td data-label="By" { (parts::foreign(&entry.by)) }
                                td.mono data-label="Instance" { (parts::foreign(&entry.instance)) }
                            }
                        }
                    }
                }
            }
        }
        nav.pages aria-label="Pages of the list" {
            @if !is_first { a.button href="/audit" { "First page" } }
            @if let Some(next) = &audit.cursor { a.button rel="next" href={ "/audit?cursor=" (encoded(next)) } { "Next page" } }
        }
    };
    Page { title: "Audit".to_owned(), body }
}
