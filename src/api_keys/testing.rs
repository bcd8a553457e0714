//! Keys for tests.

use std::collections::BTreeMap;

use super::{ApiKey, KeyHash, KeySecret, KeyState};

/// A key with this ID, whose text is the ID.
pub(crate) fn key(id: &str) -> ApiKey {
    ApiKey {
        id: id.into(),
        secrets: vec![KeySecret { hash: KeyHash::of(id.as_bytes()), created: 1, expires: None }],
        customer: "acme".into(),
        plan: None,
        name: "".into(),
        labels: BTreeMap::new(),
        created: 1,
        expires: None,
        routes: Vec::new(),
        state: KeyState::Active,
        changed: 1,
    }
}
