//! `routes[]`: the settings of a route, and the route that they become.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::config::{
    identity::access::{Access, AddressList, AddressesFile},
    keys::settings::Require,
    reader::Cursor,
    request_values::settings::{AllowedValues, allowed_values},
    routes::{
        action::{RouteAction, RouteReplySettings, ShareSettings},
        cors::Cors,
        message_changes::{HeaderEdits, HeaderEditsSettings, Rewrite, RewriteSettings},
        policies::{RoutePolicy, RoutePolicySettings},
        redirect::RedirectSettings,
    },
    settings::Value,
    upstreams::{retry::Retry, settings::Timeouts},
    value::{
        body_size,
        key::KeyRecipe,
        path_matching::PathMatching,
        patterns::{HostPattern, PathPattern},
    },
    written::serialize,
};

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
    /// The domain of the descriptors that the route is for. `None`: it is for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Entries that a descriptor must have, with exactly these values.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::pairs")]
    pub descriptor: Vec<(String, String)>,
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
    /// Bytes of a request's body. 0: any number; `None`: as the listener says, or else [`ClientLimits`](crate::config::listeners::clients::ClientLimits).
    #[serde(serialize_with = "serialize::optional_size")]
    pub max_body: Option<usize>,
    /// The only values that requests may have, and must have.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "allowed_values")]
    pub allow_values: Vec<AllowedValues>,
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

/// Whether the name of a route is its path and a number, as it is where several routes without a name have the path.
pub fn is_numbered_name(name: &str, path: &str) -> bool {
    let number = name.strip_prefix(path).and_then(|rest| rest.strip_prefix('#'));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

impl Route {
    /// A route to the first upstream, with the defaults.
    pub fn new(name: impl Into<String>, path: PathPattern) -> Self {
        Self {
            name: name.into(),
            listeners: Vec::new(),
            hosts: Vec::new(),
            path,
            written_path: None,
            matching: PathMatching::LOOSE,
            dot_segments: DotSegments::Normalize,
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            cookies: Vec::new(),
            domain: None,
            descriptor: Vec::new(),
            has_secrets: false,
            action: RouteAction::Upstream(0),
            split: None,
            policies: Vec::new(),
            require: None,
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            method_override: MethodOverride::Remove,
            trailers: Trailers::Drop,
            early_hints: EarlyHints::Drop,
            max_body: None,
            allow_values: Vec::new(),
            access: Access::default(),
            cors: None,
            rewrite: None,
            request_headers: None,
            response_headers: None,
        }
    }

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

/// Which requests the route is for, and what happens to them. A request must meet all conditions of a route.
#[derive(Settings)]
#[settings(written, page = "routes.md", foreign = "routes[]", sample = "path: /api/*, upstream: api")]
#[settings(rules(
    AtMostOne(&["upstream", "upstreams", "reply", "redirect", "usage"]),
    AtLeastOne(&["path", "domain"]),
    With("descriptor", "domain"),
    With("split_by", "upstreams"),
    AtMostOne(&["rewrite", "reply", "redirect", "usage"]),
    AtMostOne(&["request_headers", "reply", "redirect", "usage"]),
    AtMostOne(&["timeouts", "reply", "redirect", "usage"]),
    AtMostOne(&["retry", "reply", "redirect", "usage"])
))]
pub(in crate::config) struct RouteSettings<'t> {
    /// The name of the route in logs and metrics.
    #[setting(text = NAME, unset = "its path", example = "login")]
    pub(in crate::config) name: Option<Cursor<'t>>,
    /// The listeners that the route is for, by their names. Requests that come in on others take another route.
    #[setting(list(text = RESOURCE, SomeUnique), unset = "every listener", example = "[internal]")]
    #[setting(see = ["listeners[].name"])]
    pub(in crate::config) listeners: Option<Cursor<'t>>,
    /// The hosts that the route is for. `*.example.org` means every name below example.org.
    #[setting(list(text = HOST, SomeUnique), unset = "every host", example = "[api.example.com, \"*.example.org\"]")]
    pub(in crate::config) hosts: Option<Cursor<'t>>,
    /// The path: an exact path, a path and everything below it (`/api/*`), a path with parameters (`/users/{id}`), or a
    /// regular expression after `~`.
    #[setting(text = PATH, unset = "every path", example = "/api/*", see = ["routes[].match", "routes[].rewrite"])]
    pub(in crate::config) path: Option<Cursor<'t>>,
    /// The methods that the route is for. `GET` includes `HEAD`.
    #[setting(list(text = METHOD, SomeUnique), unset = "every method", example = "[GET, POST]")]
    pub(in crate::config) methods: Option<Cursor<'t>>,
    /// Headers that a request must have, with exactly these values.
    #[setting(names(FIELD, text = FIELD_VALUE, Any), unset = "none", example = "{ x-version: \"2\" }")]
    #[setting(flags(confidential))]
    pub(in crate::config) headers: Option<Cursor<'t>>,
    /// Query parameters that a request must have, with exactly these values (compared after decoding).
    #[setting(names(PARAMETER, text = ANY, Some), unset = "none", example = "{ preview: \"1\" }")]
    #[setting(flags(confidential))]
    pub(in crate::config) query: Option<Cursor<'t>>,
    /// Cookies that a request must have, with exactly these values.
    #[setting(names(COOKIE, text = ANY, Some), unset = "none", example = "{ beta: \"1\" }")]
    #[setting(flags(confidential))]
    pub(in crate::config) cookie: Option<Cursor<'t>>,
    /// The domain of the rate limit descriptors that the route is for (`domain` in Envoy's configuration). Without it, the
    /// route is for requests. A descriptor without a route is admitted.
    #[setting(text = NAME, unset = "the route is for requests", example = "edge", see = ["listeners[].serves"])]
    pub(in crate::config) domain: Option<Cursor<'t>>,
    /// Entries that a descriptor must have, with exactly these values.
    #[setting(names(PARAMETER, text = ANY, Some), unset = "none", example = "{ generic_key: login }")]
    #[setting(beside = "domain: edge", flags(confidential))]
    pub(in crate::config) descriptor: Option<Cursor<'t>>,
    /// The upstream that requests are forwarded to. A route has exactly one of `upstream`, `upstreams`, `reply`,
    /// `redirect` and `usage`; none, if only listeners with `serves: decisions` reach it.
    #[setting(text = RESOURCE, unset = "requests have another reply, or only decisions are asked for", example = "api")]
    pub(in crate::config) upstream: Option<Cursor<'t>>,
    /// Several upstreams that share the requests by weight, for example for a canary release.
    #[setting(list(mapping(ShareSettings), Some), unset = "one upstream, or none")]
    #[setting(example = "[{ name: api, weight: 95 }, { name: canary, weight: 5 }]", see = ["routes[].split_by"])]
    pub(in crate::config) upstreams: Option<Cursor<'t>>,
    /// The key that decides which of `upstreams` gets a request: the same key gets the same one while the weights stay.
    #[setting(text = KEY, unset = "each request is assigned on its own", example = "ip")]
    #[setting(beside = "upstreams: [{ name: api }, { name: canary }]")]
    pub(in crate::config) split_by: Option<Cursor<'t>>,
    /// A response that Tollgate itself sends.
    #[setting(
        mapping(RouteReplySettings),
        unset = "requests have another reply",
        example = "{ status: 200, body: ok }"
    )]
    pub(in crate::config) reply: Option<Cursor<'t>>,
    /// A redirect that Tollgate itself sends.
    #[setting(mapping(RedirectSettings), unset = "requests have another reply", example = "{ path: /new }")]
    pub(in crate::config) redirect: Option<Cursor<'t>>,
    /// With `true`, Tollgate replies with the limits of the request's API key, and with what is left of them, as JSON.
    /// This takes nothing from the limits of the key's holder. Each request asks the store, so give the route a policy by
    /// address (`key: ip`): a request costs it 1.
    #[setting(unset = "requests have another reply", example = "true", see = ["api_keys"])]
    pub(in crate::config) usage: bool,
    /// The credential that a request must have; without it, it gets 401. `none` also ignores keys that are not valid.
    /// `any` is a valid key or a verified user. An address that sends too many wrong keys or tokens gets 429; with `none`,
    /// its keys are ignored then. A CORS preflight needs none: browsers send it without credentials.
    #[setting(
        unset = "`api_key` if `api_keys.required`; else a request needs none, and a key that is not valid gets 401"
    )]
    #[setting(example = "none", see = ["api_keys.required", "api_keys.attempts", "user"])]
    pub(in crate::config) require: Option<Require>,
    /// The policies that apply to this route, in addition to those of its upstream: names, or names with the cost of
    /// this route's requests.
    #[setting(list(either(text = RESOURCE, mapping(RoutePolicySettings)), Unique), unset = "those of the upstream alone", example = "[per-ip]")]
    #[setting(see = ["upstreams.*.policies"])]
    pub(in crate::config) policies: Option<Cursor<'t>>,
    /// How long an endpoint may take for requests of this route.
    #[setting(mapping(Timeouts), unset = "those of the upstream", example = "{ response: 5s }")]
    pub(in crate::config) timeouts: Option<Cursor<'t>>,
    /// When requests of this route are sent again.
    #[setting(mapping(Retry), unset = "the upstream's", example = "{ max: 0 }")]
    pub(in crate::config) retry: Option<Cursor<'t>>,
    /// The path that the upstream gets.
    #[setting(mapping(RewriteSettings), unset = "the client's path", example = "{ strip_prefix: /api }")]
    #[setting(beside = "path: /api/*", before = RouteDefaults, inherited = "the one at the top level")]
    pub(in crate::config) rewrite: Option<Cursor<'t>>,
    /// Changes of the request's headers before it is forwarded.
    #[setting(mapping(HeaderEditsSettings), unset = "none")]
    #[setting(example = "{ set: { x-from: tollgate }, remove: [x-internal] }")]
    #[setting(flags(confidential))]
    pub(in crate::config) request_headers: Option<Cursor<'t>>,
    /// Changes of the response's headers before it is sent to the client.
    #[setting(mapping(HeaderEditsSettings), unset = "none")]
    #[setting(example = "{ set: { x-frame-options: DENY }, remove: [server] }")]
    #[setting(flags(confidential))]
    pub(in crate::config) response_headers: Option<Cursor<'t>>,
    /// The longest request body on this route; a longer one gets 413. `0` allows any length.
    #[setting(size = "0..=1024TiB", parse = body_size, unset = "the listener's, or else `client_limits.max_body`", example = "10MiB")]
    #[setting(see = ["listeners[].max_body", "client_limits.max_body"])]
    pub(in crate::config) max_body: Option<usize>,
    /// The only values that requests on this route may have, by the names of `values`. A request with another one, or
    /// without one, gets 403.
    #[setting(names(RESOURCE, list(text = ANY, SomeUnique), Some), unset = "any value")]
    #[setting(example = "{ model: [mini] }", see = ["values", "plans"])]
    pub(in crate::config) allow_values: Option<Cursor<'t>>,
    /// Client addresses that get 403 on this route, before Tollgate looks at bans and limits. `deny` at the top level
    /// applies as well.
    #[setting(either(list(either(text = NETWORK, mapping(AddressesFile)), Unique), mapping(AddressesFile)))]
    #[setting(read = AddressList::denied, unset = "no further address is denied")]
    #[setting(example = "[192.0.2.0/24, { file: blocked.txt }]", see = ["allow", "client_address.header"])]
    pub(in crate::config) deny: AddressList,
    /// The only client addresses that may use this route; all others get 403. `deny` wins over `allow`, and `allow` at
    /// the top level applies as well.
    #[setting(either(list(either(text = NETWORK, mapping(AddressesFile)), SomeUnique), mapping(AddressesFile)))]
    #[setting(read = AddressList::allowed, unset = "every address that the top level allows")]
    #[setting(example = "[10.0.0.0/8]", see = ["deny"])]
    pub(in crate::config) allow: Option<AddressList>,
    /// Which web pages of other origins may read the responses.
    #[setting(mapping(Cors), unset = "the upstream's own CORS headers are forwarded")]
    #[setting(example = "{ origins: [\"https://app.example.com\"] }", see = ["policies.*.preflight"])]
    pub(in crate::config) cors: Option<Cursor<'t>>,
}
