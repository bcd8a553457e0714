//! What the API is, for programs: OpenAPI, gathered from what stands above each handler.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses, Modify, OpenApi,
    openapi::{
        Content, Ref, RefOr, ResponseBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::shapes::ProblemDetails;

/// The frame; the router adds the paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate's admin port",
        description = "Who is limited, who is behind it, and what an operator can do about it. Times are RFC 3339 in UTC, \
            durations as in proxy.yaml (`250ms`, `1s`, `5m`, `1h`, `30d`), keys as in the store (`ip:203.0.113.7`, `user:acme`)."
    ),
    components(schemas(ProblemDetails)),
    modifiers(&Bearer),
    security(("bearer" = []), ())
)]
pub(super) struct Description;

/// The token, where one is set.
struct Bearer;

impl Modify for Bearer {
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
    /// Who may not ask, or asks for what there isn't.
    Refusals: ["400", "401", "403"];
    /// The same where something is looked up.
    LookUps: ["400", "401", "403", "404", "503"];
    /// The same where something is changed.
    Changes: ["400", "401", "403", "404", "415", "503"];
}

fn problem(status: &str) -> (String, RefOr<utoipa::openapi::Response>) {
    let description = match status {
        "400" => "a parameter or the body can't be read",
        "401" => "the token is missing or wrong",
        "403" => "there is no token, and Host or Origin is not loopback's",
        "404" => "there is no such thing",
        "415" => "what changes something takes application/json only",
        "422" => "it can be read, and can't be done",
        _ => "it can't be done at the moment, the store is away, say",
    };
    let content = Content::new(Some(Ref::from_schema_name("ProblemDetails")));
    let response =
        ResponseBuilder::new().description(description).content("application/problem+json", content);
    (status.to_owned(), RefOr::T(response.build()))
}
