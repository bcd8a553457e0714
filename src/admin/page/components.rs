//! Pieces that several pages are made of.

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::format::{micros, since, span, visible};

/// What stands for itself in a part of a path.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `text` as a part of a path or of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// What somebody outside chose: shortened to the eye where it is long, in its own direction, the whole on hover.
pub(super) fn foreign(text: &str) -> Markup {
    let text = visible(text);
    html! { bdi.foreign title=(text) { (text) } }
}

/// A sentence of ours: what stands between backticks in it is code.
pub(super) fn prose(text: &str) -> Markup {
    html! {
        @for (nth, part) in text.split('`').enumerate() {
            @if nth % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A user, and where more is told of it.
pub(super) fn user(user: Option<&str>) -> Markup {
    html! {
        @match user {
            Some(user) => a.plain href={ "/users/" (encoded(user)) } { (foreign(user)) },
            None => span.faint { "not known" },
        }
    }
}

/// An address of a client, and where more is told of it.
pub(super) fn address(address: &str) -> Markup {
    html! { a.plain.mono href={ "/blocked/" (encoded(address)) } { (address) } }
}

/// How long ago `time` was; counts on.
pub(super) fn ago(time: &str, now: i64) -> Markup {
    html! { time datetime=(time) title=(time) data-ago { (since(now - micros(time))) } }
}

/// How long it is until `time`; counts down.
pub(super) fn left(time: &str, now: i64) -> Markup {
    let left = micros(time) - now;
    html! {
        time datetime=(time) title=(time) data-left {
            @if left > 0 { (span(left)) } @else { "over" }
        }
    }
}

/// The time of the day, to the second; the whole on hover.
pub(super) fn clock(time: &str) -> Markup {
    let short = time.get(11..19).unwrap_or(time);
    html! { time.mono datetime=(time) title=(time) { (short) } }
}

/// What is known of those behind an address, at a glance.
pub(super) fn hint(hint: &str) -> Markup {
    let (class, short) = match hint.split(':').next() {
        Some("one user") => ("badge", "one user"),
        Some("many users") => ("badge warn", "many users"),
        _ => ("badge quiet", hint),
    };
    html! { span class=(class) title=(hint) { (short) } }
}

/// Names of policies.
pub(super) fn policies(names: &[String]) -> Markup {
    html! {
        span.chips { @for name in names { span.chip { (name) } } }
    }
}

/// Copies `text`, where there is JavaScript.
pub(super) fn copy(text: &str, what: &str) -> Markup {
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

/// What stands where there is nothing.
pub(super) fn nothing(title: &str, more: &str) -> Markup {
    html! {
        div.empty {
            p.title { (title) }
            p { (more) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_are_code() {
        assert_eq!(prose("a `<b>` c").into_string(), "a <code>&lt;b&gt;</code> c");
        assert_eq!(prose("no code").into_string(), "no code");
    }
}
