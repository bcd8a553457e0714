//! `routes`, and the settings of routes that also stand at the top level.

use super::{
    Items, Kind, LONGEST, Mapping, Rule, Setting,
    addresses::{ALLOW, DENY},
    text,
    upstreams::{RETRY, TIMEOUTS},
};

pub(super) const MATCHING: Setting = Setting::new(
    "match",
    Kind::Mapping(|| &MATCH),
    "How the path of a request is compared with the paths of routes.",
)
.unset("case and a trailing slash are ignored")
.example("{ case: sensitive }")
.see(&["routes[].path"]);

pub(super) const PATHS: Setting = Setting::new(
    "paths",
    Kind::Word(&["normalise", "pass", "refuse"]),
    "What happens to a request with `.` or `..` in its path. `normalise` resolves them. `pass` sends the path as it \
     came, if the route is the same with and without them. `refuse` answers 400.",
)
.default("normalise")
.example("refuse");

pub(super) const METHOD_OVERRIDE: Setting = Setting::new(
    "method_override",
    Kind::Word(&["remove", "allow"]),
    "Whether headers by which a client asks for another method, such as `X-HTTP-Method-Override`, are removed or \
     allowed. From trusted proxies they are allowed.",
)
.default("remove")
.example("allow")
.see(&["trusted_proxies"]);

pub(super) const TRAILERS: Setting = Setting::new(
    "trailers",
    Kind::Word(&["drop", "pass"]),
    "Whether trailers are forwarded. Those of gRPC responses always are.",
)
.default("drop")
.example("pass");

pub(super) const EARLY_HINTS: Setting = Setting::new(
    "early_hints",
    Kind::Word(&["drop", "pass"]),
    "Whether an upstream's 103 Early Hints are forwarded to HTTP/1.1 clients.",
)
.default("drop")
.example("pass");

const ACTIONS: &[&str] = &["upstream", "upstreams", "reply", "redirect"];

pub(in crate::config) static ROUTE: Mapping = Mapping::new(
    "Which requests the route is for, and what happens to them. A request must meet all conditions of a route.",
    "routes.md",
    &[
        Setting::new("name", Kind::Text(&text::NAME), "The name of the route in logs and metrics.")
            .unset("its path")
            .example("login"),
        Setting::new(
            "hosts",
            Kind::List(&Kind::Text(&text::HOST), Items::SomeUnique),
            "The hosts that the route is for. `*.example.org` means every name below example.org.",
        )
        .unset("every host")
        .example("[api.example.com, \"*.example.org\"]"),
        Setting::new(
            "path",
            Kind::Text(&text::PATH),
            "The path: an exact path, a path and everything below it (`/api/*`), a path with parameters \
             (`/users/{id}`), or a regular expression after `~`.",
        )
        .example("/api/*")
        .see(&["routes[].match", "routes[].rewrite"]),
        Setting::new(
            "methods",
            Kind::List(&Kind::Text(&text::METHOD), Items::SomeUnique),
            "The methods that the route is for. `GET` includes `HEAD`.",
        )
        .unset("every method")
        .example("[GET, POST]"),
        Setting::new(
            "headers",
            Kind::Names(&text::FIELD, &Kind::Text(&text::FIELD_VALUE), Items::Any),
            "Headers that a request must have, with exactly these values.",
        )
        .unset("none")
        .example("{ x-version: \"2\" }"),
        Setting::new(
            "query",
            Kind::Names(&text::PARAMETER, &Kind::Text(&text::ANY), Items::Some),
            "Query parameters that a request must have, with exactly these values (compared after decoding).",
        )
        .unset("none")
        .example("{ preview: \"1\" }"),
        Setting::new(
            "cookie",
            Kind::Names(&text::COOKIE, &Kind::Text(&text::ANY), Items::Some),
            "Cookies that a request must have, with exactly these values.",
        )
        .unset("none")
        .example("{ beta: \"1\" }"),
        Setting::new(
            "upstream",
            Kind::Text(&text::RESOURCE),
            "The upstream that requests are forwarded to. A route has exactly one of `upstream`, `upstreams`, `reply` and \
             `redirect`.",
        )
        .example("api"),
        Setting::new(
            "upstreams",
            Kind::List(&Kind::Mapping(|| &SHARE), Items::Some),
            "Several upstreams that share the requests by weight, for example for a canary release.",
        )
        .example("[{ name: api, weight: 95 }, { name: canary, weight: 5 }]")
        .see(&["routes[].split_by"]),
        Setting::new(
            "split_by",
            Kind::Text(&text::KEY),
            "The key that decides which of `upstreams` gets a request: the same key gets the same one while \
             the weights stay.",
        )
        .unset("each request is assigned on its own")
        .example("ip")
        .beside("upstreams: [{ name: api }, { name: canary }]"),
        Setting::new(
            "reply",
            Kind::Mapping(|| &ROUTE_REPLY),
            "A response that Tollgate itself sends.",
        )
        .example("{ status: 200, body: ok }"),
        Setting::new(
            "redirect",
            Kind::Mapping(|| &REDIRECT),
            "A redirect that Tollgate itself sends.",
        )
        .example("{ path: /new }"),
        Setting::new(
            "policies",
            Kind::List(&Kind::Text(&text::RESOURCE), Items::Unique),
            "The names of policies that apply to this route, in addition to those of its upstream.",
        )
        .unset("those of the upstream alone")
        .example("[per-ip]")
        .see(&["upstreams.*.policies"]),
        Setting::new(
            "timeouts",
            Kind::Mapping(|| &TIMEOUTS),
            "How long an endpoint may take for requests of this route.",
        )
        .unset("those of the upstream")
        .example("{ response: 5s }"),
        Setting::new("retry", Kind::Mapping(|| &RETRY), "When requests of this route are sent again.")
            .unset("the upstream's")
            .example("{ max: 0 }"),
        MATCHING.unset("the one at the top level"),
        PATHS.unset("the one at the top level"),
        METHOD_OVERRIDE.unset("the one at the top level"),
        TRAILERS.unset("the one at the top level"),
        EARLY_HINTS.unset("the one at the top level"),
        Setting::new("rewrite", Kind::Mapping(|| &REWRITE), "The path that the upstream gets.")
            .unset("the client's path")
            .example("{ strip_prefix: /api }")
            .beside("path: /api/*"),
        Setting::new(
            "request_headers",
            Kind::Mapping(|| &HEADER_EDITS),
            "Changes of the request's headers before it is forwarded.",
        )
        .unset("none")
        .example("{ set: { x-from: tollgate }, remove: [x-internal] }"),
        Setting::new(
            "response_headers",
            Kind::Mapping(|| &HEADER_EDITS),
            "Changes of the response's headers before it is sent to the client.",
        )
        .unset("none")
        .example("{ set: { x-frame-options: DENY }, remove: [server] }"),
        Setting::new(
            "max_body",
            Kind::Size(0, super::TIB << 10),
            "The longest request body on this route; a longer one gets 413. `0` allows any length.",
        )
        .unset("the listener's, or else `client_limits.max_body`")
        .example("10MiB")
        .see(&["listeners[].max_body", "client_limits.max_body"]),
        DENY.about(
            "Client addresses that get 403 on this route, before Tollgate looks at bans and limits. `deny` at the \
             top level applies as well.",
        )
        .unset("no further address is denied"),
        ALLOW.about(
            "The only client addresses that may use this route; all others get 403. `deny` wins over `allow`, and \
             `allow` at the top level applies as well.",
        )
        .unset("every address that the top level allows"),
        Setting::new("cors", Kind::Mapping(|| &CORS), "Which web pages of other origins may read the responses.")
            .unset("the upstream's own CORS headers are forwarded")
            .example("{ origins: [\"https://app.example.com\"] }")
            .see(&["policies.*.preflight"]),
    ],
)
.rules(&[
    Rule::One(ACTIONS),
    Rule::With("split_by", "upstreams"),
    Rule::AtMostOne(&["rewrite", "reply", "redirect"]),
    Rule::AtMostOne(&["request_headers", "reply", "redirect"]),
    Rule::AtMostOne(&["timeouts", "reply", "redirect"]),
    Rule::AtMostOne(&["retry", "reply", "redirect"]),
])
.sample("path: /api/*, upstream: api");

pub(in crate::config) static MATCH: Mapping = Mapping::new(
    "How the path of a request is compared with the paths of routes. A route may set one of these; the other is as at \
     the top level.",
    "routes.md",
    &[
        Setting::new(
            "case",
            Kind::Word(&["sensitive", "insensitive"]),
            "Whether `/Login` and `/login` are the same path.",
        )
        .default("insensitive")
        .example("sensitive"),
        Setting::new(
            "trailing_slash",
            Kind::Word(&["exact", "either"]),
            "Whether `/login/` and `/login` are the same path.",
        )
        .default("either")
        .example("exact"),
    ],
);

pub(in crate::config) static SHARE: Mapping = Mapping::new(
    "An upstream, and its share of the requests.",
    "routes.md",
    &[
        Setting::new("name", Kind::Text(&text::RESOURCE), "The name of the upstream.").example("api"),
        Setting::new(
            "weight",
            Kind::Count(0, 1_000_000),
            "Its share, relative to the other weights. With `0`, it gets no requests.",
        )
        .default("1")
        .example("95"),
    ],
)
.sample("name: api");

pub(in crate::config) static ROUTE_REPLY: Mapping = Mapping::new(
    "A response that Tollgate itself sends.",
    "routes.md",
    &[
        Setting::new(
            "status",
            Kind::Either(&[Kind::Count(200, 299), Kind::Count(400, 599)]),
            "The status of the response.",
        )
        .default("200")
        .example("503"),
        Setting::new(
            "headers",
            Kind::Names(&text::FIELD, &Kind::Text(&text::FIELD_VALUE), Items::Any),
            "The headers of the response.",
        )
        .unset("none")
        .example("{ cache-control: no-store }"),
        Setting::new("content_type", Kind::Text(&text::FIELD_VALUE), "The type of the body.")
            .unset("JSON, HTML or plain text, depending on how the body begins")
            .example("text/html")
            .beside("body: \"<p>Closed.</p>\""),
        Setting::new("body", Kind::Text(&text::ANY), "The body.").unset("empty").example("ok"),
    ],
)
.rules(&[Rule::With("content_type", "body")]);

pub(in crate::config) static REDIRECT: Mapping = Mapping::new(
    "A redirect: a whole URL, or the parts of the request's URL that change.",
    "routes.md",
    &[
        Setting::new("to", Kind::Text(&text::REDIRECT_URL), "The whole URL. Its path may have placeholders.")
            .unset("the request's URL, with the parts that are set")
            .example("\"https://new.example.com/{rest}\""),
        Setting::new(
            "scheme",
            Kind::Word(&["https", "http"]),
            "The new scheme.",
        )
        .unset("the request's")
        .example("https"),
        Setting::new(
            "host",
            Kind::Text(&text::REDIRECT_HOST),
            "The new host.",
        )
        .unset("the request's")
        .example("new.example.com"),
        Setting::new("port", Kind::Count(1, 65_535), "The new port of `host`.")
            .unset("the scheme's")
            .example("8443")
            .beside("host: new.example.com"),
        Setting::new(
            "path",
            Kind::Text(&text::PLACEHOLDERS),
            "The new path. It may have placeholders such as `{rest}`.",
        )
        .unset("the request's")
        .example("\"/new/{rest}\""),
        Setting::new(
            "status",
            Kind::Word(&["301", "302", "303", "307", "308"]),
            "The status: permanent (301, 308) or temporary (302, 307). With 307 and 308, clients keep the method; \
             with 303, they continue with GET.",
        )
        .default("308")
        .example("302")
        .beside("path: /new"),
        Setting::new("query", Kind::Word(&["keep", "drop"]), "Whether the query of the request is kept.")
            .default("keep")
            .example("drop")
            .beside("path: /new"),
    ],
)
.rules(&[
    Rule::AtLeastOne(&["to", "scheme", "host", "port", "path"]),
    Rule::AtMostOne(&["to", "scheme"]),
    Rule::AtMostOne(&["to", "host"]),
    Rule::AtMostOne(&["to", "port"]),
    Rule::AtMostOne(&["to", "path"]),
    Rule::With("port", "host"),
]);

pub(in crate::config) static REWRITE: Mapping = Mapping::new(
    "The path that the upstream gets. Set exactly one of the two.",
    "routes.md",
    &[
        Setting::new(
            "strip_prefix",
            Kind::Text(&text::PLAIN_PATH),
            "The prefix to remove from the beginning of the path.",
        )
        .example("/api"),
        Setting::new(
            "path",
            Kind::Text(&text::PLACEHOLDERS),
            "The new path. It may have placeholders such as `{rest}`.",
        )
        .example("\"/v2/{rest}\""),
    ],
)
.rules(&[Rule::One(&["strip_prefix", "path"])]);

pub(in crate::config) static HEADER_EDITS: Mapping = Mapping::new(
    "Changes of headers. `remove` comes first, then `set`, then `add`.",
    "routes.md",
    &[
        Setting::new(
            "set",
            Kind::Names(&text::FIELD, &Kind::Text(&text::PLACEHOLDERS), Items::Any),
            "Sets headers, and replaces those of the same name.",
        )
        .unset("none")
        .example("{ x-from: tollgate }"),
        Setting::new(
            "add",
            Kind::Names(
                &text::FIELD,
                &Kind::Either(&[
                    Kind::Text(&text::PLACEHOLDERS),
                    Kind::List(&Kind::Text(&text::PLACEHOLDERS), Items::Any),
                ]),
                Items::Any,
            ),
            "Adds headers, and keeps those of the same name. Each has a value, or a list of values.",
        )
        .unset("none")
        .example("{ x-tag: [a, b] }"),
        Setting::new(
            "remove",
            Kind::List(&Kind::Text(&text::FIELDS), Items::Unique),
            "Removes headers. `x-internal-*` removes all whose names begin with `x-internal-`.",
        )
        .unset("none")
        .example("[x-internal, \"x-debug-*\"]"),
    ],
);

pub(in crate::config) static CORS: Mapping = Mapping::new(
    "Cross-origin resource sharing. Tollgate answers preflights itself.",
    "cors.md",
    &[
        Setting::new(
            "origins",
            Kind::Either(&[
                Kind::Text(&text::ANY_NAME),
                Kind::List(
                    &Kind::Either(&[Kind::Text(&text::ORIGIN), Kind::Text(&text::ANY_NAME)]),
                    Items::SomeUnique,
                ),
            ]),
            "The origins whose pages may read responses, or `*` for all.",
        )
        .example("[\"https://app.example.com\", \"https://*.example.org\"]"),
        Setting::new(
            "methods",
            Kind::Either(&[
                Kind::Text(&text::ANY_NAME),
                Kind::List(
                    &Kind::Either(&[Kind::Text(&text::METHOD), Kind::Text(&text::ANY_NAME)]),
                    Items::Unique,
                ),
            ]),
            "The methods that pages may use, or `*`.",
        )
        .unset("the route's, or GET, HEAD and POST")
        .example("[GET, PUT]"),
        Setting::new(
            "headers",
            Kind::Either(&[
                Kind::Text(&text::ANY_NAME),
                Kind::List(&Kind::Text(&text::FIELD), Items::Unique),
            ]),
            "The request headers that pages may set, or `*`.",
        )
        .unset("none")
        .example("[authorization, content-type]"),
        Setting::new(
            "credentials",
            Kind::Boolean,
            "Whether pages may send cookies and other credentials. Not with `origins: \"*\"`.",
        )
        .default("false")
        .example("true"),
        Setting::new(
            "max_age",
            Kind::Duration(0, LONGEST),
            "How long browsers remember the answer to a preflight.",
        )
        .unset("the browser's own default")
        .example("10m"),
        Setting::new(
            "expose",
            Kind::List(&Kind::Text(&text::FIELD), Items::Unique),
            "The response headers that pages may read.",
        )
        .unset("those that browsers always expose")
        .example("[x-total-count]"),
    ],
)
.sample("origins: [\"https://app.example.com\"]");
