//! `alerts`: who is told that a share of a limit is used.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Serializer, ser::SerializeSeq};
use tollgate_derive::{Settings, Word};

use crate::config::{
    listeners::settings::Secret,
    policies::{algorithm::Algorithm, settings::Policy},
    reader::Cursor,
    resolved::Config,
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

/// Checks `alerts`, which are at `value`, against the other settings.
pub(in crate::config) fn check_alerts(value: Cursor<'_>, config: &Config) {
    let items = value.list().unwrap_or_default();
    if config.history.is_none() && !items.is_empty() {
        let help = "add `history: { store: { file: /var/lib/tollgate/history.db } }`".to_owned();
        value.report("alerts need `history`, which remembers which of them were sent", help);
    }
    for (item, alert) in items.iter().zip(&config.alerts) {
        let is_other = |other: &&std::sync::Arc<Alert>| {
            other.to == alert.to && (&other.secret, &other.tls) != (&alert.secret, &alert.tls)
        };
        if config.alerts.iter().any(|other| is_other(&other)) {
            let help = "give both the same `secret` and `tls`".to_owned();
            item.entry("to").unwrap_or(*item).report("another alert tells the same webhook otherwise", help);
        }
        let at = item.entry("policy").unwrap_or(*item);
        match config.policies.iter().find(|policy| policy.name == alert.policy) {
            Some(policy) => check_policy(at, policy),
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

/// Reports a policy of whose limit nobody can say how much of it was used in a window.
fn check_policy(at: Cursor<'_>, policy: &Policy) {
    let variants = std::iter::once((policy.algorithm, &policy.tiers))
        .chain(policy.overrides.iter().map(|other| (other.algorithm, &other.tiers)));
    for (algorithm, tiers) in variants {
        let has_windows =
            !matches!(algorithm, Algorithm::SingleCounter | Algorithm::Gcra { .. } | Algorithm::Concurrency);
        if !has_windows {
            let help = "use a policy with `algorithm: fixed_window` or one whose window slides".to_owned();
            at.report(format!("`{}` does not count in windows that are the same for all", policy.name), help);
            return;
        }
        if tiers.len() > 1 {
            let help = "make the limit that the alert is about a policy of its own".to_owned();
            at.report(
                format!("`{}` has several limits, of which only the tightest is known", policy.name),
                help,
            );
            return;
        }
        if tiers.iter().any(|tier| tier.window.length().as_micros() < SHORTEST_WINDOW) {
            let help = "alerts are for windows of a minute or more".to_owned();
            at.report(format!("the window of `{}` is over before anybody could react", policy.name), help);
            return;
        }
    }
    let is_known = |part: &KeyPart| matches!(part, KeyPart::OfKey(_) | KeyPart::Route | KeyPart::Global);
    if !policy.keys.iter().all(|key| key.0.iter().all(is_known)) {
        at.warn(
            format!("clients choose by what `{}` counts: they can cause alerts by the thousand", policy.name),
            "at most 200 an hour are sent for each customer or address; a policy by `customer` has no more than there are customers"
                .to_owned(),
        );
    }
}
