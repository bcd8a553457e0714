//! `GET /users/{user}`: a user's bans, limits, last requests, and the addresses that the user was limited from.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    super::{
        context::HandlerContext,
        dto::{User, UserAddress, UserRecord},
        extract::{NoParams, Query, UserParam},
        problem::Problem,
        users::user_dto,
    },
    bans, components, dialogs,
    format::{escape_invisible, format_count},
    layout::{NavItem, Page, PageFrame},
    limits,
};
use crate::abuse::{UserNaming, bans::BannedKey};

/// Names of this many bytes or more may be shortened ones.
const MAX_COMPLETE_LEN: usize = 125;

pub(super) async fn user(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    user: Result<UserParam, Problem>,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    let page = async {
        query?;
        let UserParam(user) = user?;
        let key = ban_key(&user, &context.state.registry.names());
        let found = user_dto(&context, &user).await?;
        Ok(view(&found, key.as_deref(), context.state.clock.now()))
    };
    frame.render(NavItem::Blocked, page.await)
}

/// The key that bans this user. `None` if only a shortened name is known, which no request has.
fn ban_key(user: &str, names: &UserNaming) -> Option<String> {
    (user.len() < MAX_COMPLETE_LEN).then(|| BannedKey::from_user_name(user, names).to_string())
}

/// `key`: the key that bans the user, if the whole name is known.
fn view(user: &User, key: Option<&str>, now: i64) -> Page {
    let body = html! {
        p.crumbs { a href="/blocked" { "Blocked addresses" } }
        div.head {
            div {
                h1 { (components::untrusted(&user.user)) }
                p.meta { "User" (components::copy_button(&user.user, "the user")) (components::ban_badge(user.banned_until.as_deref())) }
            }
            @if key.is_some() { div.actions.js { (dialogs::open_button("ban", "Ban …", "danger")) } }
        }
        @match key {
            Some(key) => (dialogs::ban(key)),
            None => p.faint { "The full user ID is not stored, because it is too long. If you know it, you can ban the user \
                under Bans." },
        }
        dl.tiles {
            div { dt { "Denied" } dd.bad[user.denied > 0] { (format_count(user.denied)) } }
            div { dt { "Addresses" } dd { (format_count(user.addresses.len() as u64)) } }
            @if let Some(until) = &user.banned_until { div { dt { "Banned for" } dd.small { (components::time_left(until, now)) } } }
        }
        (bans::active(&user.bans, now))
        (addresses(&user.addresses, !user.bans.is_empty(), now))
        @if !user.limits.is_empty() || !user.unlimited.is_empty() {
            section aria-labelledby="limits" {
                div.bar-head { h2 #limits { "Limits" } }
                div.card { (limits::table(&user.limits, &user.unlimited)) }
            }
        }
        @if !user.records.is_empty() { (records(&user.records)) }
    };
    Page { title: escape_invisible(&user.user).into_owned(), body }
}

fn addresses(addresses: &[UserAddress], is_banned: bool, now: i64) -> Markup {
    let (title, detail) = match is_banned {
        true => ("No denied requests", "The user is banned, but no request of the user was denied recently."),
        false => {
            ("Not limited recently", "There is no record of a limited address that this user came from.")
        }
    };
    html! {
        section aria-labelledby="addresses" {
            div.bar-head { h2 #addresses { "Limited from" span.faint { " most recent first" } } }
            div.card {
                @if addresses.is_empty() { (components::empty_state(title, detail)) }
                @else {
                    table.cards {
                        thead { tr { th scope="col" { "Address" } th.num scope="col" { "Denied" } th.num scope="col" { "Last" } } }
                        tbody {
                            @for found in addresses {
                                tr data-key=(found.address) {
                                    th scope="row" { (components::address_link(&found.address)) (components::ban_badge(found.banned_until.as_deref())) (identity_badge(found)) }
                                    td.num data-label="Denied" { (format_count(found.denied)) }
                                    td.num data-label="Last" { (components::time_ago(&found.last, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn records(records: &[UserRecord]) -> Markup {
    html! {
        section aria-labelledby="records" {
            div.bar-head { h2 #records { "Records" span.faint { " newest first" } } }
            div.card.scroll tabindex="0" role="region" aria-labelledby="records" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "Address" } th scope="col" { "Request" } th scope="col" { "Policy" }
                    } }
                    tbody {
                        @for record in records {
                            tr {
                                th scope="row" { (components::time_of_day(&record.time)) }
                                td data-label="Address" { (components::address_link(&record.address)) }
                                td.request data-label="Request" { span { span.method { (record.method) } " " span.mono { (components::untrusted(&record.path)) } } }
                                td data-label="Policy" { span.chip { (record.policy) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether the denied requests had a verified user, or only claimed to be of the user.
fn identity_badge(found: &UserAddress) -> Markup {
    html! {
        " "
        @match found.verified {
            0 => span.badge.quiet title="No token, certificate or trusted proxy says that it was this user." { "claimed" },
            verified if verified < found.denied => span.badge.quiet { (format_count(verified)) " verified" },
            _ => span.badge.quiet { "verified" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_banned_by_the_whole_name_only() {
        let plain = UserNaming::default();
        assert_eq!(ban_key("a+b", &plain).as_deref(), Some("user:a%2Bb"));
        assert_eq!(ban_key("a%2Bb", &plain).as_deref(), Some("user:a%252Bb"));
        assert_eq!(ban_key(&"x".repeat(128), &plain), None, "it may go on");
        let page = |key| view(&User { user: "acme".into(), ..User::default() }, key, 0).body.into_string();
        assert!(
            page(Some("user:acme")).contains("value=\"user:acme\"") && !page(None).contains("data-dialog")
        );
    }
}
