//! What others call the settings of a route, and of what it does with requests.

use super::{
    ABOUT_SLASHES, ALLOW, DENY, DOT_SEGMENTS, MAX_BODY, SLASHES,
    retries::{
        ALSO_STATUSES, HOLDS_PER_TRY, PER_TRY, RETRIES, RETRY_BUDGET, RETRY_ON, TIMEOUT, TOTAL, TRIES,
        WITHOUT_FIRST,
    },
};
use crate::config::reader::OtherName;

pub(in crate::config::section) const ROUTE: &[OtherName] = &[
    OtherName::new(&["location", "prefix", "path_prefix", "url", "uri", "pattern"], "path: PATH"),
    OtherName::new(&["host", "hostname", "server_name", "domain", "domains"], "hosts: [HOSTS]"),
    OtherName::new(&["method"], "methods: [VALUE]"),
    OtherName::new(&["header"], "headers: { NAME: VALUE }"),
    OtherName::new(
        &["path_regex", "path_regexp", "regex", "safe_regex", "safe_regex_match", "regexp"],
        "path: '~REGEX'",
    ),
    OtherName::new(&["rule", "rules", "match_rule"], "path: PATH"),
    OtherName::new(
        &["query_parameters", "query_params", "queryparams", "params", "parameters", "query_string", "args"],
        "query: { NAME: \"1\" }",
    ),
    OtherName::new(&["cookies"], "cookie: { NAME: VALUE }"),
    OtherName::new(
        &["proxy_pass", "backend", "service", "target", "to", "destination", "cluster", "forward_to"],
        "upstream: NAME",
    )
    .with(", the name of one of `upstreams`"),
    OtherName::new(
        &[
            "weighted_clusters",
            "weighted",
            "weights",
            "services",
            "backendrefs",
            "backends",
            "clusters",
            "split_clients",
            "split",
            "traffic_split",
            "canary",
        ],
        "upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]",
    ),
    OtherName::new(
        &["runtime_fraction", "weight", "runtime_key_prefix", "canary_weight", "wrr"],
        "upstreams: [{ name: NAME, weight: 95 }, { name: NAME, weight: 5 }]",
    ),
    OtherName::new(&["canary_by_header"], "headers: { VALUE: always }").with(OF_THE_CANARY),
    OtherName::new(&["canary_by_cookie"], "cookie: { VALUE: always }").with(OF_THE_CANARY),
    OtherName::new(
        &[
            "policy",
            "limit",
            "limits",
            "rate_limit",
            "ratelimit",
            "limit_req",
            "plugins",
            "middlewares",
            "filters",
        ],
        "policies: [NAME]",
    )
    .with(", and the limit under this name in `policies` at the top level"),
    OtherName::new(&["http2", "h2c", "http_version", "proxy_http_version", "grpc", "proto"], "protocol: h2"),
    OtherName::new(TIMEOUT, "timeouts: { response: VALUE }"),
    OtherName::new(PER_TRY, "timeouts: { response: VALUE }").with(HOLDS_PER_TRY),
    OtherName::new(TOTAL, "timeouts: { total: VALUE }"),
    OtherName::new(RETRIES, "retry: { max: VALUE }"),
    OtherName::new(TRIES, "retry: { max: 1 }").with(WITHOUT_FIRST),
    OtherName::new(RETRY_ON, "retry: { when: [connect, refused] }").with(ALSO_STATUSES),
    OtherName::new(RETRY_BUDGET, "retry: { budget: 20% }"),
    OtherName::new(DOT_SEGMENTS, "paths: normalise").with(", pass or refuse"),
    OtherName::new(SLASHES, "paths: normalise").with(ABOUT_SLASHES),
    OtherName::new(MAX_BODY, "max_body: SIZE"),
    OtherName::new(REDIRECTS, "redirect: { to: URL }")
        .with(", or `redirect: { path: /new }` on the same host"),
    OtherName::new(
        &[
            "redirect_scheme",
            "redirectscheme",
            "redirect_https",
            "https_redirect",
            "force_ssl",
            "ssl_redirect",
            "force_ssl_redirect",
        ],
        "redirect: { scheme: https }",
    ),
    OtherName::new(REPLIES, "reply: { status: 200, body: TEXT }"),
    OtherName::new(ALLOW, "allow: [VALUE]").with(", which denies all others"),
    OtherName::new(DENY, "deny: [VALUE]"),
    OtherName::new(CORS_OF_ROUTE, "cors: { origins: [\"https://app.example.com\"] }"),
    OtherName::new(
        &[
            "accesscontrolalloworiginlist",
            "access_control_allow_origin_list",
            "access_control_allow_origin",
            "allow_origin",
            "allow_origins",
            "allowed_origins",
            "cors_allow_origin",
        ],
        "cors: { origins: [VALUE] }",
    ),
    OtherName::new(
        &[
            "cors_allow_methods",
            "cors_allow_headers",
            "cors_allow_credentials",
            "cors_expose_headers",
            "cors_max_age",
            "accesscontrolallowmethods",
            "accesscontrolallowheaders",
            "accesscontrolallowcredentials",
            "accesscontrolexposeheaders",
            "accesscontrolmaxage",
        ],
        "cors: { origins: [\"https://app.example.com\"] }",
    )
    .with("; beside `origins` stand methods, headers, credentials, expose and max_age"),
    OtherName::new(
        &[
            "strip_prefix",
            "stripprefix",
            "strip_path_prefix",
            "stripprefixregex",
            "uri_strip_prefix",
            "handle_path",
        ],
        "rewrite: { strip_prefix: VALUE }",
    ),
    OtherName::new(&["strip_path", "trim_prefix"], "rewrite: { strip_prefix: /api }"),
    OtherName::new(
        &[
            "prefix_rewrite",
            "regex_rewrite",
            "path_rewrite",
            "rewrite_path",
            "rewrites",
            "uri_rewrite",
            "urlrewrite",
            "replacepath",
            "replacepathregex",
            "replace_path",
            "addprefix",
            "add_prefix",
            "rewrite_rule",
            "set_path",
        ],
        "rewrite: { path: \"/new/{rest}\" }",
    )
    .with(", where {rest} is what the * of `path: /old/*` matches"),
    OtherName::new(
        &[
            "host_rewrite",
            "host_rewrite_literal",
            "auto_host_rewrite",
            "preserve_host",
            "passhostheader",
            "pass_host_header",
            "upstream_vhost",
            "host_header",
        ],
        "host: preserve",
    )
    .with(" (the default) or `host: rewrite` on the upstream"),
    OtherName::new(
        &["expires", "cache_control"],
        "response_headers: { set: { cache-control: max-age=3600 } }",
    ),
    OtherName::new(&["more_clear_headers"], "response_headers: { remove: [VALUE] }"),
    OtherName::new(&["more_clear_input_headers"], "request_headers: { remove: [VALUE] }"),
    OtherName::new(REQUEST_HEADERS, "request_headers: { set: { FIELD } }"),
    OtherName::new(RESPONSE_HEADERS, "response_headers: { set: { FIELD } }"),
    OtherName::new(
        &["request_headers_to_remove", "remove_request_headers", "requestheadersremove"],
        "request_headers: { remove: [NAME] }",
    ),
    OtherName::new(
        &["proxy_hide_header", "hide_header", "response_headers_to_remove", "remove_response_headers"],
        "response_headers: { remove: [VALUE] }",
    ),
];

const OF_THE_CANARY: &str = " on a route to the new upstream, before this one";
const CORS_OF_ROUTE: &[&str] = &["cors_policy", "corspolicy", "enable_cors", "cross_origin", "crossorigin"];

/// Traefik, Envoy, Kong, Spring, Express, ingress-nginx, and the headers themselves.
pub(in crate::config::section) const CORS: &[OtherName] = &[
    OtherName::new(
        &[
            "origin",
            "allow_origin",
            "allow_origins",
            "alloworigins",
            "allowed_origins",
            "allowedorigins",
            "allow_origin_string_match",
            "accesscontrolalloworiginlist",
            "access_control_allow_origin",
        ],
        "origins: [VALUE]",
    ),
    OtherName::new(
        &[
            "method",
            "allow_methods",
            "allowmethods",
            "allowed_methods",
            "allowedmethods",
            "accesscontrolallowmethods",
            "access_control_allow_methods",
        ],
        "methods: [VALUE]",
    ),
    OtherName::new(
        &[
            "header",
            "allow_headers",
            "allowheaders",
            "allowed_headers",
            "allowedheaders",
            "accesscontrolallowheaders",
            "access_control_allow_headers",
        ],
        "headers: [VALUE]",
    ),
    OtherName::new(
        &[
            "allow_credentials",
            "allowcredentials",
            "accesscontrolallowcredentials",
            "access_control_allow_credentials",
        ],
        "credentials: VALUE",
    ),
    OtherName::new(
        &["allow_origin_regex", "alloworiginregex", "accesscontrolalloworiginlistregex", "origin_regex"],
        "origins: [\"https://*.example.com\"]",
    )
    .with(", which is any host below"),
    OtherName::new(&["preflight_continue", "options_passthrough"], "methods: [GET, POST]")
        .with(": Tollgate answers preflights. Without `cors`, they go to the upstream"),
    OtherName::new(
        &["maxage", "accesscontrolmaxage", "access_control_max_age", "preflight_max_age"],
        "max_age: 10m",
    ),
    OtherName::new(
        &[
            "expose_headers",
            "exposeheaders",
            "exposed_headers",
            "exposedheaders",
            "accesscontrolexposeheaders",
            "access_control_expose_headers",
        ],
        "expose: [VALUE]",
    ),
];

/// nginx, Caddy, Envoy, HAProxy, AWS, Kong, and what people write.
const REPLIES: &[&str] = &[
    "return",
    "respond",
    "direct_response",
    "directresponse",
    "http_request_return",
    "fixed_response",
    "static_response",
    "request_termination",
    "response",
    "static",
    "mock",
];

/// Caddy, Traefik, HAProxy, ingress-nginx, AWS, and what people write.
const REDIRECTS: &[&str] = &[
    "redir",
    "redirects",
    "redirect_regex",
    "redirectregex",
    "redirect_to",
    "redirect_url",
    "request_redirect",
    "requestredirect",
    "http_request_redirect",
    "permanent_redirect",
    "temporal_redirect",
    "fixed_redirect",
    "location_redirect",
];

/// What Caddy, Envoy, Traefik, HAProxy, the Gateway API and nginx call the settings of a redirect.
pub(in crate::config::section) const REDIRECT: &[OtherName] = &[
    OtherName::new(&["url", "uri", "location", "target", "destination", "replacement"], "to: VALUE"),
    OtherName::new(
        &["path_redirect", "prefix_rewrite", "replace_path", "replacepath", "replacefullpath", "prefix"],
        "path: VALUE",
    ),
    OtherName::new(&["hostname", "host_redirect", "domain"], "host: VALUE"),
    OtherName::new(&["port_redirect"], "port: VALUE"),
    OtherName::new(&["https_redirect", "scheme_redirect", "protocol", "https"], "scheme: https"),
    OtherName::new(&["code", "status_code", "statuscode", "response_code"], "status: VALUE"),
    OtherName::new(&["permanent"], "status: 308").with(" (the default), or `status: 307` for now"),
    OtherName::new(&["strip_query", "drop_query"], "query: drop"),
    OtherName::new(
        &["regex", "from", "regex_rewrite", "regex_redirect"],
        "to: \"https://new.example.com/{rest}\"",
    )
    .with(": what the `*` of the route's path matches is {rest}, and what \"/{id}\" matches {id}"),
];

/// What nginx, Caddy, Envoy, Traefik, HAProxy and Kong call a reply of the proxy's own.
pub(in crate::config::section) const ROUTE_REPLY: &[OtherName] = &[
    OtherName::new(&["code", "status_code", "statuscode", "response_code"], "status: VALUE"),
    OtherName::new(&["text", "message", "content", "string", "inline_string", "lf_string"], "body: VALUE"),
    OtherName::new(&["type", "default_type", "mime", "mime_type", "contenttype"], "content_type: VALUE"),
    OtherName::new(&["header", "hdr", "add_header"], "headers: { NAME: VALUE }"),
];

/// What nginx, Caddy, Envoy, Traefik, Kong and HAProxy call changes of a request's header.
const REQUEST_HEADERS: &[&str] = &[
    "proxy_set_header",
    "grpc_set_header",
    "header_up",
    "request_header",
    "requestheader",
    "request_headers_to_add",
    "request_header_modifier",
    "requestheadermodifier",
    "more_set_input_headers",
    "customrequestheaders",
    "custom_request_headers",
    "set_request_headers",
    "add_request_headers",
    "request_transformer",
];
/// And of a response's.
const RESPONSE_HEADERS: &[&str] = &[
    "add_header",
    "more_set_headers",
    "header_down",
    "response_header",
    "response_headers_to_add",
    "response_header_modifier",
    "responseheadermodifier",
    "customresponseheaders",
    "custom_response_headers",
    "set_response_headers",
    "add_response_headers",
    "response_transformer",
];

pub(in crate::config::section) const REWRITE: &[OtherName] = &[
    OtherName::new(
        &[
            "prefix",
            "strip",
            "strip_path",
            "stripprefix",
            "strip_path_prefix",
            "remove_prefix",
            "uri_strip_prefix",
        ],
        "strip_prefix: VALUE",
    ),
    OtherName::new(
        &[
            "to",
            "uri",
            "url",
            "replace",
            "target",
            "prefix_rewrite",
            "replace_path",
            "replacefullpath",
            "replace_full_path",
            "replaceprefixmatch",
            "replace_prefix_match",
        ],
        "path: VALUE",
    ),
    OtherName::new(&["add_prefix", "addprefix"], "path: \"/prefix/{rest}\"")
        .with(", where {rest} is what the * of `path: /*` matches"),
    OtherName::new(
        &["regex", "from", "pattern", "regex_rewrite", "path_regexp", "find", "replacement", "substitution"],
        "path: \"/new/{id}\"",
    )
    .with(", where {id} is what a group of the route matched: `path: '~^/old/(?P<id>[0-9]+)'`"),
    OtherName::new(&["hostname", "host", "host_rewrite", "host_rewrite_literal"], "host: rewrite")
        .with(" on the upstream: it gets the name of the endpoint"),
];

pub(in crate::config::section) const HEADER_EDITS: &[OtherName] = &[
    OtherName::new(
        &["replace", "override", "overwrite", "update", "set_if_absent", "setifabsent", "add_if_absent"],
        "set: { NAME: VALUE }",
    ),
    OtherName::new(&["append", "insert"], "add: { NAME: VALUE }"),
    OtherName::new(&["delete", "del", "unset", "hide", "drop", "strip"], "remove: [VALUE]"),
];

pub(in crate::config::section) const SHARE: &[OtherName] = &[
    OtherName::new(
        &["upstream", "service", "cluster", "backend", "backendrefs", "target", "host"],
        "name: VALUE",
    ),
    OtherName::new(&["percent", "percentage", "share", "ratio", "traffic"], "weight: VALUE"),
];
