//! What is asked before something is changed. Without JavaScript nothing opens these.

use maud::{Markup, html};

use super::components::encoded;

/// How long a ban may be chosen to last, as proxy.yaml writes it, and in words.
const DURATIONS: [(&str, &str); 6] = [
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("6h", "6 hours"),
    ("24h", "1 day"),
    ("7d", "7 days"),
    ("30d", "30 days"),
];

/// A button that opens a dialog.
pub(super) fn open(dialog: &str, text: &str, class: &str) -> Markup {
    html! { button class=(class) type="button" data-dialog=(dialog) aria-haspopup="dialog" { (text) } }
}

/// Before an address is let go.
pub(super) fn unblock(address: &str) -> Markup {
    html! {
        dialog #unblock aria-labelledby="unblock-title" data-keep {
            form data-api="DELETE" action={ "/v1/blocked/" (encoded(address)) } data-said="unblock" {
                h2 #unblock-title { "Unblock " span.mono { (address) } "?" }
                p { "Clears every limit of this address and lifts its bans, on all instances at once. Limits of users behind it stay." }
                (end("Unblock", "primary"))
            }
        }
    }
}

/// Before somebody is shut out.
pub(super) fn ban(key: &str) -> Markup {
    html! {
        dialog #ban aria-labelledby="ban-title" data-keep {
            form data-api="POST" action="/v1/bans" data-said="ban" {
                h2 #ban-title { "Ban " span.mono { (key) } "?" }
                p { "Every request of it is denied until the ban ends or is lifted, on all instances." }
                input type="hidden" name="key" value=(key);
                (lasts())
                (end("Ban", "danger"))
            }
        }
    }
}

/// Before a ban is lifted: whose, the button says that opens it.
pub(super) fn lift() -> Markup {
    html! {
        dialog #lift aria-labelledby="lift-title" data-keep {
            form data-api="DELETE" data-path="/v1/bans?key=" data-said="lift" {
                h2 #lift-title { "Lift the ban of " span.mono data-about-here {} "?" }
                p { "Its requests are let through again, on all instances, as far as limits allow." }
                (end("Lift", "primary"))
            }
        }
    }
}

/// For how long, and why.
pub(super) fn lasts() -> Markup {
    html! {
        label { span { "For" }
            select name="for" { @for (value, words) in DURATIONS { option value=(value) selected[value == "1h"] { (words) } } }
        }
        label { span { "Reason" }
            input type="text" name="reason" maxlength="200" autocomplete="off" placeholder="For the audit list";
        }
    }
}

fn end(word: &str, class: &str) -> Markup {
    html! {
        p.error role="alert" hidden {}
        div.buttons {
            button type="button" data-close { "Cancel" }
            button class=(class) type="submit" { (word) }
        }
    }
}
