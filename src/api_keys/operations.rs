//! The operations on keys: make, change, rotate, revoke and delete them. Pure: from one record to the next.

use std::collections::BTreeMap;

use compact_str::CompactString;
use jiff::{Timestamp, civil::Date, tz::TimeZone};

use super::{
    ApiKey, KeyHash, KeySecret, KeyState, MAX_KEY_LENGTH, MIN_KEY_LENGTH, NewKey,
    record::{MAX_LABELS, MAX_NAME, check_id, check_name},
    secret::{NoRandomNumbers, random_id},
};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Longest reason of a revocation, in characters.
const MAX_REASON: usize = 256;
/// Longest overlap of a rotation, in microseconds.
pub const MAX_OVERLAP: i64 = 366 * DAY;

/// The properties of a key that operators set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFields {
    /// `None`: a random one is made.
    pub id: Option<CompactString>,
    pub customer: CompactString,
    pub plan: Option<CompactString>,
    pub name: CompactString,
    pub labels: BTreeMap<String, String>,
    pub routes: Vec<String>,
    /// In microseconds since the Unix epoch, as `expires`. `None`: now.
    pub created: Option<i64>,
    pub expires: Option<i64>,
}

/// A change of a key; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChange {
    pub plan: Option<Option<CompactString>>,
    pub name: Option<CompactString>,
    /// New values of labels, or `None` for those to be removed. Other labels stay.
    pub labels: BTreeMap<String, Option<String>>,
    pub routes: Option<Vec<String>>,
    pub expires: Option<Option<i64>>,
}

/// A field of a key can't have this value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    pub field: &'static str,
    pub reason: String,
}

/// Why a key can't be made or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("key {0} was revoked: make a new key")]
    Revoked(CompactString),
    #[error("key {0} has expired: set a later `expires` first, or make a new key")]
    Expired(CompactString),
    #[error(transparent)]
    NoRandomNumbers(#[from] NoRandomNumbers),
}

fn wrong<T>(field: &'static str, reason: impl Into<String>) -> Result<T, FieldError> {
    Err(FieldError { field, reason: reason.into() })
}

/// Makes a key, and its text, which nobody keeps.
///
/// # Errors
/// A field is wrong, or the system has no random numbers.
pub fn create(fields: KeyFields, prefix: &str, now: i64) -> Result<(ApiKey, NewKey), OperationError> {
    let new = match &fields.id {
        Some(id) => {
            check_id(id).or_else(|reason| wrong("id", reason))?;
            NewKey::with_id(prefix, id)?
        }
        None => NewKey::generate(prefix)?,
    };
    let fields = KeyFields { id: Some(new.id.clone()), ..fields };
    let secret = KeySecret { hash: new.hash(), created: now, expires: None };
    Ok((with_secrets(fields, vec![secret], now)?, new))
}

/// Makes the record of a key that has these secrets already, oldest first.
///
/// # Errors
/// A field is wrong, or the system has no random numbers.
pub fn with_secrets(fields: KeyFields, secrets: Vec<KeySecret>, now: i64) -> Result<ApiKey, OperationError> {
    let KeyFields { id, customer, plan, name, labels, routes, created, expires } = fields;
    let id = match id {
        Some(id) => id,
        None => random_id()?,
    };
    let created = created.unwrap_or(now);
    let state = KeyState::Active;
    let key =
        ApiKey { id, secrets, customer, plan, name, labels, created, expires, routes, state, changed: now };
    check(&key)?;
    Ok(key)
}

/// Changes a key.
///
/// # Errors
/// A field is wrong, or the key was revoked.
pub fn change(key: &ApiKey, change: KeyChange, now: i64) -> Result<ApiKey, OperationError> {
    let mut key = ApiKey { changed: now, ..active(key)?.clone() };
    let KeyChange { plan, name, labels, routes, expires } = change;
    key.plan = plan.unwrap_or(key.plan);
    key.name = name.unwrap_or(key.name);
    key.routes = routes.unwrap_or(key.routes);
    key.expires = expires.unwrap_or(key.expires);
    for (label, value) in labels {
        match value {
            Some(value) => key.labels.insert(label, value),
            None => key.labels.remove(&label),
        };
    }
    check(&key)?;
    Ok(key)
}

/// Gives a key another secret. The one that it has now stays valid for `overlap` microseconds, at most until its own
/// expiry. One that was rotated before is not valid any more.
///
/// # Errors
/// The overlap is too long, the key was revoked or has expired, or the system has no random numbers.
pub fn rotate(
    key: &ApiKey,
    prefix: &str,
    overlap: i64,
    now: i64,
) -> Result<(ApiKey, NewKey), OperationError> {
    if !(0..=MAX_OVERLAP).contains(&overlap) {
        return Err(FieldError { field: "overlap", reason: "must be 0s to 366d".into() }.into());
    }
    let key = active(key)?;
    if key.expires.is_some_and(|expires| expires <= now) {
        return Err(OperationError::Expired(key.id.clone()));
    }
    let new = NewKey::with_id(prefix, &key.id)?;
    let end = now.saturating_add(overlap);
    let last = key.secrets.last().map(|last| KeySecret {
        expires: Some(last.expires.map_or(end, |expires| expires.min(end))),
        ..last.clone()
    });
    let secrets =
        last.into_iter().chain([KeySecret { hash: new.hash(), created: now, expires: None }]).collect();
    Ok((ApiKey { secrets, changed: now, ..key.clone() }, new))
}

/// Revokes a key: it is never valid again.
///
/// # Errors
/// The reason is wrong, or the key was revoked already.
pub fn revoke(key: &ApiKey, reason: &str, now: i64) -> Result<ApiKey, OperationError> {
    if reason.chars().any(char::is_control) || reason.chars().count() > MAX_REASON {
        let bounds = format!("must have at most {MAX_REASON} characters and no control characters");
        return Err(FieldError { field: "reason", reason: bounds }.into());
    }
    let state = KeyState::Revoked { at: now, reason: reason.to_owned() };
    Ok(ApiKey { state, changed: now, ..active(key)?.clone() })
}

/// The tombstone of a deleted key. It keeps the hashes, so that no other instance brings the key back, but nothing of
/// the customer beyond the name.
pub fn delete(key: &ApiKey, now: i64) -> ApiKey {
    let (name, labels, routes) = <_>::default();
    ApiKey { state: KeyState::Deleted { at: now }, changed: now, name, labels, routes, ..key.clone() }
}

fn active(key: &ApiKey) -> Result<&ApiKey, OperationError> {
    match key.state {
        KeyState::Active => Ok(key),
        KeyState::Revoked { .. } | KeyState::Deleted { .. } => Err(OperationError::Revoked(key.id.clone())),
    }
}

/// The hash of a key that was made elsewhere: `sha256:HEX`, or the text of the key.
///
/// # Errors
/// It is neither; the reason.
pub fn imported_hash(text: &str) -> Result<KeyHash, String> {
    if text.starts_with("sha256:") {
        let malformed = || "is no hash: write sha256: and 64 hexadecimal digits".to_owned();
        return KeyHash::parse(text).ok_or_else(malformed);
    }
    if !(MIN_KEY_LENGTH..=MAX_KEY_LENGTH).contains(&text.len()) {
        let length = text.len();
        return Err(format!(
            "has {length} characters, not {MIN_KEY_LENGTH} to {MAX_KEY_LENGTH}: it could be guessed"
        ));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "has characters that a header can't have: use visible ASCII characters without spaces".into()
        );
    }
    Ok(KeyHash::of(text.as_bytes()))
}

/// Reads when a key expires: a duration from now (`90d`), a date (`2027-01-31`, its beginning in UTC), or a time of RFC
/// 3339.
pub fn parse_expiry(text: &str, now: i64) -> Option<i64> {
    let ahead = || {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let unit = match unit {
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3_600 * SECOND,
            "d" => DAY,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_mul(unit)?.checked_add(now)
    };
    let date = || Some(text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    let time = || text.parse::<Timestamp>().ok().or_else(date);
    let micros = ahead().or_else(|| time().map(Timestamp::as_microsecond))?;
    // Later ones could not be shown.
    Timestamp::from_microsecond(micros).ok().map(|_| micros)
}

/// Checks the fields of a record.
fn check(key: &ApiKey) -> Result<(), FieldError> {
    check_id(&key.id).or_else(|reason| wrong("id", reason))?;
    if key.id == "import" {
        return wrong("id", "`import` is a part of paths of the admin port");
    }
    if key.customer.is_empty() {
        return wrong("customer", "is missing");
    }
    check_name("customer", &key.customer).or_else(|reason| wrong("customer", reason))?;
    if let Some(plan) = &key.plan {
        check_name("plan", plan).or_else(|reason| wrong("plan", reason))?;
    }
    let is_text = |text: &str| text.len() <= MAX_NAME && !text.chars().any(char::is_control);
    let bounds = || format!("must have at most {MAX_NAME} bytes and no control characters");
    if !is_text(&key.name) {
        return wrong("name", bounds());
    }
    if key.labels.len() > MAX_LABELS {
        return wrong("labels", format!("a key has {MAX_LABELS} labels at most"));
    }
    let is_label = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_plain)
    };
    for (name, value) in &key.labels {
        if !is_label(name) {
            return wrong("labels", "the name of a label has letters, digits and - _ . /");
        }
        if !is_text(value) || value.contains(';') {
            return wrong("labels", format!("{name} {}, nor `;`", bounds()));
        }
    }
    if key.routes.len() > MAX_LABELS {
        return wrong(
            "routes",
            format!("a key has {MAX_LABELS} routes at most; without any it is valid for all"),
        );
    }
    if key.routes.iter().any(|route| route.is_empty() || !is_text(route) || route.contains(';')) {
        return wrong("routes", format!("the name of a route is not empty; it {}, nor `;`", bounds()));
    }
    key.check().or_else(|reason| wrong("key", reason))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_783_080_001_000_000;

    fn key() -> ApiKey {
        let fields = KeyFields { customer: "acme".into(), plan: Some("pro".into()), ..KeyFields::default() };
        create(fields, "tgk", NOW).unwrap().0
    }

    #[test]
    fn a_key_is_made_with_its_hash_alone() {
        let fields = KeyFields {
            customer: "acme".into(),
            name: "CI".into(),
            expires: Some(NOW + DAY),
            ..KeyFields::default()
        };
        let (key, new) = create(fields.clone(), "tgk", NOW).unwrap();
        assert_eq!((key.id.as_str(), &*key.customer, &*key.name), (new.id.as_str(), "acme", "CI"));
        assert!(key.secrets.len() == 1 && key.secrets[0].hash == KeyHash::of(new.text.as_bytes()));
        assert!(!format!("{key:?}").contains(new.text.as_str()));
        let named = create(KeyFields { id: Some("ci-1".into()), ..fields }, "tgk", NOW).unwrap();
        assert!(named.0.id == "ci-1" && named.1.text.starts_with("tgk_ci-1_"));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let field = |fields: KeyFields| match create(fields, "tgk", NOW) {
            Err(OperationError::Field(error)) => error.field,
            other => panic!("{:?}", other.map(|made| made.0)),
        };
        let good = || KeyFields { customer: "acme".into(), ..KeyFields::default() };
        assert_eq!(field(KeyFields::default()), "customer");
        assert_eq!(field(KeyFields { customer: "a\nb".into(), ..good() }), "customer");
        assert_eq!(field(KeyFields { id: Some("a b".into()), ..good() }), "id");
        assert_eq!(field(KeyFields { plan: Some("".into()), ..good() }), "plan");
        assert_eq!(field(KeyFields { name: "x".repeat(129).into(), ..good() }), "name");
        assert_eq!(field(KeyFields { routes: vec!["".into()], ..good() }), "routes");
        assert_eq!(field(KeyFields { labels: [("a".into(), "b;c".into())].into(), ..good() }), "labels");
        assert_eq!(field(KeyFields { labels: [("a b".into(), "c".into())].into(), ..good() }), "labels");
    }

    #[test]
    fn a_change_leaves_other_fields_as_they_are() {
        let key = ApiKey { labels: [("a".into(), "1".into()), ("b".into(), "2".into())].into(), ..key() };
        let labels = [("a".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))].into();
        let changed =
            change(&key, KeyChange { plan: Some(None), labels, ..KeyChange::default() }, NOW + 1).unwrap();
        let expected = ApiKey {
            plan: None,
            labels: [("b".into(), "2".into()), ("c".into(), "3".into())].into(),
            changed: NOW + 1,
            ..key.clone()
        };
        assert_eq!(changed, expected);
        let revoked = revoke(&key, "leaked", NOW).unwrap();
        let refused = change(&revoked, KeyChange::default(), NOW).unwrap_err();
        assert_eq!(refused, OperationError::Revoked(key.id));
    }

    #[test]
    fn a_rotated_secret_ends_and_the_one_before_is_gone() {
        let first = key();
        let (second, new) = rotate(&first, "tgk", 3_600 * SECOND, NOW + 5).unwrap();
        assert_eq!(second.id, first.id);
        assert_eq!(second.secrets.len(), 2);
        assert_eq!(second.secrets[0].hash, first.secrets[0].hash);
        assert_eq!(second.secrets[0].expires, Some(NOW + 5 + 3_600 * SECOND));
        assert_eq!((second.secrets[1].hash, second.secrets[1].expires), (new.hash(), None));
        let (third, _) = rotate(&second, "tgk", 0, NOW + 6).unwrap();
        assert_eq!(third.secrets.len(), 2);
        assert_eq!((third.secrets[0].hash, third.secrets[0].expires), (new.hash(), Some(NOW + 6)));
        let expired = ApiKey { expires: Some(NOW), ..first.clone() };
        assert_eq!(
            rotate(&expired, "tgk", 0, NOW).map(|made| made.0),
            Err(OperationError::Expired(first.id.clone()))
        );
        assert!(
            rotate(&first, "tgk", -1, NOW).is_err() && rotate(&first, "tgk", MAX_OVERLAP + 1, NOW).is_err()
        );
    }

    #[test]
    fn a_revoked_key_stays_revoked_and_a_tombstone_keeps_the_hashes() {
        let key = key();
        let revoked = revoke(&key, "leaked", NOW + 1).unwrap();
        assert_eq!(revoked.state, KeyState::Revoked { at: NOW + 1, reason: "leaked".into() });
        assert_eq!(revoke(&revoked, "", NOW + 2), Err(OperationError::Revoked(key.id.clone())));
        assert!(rotate(&revoked, "tgk", 0, NOW + 2).is_err());
        assert!(revoke(&key, "a\nb", NOW).is_err() && revoke(&key, &"x".repeat(257), NOW).is_err());
        let deleted = delete(&revoked, NOW + 3);
        assert_eq!((deleted.state, deleted.secrets), (KeyState::Deleted { at: NOW + 3 }, key.secrets));
    }

    #[test]
    fn an_expiry_is_a_duration_a_date_or_a_time() {
        assert_eq!(parse_expiry("90d", NOW), Some(NOW + 90 * DAY));
        assert_eq!(parse_expiry("2027-01-31", NOW), Some(1_801_353_600_000_000));
        assert_eq!(parse_expiry("2027-01-31T00:00:00Z", NOW), Some(1_801_353_600_000_000));
        assert_eq!(parse_expiry("2027-01-31T01:00:00+01:00", NOW), Some(1_801_353_600_000_000));
        for wrong in ["", "90", "d", "soon", "9999999999999d", "2027-13-01", "-1d"] {
            assert_eq!(parse_expiry(wrong, NOW), None, "{wrong}");
        }
    }

    #[test]
    fn a_foreign_key_is_hashed_and_a_weak_one_refused() {
        let hash = KeyHash::of(b"0123456789abcdef");
        assert!(
            imported_hash("0123456789abcdef") == Ok(hash) && imported_hash(&hash.to_string()) == Ok(hash)
        );
        for wrong in
            ["0123456789abcde", "sha256:12", "0123456789 abcdef", "0123456789abcdéf", &"x".repeat(513)]
        {
            assert!(imported_hash(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// Whatever is done in whatever order: a key has one or two secrets, the newest without an end of its own; ends
        /// never get later; and a revoked key stays revoked.
        #[test]
        fn secrets_only_lose_time(steps in proptest::collection::vec((0_u8..3, 0_i64..1_000, 0_i64..1_000), 1..12)) {
            let (mut key, mut now) = (key(), NOW);
            for (step, waited, overlap) in steps {
                now += waited;
                let before = key.clone();
                match step {
                    0 => if let Ok((rotated, _)) = rotate(&key, "tgk", overlap, now) { key = rotated },
                    1 => if let Ok(changed) = change(&key, KeyChange::default(), now) { key = changed },
                    _ => if overlap > 900 && let Ok(revoked) = revoke(&key, "", now) { key = revoked },
                }
                prop_assert!((1..=2).contains(&key.secrets.len()));
                prop_assert_eq!(key.secrets.last().unwrap().expires, None);
                for secret in &before.secrets {
                    if let Some(kept) = key.secrets.iter().find(|kept| kept.hash == secret.hash) {
                        let end = |secret: &KeySecret| secret.expires.unwrap_or(i64::MAX);
                        prop_assert!(end(kept) <= end(secret));
                    }
                }
                prop_assert!(before.state == KeyState::Active || key == before);
            }
        }
    }
}
