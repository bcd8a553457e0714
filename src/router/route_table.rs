//! The routes in order, and the first of them that matches a request.

use std::collections::HashMap;

use http::{HeaderMap, Method, StatusCode};

use super::{
    Host, Mismatch, Rejection, Target,
    conditions::{CompiledRoute, RequestParts},
    interpretation::dot_segment_readings,
    pattern::{ComparedPath, Pattern},
};
use crate::{
    config::model::RouteIndex,
    config::model::{
        DotSegments, Listener, PathCase, PathMatching, PathRegexSet, Route, TrailingSlash, trim_slash,
    },
};

/// Finds the route of a request. An index of paths and hosts, and a combined search for regular expressions, keep the
/// number of routes tried small.
#[derive(Debug)]
pub struct Router {
    routes: Vec<CompiledRoute>,
    /// The routes without regular expressions, but not those for descriptors.
    index: RouteIndex,
    /// The routes with regular expressions, in order, likewise.
    regexes: Vec<usize>,
    /// The routes for descriptors, in order.
    of_descriptors: Vec<usize>,
    /// Their expressions. `None`: fewer than two, or too large together.
    regex_set: Option<PathRegexSet>,
    /// Whether any route ignores letter case.
    folds_case: bool,
    /// See [`Router::distinct_listeners`].
    distinct_listeners: Vec<usize>,
}

impl Router {
    /// A router for requests of one listener without a name. `routes`: in the order in which they are tried.
    pub fn new(routes: &[Route]) -> Self {
        Self::with_listeners(routes, &[])
    }

    /// A router for the requests of `listeners`.
    pub fn with_listeners(routes: &[Route], listeners: &[Listener]) -> Self {
        let compiled: Vec<_> = routes.iter().map(|route| CompiledRoute::new(route, listeners)).collect();
        let mut router = Self {
            distinct_listeners: distinct_listeners(&compiled, listeners.len()),
            routes: compiled,
            index: RouteIndex::default(),
            regexes: Vec::new(),
            of_descriptors: Vec::new(),
            regex_set: None,
            folds_case: routes.iter().any(|route| route.matching.case == PathCase::Insensitive),
        };
        for (index, route) in router.routes.iter().enumerate() {
            if route.is_of_descriptors() {
                router.of_descriptors.push(index);
                continue;
            }
            match route.path.key(router.folds_case) {
                Some(path) => router.index.insert(index, &route.hosts, &path),
                None => router.regexes.push(index),
            }
        }
        let expressions = router.regexes.iter().filter_map(|&index| router.routes[index].path.regex());
        let expressions: Vec<_> = expressions.collect();
        if expressions.len() > 1 {
            router.regex_set = PathRegexSet::new(&expressions);
        }
        router
    }

    /// The index of the first route whose conditions the request meets.
    ///
    /// # Errors
    /// 404 if there is none. 400 if an origin with another interpretation of the path would expect another route or
    /// none, or if the route refuses dot segments.
    pub fn find_on(&self, request: &RequestParts<'_>) -> Result<usize, Rejection> {
        let target = request.target;
        let path = self.compared(target.literal_path(), target.has_upper_case);
        let found = self.first(request, &path, 1)?.ok_or(Rejection::not_found("No route matches."))?;
        let ambiguities = target.ambiguities.without(self.routes[found].path.intended_ambiguities);
        let readings = 1 + ambiguities.subsets().count();
        for interpretation in ambiguities.subsets() {
            let path = interpretation.interpret(target.path())?;
            if self.first(request, &self.compared(&path, true), readings)? != Some(found) {
                return Err(AMBIGUOUS);
            }
        }
        if let Some(path) = target.unresolved_path() {
            self.check_dot_segments(request, found, path)?;
        }
        Ok(found)
    }

    /// Checks a request without a route, which another proxy may forward all the same: no origin with another interpretation of
    /// its path may expect one.
    ///
    /// # Errors
    /// 400 if one may.
    pub fn check_unrouted(&self, request: &RequestParts<'_>) -> Result<(), Rejection> {
        let ambiguities = request.target.ambiguities;
        let readings = 1 + ambiguities.subsets().count();
        for interpretation in ambiguities.subsets() {
            let path = interpretation.interpret(request.target.path())?;
            if self.first(request, &self.compared(&path, true), readings)?.is_some() {
                return Err(AMBIGUOUS);
            }
        }
        if let Some(path) = request.target.unresolved_path() {
            let paths = dot_segment_readings(path)?;
            for path in &paths {
                if self.first(request, &self.compared(path, true), paths.len())?.is_some() {
                    return Err(AMBIGUOUS);
                }
            }
        }
        Ok(())
    }

    /// [`Router::find_on`] for a request on the first listener.
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, method: &Method, target: &Target, headers: &HeaderMap) -> Result<usize, Rejection> {
        self.find_on(&RequestParts {
            method,
            target,
            headers,
            listener: 0,
            is_question: false,
            descriptor: None,
        })
    }

    /// One listener, by its index, of each group whose requests take the same routes. It is the first listener alone,
    /// unless routes have `listeners`.
    pub fn distinct_listeners(&self) -> &[usize] {
        &self.distinct_listeners
    }

    /// Checks that `path`, with its dot segments, has the same route as without them.
    #[cold]
    fn check_dot_segments(
        &self,
        request: &RequestParts<'_>,
        found: usize,
        path: &str,
    ) -> Result<(), Rejection> {
        match self.routes[found].dot_segments {
            DotSegments::Normalize if !request.is_question => Ok(()),
            DotSegments::Refuse => Err(Rejection::bad_request("The path has dot segments (. or ..).")),
            DotSegments::Normalize | DotSegments::Pass => {
                let readings = dot_segment_readings(path)?;
                for path in &readings {
                    if self.first(request, &self.compared(path, true), readings.len())? != Some(found) {
                        return Err(AMBIGUOUS);
                    }
                }
                Ok(())
            }
        }
    }

    /// The first route that matches the request by its literal path, and the reasons why previous routes do not match:
    /// the decision of [`Router::find_on`], explained.
    pub fn explain(&self, request: &RequestParts<'_>) -> RouteExplanation {
        let path = self.compared(request.target.literal_path(), true);
        let matched = self.first(request, &path, 1).ok().flatten();
        let before = self.routes.iter().enumerate().take(matched.unwrap_or(self.routes.len()));
        let mut passed_over: Vec<(usize, Mismatch)> =
            before.filter_map(|(index, route)| Some((index, route.mismatch(request, &path)?))).collect();
        let all = passed_over.len();
        if all > MAX_PASSED_OVER {
            // Routes for other paths need no explanation.
            passed_over.retain(|(_, mismatch)| *mismatch != Mismatch::Path);
            passed_over.truncate(MAX_PASSED_OVER);
        }
        RouteExplanation { matched, others: all - passed_over.len(), passed_over }
    }

    /// The path pattern of this route.
    pub(super) fn pattern(&self, route: usize) -> Option<&Pattern> {
        self.routes.get(route).map(|route| &route.path)
    }

    /// The prefix that this route strips.
    pub(super) fn stripped_prefix(&self, route: usize) -> Option<&Pattern> {
        self.routes.get(route)?.strip.as_ref()
    }

    /// The path in the form that routes compare. `may_change`: whether it may contain upper-case letters.
    fn compared<'p>(&self, literal: &'p str, may_change: bool) -> ComparedPath<'p> {
        match self.folds_case && may_change {
            true => ComparedPath::new(literal),
            false => ComparedPath { literal, folded: literal.into() },
        }
    }

    /// The first route that matches a request with this `path`, one of `readings` interpretations.
    ///
    /// # Errors
    /// All readings together are too long for regular expressions.
    fn first(
        &self,
        request: &RequestParts<'_>,
        path: &ComparedPath<'_>,
        readings: usize,
    ) -> Result<Option<usize>, Rejection> {
        let matches = |index: usize| self.routes[index].matches(request, path);
        if request.descriptor.is_some() {
            return Ok(self.of_descriptors.iter().copied().find(|index| matches(*index)));
        }
        let host = if self.index.has_hosts() { request.target.host().map(Host::name) } else { None };
        let first = self.index.first(host, trim_slash(&path.folded), matches);
        if self.regexes.first().is_none_or(|regex| first.is_some_and(|first| first < *regex)) {
            return Ok(first);
        }
        if path.literal.len() * readings > MAX_SEARCHED_PATH {
            return Err(TOO_LONG);
        }
        Ok(self.first_regex(first, path.literal, matches).or(first))
    }

    /// The first matching route with a regular expression, if it precedes `end`.
    fn first_regex(&self, end: Option<usize>, path: &str, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let is_before = |index: &usize| end.is_none_or(|end| *index < end);
        match &self.regex_set {
            None => self.regexes.iter().copied().take_while(is_before).find(|&index| matches(index)),
            Some(set) => {
                let candidates =
                    set.candidates(path).into_iter().filter_map(|nth| self.regexes.get(nth).copied());
                candidates.take_while(is_before).find(|&index| matches(index))
            }
        }
    }
}

/// See [`Router::distinct_listeners`]. `count`: the number of listeners.
fn distinct_listeners(routes: &[CompiledRoute], count: usize) -> Vec<usize> {
    let mut routes_of: Vec<Vec<usize>> = vec![Vec::new(); count.max(1)];
    for (index, route) in routes.iter().enumerate() {
        let listeners = route.rare.as_ref().and_then(|rare| rare.listeners.as_ref());
        for &listener in listeners.into_iter().flatten() {
            routes_of[listener].push(index);
        }
    }
    let mut firsts: HashMap<Vec<usize>, usize> = HashMap::new();
    for (listener, routes) in routes_of.into_iter().enumerate() {
        firsts.entry(routes).or_insert(listener);
    }
    let mut distinct: Vec<_> = firsts.into_values().collect();
    distinct.sort_unstable();
    distinct
}

const AMBIGUOUS: Rejection =
    Rejection::bad_request("The path is ambiguous: read in another way, it matches another route.");

/// The most bytes, over all readings of a path, that are searched for regular expressions: the time is proportional to
/// them.
const MAX_SEARCHED_PATH: usize = 4096;

const TOO_LONG: Rejection = Rejection {
    status: StatusCode::URI_TOO_LONG,
    detail: "The path is too long for the regular expressions of the routes that it may match.",
};

/// The most routes that an explanation lists as not matching.
const MAX_PASSED_OVER: usize = 20;

/// The route of a request, and why others do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteExplanation {
    /// The first route that matches.
    pub matched: Option<usize>,
    /// Previous routes, and why each does not match: all of them, or the first with matching paths if there are many.
    pub passed_over: Vec<(usize, Mismatch)>,
    /// The number of others that do not match.
    pub others: usize,
}

/// The differences between a request's path and its route's path that the route ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoredDifferences {
    pub case: bool,
    pub trailing_slash: bool,
}

impl IgnoredDifferences {
    /// For `target`, whose path `route` matches.
    pub fn new(route: &Route, target: &Target) -> Self {
        let path = ComparedPath::new(target.literal_path());
        let is_needed = |strict| !Pattern::new(&route.path, strict).matches(&path);
        let PathMatching { case, trailing_slash } = route.matching;
        Self {
            case: is_needed(PathMatching { case: PathCase::Sensitive, trailing_slash }),
            trailing_slash: is_needed(PathMatching { case, trailing_slash: TrailingSlash::Exact }),
        }
    }
}

#[cfg(test)]
mod tests;
