//! `GET /users/{user}`: the addresses that a user was limited from.

use maud::html;

use super::{
    super::shapes::User,
    dialogs,
    layout::Page,
    parts,
    words::{count, visible},
};

pub(super) fn view(user: &User, now: i64) -> Page {
    let denied = user.addresses.iter().map(|address| address.denied).sum();
    let body = html! {
        p.crumbs { a href="/blocked" { "Blocked addresses" } }
        div.head {
            div {
                h1 { (parts::foreign(&user.user)) }
                p.meta { "User" (parts::copy(&user.user, "the user")) }
            }
            div.actions.js { (dialogs::open("ban", "Ban …", "danger")) }
        }
        (dialogs::ban(&format!("user:{}", user.user)))
        dl.tiles {
            div { dt { "Addresses" } dd { (count(user.addresses.len() as u64)) } }
            div { dt { "Denied" } dd.denied { (count(denied)) } }
        }
        section aria-labelledby="addresses" {
            div.bar-head { h2 #addresses { "Limited from" span.faint { " latest first" } } }
            div.card {
                @if user.addresses.is_empty() { (parts::nothing("Not limited lately", "No address that this user came from was held back, as far as is remembered.")) }
                @else {
                    table.cards {
                        thead { tr { th scope="col" { "Address" } th.num scope="col" { "Denied" } th.num scope="col" { "Last" } } }
                        tbody {
                            @for found in &user.addresses {
                                tr data-key=(found.address) {
                                    th scope="row" { (parts::address(&found.address)) }
                                    td.num data-label="Denied" { (count(found.denied)) }
                                    td.num data-label="Last" { (parts::ago(&found.last, now)) }
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
