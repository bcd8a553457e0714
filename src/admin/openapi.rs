//! The OpenAPI description of the API, collected from the attributes of the handlers.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        Content, Header, ObjectBuilder, Ref, RefOr, ResponseBuilder, Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::dto::{ProblemDetails, Tick, schema};

/// The description without paths, which the router adds.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate admin API",
        description = "Shows which clients are limited and who is behind them, and lets operators act on it. Times are \
            RFC 3339 in UTC, durations are written as in proxy.yaml (`250ms`, `1s`, `5m`, `1h`, `30d`), keys \
            as in the store (`ip:203.0.113.7`, `user:acme`)."
    ),
    // Schemas that no response refers to: of parameters, of errors, of events.
    components(schemas(
        ProblemDetails,
        Tick,
        schema::Client,
        schema::Prefix,
        schema::BanKey,
        schema::LimitKey,
        schema::KeyId,
        schema::KeyName,
        schema::IncidentId,
        schema::UpstreamName,
        schema::EndpointUrl,
        schema::Cursor,
        schema::Date,
        schema::Month
    )),
    tags(
        (name = "health", description = "Liveness, readiness and metrics"),
        (name = "in force", description = "The running configuration, its effect on a request, and who changed what"),
        (name = "limited clients", description = "Which clients were limited, and who was behind them"),
        (name = "incidents", description = "Attacks and refusals of many clients, and acts on them"),
        (name = "limits", description = "The usage of a single limit, and resetting it"),
        (name = "bans", description = "Bans of addresses, prefixes and users"),
        (name = "keys", description = "API keys of customers"),
        (name = "upstreams", description = "Upstreams, their endpoints, and draining these"),
        (name = "history", description = "What was used, and why requests were denied, asked later"),
        (name = "events", description = "Live events")
    ),
    modifiers(&BearerScheme),
    security(("bearer" = []), ())
)]
pub(super) struct ApiDoc;

/// The token, if one is configured.
struct BearerScheme;

impl Modify for BearerScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident: [$($status:literal),*];)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
                    [$($status),*].into_iter().map(problem).collect()
                }
            }
        )*
    };
}

problems! {
    /// Errors of reads: unauthorized, or an invalid request.
    ReadErrors: ["400", "401", "403", "429"];
    /// Errors of lookups.
    LookupErrors: ["400", "401", "403", "404", "429"];
    /// Errors of changes, and of reads with a body.
    WriteErrors: ["400", "401", "403", "415", "429"];
    /// The resource to change does not exist.
    NotFoundError: ["404"];
    /// The operation needs `force`.
    ConflictError: ["409"];
    /// The resource was changed since.
    PreconditionError: ["412"];
    /// Errors while reading a body.
    BodyErrors: ["408", "413"];
    /// The store or another instance is unavailable.
    UnavailableError: ["503"];
    /// The configuration has errors.
    ConfigErrors: ["422"];
    /// The resource can't be changed in this way.
    RefusedError: ["422"];
}

fn problem(status: &str) -> (String, RefOr<utoipa::openapi::Response>) {
    let description = match status {
        "400" => "a parameter or the body is invalid",
        "401" => "the token is missing or wrong",
        "403" => {
            "no token is configured, and Host or Origin is not a loopback address; or Origin is not the same as \
            Host"
        }
        "404" => "it does not exist",
        "408" => "the body was sent too slowly",
        "409" => "it would do more than is likely meant, and `force` is not set",
        "412" => "it has another version than `If-Match` names",
        "413" => "the body is longer than 64 KiB (of an import: 32 MiB), or incomplete",
        "415" => "a body is not application/json",
        "422" => "the request is valid but cannot be carried out",
        "429" => "too many wrong tokens were sent",
        _ => "it is not possible right now, for example because the store is unavailable",
    };
    let content = Content::new(Some(Ref::from_schema_name("ProblemDetails")));
    let mut response =
        ResponseBuilder::new().description(description).content("application/problem+json", content);
    let header = match status {
        "401" => Some(("WWW-Authenticate", "the authentication scheme: a bearer token", Type::String)),
        "429" => Some(("Retry-After", "seconds", Type::Integer)),
        _ => None,
    };
    if let Some((name, description, kind)) = header {
        let mut header = Header::new(ObjectBuilder::new().schema_type(kind).build());
        header.description = Some(description.to_owned());
        response = response.header(name, header);
    }
    (status.to_owned(), RefOr::T(response.build()))
}
