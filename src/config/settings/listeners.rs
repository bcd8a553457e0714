//! `listeners` and `admin`.

use super::{Items, Kind, LONGEST, Mapping, Rule, Setting, TIB, text};

/// The largest limit of a body.
pub(super) const LARGEST_BODY: u64 = TIB << 10;

pub(in crate::config) static LISTENER: Mapping = Mapping::new(
    "One or more addresses on which clients are served in the same way.",
    "connections.md",
    &[
        Setting::new(
            "address",
            Kind::Either(&[Kind::Text(&text::LISTEN), Kind::List(&Kind::Text(&text::LISTEN), Items::SomeUnique)]),
            "The address to listen on, or a list of them.",
        )
        .example("[0.0.0.0:8080, \"[::]:8080\"]"),
        Setting::new("mode", Kind::Text(&text::FILE_MODE), "The permissions of a Unix socket.")
            .unset("depends on the umask")
            .example("\"0660\"")
            .beside("address: \"unix:/run/tollgate.sock\""),
        Setting::new("owner", Kind::Text(&text::NAME), "The owner of a Unix socket, by name or number.")
            .unset("the user that Tollgate runs as")
            .example("tollgate")
            .beside("address: \"unix:/run/tollgate.sock\""),
        Setting::new("group", Kind::Text(&text::NAME), "The group of a Unix socket, by name or number.")
            .unset("the group that Tollgate runs as")
            .example("www-data")
            .beside("address: \"unix:/run/tollgate.sock\""),
        Setting::new(
            "redirect",
            Kind::Either(&[Kind::Word(&["https"]), Kind::Mapping(|| &LISTENER_REDIRECT)]),
            "Redirects every request to the same URL with https, with status 308. A request that a trusted proxy sends \
             with `X-Forwarded-Proto: https` is served instead.",
        )
        .unset("no redirect")
        .example("https")
        .see(&["listeners[].tls"]),
        Setting::new(
            "proxy_protocol",
            Kind::Boolean,
            "Whether connections begin with a header of the PROXY protocol, version 1 or 2. Connections that do not \
             come from `trusted_proxies` are then closed.",
        )
        .default("false")
        .example("true")
        .see(&["trusted_proxies"]),
        Setting::new("tls", Kind::Mapping(|| &LISTENER_TLS), "Serves clients over TLS.")
            .unset("clear text")
            .example("{ certificates: [{ cert: api.pem, key: api.key }] }"),
        Setting::new(
            "http2",
            Kind::Boolean,
            "Whether clients may use HTTP/2: over TLS, negotiated by ALPN; in clear text, with prior knowledge.",
        )
        .default("true")
        .example("false")
        .see(&["client_limits.h2_streams"]),
        Setting::new(
            "max_body",
            Kind::Size(0, LARGEST_BODY),
            "The longest request body on this listener; a longer one gets 413. `0` allows any length.",
        )
        .unset("`client_limits.max_body`")
        .example("10MiB")
        .see(&["routes[].max_body", "client_limits.max_body"]),
    ],
)
.sample("address: 127.0.0.1:8090");

pub(in crate::config) static LISTENER_REDIRECT: Mapping = Mapping::new(
    "The redirect to https.",
    "connections.md",
    &[
        Setting::new("to", Kind::Word(&["https"]), "The scheme that clients are sent to.").example("https"),
        Setting::new("port", Kind::Count(1, 65_535), "The port at which clients reach the https listener.")
            .default("443")
            .example("8443"),
        Setting::new(
            "hsts",
            HSTS_KIND,
            "Sends `Strict-Transport-Security` on all TLS listeners that have no `hsts` of their own.",
        )
        .unset("no such header")
        .example("365d")
        .see(&["listeners[].tls.hsts"]),
    ],
)
.sample("to: https");

const HSTS_KIND: Kind = Kind::Either(&[Kind::Duration(0, 2 * LONGEST), Kind::Mapping(|| &HSTS)]);

pub(in crate::config) static HSTS: Mapping = Mapping::new(
    "The header `Strict-Transport-Security` (RFC 6797).",
    "tls.md",
    &[
        Setting::new(
            "max_age",
            Kind::Duration(0, 2 * LONGEST),
            "How long browsers use only https for the host.",
        )
        .example("365d"),
        Setting::new(
            "include_subdomains",
            Kind::Boolean,
            "Whether this applies to all subdomains of the host, too.",
        )
        .default("false")
        .example("true"),
        Setting::new(
            "preload",
            Kind::Boolean,
            "Whether browsers may include the host in their built-in lists (preload lists).",
        )
        .default("false")
        .example("true"),
    ],
)
.sample("max_age: 365d");

pub(in crate::config) static LISTENER_TLS: Mapping = Mapping::new(
    "TLS to clients.",
    "tls.md",
    &[
        Setting::new(
            "certificates",
            Kind::List(&Kind::Mapping(|| &CERTIFICATE), Items::Some),
            "The certificates. Tollgate chooses one by the name that the client asks for (SNI); the first serves all \
             other names.",
        )
        .example("[{ cert: api.pem, key: api.key }]"),
        Setting::new(
            "client_ca",
            Kind::File,
            "The authorities that sign the certificates of clients, in PEM. With this setting, Tollgate asks clients \
             for a certificate.",
        )
        .unset("clients are not asked for a certificate")
        .example("clients.pem")
        .see(&["listeners[].tls.client_auth", "policies.*.key"]),
        Setting::new(
            "client_auth",
            Kind::Either(&[Kind::Word(&["required", "optional"]), Kind::Mapping(|| &CLIENT_AUTH)]),
            "Whether a client must have a certificate. If it must, a client without one gets 403; `{ required: 401 \
             }` sends another status.",
        )
        .default("required")
        .example("optional")
        .beside("client_ca: clients.pem"),
        Setting::new("min_version", Kind::Word(&["1.2", "1.3"]), "The oldest version of TLS that clients may use.")
            .default("\"1.2\"")
            .example("\"1.3\""),
        Setting::new("hsts", HSTS_KIND, "Sends `Strict-Transport-Security`, so that browsers use only https.")
            .unset("the `hsts` of a listener that redirects here, or no such header")
            .example("365d")
            .see(&["listeners[].redirect.hsts"]),
    ],
)
.rules(&[Rule::With("client_auth", "client_ca")])
.sample("certificates: [{ cert: api.pem, key: api.key }]");

pub(in crate::config) static CERTIFICATE: Mapping = Mapping::new(
    "A certificate and its key. Both files are read again when they change.",
    "tls.md",
    &[
        Setting::new("cert", Kind::File, "The certificate and the chain to its authority, in PEM.")
            .example("api.pem"),
        Setting::new("key", Kind::File, "The private key, in PEM.").example("api.key"),
        Setting::new(
            "names",
            Kind::List(&Kind::Text(&text::CERTIFICATE_NAME), Items::Unique),
            "Names that the certificate must have. If it lacks one of them, that is an error.",
        )
        .unset("it may have any names")
        .example("[api.example.com]"),
    ],
)
.sample("cert: api.pem, key: api.key");

pub(in crate::config) static CLIENT_AUTH: Mapping = Mapping::new(
    "A client must have a certificate, and gets this status without one.",
    "tls.md",
    &[Setting::new(
        "required",
        Kind::Count(400, 499),
        "The status that a client without a certificate gets.",
    )
    .example("400")],
);

pub(in crate::config) static ADMIN: Mapping = Mapping::new(
    "The admin port.",
    "admin.md",
    &[
        Setting::new("address", Kind::Text(&text::ADDRESS_AND_PORT), "The address to listen on.")
            .default("127.0.0.1:9900")
            .example("0.0.0.0:9900")
            .beside("token: \"9c1185a5c5e9fc54612808977ee8f548b2258d31\"")
            .see(&["admin.token"]),
        Setting::new(
            "token",
            Kind::Text(&text::BEARER),
            "The bearer token that every request to the admin port needs. It is required unless the address is loopback. An empty one is an error, unless it is the fallback of `${NAME:-}`.",
        )
        .unset("no token is needed")
        .example("\"${TOLLGATE_ADMIN_TOKEN:-}\""),
    ],
);
