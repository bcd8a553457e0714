//! The changes to the path and the headers of a forwarded request, and to its response.

use http::HeaderValue;

use super::request::{ExplainedVerdict, Explanation, HeaderChange};
use crate::{
    config::model::{FieldPattern, FieldText, HeaderEdits, Rewrite, Route},
    proxy::{path_rewrite::RewrittenPath, placeholders::PlaceholderValues},
    router::Rejection,
};

/// Shown in place of a secret.
pub(super) const MASK: &str = "***";

/// Shown in place of the ID that a real request would get.
pub(super) static REQUEST_ID: HeaderValue = HeaderValue::from_static("{request_id}");

/// Explains the changes that `route` makes to a request with these values.
pub(super) fn explain(route: &Route, values: &PlaceholderValues<'_>, explained: &mut Explanation) {
    let changes =
        |edits: Option<&HeaderEdits>| edits.map(|edits| header_changes(edits, values)).unwrap_or_default();
    explained.request_headers = changes(route.request_headers.as_deref());
    explained.response_headers = changes(route.response_headers.as_deref());
    match route.rewrite.as_ref().map(|rewrite| RewrittenPath::new(rewrite, values)) {
        None | Some(Ok(None)) => {}
        Some(Ok(Some(path))) => {
            let is_secret = matches!(&route.rewrite, Some(Rewrite::Path(text)) if text.is_secret);
            let path = if is_secret { MASK.to_owned() } else { path.path_and_query().to_string() };
            explained.rewritten_path = Some(path);
        }
        // Limits and bans take precedence.
        Some(Err(Rejection { status, detail })) if explained.verdict == ExplainedVerdict::Allowed => {
            (explained.verdict, explained.status) = (ExplainedVerdict::Refused, Some(status));
            detail.clone_into(&mut explained.because);
        }
        Some(Err(_)) => {}
    }
}

fn header_changes(edits: &HeaderEdits, values: &PlaceholderValues<'_>) -> Vec<HeaderChange> {
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
