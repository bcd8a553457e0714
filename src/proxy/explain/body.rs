//! The longest body that a request may have.

use super::explanation::ExplainedBodyLimit;
use crate::config::model::{Config, Route, format_size};

/// The longest body on `route`, and the setting that it comes from. `listener`: the index of the listener on which the
/// request comes in; without it, each may be meant. `None`: any length.
pub(super) fn limit(config: &Config, route: &Route, listener: Option<usize>) -> Option<ExplainedBodyLimit> {
    let meant = listener.map_or(0..config.listeners.len(), |listener| listener..listener + 1);
    let listeners = config.listeners.get(meant.clone()).unwrap_or_default();
    let limits: Vec<Option<u64>> = meant.map(|listener| config.max_body(route, listener)).collect();
    if limits.iter().all(Option::is_none) {
        return None;
    }
    let max = limits.first().copied().flatten();
    let because = if route.max_body.is_some() {
        "max_body of the route".to_owned()
    } else if limits.iter().any(|limit| *limit != max) {
        let each = listeners.iter().zip(limits).filter_map(|(listener, limit)| {
            let size = |max: u64| usize::try_from(max).map_or_else(|_| max.to_string(), format_size);
            let limit = limit.map_or_else(|| "any size".to_owned(), size);
            Some(format!("{} on {}", limit, listener.addresses.first()?))
        });
        let because = format!("max_body of the listener: {}", each.collect::<Vec<_>>().join(", "));
        return Some(ExplainedBodyLimit { max: None, because });
    } else if listeners.iter().any(|listener| listener.max_body.is_some()) {
        "max_body of the listener".to_owned()
    } else {
        "client_limits.max_body".to_owned()
    };
    Some(ExplainedBodyLimit { max, because })
}
