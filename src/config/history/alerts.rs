//! `alerts`: who is told that a share of a limit is used.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Serializer, ser::SerializeSeq};
use tollgate_derive::{Settings, Word};

use crate::config::{
    abuse::settings::Users,
    identity::settings::{HeaderFrom, UserSource},
    listeners::settings::Secret,
    policies::{algorithm::Algorithm, settings::Policy},
    reader::Cursor,
    resolved::Config,
    settings::Read,
    upstreams::client_tls::ClientTls,
    value::{Invalid, key::KeyPart, origin_of, percentage, resource_name, webhook_url},
    written::serialize,
};

/// A webhook that is told, once in each window, that somebody has used a share of a policy's limit.
#[derive(Debug, Clone, PartialEq, Settings)]
#[settings(page = "history.md#alerts")]
#[settings(sample = "when: usage, policy: monthly, at: [80%], to: \"https://hooks.example.com/T0/B0\"")]
pub struct Alert {
    /// What it tells of: `usage`, that a share of the policy's limit is used.
    #[setting(missing = WHEN, example = "usage")]
    pub when: AlertWhen,
    /// The policy. It counts in windows of a minute or more, and has one limit; each plan may have another one.
    #[setting(text = RESOURCE, parse = resource_name, missing = POLICY, example = "monthly", see = ["policies"])]
    pub policy: String,
    /// The shares of the limit.
    #[setting(list(share = "0<..=100", SomeUnique), read = shares, missing = AT, shown = percentages)]
    #[setting(example = "[80%, 100%]")]
    pub at: Vec<f64>,
    /// The URL of the webhook: `https`, or `http` on this machine.
    #[setting(text = WEBHOOK, read = webhook, missing = TO, shown = origin)]
    #[setting(example = "\"${HOOK_URL}\"")]
    pub to: Secret,
    /// Signs the messages (Standard Webhooks): text, or `whsec_` and a key in base64. While it is changed, a list of the
    /// new one and the old one.
    #[setting(either(text = SECRET, list(text = SECRET, SomeUnique)), read = secrets, omit_if = Vec::is_empty)]
    #[setting(unset = "they are not signed", example = "\"${HOOK_SECRET}\"")]
    pub secret: Vec<Secret>,
    /// TLS to the webhook.
    #[setting(mapping, unset = "the authorities of the system, and no client certificate")]
    #[setting(example = "{ ca: tls/ca.pem }")]
    pub tls: ClientTls,
}

/// What an alert tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum AlertWhen {
    /// A share of a limit is used.
    Usage,
}

const WHEN: &str = "what it tells of: `when: usage`";
const POLICY: &str = "the policy whose limit it is, such as `policy: monthly`";
const AT: &str = "the shares of the limit, such as `at: [80%, 100%]`";
const TO: &str = "the URL that is told, such as `to: https://hooks.example.com/T0/B0`";
/// Shorter ones can be guessed from a signed message (Standard Webhooks, "Signature scheme").
const SHORT_SECRET: usize = 24;
/// In microseconds: within shorter windows, nobody could react.
const SHORTEST_WINDOW: u128 = 60_000_000;

impl Alert {
    /// Its URL up to the path, which may be a secret: `https://hooks.example.com`.
    pub fn origin(&self) -> String {
        origin_of(self.to.reveal())
    }

    /// The keys that sign, newest first.
    pub fn signing_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.secret.iter().map(|secret| signing_key(secret.reveal()).unwrap_or_default())
    }
}

/// Reads `whsec_…`, which is base64, or takes the bytes of a text.
fn signing_key(text: &str) -> Result<Vec<u8>, Invalid> {
    let Some(encoded) = text.strip_prefix("whsec_") else { return Ok(text.as_bytes().to_vec()) };
    let malformed = || Invalid::new("has no key in base64 behind `whsec_`");
    BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty()).ok_or_else(malformed)
}

fn shares(list: Cursor<'_>) -> Option<Vec<f64>> {
    if list.is_empty_list() {
        list.report("this list is empty", "write `at: [80%, 100%]`".to_owned());
        return None;
    }
    let above_zero = |text: &str| {
        percentage(text).and_then(|share| match share > 0.0 {
            true => Ok(share),
            false => Err(Invalid::new("is always used").expected("above 0%, up to 100%")),
        })
    };
    let mut shares = list.unique_items(|item| item.parse(above_zero));
    shares.sort_by(f64::total_cmp);
    Some(shares)
}

fn webhook(value: Cursor<'_>) -> Option<Secret> {
    value.parse_secret(webhook_url).map(Secret::new)
}

fn secrets(value: Cursor<'_>) -> Option<Vec<Secret>> {
    let secret = |item: Cursor<'_>| {
        let key = item.parse_secret(|text| match text.is_empty() {
            true => Err(Invalid::new("is empty")),
            false => signing_key(text).map(|key| (text.to_owned(), key)),
        });
        let (text, key) = key?;
        if key.len() < SHORT_SECRET {
            item.warn(
                "this secret is short: whoever sees a signed message may guess it",
                format!("use {SHORT_SECRET} random bytes or more: `openssl rand -base64 32`"),
            );
        }
        Some(Secret::new(text))
    };
    if value.is_empty_list() {
        value.report("this list is empty", "remove `secret`, or name one".to_owned());
        return None;
    }
    if !value.is_list() {
        return secret(value).map(|secret| vec![secret]);
    }
    Some(value.unique_items(secret))
}

fn percentages<S: Serializer>(shares: &[f64], to: S) -> Result<S::Ok, S::Error> {
    struct Share(f64);
    impl serde::Serialize for Share {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            serialize::percentage(&self.0, to)
        }
    }
    let mut list = to.serialize_seq(Some(shares.len()))?;
    for share in shares {
        list.serialize_element(&Share(*share))?;
    }
    list.end()
}

fn origin<S: Serializer>(url: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&origin_of(url.reveal()))
}

/// Reads `alerts`, each with its place.
pub(in crate::config) fn alerts(list: Option<Cursor<'_>>) -> Vec<(Cursor<'_>, Arc<Alert>)> {
    let read = |item| Some((item, Arc::new(Alert::read(item)?)));
    list.map(|list| list.items(read)).unwrap_or_default()
}

/// Checks `alerts` against the other settings.
pub(in crate::config) fn check_alerts(alerts: &[(Cursor<'_>, Arc<Alert>)], config: &Config) {
    if let Some((first, _)) = alerts.first()
        && config.history.is_none()
    {
        let help = "add `history: { store: { file: /var/lib/tollgate/history.db } }`".to_owned();
        first.report("alerts need `history`, which remembers which of them were sent", help);
    }
    for (item, alert) in alerts {
        let is_other = |other: &Alert| {
            other.to == alert.to && (&other.secret, &other.tls) != (&alert.secret, &alert.tls)
        };
        if alerts.iter().any(|(_, other)| is_other(other)) {
            let help = "give both the same `secret` and `tls`".to_owned();
            item.entry("to")
                .unwrap_or(*item)
                .report("another alert has this URL, with another `secret` or `tls`", help);
        }
        let at = item.entry("policy").unwrap_or(*item);
        match config.policies.iter().find(|policy| policy.name == alert.policy) {
            Some(policy) => check_policy(at, policy, config),
            None => {
                let known: Vec<&str> = config.policies.iter().map(|policy| policy.name.as_str()).collect();
                let help = match known.is_empty() {
                    true => "there are no `policies`".to_owned(),
                    false => format!("the policies are: {}", known.join(", ")),
                };
                at.report(format!("`{}` is not one of `policies`", alert.policy), help);
            }
        }
    }
}

/// Reports a policy of whose limit nobody can say how much of it was used in a window, or whose messages would tell secrets.
fn check_policy(at: Cursor<'_>, policy: &Policy, config: &Config) {
    let name = &policy.name;
    let variants = std::iter::once((policy.algorithm, &policy.tiers))
        .chain(policy.overrides.iter().map(|other| (other.algorithm, &other.tiers)));
    for (algorithm, tiers) in variants {
        use Algorithm::{Concurrency, Gcra, MetadataList, SingleCounter};
        let wrong = match algorithm {
            SingleCounter | MetadataList | Gcra { .. } | Concurrency => Some((
                format!("`{name}` does not count in windows that are the same for all"),
                "use a policy with `algorithm: fixed_window`, or one whose window slides",
            )),
            _ if tiers.len() > 1 => Some((
                format!("`{name}` has several limits, of which only the tightest is known"),
                "make the limit that the alert is about a policy of its own",
            )),
            _ if tiers.iter().any(|tier| tier.window.length().as_micros() < SHORTEST_WINDOW) => Some((
                format!("the window of `{name}` is over before anybody could react"),
                "alerts are for windows of a minute or more",
            )),
            _ => None,
        };
        if let Some((message, help)) = wrong {
            at.report(message, help.to_owned());
            return;
        }
    }
    let parts = || policy.keys.iter().flat_map(|key| &key.0);
    if parts().any(|part| {
        matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_) | KeyPart::Descriptor(_))
    }) {
        let help = "count by `customer`, with `api_keys`, or by `user`".to_owned();
        at.report(format!("messages would have what clients send for `{name}`, which may be a secret"), help);
        return;
    }
    let names_people = |part: &KeyPart| match config.abuse.users {
        Users::Plain => false,
        Users::Hashed => matches!(part, KeyPart::Jwt(_) | KeyPart::Tls(_)),
        Users::Off => matches!(part, KeyPart::Jwt(_) | KeyPart::Tls(_) | KeyPart::User),
    };
    if parts().any(names_people) {
        let help = "use a policy that counts by `customer`".to_owned();
        at.report(format!("messages would name the users of `{name}`, which `abuse.users` forbids"), help);
        return;
    }
    let is_chosen = |part: &KeyPart| match part {
        KeyPart::User => config.user.iter().any(|source| {
            matches!(
                source,
                UserSource::Cookie(_)
                    | UserSource::Basic
                    | UserSource::Header { from: HeaderFrom::Anyone, .. }
            )
        }),
        KeyPart::Ip | KeyPart::Path | KeyPart::Host | KeyPart::Value(_) => true,
        _ => false,
    };
    if parts().any(is_chosen) {
        at.warn(
            format!("clients choose by what `{name}` counts: they can cause alerts by the thousand"),
            "at most 200 an hour are sent for each address; a policy by `customer` has no more than there are customers"
                .to_owned(),
        );
    }
    if policy.slice > 0.0 {
        at.warn(
            format!("with the `slice` of `{name}`, what instances have taken counts as used: alerts may come early"),
            "remove `slice`, or choose shares with some room".to_owned(),
        );
    }
}
