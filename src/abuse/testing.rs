//! What the tests of limited clients have in common.

use std::{sync::Arc, time::Duration};

use crate::{
    config::model::{KeyPart, KeyRecipe, Missing, OnStoreError, Record},
    limit::{
        Policy, PolicyId,
        algorithm::{Kind, Tier, metadata_list::Entry},
    },
};

/// A request of `user` at `time`.
pub(crate) fn entry(time: i64, user: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: Some(user.into()), method: http::Method::GET, path: "/a".into() })
}

/// `per-ip`: three a minute of an address, whose records are kept for 5 s.
pub(crate) fn policy() -> Policy {
    Policy {
        id: PolicyId(0),
        name: "per-ip".into(),
        kind: Kind::MetadataList,
        tiers: vec![Tier { limit: 3, window: 60_000_000 }],
        shape: "ml.1m".into(),
        keys: vec![KeyRecipe(vec![KeyPart::Ip])],
        missing: Missing::Skip,
        on_store_error: OnStoreError::Local,
        record: Record { keep: 50, retain: Duration::from_secs(5) },
        quota_names: vec!["per-ip".into()],
    }
}
