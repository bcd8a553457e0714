//! Which requests a route is for, as sets: they can be intersected and compared.
//!
//! Other proxies choose a route by a rule with `&&`, `||` and `!`, or by the number and the length of its conditions.
//! Here, each route has conditions that must all be met, and the first match wins. [`ordered`] brings the former into
//! the form of the latter.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::yaml::{Map, Node};
use crate::config::model::{PathMatching, PathRegex};

/// The most routes that one configuration becomes.
const MAX_ROUTES: usize = 5_000;

/// What a request must have. Paths are compared letter by letter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// `None`: every host.
    pub(super) hosts: Option<BTreeSet<Host>>,
    pub(super) path: Path,
    /// `None`: every method.
    pub(super) methods: Option<BTreeSet<String>>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) query: BTreeMap<String, String>,
    /// Networks of clients. Others get 403, so this does not lead to another route. `None`: all clients.
    pub(super) clients: Option<Vec<IpNet>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    Exact(String),
    /// Every name below this one.
    Below(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Path {
    #[default]
    Any,
    Exact(String),
    /// Every path that begins with this text: `/api` is also the beginning of `/apis`.
    Prefix(String),
    /// A path and what is below it: `/api`, `/api/` and `/api/users`, but not `/apis`.
    Below(String),
    /// Every path that contains a match.
    Regex(String),
}

/// Two conditions whose intersection a route cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inexpressible;

impl Host {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(suffix), Self::Exact(name) | Self::Below(name)) => {
                name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.')) || (self == other)
            }
            (Self::Exact(_), _) => self == other,
        }
    }
}

impl Path {
    /// The path as `path` of a route has it, and whether the route needs `match: { trailing_slash: either }`.
    pub(super) fn written(&self) -> (String, bool) {
        match self {
            Self::Any => ("/*".to_owned(), false),
            Self::Exact(path) => (path.clone(), false),
            Self::Prefix(prefix) => match prefix.strip_suffix('/') {
                Some(_) => (format!("{prefix}*"), false),
                None => (format!("~^{}", regex_syntax::escape(prefix)), false),
            },
            Self::Below(path) => (format!("{path}/*"), true),
            Self::Regex(pattern) => (format!("~{pattern}"), false),
        }
    }

    /// Whether a route can have this path. The error says why not.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Any => Ok(()),
            Self::Exact(path) | Self::Prefix(path) | Self::Below(path) => {
                let is_plain = |c: char| c.is_ascii_graphic() && !"{}*?#".contains(c);
                match path.starts_with('/') && path.chars().all(is_plain) {
                    true => Ok(()),
                    false => Err(format!("`{path}` is no path that a route can have")),
                }
            }
            Self::Regex(pattern) => match PathRegex::new(pattern, false) {
                _ if !pattern.chars().all(|c| c.is_ascii_graphic()) => {
                    Err(format!("`{pattern}` has characters that a path has only percent-encoded"))
                }
                Ok(regex) if regex.can_match() && !pattern.contains("\\?") => Ok(()),
                Ok(_) => Err(format!("`{pattern}` matches no path")),
                Err(_) => Err(format!("`{pattern}` is a regular expression that Tollgate does not read")),
            },
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Prefix(prefix), Self::Exact(path) | Self::Prefix(path) | Self::Below(path)) => {
                path.starts_with(prefix.as_str())
            }
            (Self::Prefix(prefix), Self::Regex(pattern)) => {
                regex(pattern).is_some_and(|regex| regex.is_anchored() && regex.start().starts_with(prefix))
            }
            (Self::Below(top), Self::Exact(path) | Self::Below(path)) => is_below(path, top),
            (Self::Below(top), Self::Prefix(path)) => path != top && is_below(path, top),
            (Self::Regex(pattern), Self::Exact(path)) => {
                regex(pattern).is_some_and(|regex| regex.matches(path, PathMatching::STRICT))
            }
            // A prefix may be written as the same expression.
            (one, other) => one == other || one.written() == other.written(),
        }
    }

    /// The paths that both have; `None` if there are none.
    fn and(&self, other: &Self) -> Result<Option<Self>, Inexpressible> {
        if self.covers(other) {
            return Ok(Some(other.clone()));
        }
        if other.covers(self) {
            return Ok(Some(self.clone()));
        }
        match (self, other) {
            (Self::Regex(pattern), prefix @ (Self::Prefix(text) | Self::Below(text)))
            | (prefix @ (Self::Prefix(text) | Self::Below(text)), Self::Regex(pattern)) => {
                let regex = regex(pattern).ok_or(Inexpressible)?;
                let (start, is_prefix) = (regex.start(), matches!(prefix, Self::Prefix(_)));
                let differs = regex.is_anchored() && !start.starts_with(text) && !text.starts_with(start);
                let is_within = regex.is_anchored() && start.len() > text.len() && is_below(start, text);
                match (differs, is_within && !is_prefix) {
                    (true, _) => Ok(None),
                    (_, true) => Ok(Some(Self::Regex(pattern.clone()))),
                    _ => Err(Inexpressible),
                }
            }
            (Self::Regex(one), Self::Regex(other)) => {
                let (Some(one), Some(other)) = (regex(one), regex(other)) else { return Err(Inexpressible) };
                let (a, b) = (one.start(), other.start());
                let differ = one.is_anchored() && other.is_anchored();
                if differ && !a.starts_with(b) && !b.starts_with(a) { Ok(None) } else { Err(Inexpressible) }
            }
            _ => Ok(None),
        }
    }
}

fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn regex(pattern: &str) -> Option<PathRegex> {
    PathRegex::new(pattern, false).ok()
}

impl Conditions {
    /// The requests that meet both; `None` if there are none.
    ///
    /// # Errors
    /// There are such requests, but a route cannot select them.
    pub(super) fn and(&self, other: &Self) -> Result<Option<Self>, Inexpressible> {
        let hosts = match (&self.hosts, &other.hosts) {
            (None, hosts) | (hosts, None) => hosts.clone(),
            (Some(some), Some(others)) => {
                let narrower =
                    |host: &Host, others: &BTreeSet<Host>| others.iter().any(|other| other.covers(host));
                let both = some.iter().filter(|host| narrower(host, others));
                let both: BTreeSet<_> =
                    both.chain(others.iter().filter(|host| narrower(host, some))).cloned().collect();
                if both.is_empty() {
                    return Ok(None);
                }
                Some(both)
            }
        };
        let methods = match (&self.methods, &other.methods) {
            (None, methods) | (methods, None) => methods.clone(),
            (Some(some), Some(others)) => {
                let both: BTreeSet<_> = some.intersection(others).cloned().collect();
                if both.is_empty() {
                    return Ok(None);
                }
                Some(both)
            }
        };
        let Some(path) = self.path.and(&other.path)? else { return Ok(None) };
        let clients = match (&self.clients, &other.clients) {
            (None, clients) | (clients, None) => clients.clone(),
            (Some(some), Some(others)) if some == others => Some(some.clone()),
            (Some(_), Some(_)) => return Err(Inexpressible),
        };
        let headers = joined(&self.headers, &other.headers)?;
        let query = joined(&self.query, &other.query)?;
        Ok(Some(Self { hosts, path, methods, headers, query, clients }))
    }

    /// Whether every request of `other` is one of these.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers_hosts = match (&self.hosts, &other.hosts) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(some), Some(others)) => {
                others.iter().all(|other| some.iter().any(|host| host.covers(other)))
            }
        };
        let covers_methods = match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(some), Some(others)) => others.is_subset(some),
        };
        covers_hosts
            && covers_methods
            && self.path.covers(&other.path)
            && self.headers.iter().all(|(name, value)| other.headers.get(name) == Some(value))
            && self.query.iter().all(|(name, value)| other.query.get(name) == Some(value))
    }

    /// Takes `/api/*` in place of every path that begins with `/api`: where paths are changed, only whole segments are.
    pub(super) fn loosen(&mut self) {
        if let Path::Prefix(prefix) = &self.path
            && !prefix.ends_with('/')
        {
            self.path = Path::Below(prefix.clone());
        }
    }

    /// One route for both, if they differ only in their hosts, or only in their methods.
    fn merged(&self, other: &Self) -> Option<Self> {
        let same_hosts = self.hosts == other.hosts;
        let same_methods = self.methods == other.methods;
        let rest = self.path == other.path
            && self.headers == other.headers
            && self.query == other.query
            && self.clients == other.clients;
        let mut merged = self.clone();
        match (&mut merged.hosts, &other.hosts, &mut merged.methods, &other.methods) {
            (Some(hosts), Some(others), _, _) if rest && same_methods => hosts.extend(others.iter().cloned()),
            (_, _, Some(methods), Some(others)) if rest && same_hosts => {
                methods.extend(others.iter().cloned());
            }
            _ => return None,
        }
        Some(merged)
    }

    /// These as a route has them.
    fn written(&self) -> Map {
        let mut map = Map::new();
        self.write(&mut map);
        map
    }

    /// Sets the conditions of a route.
    pub(super) fn write(&self, route: &mut Map) {
        if let Some(hosts) = &self.hosts {
            let written = hosts.iter().map(|host| match host {
                Host::Exact(name) => name.clone(),
                Host::Below(name) => format!("*.{name}"),
            });
            route.set("hosts", written.collect::<Vec<_>>());
        }
        let (path, either_slash) = self.path.written();
        route.set("path", path);
        if let Some(methods) = &self.methods {
            route.set("methods", methods.iter().cloned().collect::<Vec<_>>());
        }
        for (key, conditions) in [("headers", &self.headers), ("query", &self.query)] {
            if !conditions.is_empty() {
                let map =
                    conditions.iter().fold(Map::new(), |map, (name, value)| map.with(name, value.as_str()));
                route.set(key, map);
            }
        }
        if either_slash {
            route.set("match", Map::new().with("trailing_slash", "either"));
        }
        if let Some(clients) = &self.clients {
            route.set(
                "allow",
                clients.iter().map(|network| Node::from(network.to_string())).collect::<Vec<_>>(),
            );
        }
    }
}

fn joined(
    some: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Inexpressible> {
    let mut all = some.clone();
    for (name, value) in others {
        // A request may have both values, in two lines of one name.
        if all.insert(name.clone(), value.clone()).is_some_and(|other| other != *value) {
            return Err(Inexpressible);
        }
    }
    Ok(all)
}

/// Requests that meet `yes`, and none of `no`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) yes: Conditions,
    pub(super) no: Vec<Conditions>,
}

/// A route of an ordered list. `None` is a request that no rule is for: it gets 404.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OrderedRoute {
    pub(super) conditions: Conditions,
    pub(super) target: Option<usize>,
}

/// Terms with their targets, of which the first that matches is taken, as routes without negations: a request that a
/// negation excludes is led to the routes of the terms behind it, which are inserted before. Routes that no request can
/// reach are left out. Also returns the targets of terms that could not be expressed.
pub(super) fn ordered(terms: &[(Term, usize)]) -> (Vec<OrderedRoute>, BTreeSet<usize>) {
    let mut lowering = Lowering { terms, routes: Vec::new(), lost: BTreeSet::new() };
    lowering.route(&Conditions::default(), 0);
    let Lowering { mut routes, lost, .. } = lowering;
    if routes.last().is_some_and(|last| last.target.is_none()) {
        // Without a route, a request gets 404 anyway.
        routes.pop();
    }
    let mut reached: Vec<OrderedRoute> = Vec::new();
    for route in routes {
        // A prefix and an expression may be written alike.
        let is_reached = |earlier: &OrderedRoute| {
            earlier.conditions.covers(&route.conditions)
                || earlier.conditions.written() == route.conditions.written()
        };
        if reached.iter().any(is_reached) {
            continue;
        }
        if let Some(last) = reached.last_mut()
            && last.target == route.target
            && let Some(merged) = last.conditions.merged(&route.conditions)
        {
            last.conditions = merged;
            continue;
        }
        reached.push(route);
    }
    (reached, lost)
}

struct Lowering<'t> {
    terms: &'t [(Term, usize)],
    routes: Vec<OrderedRoute>,
    lost: BTreeSet<usize>,
}

impl Lowering<'_> {
    /// Adds routes for all requests of `region`, by the terms from the `from`th on.
    fn route(&mut self, region: &Conditions, from: usize) {
        for (nth, (term, target)) in self.terms.iter().enumerate().skip(from) {
            let conditions = match region.and(&term.yes) {
                Ok(Some(conditions)) => conditions,
                Ok(None) => continue,
                Err(Inexpressible) => {
                    self.lost.insert(*target);
                    continue;
                }
            };
            let excluded: Result<Vec<_>, _> = term.no.iter().map(|no| conditions.and(no)).collect();
            let Ok(excluded) = excluded else {
                self.lost.insert(*target);
                continue;
            };
            let excluded: Vec<_> = excluded.into_iter().flatten().collect();
            if excluded.iter().any(|no| no.covers(&conditions)) {
                continue;
            }
            for no in &excluded {
                self.route(no, nth + 1);
            }
            if self.routes.len() >= MAX_ROUTES {
                self.lost.insert(*target);
                return;
            }
            let covers_all = conditions.covers(region);
            self.routes.push(OrderedRoute { conditions, target: Some(*target) });
            if covers_all {
                return;
            }
        }
        self.routes.push(OrderedRoute { conditions: region.clone(), target: None });
    }
}
