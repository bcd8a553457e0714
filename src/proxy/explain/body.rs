//! How long the body of a request may be.

use http::{StatusCode, header, request};

use super::request::{ExplainedVerdict, Explanation};
use crate::config::model::{Config, Route, format_size};

/// How long a body may be, and where that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedBodyLimit {
    /// In bytes. `None`: it depends on the listener.
    pub max: Option<u64>,
    pub because: String,
}

/// Explains how long the body of `request` may be on `route`, and whether its announced length is too long.
pub(super) fn explain(config: &Config, route: &Route, request: &request::Parts, explained: &mut Explanation) {
    // The request is for no particular listener, so each may be meant.
    let limits: Vec<Option<u64>> =
        (0..config.listeners.len()).map(|listener| config.max_body(route, listener)).collect();
    if limits.iter().all(Option::is_none) {
        return;
    }
    let limit = body_limit(config, route, &limits);
    let length = request
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length
        && limits.iter().all(|limit| limit.is_some_and(|max| length > max))
    {
        (explained.verdict, explained.status) =
            (ExplainedVerdict::Refused, Some(StatusCode::PAYLOAD_TOO_LARGE));
        explained.because = format!("the body has {length} bytes, which is more than max_body allows");
    }
    explained.body_limit = Some(limit);
}

/// `limits`: the limit of each listener.
fn body_limit(config: &Config, route: &Route, limits: &[Option<u64>]) -> ExplainedBodyLimit {
    let max = limits.first().copied().flatten();
    let because = if route.max_body.is_some() {
        "max_body of the route".to_owned()
    } else if limits.iter().any(|limit| *limit != max) {
        let each = config.listeners.iter().zip(limits).filter_map(|(listener, limit)| {
            let size = |max: u64| usize::try_from(max).map_or_else(|_| max.to_string(), format_size);
            let limit = limit.map_or_else(|| "any size".to_owned(), size);
            Some(format!("{} on {}", limit, listener.addresses.first()?))
        });
        let because = format!("max_body of the listener: {}", each.collect::<Vec<_>>().join(", "));
        return ExplainedBodyLimit { max: None, because };
    } else if config.listeners.iter().any(|listener| listener.max_body.is_some()) {
        "max_body of the listener".to_owned()
    } else {
        "client_limits.max_body".to_owned()
    };
    ExplainedBodyLimit { max, because }
}
