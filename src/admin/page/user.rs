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
    format::{count, visible},
    layout::{NavItem, Page, PageFrame},
};
use crate::abuse::bans::Key;

/// Bytes: of names that are longer, the end may be cut off.
const WHOLE: usize = 125;

pub(super) async fn user(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    user: Result<UserParam, Problem>,
    query: Result<Query<NoParams>, Problem>,
) -> Response {
    let page = async {
        query?;
        let UserParam(user) = user?;
        let key = key(&user, context.state.registry.names().is_unchanged("user:"));
        let found = match addresses_of(&context, &user).await {
            Ok(found) => found,
            // Somebody who was not limited can be banned all the same.
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => User { user, addresses: Vec::new() },
            Err(problem) => return Err(problem),
        };
        Ok(view(&found, key.as_deref(), context.state.clock.now()))
    };
    frame.render(NavItem::Blocked, page.await)
}

/// What to ban a user by. `None`: it is no name that requests bear, but a hash, or what was kept of a long one.
fn key(user: &str, is_plain: bool) -> Option<String> {
    let is_name = (is_plain || !user.starts_with("hmac:")) && user.len() < WHOLE;
    is_name.then(|| Key::from_user_name(user).to_string())
}

/// `key`: to ban the user by.
fn view(user: &User, key: Option<&str>, now: i64) -> Page {
    let denied = user.addresses.iter().map(|address| address.denied).sum();
    let body = html! {
        p.crumbs { a href="/blocked" { "Blocked addresses" } }
        div.head {
            div {
                h1 { (components::foreign(&user.user)) }
                p.meta { "User" (components::copy(&user.user, "the user")) }
            }
            @if key.is_some() { div.actions.js { (dialogs::open("ban", "Ban …", "danger")) } }
        }
        @match key {
            Some(key) => (dialogs::ban(key)),
            None => p.faint { "The name itself is not kept, for it is hashed or too long. Whoever knows it can ban the user by it, under Bans." },
        }
        dl.tiles {
            div { dt { "Addresses" } dd { (count(user.addresses.len() as u64)) } }
            div { dt { "Denied" } dd.denied { (count(denied)) } }
        }
        section aria-labelledby="addresses" {
            div.bar-head { h2 #addresses { "Limited from" span.faint { " latest first" } } }
            div.card {
                @if user.addresses.is_empty() { (components::nothing("Not limited lately", "No address that this user came from was held back, as far as is remembered.")) }
                @else {
                    table.cards {
                        thead { tr { th scope="col" { "Address" } th.num scope="col" { "Denied" } th.num scope="col" { "Last" } } }
                        tbody {
                            @for found in &user.addresses {
                                tr data-key=(found.address) {
                                    th scope="row" { (components::address(&found.address)) }
                                    td.num data-label="Denied" { (count(found.denied)) }
                                    td.num data-label="Last" { (components::ago(&found.last, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    Page { title: visible(&user.user).into_owned(), body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_can_be_banned_by_his_name_alone() {
        assert_eq!(key("a+b", true).as_deref(), Some("user:a%2Bb"));
        assert_eq!(key("a%2Bb", true).as_deref(), Some("user:a%252Bb"));
        assert_eq!(key("hmac:5559b01469a0a939", false), None, "nobody is called so");
        assert_eq!(key("acme", false).as_deref(), Some("user:acme"));
        assert_eq!(key(&"x".repeat(128), true), None, "it may go on");
        let page =
            |key| view(&User { user: "acme".into(), addresses: Vec::new() }, key, 0).body.into_string();
        assert!(
            page(Some("user:acme")).contains("value=\"user:acme\"") && !page(None).contains("data-dialog")
        );
    }
}
