//! Confirmation dialogs for actions. They open by JavaScript only.

use maud::{Markup, html};

use super::{components::percent_encode, format::escape_invisible};

/// Durations offered for a ban: the value sent, and its label.
const DURATIONS: [(&str, &str); 6] = [
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("6h", "6 hours"),
    ("24h", "1 day"),
    ("7d", "7 days"),
    ("30d", "30 days"),
];

/// Overlaps offered for a rotation.
const OVERLAPS: [(&str, &str); 5] =
    [("0s", "no time"), ("1h", "1 hour"), ("24h", "1 day"), ("7d", "7 days"), ("30d", "30 days")];

/// A button that opens a dialog.
pub(super) fn open_button(dialog: &str, text: &str, class: &str) -> Markup {
    html! { button class=(class) type="button" data-dialog=(dialog) aria-haspopup="dialog" { (text) } }
}

/// Confirms unblocking an address.
pub(super) fn unblock(address: &str) -> Markup {
    html! {
        dialog #unblock aria-labelledby="unblock-title" data-keep {
            form data-api="DELETE" action={ "/v1/blocked/" (percent_encode(address)) } data-said="unblock" {
                h2 #unblock-title { "Unblock " span.mono { (address) } "?" }
                p { "On all instances:" }
                ul {
                    li { "The limits of the address are cleared." }
                    li { "Its bans are lifted. Bans of prefixes around it stay." }
                    li { "The evidence is kept: the address is listed as unblocked by you, with its records, until they expire." }
                    li { "Limits and bans of the users behind it stay." }
                }
                (buttons("Unblock", "primary"))
            }
        }
    }
}

/// Confirms a ban.
pub(super) fn ban(key: &str) -> Markup {
    html! {
        dialog #ban aria-labelledby="ban-title" data-keep {
            form data-api="POST" action="/v1/bans" data-said="ban" {
                h2 #ban-title { "Ban " span.mono { (escape_invisible(key)) } "?" }
                p { "All its requests are denied on all instances until the ban ends or is lifted." }
                input type="hidden" name="key" value=(key);
                (duration_and_reason())
                (buttons("Ban", "danger"))
            }
        }
    }
}

/// Confirms lifting a ban. The button that opens the dialog names the key.
pub(super) fn lift() -> Markup {
    html! {
        dialog #lift aria-labelledby="lift-title" data-keep {
            form data-api="DELETE" data-path="/v1/bans?key=" data-said="lift" {
                h2 #lift-title { "Lift the ban of " span.mono data-about-here {} "?" }
                p { "Its requests are allowed again on all instances, within the limits." }
                (buttons("Lift", "primary"))
            }
        }
    }
}

/// Confirms acts on an incident of this ID.
pub(super) fn of_incident(id: &str, kind: &str) -> Markup {
    html! {
        dialog #ban-incident aria-labelledby="ban-incident-title" data-keep {
            form data-api="POST" action={ "/v1/incidents/" (id) "/ban" } data-said="banIncident" {
                h2 #ban-incident-title { "Ban the addresses of this incident?" }
                p { "All their requests are denied on all instances until the ban ends or is lifted. Spared are:" }
                ul {
                    li { "addresses that were let in after failing: ban these one by one" }
                    li { "customers, exempt and shared addresses, trusted proxies, and your own address" }
                }
                label { span { "For" }
                    select name="for" { @for (value, words) in DURATIONS { option value=(value) selected[value == "1h"] { (words) } } }
                }
                label { span { "Reason" }
                    input type="text" name="reason" maxlength="200" autocomplete="off" value={ (kind) " (incident " (id) ")" };
                }
                (buttons("Ban", "danger"))
            }
        }
        dialog #unblock-incident aria-labelledby="unblock-incident-title" data-keep {
            form data-api="POST" action={ "/v1/incidents/" (id) "/unblock" } data-said="unblockIncident" {
                h2 #unblock-incident-title { "Unblock all addresses of this incident?" }
                p { "Their bans are lifted, and their limits are cleared, on all instances." }
                (buttons("Unblock", "primary"))
            }
        }
        dialog #acknowledge-incident aria-labelledby="acknowledge-incident-title" data-keep {
            form data-api="POST" action={ "/v1/incidents/" (id) "/acknowledge" } data-said="acknowledgeIncident" {
                h2 #acknowledge-incident-title { "Acknowledge this incident?" }
                p { "Other operators see that you have taken it on." }
                (buttons("Acknowledge", "primary"))
            }
        }
        dialog #mute-incident aria-labelledby="mute-incident-title" data-keep {
            form data-api="POST" action={ "/v1/incidents/" (id) "/mute" } data-said="muteIncident" {
                h2 #mute-incident-title { "Mute this incident?" }
                p { "It leaves the overview, and the next ones of its kind at the same place are listed, but not announced." }
                label { span { "For" }
                    select name="for" { @for (value, words) in DURATIONS { option value=(value) selected[value == "6h"] { (words) } } }
                }
                (buttons("Mute", "primary"))
            }
        }
    }
}

/// Confirms draining an endpoint. The button that opens the dialog names it and its upstream.
pub(super) fn drain() -> Markup {
    html! {
        dialog #drain aria-labelledby="drain-title" data-keep {
            form data-api="POST" action="/v1/drains" data-said="drain" {
                h2 #drain-title { "Drain " span.mono data-about-here {} "?" }
                p { "It takes no new requests on all instances, over reloads and restarts, until it is undrained. Requests and WebSockets in flight go on." }
                input type="hidden" name="upstream";
                input type="hidden" name="endpoint";
                label { span { "Reason" }
                    input type="text" name="reason" maxlength="200" autocomplete="off" placeholder="Shown in the audit log";
                }
                (buttons("Drain", "danger"))
            }
        }
    }
}

/// Confirms undraining an endpoint, as [`drain`].
pub(super) fn undrain() -> Markup {
    html! {
        dialog #undrain aria-labelledby="undrain-title" data-keep {
            form data-api="DELETE" action="/v1/drains" data-said="undrain" {
                h2 #undrain-title { "Undrain " span.mono data-about-here {} "?" }
                p { "It takes requests again on all instances." }
                input type="hidden" name="upstream";
                input type="hidden" name="endpoint";
                (buttons("Undrain", "primary"))
            }
        }
    }
}

/// Confirms rotating an API key. The button that opens the dialog names it.
pub(super) fn rotate_key() -> Markup {
    html! {
        dialog #rotate-key aria-labelledby="rotate-key-title" data-keep {
            form data-api="POST" data-path="/v1/keys/" data-path-end="/rotate" data-said="rotate" {
                h2 #rotate-key-title { "Rotate " span.mono data-about-here {} "?" }
                p { "It gets a new secret. Its customer, plan and limits stay." }
                label { span { "The old key is valid for another" }
                    select name="overlap" {
                        @for (value, words) in OVERLAPS { option value=(value) selected[value == "24h"] { (words) } }
                    }
                }
                (buttons("Rotate", "primary"))
            }
        }
    }
}

/// Confirms revoking an API key, as [`rotate_key`].
pub(super) fn revoke_key() -> Markup {
    html! {
        dialog #revoke-key aria-labelledby="revoke-key-title" data-keep {
            form data-api="POST" data-path="/v1/keys/" data-path-end="/revoke" data-said="revoke" {
                h2 #revoke-key-title { "Revoke " span.mono data-about-here {} "?" }
                p { "Its requests get 401 on all instances, and its open connections are closed. It can't be made valid again." }
                label { span { "Reason" }
                    input type="text" name="reason" maxlength="200" autocomplete="off" placeholder="Shown in the audit log";
                }
                (buttons("Revoke", "danger"))
            }
        }
    }
}

/// Shows a new API key, once.
pub(super) fn made_key() -> Markup {
    html! {
        dialog #made-key aria-labelledby="made-key-title" data-keep {
            form method="dialog" {
                h2 #made-key-title { "The new key" }
                p { "Copy it now: it can't be shown again. " span #copy-said role="status" {} }
                p { code.mono #new-key {} }
                div.buttons {
                    button type="button" #copy-key { "Copy" }
                    button.primary type="submit" { "Close" }
                }
            }
        }
    }
}

/// Input fields for a ban's duration and reason.
pub(super) fn duration_and_reason() -> Markup {
    html! {
        label { span { "For" }
            select name="for" { @for (value, words) in DURATIONS { option value=(value) selected[value == "1h"] { (words) } } }
        }
        label { span { "Reason" }
            input type="text" name="reason" maxlength="200" autocomplete="off" placeholder="Shown in the audit log";
        }
    }
}

/// Cancel and submit buttons, with room for an error.
fn buttons(word: &str, class: &str) -> Markup {
    html! {
        div.error role="alert" hidden {}
        div.buttons {
            button type="button" data-close { "Cancel" }
            button class=(class) type="submit" { (word) }
        }
    }
}
