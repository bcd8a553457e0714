//! `user`: where the user ID of a request comes from.

use http::header::AUTHORIZATION;

use crate::config::{
    model::{HeaderFrom, Jwt, JwtAlgorithm, UserSource},
    reader::{Cursor, Mapping},
    value::{Invalid, choice, cookie_name, field_name, free_field_name, text, token_key},
};

/// What a configuration says of users and proxies, so that what could never apply is found.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// There are trusted proxies.
    pub(super) trusts: bool,
    /// A user ID comes from somewhere.
    pub(super) users: bool,
    /// Tokens are verified.
    pub(super) tokens: bool,
    /// Some source says who a user truly is.
    pub(super) verifies: bool,
    /// Some source believes whatever the client says.
    pub(super) believes: bool,
}

const ALGORITHMS: [(&str, JwtAlgorithm); 12] = [
    ("HS256", JwtAlgorithm::Hs256),
    ("HS384", JwtAlgorithm::Hs384),
    ("HS512", JwtAlgorithm::Hs512),
    ("RS256", JwtAlgorithm::Rs256),
    ("RS384", JwtAlgorithm::Rs384),
    ("RS512", JwtAlgorithm::Rs512),
    ("PS256", JwtAlgorithm::Ps256),
    ("PS384", JwtAlgorithm::Ps384),
    ("PS512", JwtAlgorithm::Ps512),
    ("ES256", JwtAlgorithm::Es256),
    ("ES384", JwtAlgorithm::Es384),
    ("EdDSA", JwtAlgorithm::EdDsa),
];

const FORM: &str = "one of `jwt: {…}`, `header: NAME`, `cookie: NAME`, or the word `basic`";

/// The sources, in the order in which they are tried, and what is known with them. `trusts` if there are trusted
/// proxies.
pub(super) fn sources(value: Option<Cursor<'_>>, trusts: bool) -> (Vec<UserSource>, Known) {
    let mut known = Known { trusts, users: value.is_some(), tokens: false, verifies: false, believes: false };
    let Some(list) = value else { return (Vec::new(), known) };
    let sources = list.distinct(|item| source(item, &mut known));
    known.believes = sources.iter().any(|source| match source {
        UserSource::Header { from, .. } => *from == HeaderFrom::Anyone,
        UserSource::Cookie(_) | UserSource::Basic => true,
        UserSource::Jwt(_) => false,
    });
    (sources, known)
}

/// One source. What is wrong with it is said of it alone: `known` has it all the same.
fn source(item: Cursor<'_>, known: &mut Known) -> Option<UserSource> {
    if item.written().is_some() {
        return item.parse(|text| match text {
            "basic" => Ok(UserSource::Basic),
            _ => Err(Invalid::new("is no source of user IDs").form(FORM)),
        });
    }
    let mut at = item.mapping()?;
    let (jwt, header, cookie, from) = (at.take("jwt"), at.take("header"), at.take("cookie"), at.take("from"));
    let several = [jwt, header, cookie].into_iter().flatten().count() > 1;
    known.tokens |= at.means("jwt");
    known.verifies |=
        at.means("jwt") || at.means("header") && from.and_then(Cursor::written) != Some("anyone");
    if several || !["jwt", "header", "cookie"].into_iter().any(|key| at.means(key)) {
        at.report("a source of user IDs is exactly one token, one header or one cookie", FORM.to_owned());
        at.finish();
        return None;
    }
    let words = choice(&[("trusted_proxies", HeaderFrom::TrustedProxies), ("anyone", HeaderFrom::Anyone)]);
    let believed = from.map_or(Some(HeaderFrom::TrustedProxies), |from| from.parse(words));
    if let Some(cookie) = cookie {
        report_from(&at, "a cookie always comes from the client");
        at.finish();
        return cookie.parse(cookie_name).map(UserSource::Cookie);
    }
    if let Some(jwt) = jwt {
        report_from(&at, "a token counts if it is verified, whoever sends it");
        at.finish();
        return token(jwt.mapping()?).map(UserSource::Jwt);
    }
    at.finish();
    let name = header?.parse(field_name)?;
    let from = believed?;
    if from == HeaderFrom::TrustedProxies && !known.trusts {
        let help = "list the gateway that sets it in `trusted_proxies`, or write `from: anyone`";
        item.report("there are no trusted_proxies, so this header is never believed", help.to_owned());
    }
    Some(UserSource::Header { name, from })
}

fn report_from(at: &Mapping<'_>, why: &str) {
    if let Some(place) = at.place_of("from") {
        at.report_at(place, format!("`from` is for headers: {why}"), None);
    }
}

/// A token in a field, whose key must be readable now.
fn token(mut at: Mapping<'_>) -> Option<Jwt> {
    let header = at.parse_or("header", AUTHORIZATION, |name| match field_name(name)? {
        AUTHORIZATION => Ok(AUTHORIZATION),
        _ => free_field_name(name),
    });
    let claim = at.parse_or("claim", "sub".to_owned(), text);
    let algorithm = at.take("algorithm").map(|value| value.parse(choice(&ALGORITHMS)));
    let issuer = at.take("issuer").map(|value| value.parse(text));
    let audience = at.take("audience").map(|value| value.parse(text));
    let key = at.require("key", "by what tokens are verified: `key: { file: keys/jwt.pem }`");
    at.finish();
    let key = key?;
    if key.written().is_some() {
        key.report("expected a mapping, not a word", "write `key: { file: FILE }`".to_owned());
        return None;
    }
    let mut key = key.mapping()?;
    let file =
        key.require("file", "a public key or certificate in PEM, a JSON Web Key set, or the secret of HS");
    key.finish();
    let algorithm = transposed(algorithm)?;
    let (key, ()) = file?.file(token_key(algorithm))?;
    Some(Jwt { header, claim, key, algorithm, issuer: transposed(issuer)?, audience: transposed(audience)? })
}

/// What is left out is no error; what is wrong is one, and was reported.
fn transposed<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| value.map(Some))
}
