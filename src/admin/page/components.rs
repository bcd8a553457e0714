//! HTML fragments that several pages share.

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    super::dto::BlockedAddress,
    format::{escape_invisible, format_age, format_duration, parse_micros},
};

/// Everything but the unreserved characters (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `text` as a segment of a path or a value of a query.
pub(super) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Text that a client chose: isolated in its direction, shortened by the style sheet, in full on hover.
pub(super) fn untrusted(text: &str) -> Markup {
    let text = escape_invisible(text);
    html! { bdi.foreign title=(text) { (text) } }
}

/// Our own text, with code in backticks.
pub(super) fn with_code(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @if nth % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A user's name, linked to the user's page.
pub(super) fn user_link(user: Option<&str>) -> Markup {
    html! {
        @match user {
            Some(user) => a.plain href={ "/users/" (percent_encode(user)) } { (untrusted(user)) },
            None => span.faint { "unknown" },
        }
    }
}

/// A client's address, linked to its page.
pub(super) fn address_link(address: &str) -> Markup {
    html! { a.plain.mono href={ "/blocked/" (percent_encode(address)) } { (address) } }
}

/// How long ago `time` was; the page's script keeps it up to date.
pub(super) fn time_ago(time: &str, now: i64) -> Markup {
    html! { time datetime=(time) title=(utc(time)) data-ago { (format_age(now - parse_micros(time))) } }
}

/// How long it is until `time`; the page's script counts down.
pub(super) fn time_left(time: &str, now: i64) -> Markup {
    let left = parse_micros(time) - now;
    html! {
        time datetime=(time) title=(utc(time)) data-left {
            @if left > 0 { (format_duration(left)) } @else { "ended" }
        }
    }
}

/// The time of day in UTC, to the second, for tables that name the time zone; in full on hover.
pub(super) fn time_of_day(time: &str) -> Markup {
    let short = time.get(11..19).unwrap_or(time);
    html! { time.mono datetime=(time) title=(utc(time)) { (short) } }
}

/// `2026-07-03 12:00:01 UTC` for a time of the API; other text is returned unchanged.
pub(super) fn utc(time: &str) -> String {
    match (time.get(..10), time.get(11..19)) {
        (Some(day), Some(time_of_day)) => format!("{day} {time_of_day} UTC"),
        _ => time.to_owned(),
    }
}

/// The hint about an address, with the reason on hover.
pub(super) fn hint_badge(address: &BlockedAddress) -> Markup {
    let class = match address.hint.as_str() {
        "shared address" => "badge",
        "unknown" => "badge quiet",
        _ => "badge warn",
    };
    html! { span class=(class) title=(escape_invisible(&address.hint_reason)) { (address.hint) } }
}

/// A badge if an address is banned or was unblocked. A limit has none: the time left shows it.
pub(super) fn state_badge(address: &BlockedAddress) -> Markup {
    match &address.unblocked {
        Some(unblocked) if address.state == "unblocked" => {
            let by = unblocked.by.as_deref().unwrap_or("an operator");
            html! { " " span.badge.good title={ "Unblocked by " (by) ", " (unblocked.time) } { "Unblocked" } }
        }
        _ => ban_badge(address.banned_until.as_deref()),
    }
}

/// A badge for a banned address or user, with the end of the ban on hover.
pub(super) fn ban_badge(until: Option<&str>) -> Markup {
    html! { @if let Some(until) = until { " " span.badge.bad title={ "Banned until " (until) } { "Banned" } } }
}

/// The state of an endpoint or of one of its addresses, with the reason on hover.
pub(super) fn endpoint_badge(state: &str, reason: Option<&str>) -> Markup {
    let class = match state {
        "healthy" => "badge good",
        "drained" => "badge warn",
        _ => "badge bad",
    };
    html! { span class=(class) title=[reason.map(escape_invisible)] { (state) } }
}

/// Names of policies and the like, each in a chip.
pub(super) fn chips(names: &[String]) -> Markup {
    html! {
        span.chips { @for name in names { span.chip { (escape_invisible(name)) } } }
    }
}

/// A button that copies `text`; hidden without JavaScript.
pub(super) fn copy_button(text: &str, what: &str) -> Markup {
    html! {
        button.icon.js type="button" data-copy=(text) aria-label={ "Copy " (what) } title={ "Copy " (what) } {
            svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" {
                path d="M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" fill="none" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round" {}
            }
        }
    }
}

/// `part` of `whole` as a bar.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
pub(super) fn bar(part: u64, whole: u64, class: &str) -> Markup {
    let share = if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 100.0).min(100.0) };
    html! {
        svg.bar width="100%" height="6" aria-hidden="true" {
            rect.track width="100%" height="6" rx="3" {}
            @if part > 0 { rect class=(class) width={ (format!("{:.1}", share.max(1.0))) "%" } height="6" rx="3" {} }
        }
    }
}

/// Shown instead of an empty list.
pub(super) fn empty_state(title: &str, detail: &str) -> Markup {
    html! {
        div.empty {
            p.title { (title) }
            p { (detail) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_are_code() {
        assert_eq!(with_code("a `<b>` c").into_string(), "a <code>&lt;b&gt;</code> c");
        assert_eq!(with_code("no code").into_string(), "no code");
    }
}
