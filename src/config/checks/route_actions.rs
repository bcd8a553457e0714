//! Settings of a route that do not go together: several actions, or settings of an upstream beside an action that has none.

use crate::config::reader::MappingCursor;

/// The settings of which a route has exactly one.
const ACTIONS: [&str; 5] = ["upstream", "upstreams", "reply", "redirect", "usage"];

/// Settings that concern an upstream.
const OF_UPSTREAM: [&str; 4] = ["timeouts", "retry", "rewrite", "request_headers"];

/// Reports a second action, and settings without the action that they need.
pub(in crate::config) fn check(mapping: &MappingCursor<'_>) {
    let given: Vec<&str> = ACTIONS.into_iter().filter(|key| mapping.key_location(key).is_some()).collect();
    let has_upstreams = given.contains(&"upstreams");
    if let [first, .., second] = given[..]
        && second != "upstreams"
        && let Some(location) = mapping.key_location(second)
    {
        let help = "keep one of them, or make two routes that match different requests".to_owned();
        mapping.report_at(location, format!("a route has either `{first}` or `{second}`"), help);
    }
    if let Some(location) = mapping.key_location("upstream").filter(|_| mapping.peek("upstreams").is_some()) {
        let help = "keep `upstream` to send every request to one, or `upstreams` to split them".to_owned();
        mapping.report_at(location, "a route has either `upstream` or `upstreams`", help);
    }
    if let Some(location) = mapping.key_location("split_by").filter(|_| !has_upstreams) {
        let help = "write `upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]` beside it, or remove it";
        mapping.report_at(location, "`split_by` works only with `upstreams`", help.to_owned());
    }
    if ["reply", "redirect", "usage"].iter().all(|key| mapping.peek(key).is_none()) {
        return;
    }
    for key in OF_UPSTREAM.into_iter().filter(|_| !has_upstreams) {
        if let Some(location) = mapping.key_location(key) {
            let help = format!("remove `{key}`: without an upstream, it says nothing");
            mapping.report_at(location, "this route sends its requests to no upstream", help);
        }
    }
    for key in ["rewrite", "request_headers"] {
        if let Some(location) = mapping.key_location(key) {
            let help = "remove it: Tollgate itself replies to the requests of this route".to_owned();
            mapping.report_at(location, format!("`{key}` works only with an upstream"), help);
        }
    }
}
