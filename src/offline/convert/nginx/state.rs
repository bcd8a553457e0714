//! What is known of a request while nginx rewrites it: its path, as far as it is known from the one that the client sent.

use std::collections::BTreeMap;

use super::{patterns, syntax::Directive, variables::VariableCases};
use crate::offline::convert::{
    condition::{Doubt, RequestCondition, Test},
    path::{Path, encoded, is_open, regex_text},
    site::PathEdit,
};

/// How often nginx looks for a location.
const MOST_ROUNDS: u8 = 10;

/// The path of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// As the client sent it. It begins with this text, decoded.
    Original(String),
    /// This path, decoded, which is a new one or the client's.
    Whole { path: String, is_new: bool },
    /// With `by` in place of `prefix`, with which the client's begins. Both are encoded.
    Replaced { prefix: String, by: String },
    /// A text with placeholders.
    Template(String),
}

/// The groups of the last expression that was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Groups {
    /// Of an expression that the route has, by the names that nginx has for them; empty for those without. The first
    /// group begins with this text, which the one of the route lacks.
    Named {
        names: Vec<String>,
        first: String,
    },
    /// The texts, the whole first.
    Texts(Vec<String>),
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) struct RewriteState<'d> {
    pub(super) seen: Seen,
    pub(super) groups: Groups,
    /// Of `set`.
    pub(super) variables: BTreeMap<&'d str, VariableCases>,
    /// The first name of the server, and `ssl_verify_client` there.
    pub(super) server_name: String,
    pub(super) verify: String,
    /// The last `if` that was met: its directives take the place of the location's.
    pub(super) block: Option<&'d Directive>,
    /// The request was sent here by another location.
    pub(super) is_internal: bool,
    /// The path has changed, so that nginx looks for a location anew.
    pub(super) is_moved: bool,
    /// `break` has stopped that, so that `proxy_pass` puts nothing in place of the location's prefix.
    pub(super) is_broken: bool,
    /// The kinds of limits that have counted the request.
    pub(super) counted: Vec<&'d str>,
    pub(super) rounds: u8,
}

impl Seen {
    /// The path with `by` in place of `from`, with which it begins.
    ///
    /// # Errors
    /// It cannot be told what comes out.
    pub(super) fn replaced(&self, from: &str, by: &str) -> Result<Self, String> {
        let (from, by) = (encoded(from), encoded(by));
        match self {
            Self::Replaced { prefix, by: before } => {
                match (before.strip_prefix(&from), from.strip_prefix(before.as_str())) {
                    (Some(rest), _) => {
                        Ok(Self::Replaced { prefix: prefix.clone(), by: format!("{by}{rest}") })
                    }
                    (None, Some(rest)) => Ok(Self::Replaced { prefix: format!("{prefix}{rest}"), by }),
                    _ => Err("two `rewrite` change the path one after the other".to_owned()),
                }
            }
            _ => Ok(Self::Replaced { prefix: from, by }),
        }
    }
}

impl<'d> RewriteState<'d> {
    pub(super) fn new(server_name: &str, verify: &str) -> Self {
        Self {
            seen: Seen::Original(String::new()),
            groups: Groups::Unknown,
            variables: BTreeMap::new(),
            server_name: server_name.to_owned(),
            verify: verify.to_owned(),
            block: None,
            is_internal: false,
            is_moved: false,
            is_broken: false,
            counted: Vec::new(),
            rounds: MOST_ROUNDS,
        }
    }

    /// The state in which a location is searched for. `None`: nginx gives up.
    pub(super) fn searching(self) -> Option<Self> {
        let rounds = self.rounds.checked_sub(1)?;
        Some(Self { rounds, block: None, is_moved: false, ..self })
    }

    /// The condition under which the path is this one.
    pub(super) fn is_path(&self, path: &str) -> RequestCondition {
        let condition = Path::exact(path).map_or(RequestCondition::NEVER, RequestCondition::path);
        self.meets(condition, |seen| Some(seen == path))
    }

    /// The condition under which the path begins with this text.
    pub(super) fn begins(&self, prefix: &str) -> RequestCondition {
        let condition = Path::prefix(prefix).map_or(RequestCondition::NEVER, RequestCondition::path);
        self.meets(condition, |seen| Some(seen.starts_with(prefix)))
    }

    /// The condition under which an expression is found in the path.
    pub(super) fn finds(&self, pattern: &str, is_insensitive: bool) -> RequestCondition {
        self.meets(patterns::path(pattern, is_insensitive), |seen| {
            patterns::compiled(pattern, is_insensitive).map(|regex| regex.is_match(seen.as_bytes()))
        })
    }

    /// A condition on the path as it is now. `is_met`: whether a path that is known meets it.
    fn meets(&self, condition: RequestCondition, is_met: impl Fn(&str) -> Option<bool>) -> RequestCondition {
        let path = match (&self.seen, &condition) {
            (Seen::Whole { path, .. }, _) => return is_met(path).map_or(condition, RequestCondition::from),
            (Seen::Replaced { .. } | Seen::Template(_), RequestCondition::Test(Test::Path(path))) => path,
            _ => return condition,
        };
        let found = match &self.seen {
            Seen::Replaced { prefix, by } => before(prefix, by, path).ok(),
            _ => None,
        };
        match found {
            Some(path) => path.map_or(RequestCondition::NEVER, RequestCondition::path),
            None => RequestCondition::unknown_place("a `rewrite` before changes the path that it compares"),
        }
    }

    /// The change of the path that is left to be made. `None`: there is none.
    pub(super) fn edit(&self) -> Option<PathEdit> {
        match &self.seen {
            Seen::Original(_) | Seen::Whole { is_new: false, .. } => None,
            Seen::Whole { path, .. } => Some(PathEdit::Whole(encoded(path))),
            Seen::Replaced { prefix, by } => {
                Some(PathEdit::Replace { prefix: prefix.clone(), by: by.clone() })
            }
            Seen::Template(text) => Some(PathEdit::Template(text.clone())),
        }
    }

    /// Looks for `pattern` in the path, as `rewrite` does, and puts `new` in its place, which may have `$1` and so on.
    /// Returns the condition under which it is found, and the new state.
    ///
    /// # Errors
    /// Tollgate cannot tell, or cannot make this change.
    pub(super) fn rewritten(
        &self,
        pattern: &str,
        new: &str,
    ) -> Result<Option<(RequestCondition, Self)>, String> {
        let Some((found, state)) = self.found(pattern, false, false)? else { return Ok(None) };
        let with = |seen: Seen| Self { seen, is_internal: true, ..state.clone() };
        if !new.starts_with(['/', '$']) {
            return Err("its new path does not begin with a slash".to_owned());
        }
        let is_plain = !new.contains('$');
        let (by, has_rest) = match new.strip_suffix("${1}") {
            Some(by) if !by.contains('$') => (by, true),
            _ => ("", false),
        };
        let beginning = patterns::beginning(pattern);
        let seen = match (&self.seen, beginning) {
            _ if is_plain => Seen::Whole { path: new.to_owned(), is_new: true },
            (Seen::Whole { .. }, _) => {
                let path = state.path_text(new)?.replace("{{", "{").replace("}}", "}");
                Seen::Whole { path: slashed(&path), is_new: true }
            }
            (seen, Some(found)) if has_rest && found.group.is_some() => {
                let (mut from, mut by) = (found.before, by.to_owned());
                if by.is_empty() && found.group.is_some_and(|group| group.starts_with('/')) {
                    from.push('/');
                    by.push('/');
                }
                seen.replaced(&from, &by)?
            }
            (Seen::Original(_), _) => {
                let text = slashed(&state.path_text(new)?);
                let (named, _) = patterns::with_named_groups(pattern);
                return Ok(Some((
                    RequestCondition::path(Path::regex(&named, false)?),
                    with(Seen::Template(text)),
                )));
            }
            _ => return Err("two `rewrite` change the path one after the other".to_owned()),
        };
        Ok(Some((found, with(seen))))
    }

    /// Looks for `pattern` in the path: the condition under which it is found, and the state with its groups. `None`: it
    /// never is. `needs_groups`: the condition has them.
    pub(super) fn found(
        &self,
        pattern: &str,
        is_insensitive: bool,
        needs_groups: bool,
    ) -> Result<Option<(RequestCondition, Self)>, String> {
        let mut condition = self.finds(pattern, is_insensitive);
        if condition == RequestCondition::NEVER {
            return Ok(None);
        }
        let groups = match &self.seen {
            Seen::Whole { path, .. } => {
                let regex = patterns::compiled(pattern, is_insensitive);
                let captures = regex.as_ref().and_then(|regex| regex.captures(path.as_bytes()));
                let found = captures.ok_or("its expression cannot be used")?;
                let text =
                    |group: regex::bytes::Match<'_>| String::from_utf8_lossy(group.as_bytes()).into_owned();
                Groups::Texts(found.iter().map(|group| group.map(text).unwrap_or_default()).collect())
            }
            Seen::Original(known) => {
                let (mut named, names) = patterns::with_named_groups(pattern);
                let mut first = String::new();
                let beginning =
                    patterns::beginning(pattern).filter(|found| !is_insensitive && !found.is_whole);
                if let Some(found) = beginning.filter(|found| known.starts_with(&found.text())) {
                    condition = RequestCondition::ALWAYS;
                    // What is known to come before the rest of the path is a part of the group.
                    if found.group.is_some() {
                        first = known[found.before.len()..].to_owned();
                        named = format!("^{}(?P<p1>.*)$", regex_syntax::escape(known));
                    }
                }
                if needs_groups && !names.is_empty() {
                    condition = RequestCondition::path(Path::regex(&named, is_insensitive)?);
                }
                Groups::Named { names, first }
            }
            Seen::Replaced { .. } | Seen::Template(_) => Groups::Unknown,
        };
        Ok(Some((condition, Self { groups, ..self.clone() })))
    }
}

/// The paths that are in `path` once `by` is in place of `prefix`.
fn before(prefix: &str, by: &str, path: &Path) -> Result<Option<Path>, ()> {
    let old = |text: &str| text.strip_prefix(by).map(|rest| format!("{prefix}{rest}")).ok_or(());
    let of_prefix =
        |text: String| if text.is_empty() || text == "/" { Path::Any } else { Path::Prefix(text) };
    Ok(match Path::Prefix(by.to_owned()).and(path).map_err(|_| ())? {
        None => None,
        Some(Path::Any) => Some(of_prefix(prefix.to_owned())),
        Some(Path::Exact(text)) => {
            Some(Path::Exact(old(&text)?)).filter(|path| path.written().starts_with(['/', '~']))
        }
        Some(Path::Prefix(text)) => {
            let text = old(&text)?;
            (text.is_empty() || text.starts_with('/')).then(|| of_prefix(text))
        }
        Some(Path::Regex(pattern)) => {
            let begin = format!("^{}", regex_text(by));
            match pattern.strip_prefix(&begin) {
                Some(rest) if !is_open(rest) && !rest.starts_with(['*', '+', '?', '{']) => {
                    Some(Path::Regex(format!("^{}{rest}", regex_text(prefix))))
                }
                _ => return Err(()),
            }
        }
    })
}

fn slashed(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// A condition on hosts, paths or listeners that holds wherever `inner` holds, and only where `outer` does.
pub(super) fn between_places(
    inner: RequestCondition,
    outer: RequestCondition,
    why: &str,
) -> RequestCondition {
    let why = Doubt { text: why.to_owned(), is_of_place: true };
    RequestCondition::Between { inner: Box::new(inner), outer: Box::new(outer), why }
}
