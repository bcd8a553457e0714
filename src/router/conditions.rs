//! The conditions of one route, and the first one that a request does not meet.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{
    Host, Target,
    path_rewrite::stripped_prefix,
    pattern::{ComparedPath, Pattern},
};
use crate::{
    config::model::{DotSegments, HostPattern, Listener, Route},
    router::{cookies, preflight_method, query_values},
};

/// The first condition of a route that a request does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    Path,
    Host,
    Method,
    /// The field with this index in [`Route::headers`].
    Header(usize),
    /// The parameter with this index in [`Route::query`].
    Query(usize),
    /// The cookie with this index in [`Route::cookies`].
    Cookie(usize),
    /// The listener on which the request came in.
    Listener,
    /// The domain of the descriptor.
    Domain,
    /// The entry with this index in [`Route::descriptor`].
    Entry(usize),
}

/// The parts of a request that decide its route.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    pub method: &'a Method,
    pub target: &'a Target,
    pub headers: &'a HeaderMap,
    /// The index of the listener on which the request came in.
    pub listener: usize,
    /// Whether another proxy asks about the request, and forwards its path as it is.
    pub is_question: bool,
    /// The descriptor that stands for the request. `None`: it is a request.
    pub descriptor: Option<RoutedDescriptor<'a>>,
}

/// A descriptor, as routes see it.
#[derive(Debug, Clone, Copy)]
pub struct RoutedDescriptor<'a> {
    pub domain: &'a str,
    pub entries: &'a [(String, String)],
}

/// The conditions of a route.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) path: Pattern,
    pub(super) hosts: Vec<HostPattern>,
    methods: Vec<Method>,
    /// `None`, as for most routes: it has none of these conditions, so that a request costs one look for all of them.
    pub(super) rare: Option<Box<RareConditions>>,
    pub(super) dot_segments: DotSegments,
    /// Whether the proxy responds to CORS preflights itself: they match by the method that they ask for.
    handles_preflights: bool,
    /// The prefix that the route strips.
    pub(super) strip: Option<Pattern>,
}

/// The conditions that few routes have.
#[derive(Debug)]
pub(super) struct RareConditions {
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    /// The indexes of the listeners that the route is for. Empty: none of them is open yet. `None`: all.
    pub(super) listeners: Option<Vec<usize>>,
    /// The domain of its descriptors. `None`: the route is for requests.
    domain: Option<String>,
    descriptor: Vec<(String, String)>,
}

impl RareConditions {
    /// The conditions of `route`. `listeners`: the configuration's.
    fn new(route: &Route, listeners: &[Listener]) -> Option<Box<Self>> {
        let Route { headers, query, cookies, listeners: names, domain, descriptor, .. } = route;
        if headers.is_empty()
            && query.is_empty()
            && cookies.is_empty()
            && names.is_empty()
            && domain.is_none()
        {
            return None;
        }
        let is_named = |listener: &Listener| listener.name.as_ref().is_some_and(|name| names.contains(name));
        let named = listeners.iter().enumerate().filter(|(_, listener)| is_named(listener));
        Some(Box::new(Self {
            headers: headers.clone(),
            query: query.clone(),
            cookies: cookies.clone(),
            listeners: (!names.is_empty()).then(|| named.map(|(index, _)| index).collect()),
            domain: domain.clone(),
            descriptor: descriptor.clone(),
        }))
    }

    fn mismatch(&self, request: &RequestParts<'_>) -> Option<Mismatch> {
        let is_other = |listeners: &Vec<usize>| !listeners.contains(&request.listener);
        if self.listeners.as_ref().is_some_and(is_other) {
            return Some(Mismatch::Listener);
        }
        if self.domain.as_deref() != request.descriptor.map(|descriptor| descriptor.domain) {
            return Some(Mismatch::Domain);
        }
        let entries = request.descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        if let Some(entry) = self.descriptor.iter().position(|entry| !entries.contains(entry)) {
            return Some(Mismatch::Entry(entry));
        }
        let is_sent = |(name, value): &(HeaderName, HeaderValue)| {
            request.headers.get_all(name).iter().any(|sent| sent == value)
        };
        if let Some(field) = self.headers.iter().position(|field| !is_sent(field)) {
            return Some(Mismatch::Header(field));
        }
        let query = request.target.query().unwrap_or_default();
        let has_parameter = |(name, value): &(String, String)| {
            query_values(query, name).any(|sent| *sent == *value.as_bytes())
        };
        if let Some(parameter) = self.query.iter().position(|parameter| !has_parameter(parameter)) {
            return Some(Mismatch::Query(parameter));
        }
        let has_cookie = |(name, value): &(String, String)| {
            cookies(request.headers, name).any(|sent| sent == value.as_bytes())
        };
        self.cookies.iter().position(|cookie| !has_cookie(cookie)).map(Mismatch::Cookie)
    }
}

impl CompiledRoute {
    /// Compiles `route`. `listeners`: the configuration's.
    pub(super) fn new(route: &Route, listeners: &[Listener]) -> Self {
        let mut methods = route.methods.clone();
        if methods.contains(&Method::GET) {
            methods.push(Method::HEAD);
        }
        Self {
            path: Pattern::new(&route.path, route.matching),
            hosts: route.hosts.clone(),
            methods,
            rare: RareConditions::new(route, listeners),
            dot_segments: route.dot_segments,
            handles_preflights: route.cors.is_some(),
            strip: stripped_prefix(route),
        }
    }

    /// Whether it is for descriptors, and not for requests.
    pub(super) fn is_of_descriptors(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.domain.is_some())
    }

    pub(super) fn matches(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> bool {
        self.mismatch(request, path).is_none()
    }

    pub(super) fn mismatch(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> Option<Mismatch> {
        if !self.path.matches(path) {
            return Some(Mismatch::Path);
        }
        let is_host = |host: &Host| self.hosts.iter().any(|pattern| is_host(pattern, host.name()));
        if !self.hosts.is_empty() && !request.target.host().is_some_and(is_host) {
            return Some(Mismatch::Host);
        }
        if !self.methods.is_empty() && !self.has_method(request.method) && !self.handles_preflight(request) {
            return Some(Mismatch::Method);
        }
        self.rare.as_ref()?.mismatch(request)
    }

    /// Methods are case-sensitive (RFC 9110, 9.1), but some services accept `post` for POST, just as they accept other
    /// spellings of a path: the route's policies apply to it.
    fn has_method(&self, method: &Method) -> bool {
        self.methods.contains(method)
            || self.methods.iter().any(|own| own.as_str().eq_ignore_ascii_case(method.as_str()))
    }

    /// Whether this is a CORS preflight for one of the route's methods.
    fn handles_preflight(&self, request: &RequestParts<'_>) -> bool {
        self.handles_preflights
            && preflight_method(request.method, request.headers)
                .is_some_and(|method| self.methods.contains(&method))
    }
}

fn is_host(pattern: &HostPattern, host: &str) -> bool {
    match pattern {
        HostPattern::Exact(name) => host.eq_ignore_ascii_case(name),
        HostPattern::Suffix(suffix) => {
            let (host, suffix) = (host.as_bytes(), suffix.as_bytes());
            host.len() > suffix.len() && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
    }
}
