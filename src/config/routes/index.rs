//! Finds the routes that may match a host and a path among many, without looking at the others.

use std::{borrow::Cow, collections::HashMap};

use smallvec::SmallVec;

use crate::config::value::patterns::HostPattern;

/// Routes by their hosts and paths. Each has a number, and they are added in ascending order: of several matches, the
/// lowest number wins.
#[derive(Debug, Default)]
pub struct RouteIndex {
    /// Routes for any host.
    any_host: PathTree,
    /// By host, in lower case.
    hosts: Map<PathTree>,
    /// By `.example.org`.
    suffixes: Map<PathTree>,
}

type Map<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// The paths of a route, by their segments: `/users/{id}` has two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathKey {
    /// `None` is any segment that is not empty.
    pub segments: Vec<Option<String>>,
    /// Whether paths with more segments match, too.
    pub below: bool,
}

impl RouteIndex {
    /// Adds a route.
    pub fn insert(&mut self, route: usize, hosts: &[HostPattern], path: &PathKey) {
        if hosts.is_empty() {
            self.any_host.insert(route, path);
        }
        for host in hosts {
            let (trees, name) = match host {
                HostPattern::Exact(name) => (&mut self.hosts, name),
                HostPattern::Suffix(suffix) => (&mut self.suffixes, suffix),
            };
            trees.entry(name.as_str().into()).or_default().insert(route, path);
        }
    }

    /// Whether some routes have hosts. If not, the host of a request does not matter.
    pub fn has_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.suffixes.is_empty()
    }

    /// The first route at this host and path that `matches` accepts. It is called for few other routes. `path` begins
    /// with a slash.
    pub fn first(
        &self,
        host: Option<&str>,
        path: &str,
        mut matches: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let mut first = usize::MAX;
        self.any_host.search(path, &mut first, &mut matches);
        if let Some(host) = host {
            for tree in self.of_host(&lower_case(host)) {
                tree.search(path, &mut first, &mut matches);
            }
        }
        (first != usize::MAX).then_some(first)
    }

    /// The routes that may match everything that another route matches, at `host`, or at any host for `None`. For each
    /// path, the first `most` routes.
    pub fn around(&self, host: Option<&HostPattern>, path: &PathKey, most: usize) -> Vec<usize> {
        let mut found = Vec::new();
        self.any_host.around(path, most, &mut found);
        if let Some(HostPattern::Exact(host) | HostPattern::Suffix(host)) = host {
            self.of_host(host).for_each(|tree| tree.around(path, most, &mut found));
        }
        found.sort_unstable();
        found
    }

    /// The routes for a host, or for all below a suffix.
    fn of_host<'i>(&'i self, host: &'i str) -> impl Iterator<Item = &'i PathTree> {
        let suffixes = match self.suffixes.is_empty() {
            true => "",
            false => host,
        };
        let suffixes = suffixes.match_indices('.').map(|(at, _)| &host[at..]);
        self.hosts.get(host).into_iter().chain(suffixes.filter_map(|suffix| self.suffixes.get(suffix)))
    }
}

fn lower_case(host: &str) -> Cow<'_, str> {
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

/// Routes by the segments of their paths. The first node is the root.
#[derive(Debug, Default)]
struct PathTree {
    nodes: Vec<IndexNode>,
}

/// The routes whose paths begin alike.
#[derive(Debug)]
struct IndexNode {
    /// The lowest route here and below.
    first: usize,
    /// Routes for exactly this path.
    here: SmallVec<[usize; 2]>,
    /// Routes for this path and all below it.
    below: SmallVec<[usize; 2]>,
    literals: Map<usize>,
    /// Any segment that is not empty.
    parameter: Option<usize>,
}

impl PathTree {
    fn insert(&mut self, route: usize, path: &PathKey) {
        let root = (!self.nodes.is_empty()).then_some(0);
        let mut at = self.node(root, route);
        for segment in &path.segments {
            let known = match segment {
                Some(literal) => self.nodes[at].literals.get(literal.as_str()).copied(),
                None => self.nodes[at].parameter,
            };
            let next = self.node(known, route);
            match segment {
                Some(literal) => {
                    self.nodes[at].literals.insert(literal.as_str().into(), next);
                }
                None => self.nodes[at].parameter = Some(next),
            }
            at = next;
        }
        let node = &mut self.nodes[at];
        match path.below {
            true => node.below.push(route),
            false => node.here.push(route),
        }
    }

    /// The node of this index, or a new one for `route`.
    fn node(&mut self, known: Option<usize>, route: usize) -> usize {
        known.unwrap_or_else(|| {
            self.nodes.push(IndexNode {
                first: route,
                here: SmallVec::new(),
                below: SmallVec::new(),
                literals: Map::default(),
                parameter: None,
            });
            self.nodes.len() - 1
        })
    }

    /// Lowers `first` to the first route that matches, if one before it does.
    fn search(&self, path: &str, first: &mut usize, matches: &mut impl FnMut(usize) -> bool) {
        let Some(root) = self.nodes.first() else { return };
        if root.literals.is_empty() && root.parameter.is_none() {
            // Only routes for any path, as in most new configurations.
            lower(first, &root.below, matches);
            return;
        }
        // Nodes, each with the rest of the path: nothing, or a segment and its followers.
        let mut others: SmallVec<[(usize, Option<&str>); 4]> = SmallVec::new();
        let mut next = Some((0, path.strip_prefix('/')));
        while let Some((at, rest)) = next.or_else(|| others.pop()) {
            next = None;
            let node = &self.nodes[at];
            if node.first >= *first {
                continue;
            }
            lower(first, &node.below, matches);
            let Some(rest) = rest else {
                lower(first, &node.here, matches);
                continue;
            };
            if node.literals.is_empty() && node.parameter.is_none() {
                continue;
            }
            let (segment, rest) = match rest.bytes().position(|byte| byte == b'/') {
                Some(end) => (&rest[..end], Some(&rest[end + 1..])),
                None => (rest, None),
            };
            next = node.literals.get(segment).map(|literal| (*literal, rest));
            if let Some(parameter) = node.parameter.filter(|_| !segment.is_empty()) {
                others.push((parameter, rest));
            }
        }
    }

    /// Adds the routes whose paths may cover `path`.
    fn around(&self, path: &PathKey, most: usize, found: &mut Vec<usize>) {
        if self.nodes.is_empty() {
            return;
        }
        let mut open = vec![(0, path.segments.as_slice())];
        while let Some((at, rest)) = open.pop() {
            let node = &self.nodes[at];
            found.extend(node.below.iter().take(most));
            match rest {
                [] if path.below => {}
                [] => found.extend(node.here.iter().take(most)),
                [segment, rest @ ..] => {
                    let parameter = node.parameter.filter(|_| segment.as_deref() != Some(""));
                    let literal = segment.as_deref().and_then(|literal| node.literals.get(literal)).copied();
                    open.extend(parameter.into_iter().chain(literal).map(|next| (next, rest)));
                }
            }
        }
    }
}

/// Lowers `first` to the first of `routes`, in their order, that matches.
fn lower(first: &mut usize, routes: &[usize], matches: &mut impl FnMut(usize) -> bool) {
    let before = routes.iter().copied().take_while(|route| route < first);
    if let Some(found) = before.into_iter().find(|&route| matches(route)) {
        *first = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> PathKey {
        let (path, below) = match path.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let segments = path.split('/').skip(1);
        let segments = segments.map(|segment| (segment != "{}").then(|| segment.to_owned()));
        PathKey { segments: segments.collect(), below }
    }

    fn index(paths: &[&str]) -> RouteIndex {
        let mut index = RouteIndex::default();
        for (route, path) in paths.iter().enumerate() {
            index.insert(route, &[], &key(path));
        }
        index
    }

    #[test]
    fn few_routes_are_asked_about() {
        let paths: Vec<String> = (0..1_000).map(|route| format!("/{route}/a")).collect();
        let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        paths.extend(["/{}/b", "/{}/a", "/7/*", "/*"]);
        let index = index(&paths);
        let asked = |path: &str| {
            let mut asked = Vec::new();
            index.first(None, path, |route| {
                asked.push(route);
                false
            });
            asked.sort_unstable();
            asked
        };
        assert_eq!(asked("/500/a"), [500, 1_001, 1_003]);
        assert_eq!(asked("/7/b"), [1_000, 1_002, 1_003]);
        assert_eq!(asked("/x/y/z"), [1_003]);
        assert_eq!(asked("//a"), [1_003], "a parameter is not empty");
        assert_eq!(index.first(None, "/500/a", |_| true), Some(500));
        assert_eq!(index.first(None, "/500/a", |route| route != 500), Some(1_001));
    }

    #[test]
    fn hosts_are_looked_up() {
        let mut index = RouteIndex::default();
        for route in 0..1_000 {
            index.insert(route, &[HostPattern::Exact(format!("{route}.example.org"))], &key("/*"));
        }
        index.insert(1_000, &[HostPattern::Suffix(".example.org".to_owned())], &key("/*"));
        let mut asked = Vec::new();
        let found = index.first(Some("X.Example.org"), "/", |route| {
            asked.push(route);
            true
        });
        assert_eq!((found, asked), (Some(1_000), vec![1_000]));
        assert_eq!(index.first(Some("7.example.org"), "/", |_| true), Some(7));
        assert_eq!(index.first(Some("example.org"), "/", |_| true), None);
        assert_eq!(index.first(None, "/", |_| true), None);
        let exact = HostPattern::Exact("9.example.org".to_owned());
        assert_eq!(index.around(Some(&exact), &key("/a"), 9), [9, 1_000]);
    }

    #[test]
    fn routes_around_another_are_found() {
        let index = index(&["/*", "/a/*", "/a/b", "/a/{}", "/{}/b", "/a/b/*", "/b", "/{}/{}"]);
        assert_eq!(index.around(None, &key("/a/b"), 9), [0, 1, 2, 3, 4, 5, 7]);
        assert_eq!(index.around(None, &key("/a/{}"), 9), [0, 1, 3, 7]);
        assert_eq!(index.around(None, &key("/a/*"), 9), [0, 1]);
        assert_eq!(index.around(None, &key("/a/"), 9), [0, 1]);
        let index = self::index(&["/*"; 1_000]);
        assert_eq!(index.around(None, &key("/a"), 3), [0, 1, 2]);
    }
}
