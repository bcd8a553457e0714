//! The locations of a server, and how nginx chooses one: the exact one, or the longest prefix, and in it again; unless a
//! prefix has `^~`, the first regular expression that is found wins, those of inner locations before those of outer ones.

use super::{
    NginxReader, rule,
    scope::BlockScope,
    servers::ServerBlock,
    state::{RewriteState, Seen},
    syntax::Directive,
};
use crate::offline::convert::{
    condition::RequestCondition,
    path::encoded,
    site::{Effect, RuleResponse, SiteRule},
    yaml::Map,
};

/// What a location matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Matcher {
    Exact(String),
    /// A beginning of paths, not of segments: `/api` also matches `/apis`.
    Prefix {
        text: String,
        /// `^~`: it wins over regular expressions.
        is_final: bool,
    },
    Regex {
        pattern: String,
        is_insensitive: bool,
    },
    /// `@name`, which only other directives lead to.
    Named(String),
}

/// A location, and those in it.
#[derive(Debug)]
pub(super) struct LocationBlock<'d> {
    pub(super) matcher: Matcher,
    pub(super) directive: &'d Directive,
    pub(super) scope: BlockScope<'d>,
    pub(super) inner: Vec<LocationBlock<'d>>,
}

/// Where rules are made.
#[derive(Clone, Copy)]
pub(super) struct At<'a, 'd> {
    pub(super) server: &'a ServerBlock<'d>,
    /// `None`: in the server itself.
    pub(super) location: Option<&'a LocationBlock<'d>>,
}

impl<'a, 'd> At<'a, 'd> {
    pub(super) fn scope(&self) -> &'a BlockScope<'d> {
        self.location.map_or(&self.server.scope, |location| &location.scope)
    }

    /// The directives of the location, or of the server.
    pub(super) fn directives(&self) -> Vec<&'d Directive> {
        match self.location {
            Some(location) => location.directive.children().iter().collect(),
            None => self.server.directives.clone(),
        }
    }
}

/// The locations among these directives, whose block has this scope.
pub(super) fn locations<'d>(
    directives: impl IntoIterator<Item = &'d Directive>,
    around: &BlockScope<'d>,
) -> Vec<LocationBlock<'d>> {
    let blocks = directives.into_iter().filter(|directive| directive.name == "location");
    let location = |directive: &'d Directive| {
        let scope = around.enter(directive.children());
        let inner = locations(directive.children(), &scope);
        LocationBlock { matcher: matcher(directive), directive, scope, inner }
    };
    blocks.map(location).collect()
}

fn matcher(directive: &Directive) -> Matcher {
    let (kind, path) = match directive.arguments.as_slice() {
        [kind, path, ..] => (kind.as_str(), path.as_str()),
        // `location ~\.php$` and `location =/a` without a space.
        _ => {
            let path = directive.argument(0);
            let mut kinds = ["^~", "~*", "~", "="].into_iter();
            kinds.find_map(|kind| Some((kind, path.strip_prefix(kind)?))).unwrap_or(("", path))
        }
    };
    match kind {
        "=" => Matcher::Exact(path.to_owned()),
        "~" | "~*" => Matcher::Regex { pattern: path.to_owned(), is_insensitive: kind == "~*" },
        _ if path.starts_with('@') => Matcher::Named(path.to_owned()),
        _ => Matcher::Prefix { text: path.to_owned(), is_final: kind == "^~" },
    }
}

impl LocationBlock<'_> {
    /// The path, if it is one or a beginning.
    pub(super) fn path(&self) -> Option<&str> {
        match &self.matcher {
            Matcher::Exact(path) | Matcher::Prefix { text: path, .. } => Some(path),
            Matcher::Regex { .. } | Matcher::Named(_) => None,
        }
    }

    /// Whether no expression wins over it.
    fn is_final(&self) -> bool {
        matches!(self.matcher, Matcher::Prefix { is_final: true, .. })
    }

    /// Where nginx redirects to `/app/`: from `/app`.
    fn without_slash(&self) -> Option<&str> {
        let is_pass = |directive: &Directive| directive.name.ends_with("_pass");
        let has_pass = self.directive.children().iter().any(is_pass);
        self.path().filter(|_| has_pass)?.strip_suffix('/').filter(|path| !path.is_empty())
    }
}

/// Whether a text in this block uses the groups of an expression before.
pub(super) fn uses_groups(directive: &Directive) -> bool {
    let has_group = |text: &String| {
        let mut names = text.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
        names.any(|name| name.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    let is_value = matches!(directive.name.as_str(), "proxy_pass" | "return");
    let is_new = directive.name == "rewrite" && directive.arguments.get(1).is_some_and(has_group);
    is_new
        || is_value && directive.arguments.iter().any(has_group)
        || directive.children().iter().any(uses_groups)
}

/// The locations that have to be tried before expressions: exact ones, those with `^~`, those with others in them, and
/// longer ones in these. The others can come behind, without the expressions.
fn before_regexes<'a, 'd>(
    paths: &[&'a LocationBlock<'d>],
) -> (Vec<&'a LocationBlock<'d>>, Vec<&'a LocationBlock<'d>>) {
    let is_early = |one: &&LocationBlock<'d>| {
        matches!(one.matcher, Matcher::Exact(_)) || one.is_final() || !one.inner.is_empty()
    };
    let around: Vec<&str> = paths
        .iter()
        .filter(|one| is_early(one) && !matches!(one.matcher, Matcher::Exact(_)))
        .filter_map(|one| one.path())
        .collect();
    let is_within = |one: &&LocationBlock<'d>| {
        one.path().is_some_and(|path| around.iter().any(|outer| path.starts_with(outer)))
    };
    paths.iter().copied().partition(|one| is_early(one) || is_within(one))
}

impl<'d> NginxReader<'d> {
    /// The rules of the location that nginx finds.
    pub(super) fn search(&mut self, at: At<'_, 'd>, state: RewriteState<'d>) -> Vec<SiteRule> {
        let at = At { location: None, ..at };
        match state.searching() {
            Some(state) if self.has_budget() => self.search_in(at, &at.server.locations, &[], &state),
            _ => self.given_up(at),
        }
    }

    /// The rule where steps and locations lead to one another without an end in reach.
    pub(super) fn given_up(&self, at: At<'_, 'd>) -> Vec<SiteRule> {
        let text = "its `if`, `rewrite` and locations lead to one another too often".to_owned();
        vec![SiteRule::new(RequestCondition::ALWAYS, Effect::Close(text), &at.server.place, "server")]
    }

    /// Searches the locations of one level. `after`: the regular expressions that are tried if none of these is found.
    fn search_in<'a>(
        &mut self,
        at: At<'a, 'd>,
        level: &'a [LocationBlock<'d>],
        after: &[&'a LocationBlock<'d>],
        state: &RewriteState<'d>,
    ) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        let is_regex = |location: &&LocationBlock<'_>| matches!(location.matcher, Matcher::Regex { .. });
        let regexes: Vec<&'a LocationBlock<'d>> =
            level.iter().filter(is_regex).chain(after.iter().copied()).collect();
        let mut paths: Vec<&'a LocationBlock<'d>> =
            level.iter().filter(|location| location.path().is_some()).collect();
        // The longest first, and the exact ones before all.
        paths.sort_by_key(|location| {
            let is_exact = matches!(location.matcher, Matcher::Exact(_));
            (!is_exact, usize::MAX - location.path().map_or(0, str::len))
        });
        rules.extend(self.slashes(&paths, state));
        let (early, late) = before_regexes(&paths);
        if self.enter_paths(at, &early, (&regexes, after), state, &mut rules) {
            return rules;
        }
        for location in regexes {
            let Matcher::Regex { pattern, is_insensitive } = &location.matcher else { continue };
            let inner = At { location: Some(location), ..at };
            let found = state.found(pattern, *is_insensitive, uses_groups(location.directive));
            let (when, state) = match found {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(why) => (RequestCondition::unknown_place(why), state.clone()),
            };
            let found = self.search_in(inner, &location.inner, &[], &state);
            if when == RequestCondition::ALWAYS {
                rules.extend(found);
                return rules;
            }
            rules.push(rule(location.directive, when, Effect::Enter(found)));
        }
        if !self.enter_paths(at, &late, (&[], &[]), state, &mut rules) {
            rules.extend(self.location(at, state));
        }
        rules
    }

    /// Adds the rules of locations that are paths or beginnings. `regexes`: those that are tried before a beginning, and
    /// `outer`, those of them from around. Returns whether one of the paths takes all requests.
    fn enter_paths<'a>(
        &mut self,
        at: At<'a, 'd>,
        paths: &[&'a LocationBlock<'d>],
        (regexes, outer): (&[&'a LocationBlock<'d>], &[&'a LocationBlock<'d>]),
        state: &RewriteState<'d>,
        rules: &mut Vec<SiteRule>,
    ) -> bool {
        for location in paths {
            let inner = At { location: Some(location), ..at };
            let (when, seen) = match &location.matcher {
                Matcher::Exact(path) => (state.is_path(path), exactly(path, &state.seen)),
                Matcher::Prefix { text, .. } => (state.begins(text), within(text, &state.seen)),
                Matcher::Regex { .. } | Matcher::Named(_) => continue,
            };
            if when == RequestCondition::NEVER {
                continue;
            }
            let state = RewriteState { seen, ..state.clone() };
            let found = match location.matcher {
                Matcher::Exact(_) => self.location(inner, &state),
                _ => {
                    // `^~` stops the expressions of its own level only.
                    let after = if location.is_final() { outer } else { regexes };
                    self.search_in(inner, &location.inner, after, &state)
                }
            };
            if when == RequestCondition::ALWAYS {
                rules.extend(found);
                return true;
            }
            rules.push(rule(location.directive, when, Effect::Enter(found)));
        }
        false
    }

    /// The redirects from `/app` to `/app/`, for locations of one level.
    fn slashes(&self, paths: &[&LocationBlock<'d>], state: &RewriteState<'d>) -> Vec<SiteRule> {
        let mut rules = Vec::new();
        for location in paths {
            let Some(path) = location.without_slash() else { continue };
            let is_taken = paths.iter().any(|other| other.path() == Some(path));
            let when = state.is_path(path);
            if is_taken || when == RequestCondition::NEVER {
                continue;
            }
            if let Some(internal) = location.scope.last("internal").filter(|_| !state.is_internal) {
                rules.push(rule(internal, when, Effect::Refuse(404)));
                continue;
            }
            rules.extend(self.body_limit(&location.scope, &when));
            rules.extend(self.response_edits(&location.scope, Some(301), &when, state));
            let path = encoded(path).replace('{', "{{").replace('}', "}}");
            let redirect = Map::new().with("path", format!("{path}/")).with("status", 301);
            rules.push(rule(location.directive, when, Effect::Act(RuleResponse::Redirect(redirect))));
        }
        rules
    }
}

/// What is known of a path that is this one.
fn exactly(path: &str, seen: &Seen) -> Seen {
    let is_new = match seen {
        Seen::Original(_) => false,
        Seen::Whole { is_new, .. } => *is_new,
        Seen::Replaced { .. } => true,
        Seen::Template(_) => return seen.clone(),
    };
    Seen::Whole { path: path.to_owned(), is_new }
}

/// What is known of a path that begins with this text.
fn within(text: &str, seen: &Seen) -> Seen {
    match seen {
        Seen::Original(known) if known.len() < text.len() => Seen::Original(text.to_owned()),
        _ => seen.clone(),
    }
}
