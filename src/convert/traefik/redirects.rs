//! `redirectRegex` and `replacePathRegex`: what an expression does to the requests of one route is found by trying it
//! with a text in place of what the client chooses.

use regex::bytes::{Regex, RegexBuilder};

use crate::convert::{
    conditions::{Conditions, Host, Path},
    document::{Fields, Item},
    route_draft::{PathChange, RouteDraft, literal},
    yaml::{Comment, Map},
};

/// Requests, and `redirect` for them.
pub(super) type Redirected = (Conditions, Map);

/// Stands for the rest of a path.
const REST: &str = "zq7x/9kvw";

/// The status of a redirect: 308 or 307, which keep the method.
pub(super) fn status(fields: &Fields<'_>) -> u64 {
    if fields.is_true("permanent") { 308 } else { 307 }
}

fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).unicode(false).size_limit(1 << 20).build().ok()
}

fn replaced(regex: &Regex, text: &str, replacement: &str) -> Option<String> {
    regex.is_match(text.as_bytes()).then(|| {
        let new = regex.replace(text.as_bytes(), replacement.as_bytes());
        String::from_utf8_lossy(&new).into_owned()
    })
}

/// The path of a route with [`REST`] in place of its `*`.
fn sample(path: &Path) -> Option<String> {
    match path {
        Path::Any => Some(format!("/{REST}")),
        Path::Below(top) => Some(format!("{top}/{REST}")),
        Path::Prefix(prefix) if prefix.ends_with('/') => Some(format!("{prefix}{REST}")),
        Path::Exact(path) => Some(path.clone()),
        Path::Prefix(_) | Path::Regex(_) => None,
    }
}

/// A text with `{rest}` in place of [`REST`]. `None` if it has it in the middle.
fn with_rest(text: &str) -> Option<String> {
    match text.split_once(REST) {
        None => Some(literal(text)),
        Some((before, "")) => Some(format!("{}{{rest}}", literal(before))),
        Some(_) => None,
    }
}

/// The requests of a route that `redirectRegex` redirects.
pub(super) fn redirected(
    fields: &Fields<'_>,
    route: &RouteDraft,
    middleware: Item<'_>,
    comments: &mut Vec<Comment>,
) -> Vec<Redirected> {
    let (pattern, replacement) =
        (fields.text("regex").unwrap_or_default(), fields.text("replacement").unwrap_or_default());
    let status = status(fields);
    let found = try_redirect(pattern, replacement, status, &route.conditions);
    if found.is_none() {
        comments.push(middleware.note(format!(
            "`redirectRegex` from {pattern} to {replacement}: write it as a route with `redirect` \
                before this one"
        )));
    }
    found.unwrap_or_default()
}

fn try_redirect(
    pattern: &str,
    replacement: &str,
    status: u64,
    conditions: &Conditions,
) -> Option<Vec<Redirected>> {
    let regex = compile(pattern)?;
    let path = sample(&conditions.path)?;
    let hosts: Vec<String> = match &conditions.hosts {
        Some(hosts) => hosts
            .iter()
            .map(|host| match host {
                Host::Exact(name) => Some(name.clone()),
                Host::Below(_) => None,
            })
            .collect::<Option<_>>()?,
        None => vec!["h4x9.example".to_owned()],
    };
    let mut found: Vec<Redirected> = Vec::new();
    for host in &hosts {
        let try_scheme = |scheme: &str| replaced(&regex, &format!("{scheme}://{host}{path}"), replacement);
        let (plain, secure) = (try_scheme("http"), try_scheme("https"));
        let redirect = match (plain, secure) {
            // Nothing of this route is redirected, unless the expression is about certain paths.
            (None, None) => return None,
            (Some(to), None) if to == format!("https://{host}{path}") => Map::new().with("scheme", "https"),
            (Some(to), Some(other)) if to == other => target(&to, host, &path, conditions.hosts.is_some())?,
            (Some(to), None) | (None, Some(to)) => target(&to, host, &path, conditions.hosts.is_some())?,
            (Some(_), Some(_)) => return None,
        };
        let redirect = redirect.with("status", status);
        let hosts = conditions.hosts.is_some().then(|| [Host::Exact(host.clone())].into());
        match found.iter_mut().find(|(_, other)| *other == redirect) {
            Some((conditions, _)) => {
                if let (Some(all), Some(hosts)) = (&mut conditions.hosts, hosts) {
                    all.extend(hosts);
                }
            }
            None => found.push((Conditions { hosts, ..conditions.clone() }, redirect)),
        }
    }
    Some(found)
}

/// `redirect` to a URL.
fn target(to: &str, host: &str, path: &str, knows_host: bool) -> Option<Map> {
    let (scheme, rest) = to.split_once("://")?;
    if !matches!(scheme, "http" | "https") {
        return None;
    }
    if rest.strip_prefix(host) == Some(path) {
        return Some(Map::new().with("scheme", scheme));
    }
    if !knows_host && rest.contains(host) {
        // The host of the request is a part of the new URL.
        return None;
    }
    let written = with_rest(to)?;
    let mut redirect = Map::new().with("to", written);
    if path.contains(REST) && !to.contains(REST) {
        redirect.set("query", "drop");
    }
    Some(redirect)
}

/// Applies `replacePathRegex`.
pub(super) fn replace_path(
    fields: &Fields<'_>,
    route: &mut RouteDraft,
    middleware: Item<'_>,
    comments: &mut Vec<Comment>,
) {
    let (pattern, replacement) =
        (fields.text("regex").unwrap_or_default(), fields.text("replacement").unwrap_or_default());
    let change = || {
        if route.path != PathChange::Unchanged {
            return None;
        }
        let (regex, path) = (compile(pattern)?, sample(&route.conditions.path)?);
        let new = replaced(&regex, &path, replacement)?;
        match new.split_once(REST) {
            Some((before, "")) => Some(PathChange::Beginning(before.strip_suffix('/')?.to_owned())),
            Some(_) => None,
            None => Some(PathChange::Whole(new)),
        }
    };
    match change() {
        Some(change) => route.path = change,
        None => comments.push(middleware.note(format!(
            "`replacePathRegex` from {pattern} to {replacement}: write a route for these paths, with \
                `rewrite`"
        ))),
    }
}
