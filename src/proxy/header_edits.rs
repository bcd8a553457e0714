//! The changes that `request_headers` and `response_headers` make.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    claims::{has_prefix, is_spelling, remove_where},
    placeholders::PlaceholderValues,
};
use crate::config::model::{FieldPattern, HeaderEdits};

/// Changes with the values of one request.
#[derive(Debug)]
pub(super) struct FilledEdits {
    edits: Arc<HeaderEdits>,
    /// The values of the fields to set, then of the fields to add. `None`: the field is left out.
    values: Vec<Option<HeaderValue>>,
}

impl FilledEdits {
    pub(super) fn new(edits: &Arc<HeaderEdits>, values: &PlaceholderValues<'_>) -> Self {
        let fields = edits.set.iter().chain(&edits.add);
        let values = fields.map(|(_, text)| values.field(text)).collect();
        Self { edits: Arc::clone(edits), values }
    }

    /// Changes the header of a request. Names that differ only in separators such as `-` and `_` are treated as the
    /// same field, because many frameworks can't distinguish them.
    pub(super) fn apply_to_request(self, headers: &mut HeaderMap) {
        remove_where(headers, |field| replaces(&self.edits, field));
        self.insert(headers);
    }

    /// Changes the header of a response.
    pub(super) fn apply_to_response(self, headers: &mut HeaderMap) {
        for pattern in &self.edits.remove {
            match pattern {
                FieldPattern::Name(name) => {
                    headers.remove(name);
                }
                FieldPattern::Prefix(prefix) => {
                    remove_where(headers, |field| field.as_str().starts_with(prefix));
                }
            }
        }
        for (name, _) in &self.edits.set {
            headers.remove(name);
        }
        self.insert(headers);
    }

    fn insert(self, headers: &mut HeaderMap) {
        let fields = self.edits.set.iter().chain(&self.edits.add);
        for ((name, _), value) in fields.zip(self.values) {
            if let Some(value) = value {
                headers.append(name, value);
            }
        }
    }
}

/// Whether these changes remove the lines of a field that were there, in any spelling. A trailer of this name would
/// undo them.
pub(super) fn replaces(edits: &HeaderEdits, field: &HeaderName) -> bool {
    let field = field.as_str();
    let is_removed = |pattern: &FieldPattern| match pattern {
        FieldPattern::Name(name) => is_spelling(field, name.as_str()),
        FieldPattern::Prefix(prefix) => has_prefix(field, prefix),
    };
    edits.remove.iter().any(is_removed) || edits.set.iter().any(|(name, _)| is_spelling(field, name.as_str()))
}
