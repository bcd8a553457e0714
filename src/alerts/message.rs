//! Messages to webhooks, and their signatures (Standard Webhooks 1.0, standardwebhooks.com).

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{watch::Reached, webhook::Webhook};
use crate::telemetry::time::rfc3339;

/// The body of a message. `text`: for chats, which show it.
#[derive(Serialize)]
struct Body<'a, T> {
    r#type: &'a str,
    timestamp: String,
    text: String,
    data: T,
}

#[derive(Serialize)]
struct UsageData<'a> {
    policy: &'a str,
    /// What is counted: `customer:acme`.
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    /// Percent.
    share: f64,
    used: u64,
    limit: u64,
    /// `1000/month (Europe/Berlin)`
    limit_text: &'a str,
    window_start: String,
    window_end: String,
    /// Whether the policy denies requests beyond its limit: `enforce`, or `shadow`.
    mode: &'a str,
    instance: &'a str,
}

#[derive(Serialize)]
struct TestData<'a> {
    policies: &'a [String],
}

/// Whether a part of what is counted is of an API key. Parts from clients are percent-encoded.
pub(super) fn names_customer(subject: &str) -> bool {
    subject.split('+').any(|part| part.starts_with("customer:") || part.starts_with("api_key:"))
}

/// The ID of the message that a share of a limit is used, in this window. All instances come to the same one. A limit that
/// was raised has messages of its own.
pub(super) fn id(reached: &Reached, share: u32) -> String {
    let Reached { policy, subject, limit_text, window: [start, end], .. } = reached;
    let hash = Sha256::digest(format!("{policy}\0{subject}\0{limit_text}\0{share}\0{start}\0{end}"));
    let hex: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("msg_{hex}")
}

/// The message that a share of a limit is used.
pub(super) fn body(reached: &Reached, share: u32, instance: &str) -> String {
    let percent = f64::from(share) / 100.0;
    let Reached { policy, subject, used, limit, .. } = reached;
    let zone = TimeZone::get(&reached.time_zone).unwrap_or(TimeZone::UTC);
    let at = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or_default().to_zoned(zone.clone());
    let [start, end] = reached.window.map(at);
    let name = shown(reached.customer.as_deref().unwrap_or(subject));
    let text = format!(
        "{name} has used {percent} % of {policy}: {used} of {limit}, until {} ({}).",
        end.strftime("%Y-%m-%d %H:%M"),
        reached.time_zone
    );
    let data = UsageData {
        policy,
        subject,
        customer: reached.customer.as_deref(),
        plan: reached.plan.as_deref(),
        share: percent,
        used: *used,
        limit: *limit,
        limit_text: &reached.limit_text,
        window_start: start.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        window_end: end.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        mode: if reached.is_shadow { "shadow" } else { "enforce" },
        instance,
    };
    written(&Body { r#type: "usage.share_reached", timestamp: rfc3339(reached.time), text, data })
}

/// A message that says it is a test.
pub(super) fn test_body(webhook: &Webhook, now: i64) -> String {
    let policies = &*webhook.policies;
    let text = format!("This is a test of Tollgate's alerts about {}.", policies.join(", "));
    written(&Body { r#type: "test", timestamp: rfc3339(now), text, data: TestData { policies } })
}

/// A name, without what chats take for a mention or a link.
fn shown(name: &str) -> String {
    name.replace(['<', '>', '&', '@', '!', '*', '`', '[', ']'], "_")
}

fn written(body: &impl Serialize) -> String {
    // Texts and numbers: this can't fail.
    serde_json::to_string(body).unwrap_or_default()
}

/// The signatures of a message that is sent at the time `now`, in seconds since the Unix epoch: one by each of `keys`.
pub(super) fn signature(keys: &[Vec<u8>], id: &str, now: i64, body: &str) -> String {
    let by = |key: &Vec<u8>| {
        // An HMAC takes a key of any length.
        let mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        let mac = mac.chain_update(format!("{id}.{now}.{body}")).finalize();
        Some(format!("v1,{}", BASE64_STANDARD.encode(mac.into_bytes())))
    };
    keys.iter().filter_map(by).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_signed_by_each_key() {
        // The example of Standard Webhooks' specification, "Signature scheme".
        let key = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", r#"{"test": 2432232314}"#);
        let signed = signature(&[key, b"old".to_vec()], id, 1_614_265_330, body);
        let (new, old) = signed.split_once(' ').unwrap();
        assert_eq!(new, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(old.starts_with("v1,") && old != new);
    }
}
