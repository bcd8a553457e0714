//! `GET /bans`: the bans in force, and a form for a new one.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use percent_encoding::percent_decode_str;

use super::{
    super::{
        bans::{BansQuery, page},
        context::HandlerContext,
        dto::{Ban, Bans},
        extract::Query,
        problem::Problem,
    },
    components::{self, percent_encode},
    dialogs,
    layout::{NavItem, Page, PageFrame},
};

pub(super) async fn bans(
    State(context): State<Arc<HandlerContext>>,
    frame: PageFrame,
    query: Result<Query<BansQuery>, Problem>,
) -> Response {
    let page = query.and_then(|Query(query)| {
        let bans = page(&context, &query)?;
        Ok(view(&bans, query.cursor.is_none(), context.state.clock.now()))
    });
    frame.render(NavItem::Bans, page)
}

fn view(bans: &Bans, is_first: bool, now: i64) -> Page {
    let body = html! {
        div.head {
            div {
                h1 { "Bans" }
                p.meta { "Clients that are denied on all instances, by an operator or by the automatic bans in proxy.yaml." }
            }
        }
        section.js aria-labelledby="new" {
            div.bar-head { h2 #new { "New ban" } }
            (new_ban_form())
        }
        section aria-labelledby="holding" {
            div.bar-head { h2 #holding { "Active bans" } }
            div.card {
                @if bans.bans.is_empty() { (components::empty_state("No active bans", "Bans by operators and automatic bans are listed here until they end.")) }
                @else { (table(&bans.bans, now, true)) }
            }
            (pagination(is_first, bans.cursor.as_deref()))
        }
        (dialogs::lift())
    };
    Page { title: "Bans".to_owned(), body }
}

/// A section with active bans and a dialog that lifts them; nothing without bans.
pub(super) fn active(bans: &[Ban], now: i64) -> Markup {
    html! {
        @if !bans.is_empty() {
            section aria-labelledby="bans" {
                div.bar-head { h2 #bans { "Active bans" } }
                div.card { (table(bans, now, true)) }
            }
            (dialogs::lift())
        }
    }
}

/// A table of bans. `lifts`: each row has a button that lifts its ban.
pub(super) fn table(bans: &[Ban], now: i64, lifts: bool) -> Markup {
    html! {
        table.cards {
            caption.hidden { "Bans" }
            thead { tr {
                th scope="col" { "Key" } th scope="col" { "Reason" } th scope="col" { "By" }
                th.num scope="col" { "Since" } th.num scope="col" { "Time left" }
                @if lifts { th.js scope="col" { span.hidden { "Action" } } }
            } }
            tbody {
                @for ban in bans {
                    tr data-key=(ban.key) {
                        th scope="row" { (key_link(&ban.key)) @if ban.mode == "shadow" { " " span.badge.quiet { "shadow" } } }
                        td.wrap data-label="Reason" { @if ban.reason.is_empty() { span.faint { "none" } } @else { (components::untrusted(&ban.reason)) } }
                        td data-label="By" { (components::untrusted(&ban.by)) @if ban.level > 0 { span.faint { " level " (ban.level) } } }
                        td.num data-label="Since" { (components::time_ago(&ban.since, now)) }
                        td.num data-label="Time left" { (components::time_left(&ban.until, now)) }
                        @if lifts {
                            td.num.js { button type="button" data-dialog="lift" data-about=(ban.key) aria-haspopup="dialog" { "Lift …" } }
                        }
                    }
                }
            }
        }
    }
}

/// A ban's key, linked to the page of its address or user, if there is one.
pub(super) fn key_link(key: &str) -> Markup {
    let href = match key.split_once(':') {
        Some(("ip", address)) if !address.contains('/') || address.contains(':') => {
            Some(format!("/blocked/{}", percent_encode(address)))
        }
        // Only the hash of a long name is known.
        Some(("user", user)) if !user.starts_with("%sha256-") => {
            let name = percent_decode_str(user).decode_utf8_lossy();
            Some(format!("/users/{}", percent_encode(&name)))
        }
        _ => None,
    };
    html! {
        span.mono { @match href { Some(href) => a.plain href=(href) { (components::untrusted(key)) }, None => (components::untrusted(key)) } }
    }
}

fn pagination(is_first: bool, next: Option<&str>) -> Markup {
    html! {
        nav.pages aria-label="Pages of the list" {
            @if !is_first { a.button href="/bans" { "First page" } }
            @if let Some(next) = next { a.button rel="next" href={ "/bans?cursor=" (percent_encode(next)) } { "Next page" } }
        }
    }
}

fn new_ban_form() -> Markup {
    html! {
        form.card.pad.stack data-api="POST" action="/v1/bans" data-said="ban" data-keep {
            div.row {
                label { span { "Key" }
                    input type="text" name="key" required maxlength="300" autocomplete="off" spellcheck="false" placeholder="ip:203.0.113.7" aria-describedby="keys";
                }
                (dialogs::duration_and_reason())
                button.danger type="submit" { "Ban" }
            }
            p.faint.small #keys { "An address, a prefix or a user: " code { "ip:203.0.113.7" } ", " code { "ip:10.0.0.0/8" } ", " code { "user:acme" } }
            div.error role="alert" hidden {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_shows_key_reason_and_time_left_and_reasons_are_escaped() {
        let ban = |key: &str, mode: &str| Ban {
            key: key.into(),
            since: "2026-07-03T12:00:00.000Z".into(),
            until: "2026-07-03T12:05:00.000Z".into(),
            reason: "<script>".into(),
            by: "bans.hammering".into(),
            level: 2,
            mode: mode.into(),
        };
        let bans = [
            ban("ip:10.0.0.0/8", "enforce"),
            ban("ip:2001:db8::/64", "enforce"),
            ban("user:a\"b%3A", "shadow"),
        ];
        let html = view(&Bans { bans: bans.into(), cursor: Some("x=y".into()) }, true, 1_783_080_060_000_000)
            .body
            .into_string();
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
        assert!(html.contains("4 min") && html.contains("level 2") && html.contains(">shadow<"));
        assert!(html.contains("/blocked/2001%3Adb8%3A%3A%2F64") && html.contains("/users/a%22b%3A\""));
        assert!(!html.contains("/blocked/10.0.0.0"), "a prefix has no page");
        assert!(html.contains("/bans?cursor=x%3Dy") && !html.contains("First page"));
    }
}
