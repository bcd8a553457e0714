//! Routes that match other requests than their author thinks, that no request reaches, or that lead to themselves.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::{
    config::{
        checks::unserved_listeners::DraftListener,
        reader::{Cursor, MappingCursor},
        routes::{
            action::RouteAction,
            coverage::{DraftIndex, DraftRoute, covers, covers_path, covers_spelling},
            settings::Route,
        },
        value::{
            path_matching::PathMatching,
            path_regex::PathRegex,
            patterns::{HostPattern, PathPattern},
            placeholders::{PlaceholderText, TextPart},
        },
    },
    tls,
};

/// Characters that a URL has only percent-encoded (RFC 3986, 3.3).
const NEVER_IN_PATHS: [char; 9] = ['"', '<', '>', '[', '\\', ']', '^', '`', '|'];

/// Warns about a parameter of another router, and about regular expressions. `path`: as it may be shown.
pub(in crate::config) fn warn_of_doubtful_path(value: Cursor<'_>, path: &str, pattern: &PathPattern) {
    if let PathPattern::Regex(regex) = pattern {
        warn_unanchored(value, path, regex);
        return;
    }
    let foreign = path.split('/').find_map(|segment| Some((segment, foreign_parameter(segment)?)));
    if let Some((segment, _)) = foreign {
        let message = format!("`{segment}` is plain text here: this matches only `{path}` itself");
        value.warn(message, format!("for any value in its place, write {}", with_parameters(path)));
    } else if let Some(character) = path.chars().find(|c| NEVER_IN_PATHS.contains(c)) {
        let message = format!(
            "`{character}` is plain text here, and no valid URL contains it: only behind ~ a path is a regular expression"
        );
        let help = format!("write paths such as /login, /files/* or \"/users/{{id}}/posts\", or '~^{path}'");
        value.warn(message, help);
    }
}

/// Warns about an expression that is found anywhere in a path, and not at its end alone, as that of a file's name is.
fn warn_unanchored(value: Cursor<'_>, path: &str, regex: &PathRegex) {
    if !regex.is_anchored() && !regex.pattern().ends_with('$') {
        let mark = if regex.ignores_case() { "~*" } else { "~" };
        let pattern = path.strip_prefix(mark).unwrap_or(path);
        let message = "this expression matches anywhere in a path, and in the paths of others too".to_owned();
        let slash = if pattern.starts_with('/') { "" } else { "/" };
        value.warn(message, format!("to match from the start, write `path: '{mark}^{slash}{pattern}'`"));
    }
}

/// The name of the parameter that this segment would be in Express, Rails and Kong (`:id`), in Flask (`<id>`, `<int:id>`)
/// or in Next.js (`[id]`).
fn foreign_parameter(segment: &str) -> Option<&str> {
    let enclosed = |open, close| segment.strip_prefix(open)?.strip_suffix(close);
    let name = match segment.strip_prefix(':') {
        Some(name) => name.trim_end_matches('?'),
        None => {
            let typed = enclosed('<', '>').or_else(|| enclosed('[', ']'))?;
            typed.rsplit_once(':').map_or(typed, |(_, name)| name)
        }
    };
    let is_word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_word.then_some(name)
}

/// The path that was meant. A path cannot have both parameters and a `*`.
fn with_parameters(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').collect();
    if segments.last() == Some(&"*") {
        let before = segments.iter().take_while(|segment| foreign_parameter(segment).is_none());
        return format!("{}/*", before.copied().collect::<Vec<_>>().join("/"));
    }
    let named = segments.iter().map(|segment| match foreign_parameter(segment) {
        Some(name) => format!("{{{name}}}"),
        None => (*segment).to_owned(),
    });
    format!("\"{}\"", named.collect::<Vec<_>>().join("/"))
}

/// Warns if no route has another path than `/`. In nginx, this path matches every request.
pub(in crate::config) fn warn_of_root_alone(drafts: &[DraftRoute<'_>]) {
    let is_root =
        |draft: &DraftRoute<'_>| matches!(&draft.route.path, PathPattern::Exact(path) if path == "/");
    let mut of_requests = drafts.iter().filter(|draft| draft.route.domain.is_none());
    if let Some(first) = of_requests.clone().next().filter(|_| of_requests.all(is_root)) {
        let message = "`path: /` matches only the path / itself, so every other request gets 404";
        first.cursor.warn(message, "to match every path, write `path: /*`".to_owned());
    }
}

/// Warns about redirects to paths that the route itself matches again, without end.
pub(in crate::config) fn warn_of_loops(drafts: &[DraftRoute<'_>]) {
    for (index, draft) in drafts.iter().enumerate() {
        let RouteAction::Redirect(redirect) = &draft.route.action else { continue };
        let (None, None, Some(path)) = (redirect.scheme, &redirect.authority, &redirect.path) else {
            continue;
        };
        let example = PathPattern::Exact(example(path));
        let leads_to =
            |route: &Route| covers_path((&route.path, route.matching), (&example, PathMatching::STRICT));
        // Hardly any leads to itself, so that the others are rarely asked.
        let is_loop = redirect.status != StatusCode::SEE_OTHER
            && leads_to(&draft.route)
            && !drafts[..index].iter().any(|earlier| leads_to(&earlier.route));
        if is_loop {
            let help = "redirect to a path of another route, and put that route before this one".to_owned();
            draft.cursor.warn(
                format!("this route redirects to itself without end: it also matches `{}`", redirect.shown()),
                help,
            );
        }
    }
}

/// A path that the redirect may lead to.
fn example(path: &PlaceholderText) -> String {
    let parts = path.parts.iter().map(|part| match part {
        TextPart::Literal(text) => text.as_str(),
        TextPart::Placeholder(_) => "x",
    });
    parts.collect()
}

/// The settings of which a route has exactly one.
const ACTIONS: [&str; 5] = ["upstream", "upstreams", "reply", "redirect", "usage"];

/// Settings that concern an upstream.
const OF_UPSTREAM: [&str; 4] = ["timeouts", "retry", "rewrite", "request_headers"];

/// Reports a second action, and settings without the action that they need.
pub(in crate::config) fn check_actions(mapping: &MappingCursor<'_>) {
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

/// Reports every route that one earlier route covers.
pub(in crate::config) fn report_covered(drafts: &[DraftRoute<'_>], index: &DraftIndex) {
    for (nth, later) in drafts.iter().enumerate() {
        let around = index.around(&later.route).into_iter().take_while(|earlier| *earlier < nth);
        let mut earlier = around.filter_map(|earlier| drafts.get(earlier));
        if let Some(earlier) = earlier.find(|earlier| covers(&earlier.route, &later.route)) {
            let line = earlier.cursor.location().line;
            let mut help = format!(
                "the route in line {line} matches all of its requests first; move this route before it"
            );
            let (one, other) = (&earlier.route.path, &later.route.path);
            if !matches!(one, PathPattern::Regex(_)) && !covers_spelling(one, other) {
                help += ", or let that one compare its path letter by letter: `match: { case: sensitive, \
                    trailing_slash: exact }`";
            }
            later.cursor.report("no request ever reaches this route", help);
        }
    }
}

/// Warns about every route with hosts for which none of its listeners has a certificate. Their clients get the first
/// certificate, and refuse it.
pub(in crate::config) fn warn_of_uncertified(drafts: &[DraftRoute<'_>], listeners: &[DraftListener<'_>]) {
    let of_all = certified(listeners, |_| true);
    for DraftRoute { cursor, route, .. } in drafts.iter().filter(|draft| draft.route.domain.is_none()) {
        let of_route =
            (!route.listeners.is_empty()).then(|| certified(listeners, |listener| listener.may_take(route)));
        let Some(certified) = of_route.as_ref().unwrap_or(&of_all) else { continue };
        let hosts = route.hosts.iter().filter(|host| !is_certified(host, certified));
        let hosts: Vec<String> = hosts.map(|host| format!("`{host}`")).collect();
        if !hosts.is_empty() {
            let message = format!(
                "no certificate is for {}, and plain HTTP is not served: clients will refuse the first certificate, \
                 which they get instead",
                hosts.join(", ")
            );
            cursor.warn(message, "add a certificate with this name to `listeners`".to_owned());
        }
    }
}

/// The names of all certificates of the listeners that `is_meant` accepts. `None`: clients may do without TLS there, or
/// nothing is served.
fn certified(
    listeners: &[DraftListener<'_>],
    is_meant: impl Fn(&DraftListener<'_>) -> bool,
) -> Option<Vec<String>> {
    let serves =
        |listener: &&DraftListener<'_>| is_meant(listener) && !listener.is_redirecting && !listener.decides;
    let names: Option<Vec<&Vec<String>>> =
        listeners.iter().filter(serves).map(|listener| listener.certified.as_ref()).collect();
    names.filter(|names| !names.is_empty()).map(|names| names.into_iter().flatten().cloned().collect())
}

/// Whether a certificate is for this host, or for one of these hosts.
fn is_certified(host: &HostPattern, certified: &[String]) -> bool {
    match host {
        // Certificates name IPv6 addresses without brackets.
        HostPattern::Exact(host) => tls::covers(certified, host.trim_matches(['[', ']'])),
        HostPattern::Suffix(suffix) => certified.iter().any(|name| name.ends_with(suffix.as_str())),
    }
}

/// Warns at `cors` about conditions of the route that browsers do not meet with a preflight.
pub(in crate::config) fn warn_of_preflights(
    cors: Cursor<'_>,
    headers: &[(HeaderName, HeaderValue)],
    cookies: &[(String, String)],
) {
    let is_unsent = |name: &&HeaderName| {
        let name = name.as_str();
        let is_sent =
            ["origin", "host", "user-agent", "accept", "accept-language", "accept-encoding", "referer"]
                .contains(&name)
                || ["sec-", "access-control-request-"].iter().any(|start| name.starts_with(start));
        !is_sent
    };
    let header = headers.iter().map(|(name, _)| name).find(is_unsent).map(ToString::to_string);
    if let Some(unsent) = header.or_else(|| (!cookies.is_empty()).then(|| "cookies".to_owned())) {
        let message = format!(
            "browsers send no {unsent} with a preflight, so preflights for this route take another one, which needs \
             `cors`, too"
        );
        cors.warn(message, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_other_routers() {
        for (path, meant) in [
            ("/users/:id", "\"/users/{id}\""),
            ("/users/:id?/posts", "\"/users/{id}/posts\""),
            ("/users/<int:id>", "\"/users/{id}\""),
            ("/[org]/<repo>", "\"/{org}/{repo}\""),
            ("/users/:id/*", "/users/*"),
        ] {
            assert!(path.split('/').any(|segment| foreign_parameter(segment).is_some()), "{path}");
            assert_eq!(with_parameters(path), meant);
        }
        for path in ["/v1/items:cancel", "/a/:", "/a/b", "/:a-b", "/<>", "/urn:isbn:1"] {
            assert!(!path.split('/').any(|segment| foreign_parameter(segment).is_some()), "{path}");
        }
    }
}
