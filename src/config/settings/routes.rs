//! `routes`, and the settings of routes that also stand at the top level.

use super::{
    Items, Kind, LONGEST, Mapping, Rule, Setting,
    listeners::LARGEST_BODY,
    policies,
    root::{ALLOW, DENY},
    text,
    upstreams::{RETRY, TIMEOUTS},
};

pub(super) const MATCHING: Setting =
    Setting::new("match", Kind::Mapping(&MATCH), "How paths are compared with those of routes.")
        .unset("regardless of case and of a slash at the end")
        .example("{ case: sensitive }")
        .see(&["routes[].path"]);

pub(super) const PATHS: Setting = Setting::new(
    "paths",
    Kind::Word(&["normalise", "pass", "refuse"]),
    "What happens to `.` and `..` in the path of a request: they are resolved, sent as they came if that makes no \
     difference to the route, or refused with 400.",
)
.default("normalise")
.example("refuse");

pub(super) const METHOD_OVERRIDE: Setting = Setting::new(
    "method_override",
    Kind::Word(&["remove", "allow"]),
    "Whether untrusted clients may ask for another method by a header, such as `X-HTTP-Method-Override`.",
)
.default("remove")
.example("allow")
.see(&["trusted_proxies"]);

pub(super) const TRAILERS: Setting = Setting::new(
    "trailers",
    Kind::Word(&["drop", "pass"]),
    "Whether trailers pass. Those of gRPC responses always do.",
)
.default("drop")
.example("pass");

pub(super) const EARLY_HINTS: Setting = Setting::new(
    "early_hints",
    Kind::Word(&["drop", "pass"]),
    "Whether clients of HTTP/1.1 get an upstream's 103 Early Hints.",
)
.default("drop")
.example("pass");

const ACTIONS: &[&str] = &["upstream", "upstreams", "reply", "redirect"];

pub(in crate::config) static ROUTE: Mapping = Mapping::new(
    "Which requests it is for, and what is done with them. All conditions of a route must hold.",
    "routes.md",
    &[
        Setting::new("name", Kind::Text(&text::NAME), "The name of the route in logs and metrics.")
            .unset("its path")
            .example("login"),
        Setting::new(
            "hosts",
            Kind::List(&Kind::Text(&text::HOST), Items::SomeUnique),
            "The hosts that the route is for. `*.example.org` stands for every name below example.org.",
        )
        .unset("every host")
        .example("[api.example.com, \"*.example.org\"]"),
        Setting::new(
            "path",
            Kind::Text(&text::PATH),
            "The path: exact, everything below it with `/*`, with parameters such as `/users/{id}`, or a regular \
             expression behind `~`.",
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
            "Query parameters that a request must have, with exactly these values, decoded.",
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
            Kind::List(&Kind::Mapping(&SHARE), Items::Some),
            "Several upstreams that share the requests by weight, for a canary.",
        )
        .example("[{ name: api, weight: 95 }, { name: canary, weight: 5 }]")
        .see(&["routes[].split_by"]),
        Setting::new(
            "split_by",
            policies::KEY,
            "Requests with the same key go to the same of `upstreams`.",
        )
        .unset("each request is for itself")
        .example("ip")
        .beside("upstreams: [{ name: api }, { name: canary }]"),
        Setting::new("reply", Kind::Mapping(&ROUTE_REPLY), "A response that Tollgate itself gives.").example("{ status: 200, body: ok }"),
        Setting::new("redirect", Kind::Mapping(&REDIRECT), "Where clients are sent.").example("{ path: /new }"),
        Setting::new(
            "policies",
            Kind::List(&Kind::Text(&text::RESOURCE), Items::Unique),
            "The policies that apply to this route besides those of its upstream, by their names.",
        )
        .unset("those of the upstream alone")
        .example("[per-ip]")
        .see(&["upstreams.*.policies"]),
        Setting::new("timeouts", Kind::Mapping(&TIMEOUTS), "How long an endpoint may take for this route.")
            .unset("those of the upstream")
            .example("{ response: 5s }"),
        Setting::new("retry", Kind::Mapping(&RETRY), "When requests of this route are sent again.")
            .unset("as the upstream says")
            .example("{ max: 0 }"),
        MATCHING.unset("as the top level says"),
        PATHS.unset("as the top level says"),
        METHOD_OVERRIDE.unset("as the top level says"),
        TRAILERS.unset("as the top level says"),
        EARLY_HINTS.unset("as the top level says"),
        Setting::new("rewrite", Kind::Mapping(&REWRITE), "The path that the upstream gets.")
            .unset("the client's path")
            .example("{ strip_prefix: /api }")
            .beside("path: /api/*"),
        Setting::new(
            "request_headers",
            Kind::Mapping(&HEADER_EDITS),
            "Headers that are set, added or removed before a request is forwarded.",
        )
        .unset("none")
        .example("{ set: { x-from: tollgate }, remove: [x-internal] }"),
        Setting::new(
            "response_headers",
            Kind::Mapping(&HEADER_EDITS),
            "Headers that are set, added or removed before a response is passed on.",
        )
        .unset("none")
        .example("{ set: { x-frame-options: DENY }, remove: [server] }"),
        Setting::new(
            "max_body",
            Kind::Size(0, LARGEST_BODY),
            "The longest request body on this route; a longer one gets 413. `0` allows any length.",
        )
        .unset("as the listener says, or else `client_limits.max_body`")
        .example("10MiB")
        .see(&["listeners[].max_body", "client_limits.max_body"]),
        DENY.about("Client addresses that get 403 on this route, before bans and limits.")
            .unset("what the top level denies"),
        ALLOW.unset("what the top level allows"),
        Setting::new("cors", Kind::Mapping(&CORS), "Which pages of other origins may read the responses.")
            .unset("what the upstream says")
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
    "How paths are compared with those of routes.",
    "routes.md",
    &[
        Setting::new("case", Kind::Word(&["sensitive", "insensitive"]), "Whether `/Login` is `/login`.")
            .default("insensitive")
            .example("sensitive"),
        Setting::new("trailing_slash", Kind::Word(&["exact", "either"]), "Whether `/login/` is `/login`.")
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
            "Its share, compared with the other weights. `0`: it gets none.",
        )
        .default("1")
        .example("95"),
    ],
)
.sample("name: api");

pub(in crate::config) static ROUTE_REPLY: Mapping = Mapping::new(
    "A response that Tollgate itself gives.",
    "routes.md",
    &[
        Setting::new("status", Kind::Either(&[Kind::Count(200, 299), Kind::Count(400, 599)]), "The status.")
            .default("200")
            .example("503"),
        Setting::new(
            "headers",
            Kind::Names(&text::FIELD, &Kind::Text(&text::FIELD_VALUE), Items::Any),
            "Its headers.",
        )
        .unset("none")
        .example("{ cache-control: no-store }"),
        Setting::new("content_type", Kind::Text(&text::FIELD_VALUE), "The type of the body.")
            .unset("JSON, HTML or plain text, as the body begins")
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
        Setting::new("scheme", Kind::Word(&["https", "http"]), "The scheme.").unset("the request's").example("https"),
        Setting::new("host", Kind::Text(&text::HOST), "The host.").unset("the request's").example("new.example.com"),
        Setting::new("port", Kind::Count(1, 65_535), "The port of `host`.")
            .unset("the scheme's")
            .example("8443")
            .beside("host: new.example.com"),
        Setting::new("path", Kind::Text(&text::PLACEHOLDERS), "The path, with placeholders such as `{rest}`.")
            .unset("the request's")
            .example("\"/new/{rest}\""),
        Setting::new(
            "status",
            Kind::Word(&["301", "302", "303", "307", "308"]),
            "The status: for good (301, 308) or for now (302, 307). 307 and 308 keep the method; 303 asks with GET.",
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
    "The path that the upstream gets: exactly one of the two.",
    "routes.md",
    &[
        Setting::new(
            "strip_prefix",
            Kind::Text(&text::PLAIN_PATH),
            "Removes this from the beginning of the path.",
        )
        .example("/api"),
        Setting::new(
            "path",
            Kind::Text(&text::PLACEHOLDERS),
            "The new path, with placeholders such as `{rest}`.",
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
            "Sets headers, in place of those that are there.",
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
            "Adds headers to those that are there, each with a value or a list of them.",
        )
        .unset("none")
        .example("{ x-tag: [a, b] }"),
        Setting::new(
            "remove",
            Kind::List(&Kind::Text(&text::FIELDS), Items::Unique),
            "Removes headers. `x-internal-*` stands for all that begin so.",
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
        .unset("as browsers do")
        .example("10m"),
        Setting::new(
            "expose",
            Kind::List(&Kind::Text(&text::FIELD), Items::Unique),
            "The response headers that pages may read.",
        )
        .unset("those that browsers always show")
        .example("[x-total-count]"),
    ],
)
.sample("origins: [\"https://app.example.com\"]");
