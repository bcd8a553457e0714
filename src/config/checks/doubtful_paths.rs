//! Paths that are valid, but match other requests than their author thinks, and redirects that lead to themselves.

use http::StatusCode;

use super::route_coverage::{DraftRoute, covers_path};
use crate::config::{
    model::{PathMatching, PathPattern, PathRegex, PlaceholderText, Route, RouteAction, TextPart},
    reader::Cursor,
};

/// Characters that a URL has only percent-encoded (RFC 3986, 3.3).
const NEVER_IN_PATHS: [char; 9] = ['"', '<', '>', '[', '\\', ']', '^', '`', '|'];

/// Warns about a parameter of another router, and about regular expressions. `path`: as it may be shown.
pub(in crate::config) fn warn(value: Cursor<'_>, path: &str, pattern: &PathPattern) {
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
    if let Some(first) = drafts.first().filter(|_| drafts.iter().all(is_root)) {
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
