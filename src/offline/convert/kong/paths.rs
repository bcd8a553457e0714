//! Paths of routes, and the paths that services get (kong/router/utils.lua, `get_upstream_uri_v0`).

use crate::offline::convert::{
    condition::RequestCondition,
    path::{Path, is_open},
    site::PathEdit,
};

/// The group of an expression for what is behind its match.
const REST: &str = "/?(?P<rest>.*)$";

/// A path of a route.
pub(super) struct KongPath {
    pub(super) path: Result<Path, String>,
    pub(super) is_regex: bool,
    /// An expression, as Kong has it.
    pattern: String,
}

impl KongPath {
    /// `None`: every path.
    pub(super) fn new(text: Option<&str>, has_bare_regexes: bool) -> Self {
        let text = text.unwrap_or("/");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
        let bare = || (has_bare_regexes && !text.chars().all(is_plain)).then_some(text);
        let Some(pattern) = text.strip_prefix('~').or_else(bare) else {
            // Kong compares decoded letters, but `%2F` as it is. The dollar is decK's.
            let is_comparable = !text.contains(['%', '$']);
            let path = is_comparable.then(|| Path::prefix(text));
            let path = path.unwrap_or_else(|| Err(format!("`{text}` is not compared")));
            return Self { path, is_regex: false, pattern: text.to_owned() };
        };
        let pattern = pattern.trim_start_matches('^').replace("(?<", "(?P<");
        let pattern = pattern.replace("(?P<=", "(?<=").replace("(?P<!", "(?<!");
        let anchored = if is_open(&pattern) { format!("^(?:{pattern})") } else { format!("^{pattern}") };
        Self { path: Path::regex(&anchored, false), is_regex: true, pattern }
    }

    /// `strips`: what is behind the match of an expression is needed.
    pub(super) fn condition(&self, strips: bool) -> RequestCondition {
        let path = match &self.path {
            Err(why) => {
                return RequestCondition::between(RequestCondition::NEVER, self.beginning(), why.clone());
            }
            Ok(Path::Regex(pattern)) if strips => {
                let path = Path::regex(&format!("{pattern}{REST}"), false);
                path.unwrap_or_else(|_| Path::Regex(pattern.clone()))
            }
            Ok(path) => path.clone(),
        };
        // Kong's routers put `^` before the text of an expression, `^/a|/b`, and one of them anchors it as a whole
        // (kong/router/transform.lua, `path_val_transform`; kong/router/traditional.lua, `match_regex_uri`).
        match Path::regex(&format!("^{}", self.pattern), false) {
            Ok(outer) if self.is_regex && is_open(&self.pattern) => {
                let why =
                    format!("`{}`: Kong's routers read what is behind `|` in different ways", self.pattern);
                RequestCondition::between(RequestCondition::path(path), RequestCondition::path(outer), why)
            }
            _ => RequestCondition::path(path),
        }
    }

    /// What all paths begin with that meet an expression that cannot be read.
    fn beginning(&self) -> RequestCondition {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
        let end = self.pattern.find(|c: char| !is_plain(c)).unwrap_or(self.pattern.len());
        // The last letter may be optional.
        let begin = &self.pattern[..end.saturating_sub(1)];
        let path = if is_open(&self.pattern) { Path::Any } else { Path::prefix(begin).unwrap_or_default() };
        RequestCondition::path(path)
    }
}

/// The path that a service gets: for one path of a route, and for the others.
pub(super) type Edits = (Option<(Path, String)>, Option<PathEdit>);

/// Kong joins the two with exactly one slash, but adds none to what is empty: with `/v1` as the path of the service,
/// `/api` becomes `/v1`, and `/apis` becomes `/v1/s`. `base`: the path of the service.
///
/// # Errors
/// Tollgate cannot join them.
pub(super) fn edits(path: &KongPath, base: &str, strips: bool) -> Result<Edits, String> {
    let bare = base.strip_suffix('/').unwrap_or(base);
    let exact = |path: &str, whole: &str| Some((Path::Exact(path.to_owned()), whole.to_owned()));
    // `/` alone gets the path of the service as it is.
    let root = if base.ends_with('/') { None } else { exact("/", base) };
    let replace = |prefix: &str, by: String| Some(PathEdit::Replace { prefix: prefix.to_owned(), by });
    Ok(match &path.path {
        Ok(found) if !strips || *found == Path::Any => {
            (root, (!bare.is_empty()).then(|| PathEdit::Prepend(bare.to_owned())))
        }
        Ok(_) if path.is_regex && !bare.is_empty() => {
            return Err(format!("`strip_path` with an expression: Tollgate cannot join {bare} and the rest"));
        }
        Ok(Path::Regex(_)) => (None, Some(PathEdit::Template("/{rest}".to_owned()))),
        Ok(Path::Exact(_)) => (None, Some(PathEdit::Whole("/".to_owned()))),
        Ok(Path::Prefix(prefix)) if prefix.ends_with('/') => (None, replace(prefix, format!("{bare}/"))),
        // A slash that is there already is not doubled.
        Ok(Path::Prefix(prefix)) if bare.is_empty() => (None, replace(prefix, String::new())),
        Ok(Path::Prefix(prefix)) => (exact(prefix, bare), replace(prefix, format!("{bare}/"))),
        Ok(Path::Any) | Err(_) => (None, None),
    })
}

/// A path for services, if Tollgate can send it.
pub(super) fn checked(base: String) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._~-".contains(c);
    let has_dots = base.split('/').any(|segment| matches!(segment, "." | ".."));
    match base.starts_with('/') && base.chars().all(is_plain) && !has_dots && !base.contains("//") {
        true => Ok(base),
        false => Err(format!("the path `{base}` cannot be written")),
    }
}
