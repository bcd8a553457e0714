//! Events as JSON: times in RFC 3339, as everywhere on the admin port.

use serde_json::{Value, json};

use crate::telemetry::{Event, time::rfc3339};

/// The data of an event; its name is told beside it.
pub(super) fn told(event: &Event) -> Value {
    match event {
        Event::Limited { address, policies, denied, distinct_users, until } => json!({
            "address": address,
            "policies": policies,
            "denied": denied,
            "distinct_users": distinct_users,
            "until": rfc3339(*until),
        }),
        Event::Unblocked { address } => json!({"address": address}),
        Event::Banned { key, until, reason, by, level, is_shadow } => json!({
            "key": key,
            "until": rfc3339(*until),
            "reason": reason,
            "by": by,
            "level": level,
            "mode": if *is_shadow { "shadow" } else { "enforce" },
        }),
        Event::Lifted { key } => json!({"key": key}),
        Event::Reloaded { configuration_hash, changed } => {
            json!({"configuration_hash": configuration_hash, "changed": changed})
        }
        Event::NotReloaded { errors } => json!({"errors": errors}),
        Event::Health { what, is_healthy, why } => json!({"what": what, "healthy": is_healthy, "why": why}),
        Event::Warning { text, is_raised } => json!({"text": text, "raised": is_raised}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_hostile_names_are_told_in_one_line() {
        let event = Event::Banned {
            key: "user:a\nb\r\u{2028}".into(),
            until: 1_783_080_001_250_000,
            reason: "</script>".into(),
            by: "bans.hammering".into(),
            level: 2,
            is_shadow: true,
        };
        let data = told(&event);
        assert_eq!(data["until"], "2026-07-03T12:00:01.250Z");
        assert_eq!(data["mode"], "shadow");
        assert!(!data.to_string().contains(['\n', '\r']));
    }
}
