//! What the tests of limited clients have in common.

use std::{sync::Arc, time::Duration};

use crate::{
    config::model::{self, Algorithm, KeyPart, KeyRecipe, Rate},
    limit::{Policy, PolicyId, algorithm::metadata_list::Entry},
};

/// A request of `user` at `time`.
pub(crate) fn entry(time: i64, user: &str) -> Arc<Entry> {
    Arc::new(Entry { time, user: Some(user.into()), method: http::Method::GET, path: "/a".into() })
}

/// `per-ip`: three a minute of an address, whose records are kept for 5 s.
pub(crate) fn policy() -> Policy {
    let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
    let rate = Rate { limit: 3, window: Duration::from_secs(60) };
    let mut policy =
        Policy::new(&model::Policy::new("per-ip", Algorithm::MetadataList, keys, vec![rate]), PolicyId(0));
    policy.record.retain = Duration::from_secs(5);
    policy
}
