//! Routes: their conditions, and the settings of the requests that meet them.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;
use tollgate_derive::{Settings, Word};

use super::{
    Access, Cors, HeaderEdits, KeyRecipe, PathMatching, PathRegex, Require, Retry, Rewrite, RouteAction,
    Timeouts, serialize,
};
use crate::config::{reader::Cursor, settings::Value};

/// A route: its conditions, its action and its policies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Route {
    pub name: String,
    /// The names of the listeners that the route is for. Empty: all. They are names, because a reload keeps the order of
    /// the listeners whose sockets are open, whatever their order in the new file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<String>,
    /// Empty: all.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// The path as the file has it, if a part of it came from the environment or from a file, and so must not be shown.
    #[serde(skip)]
    pub written_path: Option<String>,
    #[serde(rename = "match")]
    pub matching: PathMatching,
    #[serde(rename = "paths")]
    pub dot_segments: DotSegments,
    /// Empty: all. GET includes HEAD.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub methods: Vec<Method>,
    /// A request must have each field with exactly this value.
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Likewise each query parameter, decoded.
    #[serde(serialize_with = "serialize::pairs")]
    pub query: Vec<(String, String)>,
    /// Likewise each cookie.
    #[serde(rename = "cookie", serialize_with = "serialize::pairs")]
    pub cookies: Vec<(String, String)>,
    /// Whether a value of these is a credential, or was inserted from outside the file, so that none of them must be shown.
    #[serde(skip)]
    pub has_secrets: bool,
    #[serde(flatten)]
    pub action: RouteAction,
    /// Several upstreams instead. The route itself is then the one of `split.routes` that has the largest weight.
    #[serde(skip)]
    pub split: Option<Box<Split>>,
    /// The upstream's first, then the route's own, each once.
    pub policies: Vec<RoutePolicy>,
    /// The credential that requests must have. `None`: none, but an API key must be valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<Require>,
    /// Those of the upstream, unless the route has its own. Without an upstream, they say nothing.
    pub timeouts: Timeouts,
    /// That of the upstream, unless the route has its own.
    pub retry: Retry,
    pub method_override: MethodOverride,
    pub trailers: Trailers,
    pub early_hints: EarlyHints,
    /// Bytes of a request's body. 0: any number; `None`: as the listener says, or else [`ClientLimits`](super::ClientLimits).
    #[serde(serialize_with = "serialize::optional_size")]
    pub max_body: Option<usize>,
    /// Which addresses may send requests, in addition to the top level's `deny` and `allow`.
    #[serde(flatten)]
    pub access: Access,
    /// `None`: browsers get the CORS headers of the upstream.
    pub cors: Option<Box<Cors>>,
    /// `None`: the upstream gets the client's path.
    pub rewrite: Option<Rewrite>,
    #[serde(serialize_with = "serialize::optional_shared")]
    pub request_headers: Option<Arc<HeaderEdits>>,
    #[serde(serialize_with = "serialize::optional_shared")]
    pub response_headers: Option<Arc<HeaderEdits>>,
}

/// A policy, as it applies to the requests of one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoutePolicy {
    /// Its index in [`Config::policies`](super::Config::policies).
    pub policy: usize,
    /// The units that a request takes, in place of the policy's own cost. At least 1.
    pub price: Option<u64>,
}

impl RoutePolicy {
    /// The policy at this index, with its own cost.
    pub const fn unpriced(policy: usize) -> Self {
        Self { policy, price: None }
    }
}

/// Whether the name of a route is its path and a number, as it is where several routes without a name have the path.
pub fn is_numbered_name(name: &str, path: &str) -> bool {
    let number = name.strip_prefix(path).and_then(|rest| rest.strip_prefix('#'));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

impl Route {
    /// The route as requests take it: itself, or for each upstream that its requests are split among the route to that one.
    pub fn variants(&self) -> &[Self] {
        match &self.split {
            Some(split) => &split.routes,
            None => std::slice::from_ref(self),
        }
    }

    /// The path as operators see it.
    pub fn shown_path(&self) -> String {
        self.written_path.clone().unwrap_or_else(|| self.path.to_string())
    }

    /// The policies of all [`Route::variants`], each once.
    pub fn all_policies(&self) -> Vec<usize> {
        let mut all = Vec::new();
        for of in self.variants().iter().flat_map(|route| &route.policies) {
            if !all.contains(&of.policy) {
                all.push(of.policy);
            }
        }
        all
    }

    /// How the policy at this index applies. `None`: it does not.
    pub fn policy(&self, index: usize) -> Option<RoutePolicy> {
        self.policies.iter().copied().find(|of| of.policy == index)
    }

    /// Whether requests of this method match. HEAD follows GET (RFC 9110, 9.3.2): origins serve both alike.
    pub fn has_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || *method == Method::HEAD && self.methods.contains(&Method::GET)
    }
}

/// Several upstreams that take the requests of one route by weight, as for a canary release.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Requests that have this in common go to the same upstream. `None`: each request is for itself.
    pub by: Option<KeyRecipe>,
    /// At least one is not 0.
    pub weights: Vec<u32>,
    /// For each weight the route to its upstream, with the policies, timeouts and whatever else it has of that upstream.
    pub routes: Vec<Route>,
}

impl Split {
    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.weights.iter().copied().map(u64::from).sum()
    }

    /// The route whose weight `point`, below [`Split::total`], falls into. Weights that follow each other on a line: if one grows at
    /// the cost of the next, no request moves but those between the two.
    pub fn at(&self, point: u64) -> Option<&Route> {
        let mut end = 0;
        let nth = self.weights.iter().position(|&weight| {
            end += u64::from(weight);
            point < end
        });
        self.routes.get(nth?)
    }
}

/// Settings of the top level, for the routes that do not have them.
#[derive(Clone, Copy, Settings)]
#[settings(written)]
pub(in crate::config) struct RouteDefaults {
    /// How the path of a request is compared with the paths of routes.
    #[setting(key = "match", mapping, unset = "case and a trailing slash are ignored")]
    #[setting(example = "{ case: sensitive }", see = ["routes[].path"])]
    pub(in crate::config) matching: PathMatching,
    /// What happens to a request with `.` or `..` in its path. `normalise` resolves them. `pass` sends the path as it
    /// came, if the route is the same with and without them. `refuse` answers 400.
    #[setting(key = "paths", read = DotSegments::read, example = "refuse")]
    #[setting(default = "normalise", value = DotSegments::Normalize)]
    pub(in crate::config) dot_segments: DotSegments,
    /// Whether headers by which a client asks for another method, such as `X-HTTP-Method-Override`, are removed or
    /// allowed. From trusted proxies they are allowed.
    #[setting(default = "remove", example = "allow", see = ["trusted_proxies"])]
    pub(in crate::config) method_override: MethodOverride,
    /// Whether trailers are forwarded. Those of gRPC responses always are.
    #[setting(default = "drop", example = "pass")]
    pub(in crate::config) trailers: Trailers,
    /// Whether an upstream's 103 Early Hints are forwarded to HTTP/1.1 clients.
    #[setting(default = "drop", example = "pass")]
    pub(in crate::config) early_hints: EarlyHints,
}

/// How the segments `.` and `..`, percent-encoded or not, in the path of a request are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum DotSegments {
    /// They are resolved before the path is matched and sent (RFC 3986, 5.2.4).
    #[word("normalise")]
    Normalize,
    /// They are sent as they came, if that makes no difference to the route.
    Pass,
    /// The request gets 400.
    Refuse,
}

impl DotSegments {
    fn read(value: Cursor<'_>) -> Option<Self> {
        // In other proxies, this is the list of the paths of a route.
        if value.is_list() {
            let help = "a route has one path: `path: /files/*`; here stands normalise, pass or refuse";
            let message = "this says what becomes of dot segments in a path, and lists no paths";
            value.report(message, help.to_owned());
            return None;
        }
        value.parse(|text| {
            let meant = match text.to_ascii_lowercase().as_str() {
                path if path.starts_with('/') => format!("path: {path}"),
                "true" | "on" | "yes" | "resolve" | "clean" | "merge" => "normalise".to_owned(),
                "false" | "off" | "no" | "raw" | "keep" | "keep_unchanged" | "allow" | "preserve" => {
                    "pass".to_owned()
                }
                "reject" | "reject_request" | "deny" | "block" => "refuse".to_owned(),
                _ => return Self::parse(text),
            };
            Self::parse(text).map_err(|invalid| invalid.suggestion(format!("did you mean `{meant}`?")))
        })
    }
}

/// Whether the headers by which a client asks for another method than that of its request line are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum MethodOverride {
    /// They are removed, unless a trusted proxy sent them.
    Remove,
    Allow,
}

/// Whether trailers are forwarded, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Trailers {
    /// They are dropped, except those of gRPC's responses.
    Drop,
    /// All but the fields that belong into a head, and those that a setting names.
    Pass,
}

/// Whether an upstream's 103 Early Hints are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum EarlyHints {
    Drop,
    /// Clients of HTTP/1.1 get them.
    Pass,
}

/// A host in lower case, without port and trailing dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.org` as `.example.org`: any host that ends with it, and is longer.
    Suffix(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// `/prefix/*` as `/prefix/`: any path that begins with it. `/*` is `/`: any path.
    Prefix(String),
    /// `/users/{id}/posts`: the same number of segments, each equal or a parameter.
    Template(Vec<Segment>),
    /// `~^/v[0-9]+/`: any path in which it is found. Boxed, since it is large.
    Regex(Box<PathRegex>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// `{id}`: any segment that is not empty.
    Parameter(String),
}
