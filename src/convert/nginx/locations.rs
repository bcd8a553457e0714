//! The order in which nginx tries the locations of a server, as the order of routes.
//!
//! nginx takes the exact location, or finds the longest prefix; unless that has `^~`, the first regular expression that
//! matches wins over it. Tollgate tries routes in order. So the routes are: exact paths, prefixes with `^~`, regular
//! expressions, other prefixes, each of them the longest first.

use super::{
    syntax::Directive,
    values::{escaped, expression},
};

/// What a location matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Matcher {
    Exact(String),
    /// A beginning of paths, not of segments: `/api` also matches `/apis`.
    Prefix(String),
    Regex {
        pattern: String,
        is_insensitive: bool,
    },
}

/// A location, and the blocks around it.
#[derive(Debug, Clone)]
pub(super) struct Location<'d> {
    pub(super) matcher: Matcher,
    pub(super) directive: &'d Directive,
    /// The locations around this one, the outermost first.
    pub(super) outer: Vec<&'d Directive>,
    /// The order of nginx is not exactly that of the routes, and why.
    pub(super) doubt: Option<String>,
    is_stop: bool,
}

/// The locations in the order of routes, and named ones (`@name`), which only other directives lead to.
#[derive(Debug, Default)]
pub(super) struct Ordered<'d> {
    pub(super) locations: Vec<Location<'d>>,
    pub(super) named: Vec<&'d Directive>,
}

/// Orders the locations among `directives`, and those nested in them.
pub(super) fn ordered<'d>(directives: impl IntoIterator<Item = &'d Directive>) -> Ordered<'d> {
    let mut ordered = Ordered::default();
    collect(directives, &[], false, &mut ordered);
    let regex = |location: &Location<'_>| matches!(location.matcher, Matcher::Regex { .. });
    let stops: Vec<String> = ordered.locations.iter().filter(|l| l.is_stop).filter_map(prefix_of).collect();
    let has_regex = ordered.locations.iter().any(|location| regex(location) && location.outer.is_empty());
    for location in &mut ordered.locations {
        let Some(prefix) = prefix_of(location) else { continue };
        let outer = stops.iter().find(|stop| prefix.len() > stop.len() && prefix.starts_with(stop.as_str()));
        if let Some(outer) = outer.filter(|_| has_regex && !location.is_stop) {
            location.doubt = Some(format!(
                "in nginx, regular expressions win over this location, but not over `^~ {outer}` around it. Tollgate \
                 tries it before them"
            ));
            location.is_stop = true;
        }
    }
    let with_outer = |location: &Location<'d>| Some((prefix_of(location)?, location.outer.clone()));
    let prefixes: Vec<_> = ordered.locations.iter().filter_map(with_outer).collect();
    for location in ordered.locations.iter_mut().filter(|location| regex(location)) {
        let Some(around) = location.outer.last().copied() else { continue };
        let Some(outer) = around.arguments.last() else { continue };
        // In the same location, the expression wins over longer prefixes.
        let is_elsewhere = |(_, others): &&(String, Vec<&Directive>)| {
            !others.iter().any(|other| std::ptr::eq(*other, around))
        };
        let longer =
            prefixes.iter().filter(|(prefix, _)| prefix.len() > outer.len() && prefix.starts_with(outer));
        let inner = longer.into_iter().find(is_elsewhere).map(|(prefix, _)| prefix);
        if let Some(inner) = inner {
            location.doubt.get_or_insert(format!(
                "in nginx, `location {inner}` wins over it; Tollgate tries the expression first, also for paths below \
                 {inner}: check `allow`, `deny` and limits of these"
            ));
        }
    }
    ordered.locations.sort_by_key(|location| {
        let length = match &location.matcher {
            Matcher::Exact(path) | Matcher::Prefix(path) => path.len(),
            Matcher::Regex { .. } => 0,
        };
        let depth = location.outer.len();
        match (&location.matcher, location.is_stop) {
            (Matcher::Exact(_), _) => (0, 0, 0),
            // Expressions in a location with `^~` come before its prefix.
            (Matcher::Prefix(_), true) => (1, usize::MAX - length, 1),
            (Matcher::Regex { .. }, true) => (1, usize::MAX - outer_length(location), 0),
            // Those of inner locations come before those of outer ones.
            (Matcher::Regex { .. }, false) => (2, usize::MAX - depth, usize::MAX - outer_length(location)),
            (Matcher::Prefix(_), false) => (3, usize::MAX - length, 0),
        }
    });
    ordered
}

fn prefix_of(location: &Location<'_>) -> Option<String> {
    match &location.matcher {
        Matcher::Prefix(path) => Some(path.clone()),
        _ => None,
    }
}

/// The length of the innermost prefix around a location.
fn outer_length(location: &Location<'_>) -> usize {
    location.outer.last().map_or(0, |outer| outer.arguments.last().map_or(0, String::len))
}

/// `is_stop`: a location around has `^~`.
fn collect<'d>(
    directives: impl IntoIterator<Item = &'d Directive>,
    outer: &[&'d Directive],
    is_stop: bool,
    ordered: &mut Ordered<'d>,
) {
    for directive in directives.into_iter().filter(|directive| directive.name == "location") {
        let (kind, path) = match directive.arguments.as_slice() {
            [kind, path] => (kind.as_str(), path.as_str()),
            // `location ~\.php$` and `location =/a` without a space.
            [path] => ["^~", "~*", "~", "="]
                .into_iter()
                .find_map(|kind| Some((kind, path.strip_prefix(kind)?)))
                .unwrap_or(("", path.as_str())),
            _ => continue,
        };
        if path.starts_with('@') && kind.is_empty() {
            ordered.named.push(directive);
            continue;
        }
        let matcher = match kind {
            "=" => Matcher::Exact(path.to_owned()),
            "~" | "~*" => Matcher::Regex { pattern: path.to_owned(), is_insensitive: kind == "~*" },
            _ => Matcher::Prefix(path.to_owned()),
        };
        let stops = is_stop || kind == "^~";
        let mut location =
            Location { matcher, directive, outer: outer.to_vec(), doubt: None, is_stop: stops };
        if kind == "^~" && !outer.is_empty() && !is_stop {
            location.doubt = Some(
                "in nginx, regular expressions outside of the location around win over this one; not in Tollgate"
                    .to_owned(),
            );
        }
        ordered.locations.push(location);
        let outer: Vec<_> = outer.iter().copied().chain([directive]).collect();
        collect(directive.children(), &outer, stops, ordered);
    }
}

impl Location<'_> {
    /// The path of a route for this location.
    ///
    /// # Errors
    /// Why Tollgate has none.
    pub(super) fn path(&self) -> Result<String, String> {
        match &self.matcher {
            Matcher::Exact(path) => Ok(exact_path(path)),
            Matcher::Prefix(path) => Ok(prefix_path(path)),
            Matcher::Regex { .. } => {
                let (pattern, is_insensitive) = self.pattern()?;
                expression(&pattern, is_insensitive)
            }
        }
    }

    /// The regular expression of this location, within the prefix of the location around it, and whether it matches in
    /// any case. `None` for other locations.
    pub(super) fn pattern(&self) -> Result<(String, bool), String> {
        let Matcher::Regex { pattern, is_insensitive } = &self.matcher else {
            return Err("it is not a regular expression".to_owned());
        };
        let Some(outer) = self.outer.last().and_then(|outer| outer.arguments.last()) else {
            return Ok((pattern.clone(), *is_insensitive));
        };
        if self.outer.last().is_some_and(|outer| outer.argument(0).starts_with('~')) {
            return Err("it is in a location that is a regular expression itself".to_owned());
        }
        Ok((within(outer, pattern, *is_insensitive)?, false))
    }
}

/// An expression that matches what `pattern` matches, of the paths that begin with `prefix`.
pub(super) fn within(prefix: &str, pattern: &str, is_insensitive: bool) -> Result<String, String> {
    let inner = if is_insensitive { format!("(?i:{pattern})") } else { pattern.to_owned() };
    let begin = escaped(prefix);
    match pattern.strip_prefix('^') {
        _ if prefix == "/" => Ok(inner),
        Some(rest) if !is_insensitive && (rest.starts_with(&begin) || rest.starts_with(prefix)) => Ok(inner),
        Some(_) => Err(format!("it begins with `^`, but not with the location around it, `{prefix}`")),
        // The expression may take the last slash of the prefix.
        None => match begin.strip_suffix('/') {
            Some(segments) if pattern.starts_with('/') => Ok(format!("^{segments}(?:/.*)?{inner}")),
            _ => Ok(format!("^{begin}.*{inner}")),
        },
    }
}

/// The path of a route for exactly this path.
pub(super) fn exact_path(path: &str) -> String {
    match path.contains(['{', '}', '*']) {
        true => format!("~^{}$", escaped(path)),
        false => super::encoded(path),
    }
}

/// The path of a route for all paths that begin so.
pub(super) fn prefix_path(path: &str) -> String {
    match path.ends_with('/') && !path.contains(['{', '}', '*']) {
        true => format!("{}*", super::encoded(path)),
        false => format!("~^{}", escaped(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::syntax, *};

    fn paths(text: &str) -> Vec<String> {
        let parsed = syntax::parse(text, Path::new("nginx.conf")).unwrap();
        let ordered = ordered(&parsed.directives);
        ordered.locations.iter().map(|location| location.path().unwrap_or_else(|error| error)).collect()
    }

    #[test]
    fn the_order_is_nginx_s() {
        let found = paths(
            "location / {} location /a/ { location /a/b/ {} location ~ \\.x$ {} } location ~ /two {} location ~* one {}
             location = /e {} location ^~ /static/ {} location /long/er/ {} location /api {}",
        );
        let expected = [
            "/e",
            "/static/*",
            r"~^/a/.*\.x$",
            "~/two",
            "~*one",
            "/long/er/*",
            "/a/b/*",
            "~^/api",
            "/a/*",
            "/*",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn expressions_stay_within_the_location_around() {
        assert_eq!(within("/a/", r"\.php$", false).as_deref(), Ok(r"^/a/.*\.php$"));
        assert_eq!(within("/a/", r"/\.ht", false).as_deref(), Ok(r"^/a(?:/.*)?/\.ht"));
        assert_eq!(within("/a/", r"^/a/b", false).as_deref(), Ok("^/a/b"));
        assert_eq!(within("/", "^/b", false).as_deref(), Ok("^/b"));
        assert_eq!(within("/a", "x", true).as_deref(), Ok("^/a.*(?i:x)"));
        assert!(within("/a/", "^/b", false).is_err());
    }
}
