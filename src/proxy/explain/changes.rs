//! The changes to the header of a forwarded request and of its response.

use super::explanation::{HeaderChange, MASK};
use crate::{
    config::model::{FieldPattern, FieldText, HeaderEdits},
    proxy::placeholders::PlaceholderValues,
};

/// The changes that `edits` make to the header of a message, with the values of a request.
pub(super) fn header_changes(
    edits: Option<&HeaderEdits>,
    values: &PlaceholderValues<'_>,
) -> Vec<HeaderChange> {
    let Some(edits) = edits else { return Vec::new() };
    let removed = edits.remove.iter().map(|pattern| match pattern {
        FieldPattern::Name(name) => HeaderChange::Remove(name.to_string()),
        FieldPattern::Prefix(prefix) => HeaderChange::Remove(format!("{prefix}*")),
    });
    let value = |text: &FieldText| match text.text.is_secret {
        true => Some(MASK.to_owned()),
        false => values.field(text).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
    };
    let set = edits.set.iter().map(|(name, text)| match value(text) {
        Some(value) => HeaderChange::Set(name.to_string(), value),
        // A field without a value is not sent.
        None => HeaderChange::Remove(name.to_string()),
    });
    let added =
        edits.add.iter().filter_map(|(name, text)| Some(HeaderChange::Add(name.to_string(), value(text)?)));
    removed.chain(set).chain(added).collect()
}
