//! Warns about routes whose policies another spelling of the path goes around.

use std::sync::Arc;

use super::{
    path_spellings::spellings,
    routes::DraftRoute,
    unreachable_routes::{DraftIndex, covers},
};
use crate::config::model::{Mode, PathCase, PathMatching, Policy, Route, TrailingSlash};

const STRICT: PathMatching = PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };

/// Warns about every route that compares case or trailing slash, if another spelling of its path goes to the same upstream
/// by a route that lacks one of its policies: to many an upstream, both are one path.
pub(super) fn warn(drafts: &[DraftRoute<'_>], index: &DraftIndex, policies: &[Arc<Policy>]) {
    for draft in drafts {
        let Some((spelling, other)) = way_around(draft, drafts, index, policies) else { continue };
        let (route, way) = (&draft.route, &other.route);
        let missing: Vec<String> =
            missing_policies(route, way, policies).map(|name| format!("`{name}`")).collect();
        let message = format!(
            "`{spelling}` goes around {}: route `{}` sends it to the same upstream without {}",
            missing.join(", "),
            way.name,
            if missing.len() == 1 { "this policy" } else { "these policies" },
        );
        let help = format!(
            "many upstreams take it for `{}`; let this route match both (`match: {{ case: insensitive, trailing_slash: \
             either }}`), or add what is missing to the route in line {}",
            route.shown_path(),
            other.cursor.location().line
        );
        draft.cursor.warn(message, help);
    }
}

/// A spelling of the route's path that it does not match, and the route that it takes instead.
fn way_around<'d, 't>(
    draft: &DraftRoute<'_>,
    drafts: &'d [DraftRoute<'t>],
    index: &DraftIndex,
    policies: &[Arc<Policy>],
) -> Option<(String, &'d DraftRoute<'t>)> {
    let route = &draft.route;
    if route.matching == PathMatching::LOOSE {
        return None;
    }
    spellings(&route.path, PathMatching::LOOSE).into_iter().find_map(|path| {
        let spelled = Route { path, matching: STRICT, ..route.clone() };
        // One that matches only some of these requests is passed over.
        let mut around = index.around(&spelled).into_iter().filter_map(|other| drafts.get(other));
        let other = around.find(|other| covers(&other.route, &spelled))?;
        let is_around = other.route.action == route.action
            && !covers(route, &spelled)
            && missing_policies(route, &other.route, policies).next().is_some();
        is_around.then(|| (route.written_path.clone().unwrap_or_else(|| spelled.path.to_string()), other))
    })
}

/// The names of the policies that limit `route` and not `other`.
fn missing_policies<'p>(
    route: &Route,
    other: &Route,
    policies: &'p [Arc<Policy>],
) -> impl Iterator<Item = &'p str> {
    let missing = route.policies.iter().filter(|policy| !other.policies.contains(policy));
    let missing: Vec<&'p Arc<Policy>> = missing.filter_map(|&policy| policies.get(policy)).collect();
    missing.into_iter().filter(|policy| policy.mode == Mode::Enforce).map(|policy| policy.name.as_str())
}
