//! `GET /audit`: who changed what.

use maud::html;

use super::{
    super::shapes::Audit,
    layout::Page,
    parts::{self, encoded},
};

pub(super) fn view(audit: &Audit, is_first: bool, now: i64) -> Page {
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
