//! The encoding of a `metadata_list` entry in Redis: JSON after `END:USED`.

use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::limit::algorithm::metadata_list::Entry;

#[derive(Serialize, Deserialize)]
struct StoredEntry<'a> {
    /// Microseconds since the Unix epoch.
    time: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    user: Option<CompactString>,
    method: &'a str,
    path: CompactString,
}

pub(super) fn encode(entry: &Entry) -> String {
    let Entry { time, user, method, path } = entry;
    let written =
        StoredEntry { time: *time, user: user.clone(), method: method.as_str(), path: path.clone() };
    // Strings and numbers always serialize.
    serde_json::to_string(&written).unwrap_or_default()
}

/// Decodes an element of the list: when its window ends, and the entry if it was recorded.
pub(super) fn decode(element: &[u8]) -> Option<(i64, Option<Arc<Entry>>)> {
    let element = std::str::from_utf8(element).ok()?;
    let (window, entry) = element.split_once(' ')?;
    let ends = window.split_once(':')?.0.parse().ok()?;
    let entry = serde_json::from_str::<StoredEntry<'_>>(entry).ok().and_then(|written| {
        let StoredEntry { time, user, method, path } = written;
        let method = method.parse().ok()?;
        Some(Arc::new(Entry { time, user, method, path }))
    });
    Some((ends, entry))
}
