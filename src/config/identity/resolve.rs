//! Makes the sources of users of their settings.

use crate::config::identity::settings::IdentitySources;
use crate::{
    api_keys::KeyField,
    config::{
        identity::settings::{HeaderFrom, Jwt, UserSource, UserSourceSettings},
        reader::{Cursor, MappingCursor},
        settings::{Read, Settings, Value},
        value::{Invalid, certificate_field, cookie_name, field_name},
    },
};

const FORM: &str = "one of `jwt: {…}`, `api_key: customer`, `header: NAME`, `cookie: NAME`, `tls: subject`, `tls: fingerprint` or `basic`";

/// The sources of user IDs in the order in which they are tried, and the identities that requests can have.
pub(in crate::config) fn user_sources(
    value: Option<Cursor<'_>>,
    has_trusted_proxies: bool,
    has_client_certificates: bool,
    has_api_keys: bool,
) -> (Vec<UserSource>, IdentitySources) {
    let mut identity = IdentitySources {
        has_trusted_proxies,
        has_client_certificates,
        has_api_keys,
        has_users: value.is_some() || has_api_keys,
        has_tokens: false,
        has_verified_users: has_api_keys && value.is_none(),
        has_unverified_users: false,
    };
    let Some(list) = value else {
        // Else nobody would be known although every request has a key.
        let customer = has_api_keys.then_some(UserSource::ApiKey(KeyField::Customer));
        return (customer.into_iter().collect(), identity);
    };
    if list.scalar().is_some() {
        list.parse(|text| word_in_place_of_sources(text, has_trusted_proxies));
        return (Vec::new(), identity);
    }
    let sources = list.unique_items(|item| {
        let source = user_source(item, &mut identity);
        if matches!(source, Some(UserSource::Tls(_))) {
            identity.warn_without_client_certificates(item);
        }
        source
    });
    identity.has_unverified_users = sources.iter().any(|source| match source {
        UserSource::Header { from, .. } => *from == HeaderFrom::Anyone,
        UserSource::Cookie(_) | UserSource::Basic => true,
        UserSource::Jwt(_) | UserSource::Tls(_) | UserSource::ApiKey(_) => false,
    });
    (sources, identity)
}

/// One source. `identity` includes it even if it is invalid, so that other settings are not reported because of it.
fn user_source(item: Cursor<'_>, identity: &mut IdentitySources) -> Option<UserSource> {
    if item.scalar().is_some() {
        identity.has_verified_users |= item.interpolated().is_some_and(|text| text.starts_with("tls:"));
        return item.parse(word_source);
    }
    let mut mapping = item.mapping()?.of(UserSourceSettings::mapping());
    let UserSourceSettings { jwt, api_key, header, cookie, tls, from } =
        UserSourceSettings::fields(&mut mapping)?;
    let several = [jwt, api_key, header, cookie, tls].into_iter().flatten().count() > 1;
    identity.has_tokens |= mapping.has_or_misspells("jwt");
    identity.has_verified_users |= mapping.has_or_misspells("jwt")
        || mapping.has_or_misspells("tls")
        || mapping.has_or_misspells("api_key")
        || mapping.has_or_misspells("header")
            && from.and_then(Cursor::interpolated).as_deref() != Some("anyone");
    if several
        || !["jwt", "api_key", "header", "cookie", "tls"].into_iter().any(|key| mapping.has_or_misspells(key))
    {
        mapping.report(
            "each source of user IDs is exactly one token, API key, header, cookie or certificate",
            FORM.to_owned(),
        );
        mapping.finish();
        return None;
    }
    let believed = from.map_or(Some(HeaderFrom::TrustedProxies), |from| from.parse(HeaderFrom::parse));
    if let Some(cookie) = cookie {
        report_from(&mapping, "a cookie always comes from the client");
        mapping.finish();
        return cookie.parse(cookie_name).map(UserSource::Cookie);
    }
    if let Some(jwt) = jwt {
        report_from(&mapping, "a token is verified, no matter where it comes from");
        mapping.finish();
        return whole_jwt(jwt).map(|jwt| UserSource::Jwt(Box::new(jwt)));
    }
    if let Some(tls) = tls {
        report_from(&mapping, "a certificate is verified, no matter where it comes from");
        mapping.finish();
        return tls.parse(certificate_field).map(UserSource::Tls);
    }
    if let Some(api_key) = api_key {
        report_from(&mapping, "an API key is verified, no matter where it comes from");
        mapping.finish();
        identity.report_without_api_keys(api_key);
        return api_key.parse(user_field).map(UserSource::ApiKey);
    }
    mapping.finish();
    let name = header?.parse(field_name)?;
    let from = believed?;
    if from == HeaderFrom::TrustedProxies && !identity.has_trusted_proxies {
        let help = "add the gateway that sets it to `trusted_proxies`, or write `from: anyone`";
        item.report("no trusted_proxies are configured, so this header is never trusted", help.to_owned());
    }
    Some(UserSource::Header { name, from })
}

/// The part of an API key's record that is the user.
fn user_field(text: &str) -> Result<KeyField, Invalid> {
    match KeyField::named(text) {
        Some(field) if field != KeyField::Plan => Ok(field),
        _ => Err(Invalid::new("is no user").expected("customer or api_key")),
    }
}

/// A source that is a word.
fn word_source(text: &str) -> Result<UserSource, Invalid> {
    match text.split_once(':') {
        None if text == "basic" => Ok(UserSource::Basic),
        Some(("tls", field)) => certificate_field(field).map(UserSource::Tls),
        _ => Err(Invalid::new("is not a source of user IDs").expected(FORM)),
    }
}

/// The error for a single word in place of the list. The word is a source, or probably the name of a header.
fn word_in_place_of_sources(text: &str, has_trusted_proxies: bool) -> Result<(), Invalid> {
    let source = match word_source(text) {
        Ok(_) => text.to_owned(),
        Err(invalid)
            if field_name(text).is_err() || ["jwt", "api_key", "header", "cookie", "tls"].contains(&text) =>
        {
            return Err(invalid);
        }
        Err(_) if has_trusted_proxies => format!("{{ header: {text} }}"),
        Err(_) => format!("{{ header: {text}, from: anyone }}"),
    };
    let suggestion = format!("did you mean `user: [{source}]`?");
    Err(Invalid::new("is not a list of sources of user IDs").expected(FORM).suggestion(suggestion))
}

fn report_from(mapping: &MappingCursor<'_>, why: &str) {
    if let Some(location) = mapping.key_location("from") {
        mapping.report_at(location, format!("`from` works only for headers: {why}"), None);
    }
}

/// A token of which every setting could be read. Another one would be compared with the sources beside it by its defaults.
fn whole_jwt(value: Cursor<'_>) -> Option<Jwt> {
    let jwt = Jwt::read(value)?;
    let is_lost = |key: &str, is_read: bool| value.entry(key).is_some() && !is_read;
    let lost = is_lost("algorithm", jwt.algorithm.is_some())
        || is_lost("issuer", jwt.issuer.is_some())
        || is_lost("audience", jwt.audience.is_some());
    let has_keys = jwt.key.is_some() || jwt.jwks.is_some() || jwt.discover;
    (has_keys && !lost).then_some(jwt)
}
