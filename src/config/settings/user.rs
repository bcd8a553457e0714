//! `user`.

use super::{Kind, Mapping, Rule, Setting, text};

pub(in crate::config) static USER_SOURCE: Mapping = Mapping::new(
    "A source of user IDs: exactly one token, header, cookie or client certificate.",
    "identity.md",
    &[
        Setting::new(
            "jwt",
            Kind::Mapping(|| &JWT),
            "The user is a claim of a JSON Web Token. If the token is not valid, the request has no user from it.",
        )
        .example("{ key: { file: keys/public.pem }, algorithm: ES256 }"),
        Setting::new("header", Kind::Text(&text::FIELD), "The user is the value of this header.")
            .example("x-user-id")
            .see(&["user[].from"]),
        Setting::new(
            "cookie",
            Kind::Text(&text::COOKIE),
            "The user is the value of this cookie, which is not verified.",
        )
        .example("session"),
        Setting::new(
            "tls",
            Kind::Text(&text::CERTIFICATE_FIELD),
            "The user is the subject, or the fingerprint, of the client's verified certificate.",
        )
        .example("subject")
        .see(&["listeners[].tls.client_ca"]),
        Setting::new(
            "from",
            Kind::Word(&["trusted_proxies", "anyone"]),
            "Who may send the header. With `anyone`, clients can choose any user ID.",
        )
        .default("trusted_proxies")
        .example("anyone")
        .beside("header: x-user-id")
        .see(&["trusted_proxies"]),
    ],
)
.rules(&[Rule::One(&["jwt", "header", "cookie", "tls"]), Rule::With("from", "header")]);

pub(in crate::config) static JWT: Mapping = Mapping::new(
    "A JSON Web Token that Tollgate verifies.",
    "identity.md",
    &[
        Setting::new(
            "header",
            Kind::Text(&text::FIELD),
            "The header that holds the token. In `authorization`, the token follows the word `Bearer`; any other \
             header holds the token alone.",
        )
        .default("authorization")
        .example("x-token"),
        Setting::new("claim", Kind::Text(&text::NAME), "The claim that is the user ID.").default("sub").example("email"),
        Setting::new(
            "key",
            Kind::Mapping(|| &KEY_FILE),
            "The key that verifies tokens: a public key or certificate in PEM, a JSON Web Key set, or the secret for \
             HS256, HS384 and HS512. The file is read again when it changes.",
        )
        .example("{ file: keys/public.pem }"),
        Setting::new(
            "algorithm",
            Kind::Word(&[
                "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
            ]),
            "The only algorithm that tokens may be signed with.",
        )
        .unset("the one that the key is for")
        .example("ES256"),
        Setting::new("issuer", Kind::Text(&text::NAME), "The issuer (`iss`) that tokens must have.")
            .unset("any issuer")
            .example("https://login.example.com"),
        Setting::new("audience", Kind::Text(&text::NAME), "The audience (`aud`) that tokens must have.")
            .unset("any audience")
            .example("api"),
    ],
)
.sample("key: { file: keys/public.pem }, algorithm: ES256");

pub(in crate::config) static KEY_FILE: Mapping = Mapping::new(
    "The key that verifies tokens.",
    "identity.md",
    &[Setting::new("file", Kind::File, "The path of the file. It is read again when it changes.")
        .example("keys/public.pem")],
);
