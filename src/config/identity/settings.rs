//! `user`: where the user of a request is named.

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, header::AUTHORIZATION};
use serde::Serialize;
use tollgate_derive::{Settings, Word};
use url::Url;

use crate::{
    api_keys::KeyField,
    config::{
        keys::settings::Require,
        reader::{Cursor, MappingCursor},
        settings::{Kind, Read, Value},
        value::{
            Invalid, choice, field_name, key_set_url, printable_text, token_keys, unreserved_field_name,
        },
        written::serialize,
    },
    jwt_keys::{JwtAlgorithm, discovery_url},
    tls::CertificateField,
};

/// A source of user IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSource {
    /// The value of the cookie of this name.
    Cookie(String),
    /// The name of HTTP Basic credentials.
    Basic,
    /// A claim of a verified token.
    Jwt(Box<Jwt>),
    /// A field of the client's verified certificate.
    Tls(CertificateField),
    /// The customer, or the ID, of the request's API key.
    ApiKey(KeyField),
    #[serde(untagged)]
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        from: HeaderFrom,
    },
}

/// Who may send the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum HeaderFrom {
    TrustedProxies,
    Anyone,
}

/// A JSON Web Token that Tollgate verifies.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "identity.md#tokens", sample = "key: { file: keys/public.pem }, algorithm: ES256", check = check_keys)]
#[settings(rules(
    One(&["key", "jwks", "discover"]),
    With("jwks", "audience"),
    With("discover", "issuer"),
    With("discover", "audience")
))]
pub struct Jwt {
    /// The header that holds the token. In `authorization`, the token follows the word `Bearer`; any other header holds
    /// the token alone.
    #[setting(text = FIELD, parse = token_field, default = "authorization", example = "x-token")]
    #[setting(shown = serialize::displayed)]
    pub header: HeaderName,
    /// The claim that is the user ID.
    #[setting(text = NAME, parse = printable_text, default = "sub", example = "email")]
    pub claim: String,
    /// The key that verifies tokens: a public key or certificate in PEM, a JSON Web Key set, or the secret for HS256,
    /// HS384 and HS512. The file is read again when it changes.
    #[setting(mapping(TokenKeyFile), read = key_file, example = "{ file: keys/public.pem }")]
    #[setting(unset = "the keys are fetched: see `jwks` and `discover`", shown = serialize::plain)]
    pub key: Option<PathBuf>,
    /// The URL of the provider's JSON Web Key set. It is fetched at the start, before it grows old, and when a token
    /// names a key that it lacks.
    #[setting(text = KEY_SET_URL, parse = key_set_url, shown = serialize::displayed, unset = "no set is fetched")]
    #[setting(example = "https://login.example.com/jwks.json", beside = "audience: api")]
    #[setting(see = ["user[].jwt.stale"])]
    pub jwks: Option<Url>,
    /// Finds the key set by OpenID Connect Discovery: at `/.well-known/openid-configuration` of `issuer`.
    #[setting(unset = "`key` or `jwks` says where the keys are", example = "true", omit_if = is_false)]
    #[setting(beside = "issuer: \"https://login.example.com\", audience: api")]
    pub discover: bool,
    /// How long the last key set is used after it has grown old, while the provider cannot be reached.
    #[setting(duration = "0s..=366d", unset = "24h", example = "6h")]
    #[setting(beside = "jwks: \"https://login.example.com/jwks.json\", audience: api")]
    pub stale: Option<Duration>,
    /// The only algorithm that tokens may be signed with.
    #[setting(unset = "the one that the key is for", example = "ES256")]
    pub algorithm: Option<JwtAlgorithm>,
    /// The issuer (`iss`) that tokens must have.
    #[setting(text = NAME, parse = printable_text, unset = "any issuer", example = "https://login.example.com")]
    pub issuer: Option<String>,
    /// The audience (`aud`) that tokens must have.
    #[setting(text = NAME, parse = printable_text, unset = "any audience", example = "api")]
    pub audience: Option<String>,
}

impl Jwt {
    /// How long a key set is used after it has grown old.
    pub fn stale(&self) -> Duration {
        self.stale.unwrap_or(Duration::from_secs(24 * 60 * 60))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The key that verifies tokens.
#[derive(Settings)]
#[settings(written, page = "identity.md")]
struct TokenKeyFile {
    /// The path of the file. It is read again when it changes.
    #[setting(file, read = Cursor::path, example = "keys/public.pem", missing = KEY_FORMS)]
    file: PathBuf,
}

const KEY_FORMS: &str =
    "a public key or certificate in PEM, a JSON Web Key set, or the secret for HS256, HS384 or HS512";

impl Value for JwtAlgorithm {
    const KIND: Kind = Kind::Word(&[
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
        "EdDSA",
    ]);

    fn parse(text: &str) -> Result<Self, Invalid> {
        choice(&Self::ALL)(text)
    }
}

fn token_field(text: &str) -> Result<HeaderName, Invalid> {
    match field_name(text)? {
        AUTHORIZATION => Ok(AUTHORIZATION),
        _ => unreserved_field_name(text),
    }
}

fn key_file(value: Cursor<'_>) -> Option<PathBuf> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", "write `key: { file: FILE }`".to_owned());
        return None;
    }
    TokenKeyFile::read(value).map(|key| key.file)
}

const KEYS_FORM: &str = "`key: { file: keys/jwt.pem }`, or `jwks: https://login.example.com/jwks.json` with `audience`, or \
    `discover: true` with `issuer` and `audience`";

/// Checks where the keys are from. A file is read as it will be read again, so that an unusable one is an error.
fn check_keys(mapping: &MappingCursor<'_>, jwt: Option<&Jwt>) {
    let is_set = |key: &&'static str| match *key {
        "discover" => {
            mapping.has_or_misspells("discover")
                && mapping.peek("discover").and_then(Cursor::scalar) != Some("false")
        }
        key => mapping.has_or_misspells(key),
    };
    let sources: Vec<_> = ["key", "jwks", "discover"].into_iter().filter(is_set).collect();
    match sources[..] {
        [] => mapping.report("the keys that verify tokens are missing", KEYS_FORM.to_owned()),
        ["key"] => {}
        [fetched] => check_fetched(mapping, fetched, jwt),
        [first, second, ..] => mapping.report(
            format!("`{first}` and `{second}` both say where the keys are"),
            format!("set exactly one: {KEYS_FORM}"),
        ),
    }
    if sources.iter().all(|source| *source == "key")
        && let Some(stale) = mapping.key_location("stale")
    {
        let message = "`stale` works only beside `jwks` and `discover`: a file is read again when it changes";
        mapping.report_at(stale, message, None);
    }
    let Some(jwt) = jwt.filter(|jwt| jwt.algorithm.is_some() || mapping.peek("algorithm").is_none()) else {
        return;
    };
    let Some(file) = mapping.peek("key").and_then(|key| key.entry("file")) else { return };
    for ignored in file.file(token_keys(jwt.algorithm)).iter().flat_map(|(_, keys)| keys.ignored()) {
        file.warn(
            ignored.to_string(),
            "tokens that it signs are not valid; the other keys of the set are used".to_owned(),
        );
    }
}

/// Refuses `key` beside `jwks` or `discover`.
fn check_fetched(mapping: &MappingCursor<'_>, key: &'static str, jwt: Option<&Jwt>) {
    let report = |message: String, help: &str| {
        if let Some(location) = mapping.key_location(key) {
            mapping.report_at(location, message, help.to_owned());
        }
    };
    if !mapping.has_or_misspells("audience") {
        let message = format!("`{key}` needs `audience`: the provider signs tokens for other services, too");
        report(message, "name this service as its tokens do, such as `audience: api`");
    }
    if key == "discover" && !mapping.has_or_misspells("issuer") {
        let help = "the URL that the provider calls itself, such as `issuer: https://login.example.com`";
        report("`discover` needs `issuer`: the keys are found below it".to_owned(), help);
    }
    if key == "discover"
        && let Some(issuer) = jwt.and_then(|jwt| jwt.issuer.as_ref())
        && let Err(error) = discovery_url(issuer)
        && let Some(location) = mapping.key_location("issuer")
    {
        let help = "the URL that the provider calls itself, such as `issuer: https://login.example.com`";
        mapping.report_at(location, format!("`issuer` {error}"), help.to_owned());
    }
    if let Some(algorithm @ (JwtAlgorithm::Hs256 | JwtAlgorithm::Hs384 | JwtAlgorithm::Hs512)) =
        jwt.and_then(|jwt| jwt.algorithm)
        && let Some(location) = mapping.key_location("algorithm")
    {
        let name = JwtAlgorithm::ALL.iter().find(|(_, each)| *each == algorithm).map_or("", |(name, _)| name);
        let message = format!("{name} needs a shared secret, which a provider never publishes");
        let help = "use the algorithm of the provider's keys, or `key: { file: FILE }` with the secret";
        mapping.report_at(location, message, help.to_owned());
    }
}

/// Which identities requests can have, so that settings which could never apply are reported.
#[derive(Clone, Copy)]
pub(in crate::config) struct IdentitySources {
    /// `trusted_proxies` is not empty.
    pub(in crate::config) has_trusted_proxies: bool,
    /// A listener asks clients for certificates.
    pub(in crate::config) has_client_certificates: bool,
    /// `api_keys` is configured.
    pub(in crate::config) has_api_keys: bool,
    /// `user` is configured.
    pub(in crate::config) has_users: bool,
    /// Tokens are verified.
    pub(in crate::config) has_tokens: bool,
    /// A source of user IDs is verified: a token, a client certificate, or a header from trusted proxies.
    pub(in crate::config) has_verified_users: bool,
    /// A source of user IDs is not verified: the client can choose its user ID.
    pub(in crate::config) has_unverified_users: bool,
}

impl IdentitySources {
    /// Reports a setting that needs API keys if there are none.
    pub(in crate::config) fn report_without_api_keys(self, setting: Cursor<'_>) {
        if !self.has_api_keys {
            let help = "set where keys come from: `api_keys: { file: keys.yaml }`; to count the values of a header that nobody \
                        checks, write `header:NAME`";
            let message = "no request has an API key, because `api_keys` is not configured";
            setting.report(message, help.to_owned());
        }
    }

    /// Reports a credential that no request can have: each would get 401. `setting`: the `require` of a route.
    pub(in crate::config) fn report_without_credential(self, require: Require, setting: Cursor<'_>) {
        let lacks_users = !self.has_verified_users;
        let help = match require {
            Require::ApiKey => return self.report_without_api_keys(setting),
            Require::User if lacks_users && self.has_api_keys => {
                "under `user`, configure a `jwt`; or write `require: api_key`"
            }
            Require::User | Require::Any if lacks_users && !self.has_api_keys => {
                "under `user`, configure a `jwt`, a client certificate, or a header from trusted_proxies"
            }
            _ => return,
        };
        setting.report("no request has a verified user", help.to_owned());
    }

    /// Warns of a setting that needs certificates of clients if there are none.
    pub(in crate::config) fn warn_without_client_certificates(self, setting: Cursor<'_>) {
        if !self.has_client_certificates {
            let help = "set `client_ca` under `tls` of a listener";
            setting.warn(
                "no request has a client certificate, because no listener asks for one",
                help.to_owned(),
            );
        }
    }
}

/// A source of user IDs: exactly one token, header, cookie or client certificate.
#[derive(Settings)]
#[settings(written, page = "identity.md")]
#[settings(rules(One(&["jwt", "api_key", "header", "cookie", "tls"]), With("from", "header")))]
pub(in crate::config) struct UserSourceSettings<'t> {
    /// The user is a claim of a JSON Web Token. If the token is not valid, the request has no user from it.
    #[setting(mapping(Jwt), example = "{ key: { file: keys/public.pem }, algorithm: ES256 }")]
    pub(in crate::config) jwt: Option<Cursor<'t>>,
    /// The user is the customer of the request's API key, or the ID of the key.
    #[setting(text = KEY_FIELD, example = "customer", see = ["api_keys"])]
    pub(in crate::config) api_key: Option<Cursor<'t>>,
    /// The user is the value of this header.
    #[setting(text = FIELD, example = "x-user-id", see = ["user[].from"])]
    pub(in crate::config) header: Option<Cursor<'t>>,
    /// The user is the value of this cookie, which is not verified.
    #[setting(text = COOKIE, example = "session")]
    pub(in crate::config) cookie: Option<Cursor<'t>>,
    /// The user is the subject, or the fingerprint, of the client's verified certificate.
    #[setting(text = CERTIFICATE_FIELD, example = "subject", see = ["listeners[].tls.client_ca"])]
    pub(in crate::config) tls: Option<Cursor<'t>>,
    /// Who may send the header. With `anyone`, clients can choose any user ID.
    #[setting(of(HeaderFrom), default = "trusted_proxies", example = "anyone")]
    #[setting(beside = "header: x-user-id", see = ["trusted_proxies"])]
    pub(in crate::config) from: Option<Cursor<'t>>,
}
