//! The conditions of one route, and the first one that a request does not meet.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{
    Host, Target,
    path_rewrite::stripped_prefix,
    pattern::{ComparedPath, Pattern},
};
use crate::{
    config::model::{DotSegments, HostPattern, Route},
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
}

/// The parts of a request that conditions read, apart from the path.
pub(super) struct RequestParts<'a> {
    method: &'a Method,
    pub(super) host: Option<&'a Host>,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> RequestParts<'a> {
    pub(super) fn new(method: &'a Method, target: &'a Target, headers: &'a HeaderMap) -> Self {
        Self { method, host: target.host(), query: target.query(), headers }
    }
}

/// The conditions of a route.
#[derive(Debug)]
pub(super) struct CompiledRoute {
    pub(super) path: Pattern,
    pub(super) hosts: Vec<HostPattern>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    pub(super) dot_segments: DotSegments,
    /// Whether the proxy responds to CORS preflights itself: they match by the method that they ask for.
    handles_preflights: bool,
    /// The prefix that the route strips.
    pub(super) strip: Option<Pattern>,
}

impl CompiledRoute {
    pub(super) fn new(route: &Route) -> Self {
        let mut methods = route.methods.clone();
        if methods.contains(&Method::GET) {
            methods.push(Method::HEAD);
        }
        Self {
            path: Pattern::new(&route.path, route.matching),
            hosts: route.hosts.clone(),
            methods,
            headers: route.headers.clone(),
            query: route.query.clone(),
            cookies: route.cookies.clone(),
            dot_segments: route.dot_segments,
            handles_preflights: route.cors.is_some(),
            strip: stripped_prefix(route),
        }
    }

    pub(super) fn matches(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> bool {
        self.mismatch(request, path).is_none()
    }

    pub(super) fn mismatch(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> Option<Mismatch> {
        if !self.path.matches(path) {
            return Some(Mismatch::Path);
        }
        let is_host = |host: &Host| self.hosts.iter().any(|pattern| is_host(pattern, host.name()));
        if !self.hosts.is_empty() && !request.host.is_some_and(is_host) {
            return Some(Mismatch::Host);
        }
        if !self.methods.is_empty() && !self.has_method(request.method) && !self.handles_preflight(request) {
            return Some(Mismatch::Method);
        }
        let is_sent = |(name, value): &(HeaderName, HeaderValue)| {
            request.headers.get_all(name).iter().any(|sent| sent == value)
        };
        if let Some(field) = self.headers.iter().position(|field| !is_sent(field)) {
            return Some(Mismatch::Header(field));
        }
        let has_parameter = |(name, value): &(String, String)| {
            query_values(request.query.unwrap_or_default(), name).any(|sent| *sent == *value.as_bytes())
        };
        if let Some(parameter) = self.query.iter().position(|parameter| !has_parameter(parameter)) {
            return Some(Mismatch::Query(parameter));
        }
        let has_cookie = |(name, value): &(String, String)| {
            cookies(request.headers, name).any(|sent| sent == value.as_bytes())
        };
        self.cookies.iter().position(|cookie| !has_cookie(cookie)).map(Mismatch::Cookie)
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
