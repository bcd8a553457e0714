//! `GET /blocked`: addresses limited now or lately.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        blocked::{Sort, Wanted, listed},
        params::Params,
        problem::Problem,
        shapes::BlockedAddress,
        state::Shared,
    },
    layout::{Look, Page, Place},
    parts::{self, encoded},
    words::count,
};

pub(super) async fn blocked(
    State(shared): State<Arc<Shared>>,
    look: Look,
    query: Result<Params<Wanted>, Problem>,
) -> Response {
    let page = async {
        let Params(mut wanted) = query?;
        // A form sends what was left empty, too.
        for field in [&mut wanted.policy, &mut wanted.prefix, &mut wanted.cursor] {
            *field = field.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        page(&shared, &wanted).await
    };
    look.show(Place::Blocked, page.await)
}

async fn page(shared: &Shared, wanted: &Wanted) -> Result<Page, Problem> {
    let found = listed(shared, wanted).await?;
    let now = shared.state.clock.now();
    let is_filtered = wanted.policy.is_some() || wanted.prefix.is_some();
    let body = html! {
        div.head {
            div {
                h1 { "Blocked addresses" }
                p.meta { "Held back by a policy now or lately, on any instance." }
            }
        }
        (filter(shared, wanted))
        div.card {
            @if found.blocked.is_empty() && (is_filtered || wanted.cursor.is_some()) {
                (parts::nothing("Nothing matches", "No address that was limited lately is within this filter."))
            } @else if found.blocked.is_empty() {
                (parts::nothing("Nobody is blocked", "Addresses that a policy holds back are listed here, with the users behind them."))
            } @else {
                (table(wanted, &found.blocked, now))
            }
        }
        nav.pages aria-label="Pages of the list" {
            @if wanted.cursor.is_some() { a.button href=(link(wanted, wanted.sort, None)) { "First page" } }
            @if let Some(next) = &found.cursor { a.button href=(link(wanted, wanted.sort, Some(next))) rel="next" { "Next page" } }
        }
    };
    Ok(Page { title: "Blocked addresses".to_owned(), body })
}

fn filter(shared: &Shared, wanted: &Wanted) -> Markup {
    html! {
        form.filter role="search" method="get" action="/blocked" data-keep {
            label { span { "Address or prefix" }
                input type="search" name="prefix" value=[wanted.prefix.as_deref()] placeholder="203.0.113.0/24" autocomplete="off" spellcheck="false";
            }
            label { span { "Policy" }
                select name="policy" {
                    option value="" { "All policies" }
                    @for policy in shared.state.policies.iter() {
                        option value=(policy.name) selected[wanted.policy.as_deref() == Some(policy.name.as_str())] { (policy.name) }
                    }
                }
            }
            @if wanted.sort != Sort::default() { input type="hidden" name="sort" value=(wanted.sort.name()); }
            button.primary type="submit" { "Search" }
            @if wanted.policy.is_some() || wanted.prefix.is_some() { a href="/blocked" { "Clear" } }
        }
    }
}

fn table(wanted: &Wanted, found: &[BlockedAddress], now: i64) -> Markup {
    html! {
        table.cards {
            caption.hidden { "Blocked addresses" }
            thead { tr {
                (heading(wanted, Sort::Address, "Address", "ascending", ""))
                th scope="col" { "Behind it" }
                th scope="col" { "Held back by" }
                (heading(wanted, Sort::Denied, "Denied", "descending", "num"))
                th.num scope="col" { "Users" }
                (heading(wanted, Sort::First, "First", "descending", "num"))
                (heading(wanted, Sort::Last, "Last", "descending", "num"))
                th.num scope="col" { "Time left" }
            } }
            tbody {
                @for found in found {
                    tr data-key=(found.address) {
                        th scope="row" { (parts::address(&found.address)) }
                        td data-label="Behind it" { (parts::hint(&found.hint)) }
                        td data-label="Held back by" { (parts::policies(&found.policies)) }
                        td.num data-label="Denied" { (count(found.denied)) }
                        td.num data-label="Users" { (count(found.distinct_users as u64)) }
                        td.num data-label="First" { (parts::ago(&found.first, now)) }
                        td.num data-label="Last" { (parts::ago(&found.last, now)) }
                        td.num data-label="Time left" { (parts::left(&found.until, now)) }
                    }
                }
            }
        }
    }
}

/// The head of a column that the list can be sorted by. Each order has one direction.
fn heading(wanted: &Wanted, sort: Sort, name: &str, direction: &str, class: &str) -> Markup {
    let is_by_this = wanted.sort == sort;
    html! {
        th scope="col" class=[Some(class).filter(|class| !class.is_empty())] aria-sort=[is_by_this.then_some(direction)] {
            a href=(link(wanted, sort, None)) { (name) }
        }
    }
}

fn link(wanted: &Wanted, sort: Sort, cursor: Option<&str>) -> String {
    let fields = [
        ("policy", wanted.policy.as_deref()),
        ("prefix", wanted.prefix.as_deref()),
        ("sort", Some(sort.name()).filter(|_| sort != Sort::default())),
        ("cursor", cursor),
    ];
    let fields = fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))));
    let query = fields.collect::<Vec<_>>().join("&");
    if query.is_empty() { "/blocked".to_owned() } else { format!("/blocked?{query}") }
}
