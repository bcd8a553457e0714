//! `GET /blocked`: the addresses that are or recently were limited.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};

use super::{
    super::{
        ConfigSnapshot,
        blocked::{self, BlockedQuery},
        context::HandlerContext,
        dto::BlockedAddress,
        extract::Query,
        problem::Problem,
    },
    components::{self, percent_encode},
    format::{escape_invisible, format_count},
    layout::{NavItem, Page, PageFrame},
};
use crate::abuse::Sort;

pub(super) async fn blocked(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<BlockedQuery>, Problem>,
) -> Response {
    let mut errors = FieldErrors::default();
    let page = async {
        let Query(mut query) = query?;
        // Forms also send empty fields.
        for field in [&mut query.policy, &mut query.prefix, &mut query.cursor] {
            *field = field.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        errors = FieldErrors::take(&mut query, &context.state.active_config.snapshot());
        page(&context, &query, &errors).await
    };
    let mut response = frame.render(NavItem::Blocked, page.await);
    if errors.prefix.is_some() || errors.policy.is_some() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response
}

/// The invalid fields of the filter, each with its text and its error. The list is not filtered by them.
#[derive(Debug, Default)]
struct FieldErrors {
    prefix: Option<(String, Problem)>,
    policy: Option<(String, Problem)>,
}

impl FieldErrors {
    /// Moves the invalid fields out of `query`.
    fn take(query: &mut BlockedQuery, config: &ConfigSnapshot) -> Self {
        let (prefix, policy) = (query.network().err(), query.check_policy(config).err());
        let prefix = prefix.and_then(|problem| Some((query.prefix.take()?, problem)));
        let policy = policy.and_then(|problem| Some((query.policy.take()?, problem)));
        Self { prefix, policy }
    }
}

async fn page(context: &HandlerContext, query: &BlockedQuery, errors: &FieldErrors) -> Result<Page, Problem> {
    let found = blocked::page(context, query).await?;
    let now = context.state.clock.now();
    let is_filtered = query.policy.is_some() || query.prefix.is_some();
    let body = html! {
        div.head {
            div {
                h1 { "Blocked addresses" }
                p.meta { "Addresses that a policy or a ban denied recently, on any instance." }
            }
        }
        (filter(context, query, errors))
        div.card {
            @if found.blocked.is_empty() && (is_filtered || query.cursor.is_some()) {
                (components::empty_state("No matches", "No recently limited address matches this filter."))
            } @else if found.blocked.is_empty() {
                (components::empty_state("No blocked addresses", "Addresses that a policy limits are listed here, with the users behind them."))
            } @else {
                (table(query, &found.blocked, now))
            }
        }
        nav.pages aria-label="Pages of the list" {
            @if query.cursor.is_some() { a.button href=(link(query, query.sort, None)) { "First page" } }
            @if let Some(next) = &found.cursor { a.button href=(link(query, query.sort, Some(next))) rel="next" { "Next page" } }
        }
    };
    Ok(Page { title: "Blocked addresses".to_owned(), body })
}

fn filter(context: &HandlerContext, query: &BlockedQuery, errors: &FieldErrors) -> Markup {
    let written = errors.prefix.as_ref().map(|(written, _)| written);
    let is_invalid = |error: &Option<(String, Problem)>| error.is_some().then_some("true");
    html! {
        form.filter role="search" method="get" action="/blocked" data-keep {
            label { span { "Address or prefix" }
                input type="search" name="prefix" value=[query.prefix.as_ref().or(written).map(|text| escape_invisible(text))] placeholder="203.0.113.0/24" autocomplete="off" spellcheck="false"
                    aria-invalid=[is_invalid(&errors.prefix)] aria-describedby=[errors.prefix.is_some().then_some("wrong-prefix")];
                (field_error("wrong-prefix", &errors.prefix))
            }
            label { span { "Policy" }
                select name="policy" aria-invalid=[is_invalid(&errors.policy)] aria-describedby=[errors.policy.is_some().then_some("wrong-policy")] {
                    option value="" { "All policies" }
                    @for policy in context.state.active_config.snapshot().policies().iter() {
                        option value=(policy.name) selected[query.policy.as_deref() == Some(policy.name.as_str())] { (policy.name) }
                    }
                }
                (field_error("wrong-policy", &errors.policy))
            }
            @if query.sort != Sort::default() { input type="hidden" name="sort" value=(query.sort.name()); }
            button.primary type="submit" { "Search" }
            @if query.policy.is_some() || query.prefix.is_some() { a href="/blocked" { "Clear" } }
        }
    }
}

fn field_error(id: &str, error: &Option<(String, Problem)>) -> Markup {
    html! {
        @if let Some((_, problem)) = error { span.error id=(id) role="alert" { (escape_invisible(problem.detail())) } }
    }
}

fn table(query: &BlockedQuery, found: &[BlockedAddress], now: i64) -> Markup {
    html! {
        table.cards {
            caption.hidden { "Blocked addresses" }
            thead { tr {
                (heading(query, Sort::Address, "Address", "ascending", ""))
                th scope="col" { "Hint" }
                th scope="col" { "Limited by" }
                (heading(query, Sort::Denied, "Denied", "descending", "num"))
                th.num scope="col" { "Users" }
                (heading(query, Sort::First, "First", "descending", "num"))
                (heading(query, Sort::Last, "Last", "descending", "num"))
                th.num scope="col" { "Time left" }
            } }
            tbody {
                @for found in found {
                    tr data-key=(found.address) {
                        th scope="row" { (components::address_link(&found.address)) (components::state_badge(found)) }
                        td data-label="Hint" { (components::hint_badge(found)) }
                        td data-label="Limited by" { (components::chips(&found.policies)) }
                        td.num data-label="Denied" { (format_count(found.denied)) }
                        td.num data-label="Users" { (format_count(found.distinct_users as u64)) }
                        td.num data-label="First" { (components::time_ago(&found.first, now)) }
                        td.num data-label="Last" { (components::time_ago(&found.last, now)) }
                        td.num data-label="Time left" { (components::time_left(&found.until, now)) }
                    }
                }
            }
        }
    }
}

/// The heading of a sortable column. Each column sorts in one direction only.
fn heading(query: &BlockedQuery, sort: Sort, name: &str, direction: &str, class: &str) -> Markup {
    let is_by_this = query.sort == sort;
    html! {
        th scope="col" class=[Some(class).filter(|class| !class.is_empty())] aria-sort=[is_by_this.then_some(direction)] {
            a href=(link(query, sort, None)) { (name) }
        }
    }
}

fn link(query: &BlockedQuery, sort: Sort, cursor: Option<&str>) -> String {
    let fields = [
        ("policy", query.policy.as_deref()),
        ("prefix", query.prefix.as_deref()),
        ("sort", Some(sort.name()).filter(|_| sort != Sort::default())),
        ("cursor", cursor),
    ];
    let fields =
        fields.iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode((*value)?))));
    let query = fields.collect::<Vec<_>>().join("&");
    if query.is_empty() { "/blocked".to_owned() } else { format!("/blocked?{query}") }
}
