//! The CORS fields (Fetch, 3.2): whether pages of other origins may send a request, and read its response.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request};

use super::{claims::is_method_override, headers::elements, reply::Reply};
use crate::{
    config::model::{AllowedNames, AllowedOrigins, Cors, Route},
    identity::single_value,
    router::preflight_method,
};

static ANY: HeaderValue = HeaderValue::from_static("*");
static ORIGIN: HeaderValue = HeaderValue::from_static("origin");
static TRUE: HeaderValue = HeaderValue::from_static("true");

/// `cors` of a route, with the field values that depend on no request.
#[derive(Debug)]
pub struct CorsRule {
    origins: AllowedOrigins,
    methods: AllowedValue,
    headers: AllowedValue,
    credentials: bool,
    max_age: Option<HeaderValue>,
    expose: Option<HeaderValue>,
}

/// The names that a preflight is allowed.
#[derive(Debug)]
enum AllowedValue {
    /// These names.
    Listed(HeaderValue),
    /// All names that the preflight asks for.
    AsRequested,
    Nothing,
}

impl AllowedValue {
    fn new<T>(names: &AllowedNames<T>, text: impl Fn(&T) -> &str) -> Self {
        match names {
            AllowedNames::Any => Self::AsRequested,
            AllowedNames::Listed(names) => list(names, text).map_or(Self::Nothing, Self::Listed),
        }
    }

    fn response_value(&self, requested: &HeaderName, request: &HeaderMap) -> Option<HeaderValue> {
        match self {
            Self::Listed(names) => Some(names.clone()),
            Self::AsRequested => request.get(requested).cloned(),
            Self::Nothing => None,
        }
    }
}

/// The names as a field value. `None`: there are none.
fn list<T>(names: &[T], text: impl Fn(&T) -> &str) -> Option<HeaderValue> {
    let names: Vec<&str> = names.iter().map(text).collect();
    // Names have only characters that are allowed in a value.
    HeaderValue::try_from(names.join(", ")).ok().filter(|value| !value.is_empty())
}

impl CorsRule {
    pub(super) fn new(cors: &Cors) -> Self {
        Self {
            origins: cors.origins.clone(),
            methods: AllowedValue::new(&cors.methods, Method::as_str),
            headers: AllowedValue::new(&cors.headers, HeaderName::as_str),
            credentials: cors.credentials,
            max_age: cors.max_age.map(|age| HeaderValue::from(age.as_secs())),
            expose: list(&cors.expose, HeaderName::as_str),
        }
    }
}

/// The CORS part of the response to one request.
#[derive(Debug)]
pub struct CorsResponse {
    rule: Arc<CorsRule>,
    /// The origin that may read the response; `None`: the request's origin may not.
    origin: Option<HeaderValue>,
}

impl CorsResponse {
    /// The CORS response to a request with these `headers`.
    pub(super) fn new(rule: &Arc<CorsRule>, headers: &HeaderMap) -> Box<Self> {
        let origin = match &rule.origins {
            AllowedOrigins::Any => Some(ANY.clone()),
            AllowedOrigins::Listed(patterns) => single_value(headers, &header::ORIGIN)
                .and_then(|origin| str::from_utf8(origin).ok())
                .filter(|origin| patterns.iter().any(|pattern| pattern.matches(origin)))
                .and_then(|origin| HeaderValue::try_from(origin).ok()),
        };
        Box::new(Self { rule: Arc::clone(rule), origin })
    }

    /// Whether pages of the request's origin may read the response.
    pub(super) fn allows_origin(&self) -> bool {
        self.origin.is_some()
    }

    /// The response to a preflight with these `headers`. The browser itself compares the allowed methods and fields
    /// with the ones it asked for.
    pub(super) fn preflight(&self, headers: &HeaderMap) -> Reply {
        if self.origin.is_none() {
            let detail = "Pages of this origin may not send this request.";
            return Reply::problem(StatusCode::FORBIDDEN, detail);
        }
        let CorsRule { methods, headers: fields, max_age, .. } = &*self.rule;
        let mut reply = Reply::no_content();
        for (value, requested, allowed) in [
            (methods, header::ACCESS_CONTROL_REQUEST_METHOD, header::ACCESS_CONTROL_ALLOW_METHODS),
            (fields, header::ACCESS_CONTROL_REQUEST_HEADERS, header::ACCESS_CONTROL_ALLOW_HEADERS),
        ] {
            if let Some(value) = value.response_value(&requested, headers) {
                reply.headers.insert(allowed, value);
            }
            if matches!(value, AllowedValue::AsRequested) {
                reply.headers.append(header::VARY, HeaderValue::from(requested));
            }
        }
        if let Some(max_age) = max_age {
            reply.headers.insert(header::ACCESS_CONTROL_MAX_AGE, max_age.clone());
        }
        reply
    }

    /// Adds the fields that every response has. They replace the upstream's.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        let CorsRule { origins, credentials, expose, .. } = &*self.rule;
        if *origins != AllowedOrigins::Any {
            add_vary(headers);
        }
        let Some(origin) = &self.origin else {
            headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
            return;
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if *credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE.clone());
        }
        if let Some(expose) = expose {
            headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, expose.clone());
        }
    }
}

/// Adds `Vary: Origin` for caches, because the response differs by origin.
fn add_vary(headers: &mut HeaderMap) {
    let is_origin = |name: &[u8]| name.eq_ignore_ascii_case(b"origin") || name == b"*";
    let is_said = headers.get_all(header::VARY).iter().flat_map(elements).any(is_origin);
    if !is_said {
        headers.append(header::VARY, ORIGIN.clone());
    }
}

/// Removes the CORS fields of an upstream, in favour of the route's.
pub(super) fn remove_foreign(headers: &mut HeaderMap) {
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        header::ACCESS_CONTROL_MAX_AGE,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderName::from_static("access-control-allow-private-network"),
    ] {
        headers.remove(name);
    }
}

/// Whether this is a CORS preflight for one method of the route. Browsers send none that asks for another method by a header
/// of its own, which an upstream may obey.
pub(super) fn is_preflight(request: &request::Parts, route: &Route) -> bool {
    preflight_method(&request.method, &request.headers).is_some_and(|method| route.has_method(&method))
        && !request.headers.keys().any(|name| is_method_override(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::model::OriginPattern, proxy::headers::testing::headers};

    fn rule(origins: AllowedOrigins) -> Arc<CorsRule> {
        Arc::new(CorsRule::new(&Cors {
            origins,
            methods: AllowedNames::Listed(vec![Method::GET, Method::PUT]),
            headers: AllowedNames::Any,
            credentials: true,
            max_age: Some(std::time::Duration::from_secs(600)),
            expose: vec![HeaderName::from_static("x-total")],
        }))
    }

    fn listed() -> Arc<CorsRule> {
        rule(AllowedOrigins::Listed(vec![OriginPattern::Exact("https://a.example".to_owned())]))
    }

    #[test]
    fn a_preflight_of_an_allowed_origin_learns_what_is_allowed() {
        let request = headers(&[
            ("origin", "https://a.example"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "x-a,x-b"),
        ]);
        let reply = CorsResponse::new(&listed(), &request).preflight(&request);
        assert_eq!(reply.status, 204);
        assert_eq!(reply.headers[header::ACCESS_CONTROL_ALLOW_METHODS], "GET, PUT");
        assert_eq!(reply.headers[header::ACCESS_CONTROL_ALLOW_HEADERS], "x-a,x-b");
        assert_eq!(reply.headers[header::ACCESS_CONTROL_MAX_AGE], "600");
        assert_eq!(reply.headers[header::VARY], "access-control-request-headers");
    }

    #[test]
    fn cors_fields_of_others_are_replaced_and_vary_has_origin_once() {
        let allowed = headers(&[("origin", "https://a.example")]);
        for (vary, expected) in [
            ("accept, Origin", &["accept, Origin"][..]),
            ("*", &["*"]),
            (",,ORIGIN,", &[",,ORIGIN,"]),
            ("accept-encoding", &["accept-encoding", "origin"]),
        ] {
            let mut map = headers(&[("access-control-allow-origin", "*")]);
            map.insert(header::VARY, HeaderValue::from_static(vary));
            CorsResponse::new(&listed(), &allowed).add_to(&mut map);
            assert_eq!(map[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example");
            assert_eq!(map[header::ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
            assert_eq!(map.get_all(header::VARY).iter().collect::<Vec<_>>(), expected);
        }
        for other in ["https://b.example", "null", ""] {
            let mut request = HeaderMap::new();
            request.insert(header::ORIGIN, HeaderValue::from_static(other));
            let mut map = headers(&[("access-control-allow-origin", "*")]);
            CorsResponse::new(&listed(), &request).add_to(&mut map);
            assert_eq!(map.len(), 1, "{other}: {map:?}");
            assert_eq!(map[header::VARY], "origin");
        }
    }

    #[test]
    fn for_every_origin_nothing_varies() {
        let mut map = HeaderMap::new();
        CorsResponse::new(&rule(AllowedOrigins::Any), &HeaderMap::new()).add_to(&mut map);
        assert_eq!(map[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(!map.contains_key(header::VARY));
    }
}
