//! `GET /users/{user}`: the addresses that a user was limited from.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::html;

use super::{
    super::{
        context::HandlerContext,
        dto::User,
        extract::{NoParams, Query, UserParam},
        problem::Problem,
        users::addresses_of,
    },
    components, dialogs,
    format::{escape_invisible, format_count},
    layout::{NavItem, Page, PageFrame},
};
use crate::abuse::bans::Key;

/// Names of this many bytes or more may have been cut off.
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
        let key = ban_key(&user, context.state.registry.names().is_unchanged("user:"));
        let found = match addresses_of(&context, &user).await {
            Ok(found) => found,
            // A user that was never limited can still be banned.
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => User { user, addresses: Vec::new() },
            Err(problem) => return Err(problem),
        };
        Ok(view(&found, key.as_deref(), context.state.clock.now()))
    };
    frame.render(NavItem::Blocked, page.await)
}

/// The key that bans this user. `None` if only a hash or a cut-off name is kept, which no request carries.
fn ban_key(user: &str, is_plain: bool) -> Option<String> {
    let is_name = (is_plain || !user.starts_with("hmac:")) && user.len() < MAX_COMPLETE_LEN;
    is_name.then(|| Key::from_user_name(user).to_string())
}

/// `key`: the key that bans the user, if the whole name is known.
fn view(user: &User, key: Option<&str>, now: i64) -> Page {
    let denied = user.addresses.iter().map(|address| address.denied).sum();
    let body = html! {
        p.crumbs { a href="/blocked" { "Blocked addresses" } }
        div.head {
            div {
                h1 { (components::untrusted(&user.user)) }
                p.meta { "User" (components::copy_button(&user.user, "the user")) }
            }
            @if key.is_some() { div.actions.js { (dialogs::open_button("ban", "Ban …", "danger")) } }
        }
        @match key {
            Some(key) => (dialogs::ban(key)),
            None => p.faint { "The full user ID is not stored, because it is hashed or too long. If you know it, you can ban the \
                user under Bans." },
        }
        dl.tiles {
            div { dt { "Addresses" } dd { (format_count(user.addresses.len() as u64)) } }
            div { dt { "Denied" } dd.denied { (format_count(denied)) } }
        }
        section aria-labelledby="addresses" {
            div.bar-head { h2 #addresses { "Limited from" span.faint { " most recent first" } } }
            div.card {
                @if user.addresses.is_empty() { (components::empty_state("Not limited recently", "There is no record of a limited address that this user came from.")) }
                @else {
                    table.cards {
                        thead { tr { th scope="col" { "Address" } th.num scope="col" { "Denied" } th.num scope="col" { "Last" } } }
                        tbody {
                            @for found in &user.addresses {
                                tr data-key=(found.address) {
                                    th scope="row" { (components::address_link(&found.address)) }
                                    td.num data-label="Denied" { (format_count(found.denied)) }
                                    td.num data-label="Last" { (components::time_ago(&found.last, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    Page { title: escape_invisible(&user.user).into_owned(), body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_banned_by_the_whole_name_only() {
        assert_eq!(ban_key("a+b", true).as_deref(), Some("user:a%2Bb"));
        assert_eq!(ban_key("a%2Bb", true).as_deref(), Some("user:a%252Bb"));
        assert_eq!(ban_key("hmac:5559b01469a0a939", false), None, "nobody is called so");
        assert_eq!(ban_key("acme", false).as_deref(), Some("user:acme"));
        assert_eq!(ban_key(&"x".repeat(128), true), None, "it may go on");
        let page =
            |key| view(&User { user: "acme".into(), addresses: Vec::new() }, key, 0).body.into_string();
        assert!(
            page(Some("user:acme")).contains("value=\"user:acme\"") && !page(None).contains("data-dialog")
        );
    }
}
