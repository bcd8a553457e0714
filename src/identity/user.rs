//! The user of a request.

use std::sync::Arc;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use compact_str::CompactString;
use http::{HeaderMap, header::AUTHORIZATION};

use super::{
    header_fields::{single_value, user_name},
    jwt::{TokenClaims, TokenRefusal, Verifier},
};
use crate::{
    api_keys::{ApiKey, KeyFault},
    config::model::{HeaderFrom, UserSource},
    router::cookies,
    tls::TlsIdentity,
};

/// As lenient as origins: credentials that they accept must name a user here, too.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The parts of a request that may name its user.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    pub headers: &'a HeaderMap,
    /// Whether the request was received from a trusted proxy.
    pub is_peer_trusted: bool,
    /// The verified certificate of the connection.
    pub certificate: Option<&'a TlsIdentity>,
    /// The request's valid API key.
    pub key: Option<&'a ApiKey>,
}

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user, if the request names one.
    pub user: Option<CompactString>,
    /// The replacement for the user in keys, if names must not be stored.
    pub pseudonym: Option<CompactString>,
    /// Whether a verified token, a verified certificate or a trusted proxy names the user.
    pub is_verified: bool,
    /// The claims of the request's verified token.
    pub claims: Option<Arc<TokenClaims>>,
    /// The finding about the request's tokens, none of which is valid. With [`TokenRefusal::NoKeySet`], nobody can say
    /// whether it names a user.
    pub refused_token: Option<TokenRefusal>,
    /// The request's API key. `None`: it has none.
    pub key: Option<Result<Arc<ApiKey>, RequestKeyFault>>,
}

/// Why the key of a request is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKeyFault {
    /// The request has several that differ.
    Several,
    /// It is too short, too long, or has other characters than visible ASCII.
    Malformed,
    /// It is a bearer token of another kind.
    OtherToken,
    /// The keys were not read yet, so that nobody can tell whether it is valid.
    NotLoaded,
    Invalid(KeyFault),
    /// It is a bearer token of another kind that is a known key, which has expired or was revoked.
    OtherInvalid(KeyFault),
}

impl Identity {
    /// The request's valid API key.
    pub fn valid_key(&self) -> Option<&ApiKey> {
        self.key.as_ref()?.as_ref().ok().map(|key| &**key)
    }
}

/// Identifies the user by the first of `sources` that names one. Names that are empty, not UTF-8 or contain control
/// characters are ignored. `verifier` must be made from the same sources. The claims are those of the first valid
/// token, even if another source names the user.
pub fn identify(sources: &[UserSource], verifier: &Verifier, credentials: Credentials<'_>) -> Identity {
    identify_with(sources, verifier, credentials, |_| ())
}

/// Like [`identify`], and calls `on_source` with the index of each source that is tried. The last of them names the
/// user, if any does.
pub fn identify_with(
    sources: &[UserSource],
    verifier: &Verifier,
    credentials: Credentials<'_>,
    mut on_source: impl FnMut(usize),
) -> Identity {
    let Credentials { headers, is_peer_trusted, certificate, key } = credentials;
    let verified = verifier.verify(headers);
    let claims = verified.tokens.iter().flatten().next().map(|token| Arc::clone(&token.claims));
    // The other sources of the same field have other providers.
    let refused_token = verified.refusal.filter(|_| claims.is_none());
    let mut tokens = verified.tokens.into_iter();
    let found = sources.iter().enumerate().find_map(|(index, source)| {
        on_source(index);
        let (user, is_verified) = match source {
            UserSource::Header { from: HeaderFrom::TrustedProxies, .. } if !is_peer_trusted => return None,
            UserSource::Header { name, from } => {
                (single_value(headers, name).and_then(user_name), *from == HeaderFrom::TrustedProxies)
            }
            UserSource::Cookie(name) => (agreed_cookie(headers, name).and_then(user_name), false),
            UserSource::Basic => (basic_user(single_value(headers, &AUTHORIZATION)?), false),
            UserSource::Jwt(_) => (tokens.next().flatten().and_then(|token| token.user), true),
            UserSource::Tls(field) => (user_name(certificate?.field(*field).as_bytes()), true),
            UserSource::ApiKey(field) => {
                (key?.field(*field).and_then(|name| user_name(name.as_bytes())), true)
            }
        };
        user.map(|user| (user, is_verified))
    });
    let (user, is_verified) = found.map_or((None, false), |(user, verified)| (Some(user), verified));
    Identity { user, pseudonym: None, is_verified, claims, refused_token, key: None }
}

/// The value, if all cookies of this name agree. With two values, the origin might use the other.
fn agreed_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = cookies(headers, name);
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// The user-id of Basic credentials: the part before the first colon (RFC 7617, 2).
fn basic_user(field: &[u8]) -> Option<CompactString> {
    let (scheme, credentials) = field.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = LENIENT.decode(credentials.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    user_name(&decoded[..colon])
}

/// The reason why `sources[index]` names no user, after [`identify_with`] has tried it without success. `verifier` must
/// be made from the same sources.
pub fn explain_failure(
    sources: &[UserSource],
    index: usize,
    verifier: &Verifier,
    credentials: Credentials<'_>,
) -> String {
    let Credentials { headers, is_peer_trusted, certificate, key } = credentials;
    let lines = |name| headers.get_all(name).iter().count();
    match sources.get(index) {
        Some(UserSource::Header { name, from: HeaderFrom::TrustedProxies })
            if !is_peer_trusted && lines(name) > 0 =>
        {
            format!("header {name}: the peer is not a trusted proxy")
        }
        Some(UserSource::Header { name, .. }) => match lines(name) {
            0 => format!("header {name}: not sent"),
            1 => format!("header {name}: empty or not a valid user ID"),
            _ => format!("header {name}: sent more than once"),
        },
        Some(UserSource::Cookie(name)) => match cookies(headers, name).count() {
            0 => format!("cookie {name}: not sent"),
            1 => format!("cookie {name}: empty or not a valid user ID"),
            _ => format!("cookie {name}: sent with different values, or without a valid user ID"),
        },
        Some(UserSource::Basic) => match single_value(headers, &AUTHORIZATION) {
            None => "basic: Authorization is missing, or sent more than once".to_owned(),
            Some(_) => "basic: Authorization has no Basic credentials with a user name".to_owned(),
        },
        Some(UserSource::Jwt(jwt)) => {
            let before = sources.iter().take(index);
            let nth = before.filter(|source| matches!(source, UserSource::Jwt(_))).count();
            format!("jwt in {}: {}", jwt.header, verifier.explain_failure(nth, headers))
        }
        Some(UserSource::Tls(field)) => match certificate {
            None => format!("tls {}: no client certificate", field.name()),
            Some(_) => format!("tls {}: empty or not a valid user ID", field.name()),
        },
        Some(UserSource::ApiKey(field)) => match key {
            None => format!("api_key {}: no valid API key", field.name()),
            Some(_) => format!("api_key {}: not a valid user ID", field.name()),
        },
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::tls::CertificateField;

    fn header(from: HeaderFrom) -> UserSource {
        UserSource::Header { name: HeaderName::from_static("x-user-id"), from }
    }

    fn found(
        sources: &[UserSource],
        trusted: bool,
        fields: &[(&'static str, &[u8])],
    ) -> Option<CompactString> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let credentials =
            Credentials { headers: &headers, is_peer_trusted: trusted, certificate: None, key: None };
        identify(sources, &Verifier::new(sources).unwrap(), credentials).user
    }

    #[test]
    fn a_certificate_names_a_verified_user() {
        let headers = HeaderMap::new();
        let acme = TlsIdentity::assumed("CN=acme".to_owned(), "ab".repeat(32));
        let of = |certificate, field| {
            let sources = [UserSource::Tls(field)];
            let credentials =
                Credentials { headers: &headers, is_peer_trusted: false, certificate, key: None };
            let verifier = Verifier::new(&sources).unwrap();
            let Identity { user, is_verified, .. } = identify(&sources, &verifier, credentials);
            (user.map(String::from), is_verified, explain_failure(&sources, 0, &verifier, credentials))
        };
        let [subject, fingerprint] = CertificateField::ALL.map(|(_, field)| field);
        let named = |name: &str| (Some(name.to_owned()), true);
        let (user, is_verified, _) = of(Some(&acme), subject);
        assert_eq!((user, is_verified), named("CN=acme"));
        let (user, is_verified, _) = of(Some(&acme), fingerprint);
        assert_eq!((user, is_verified), named(&"ab".repeat(32)));
        assert_eq!(of(None, subject), (None, false, "tls subject: no client certificate".to_owned()));
        let nameless = TlsIdentity::default();
        let why = "tls subject: empty or not a valid user ID".to_owned();
        assert_eq!(of(Some(&nameless), subject), (None, false, why));
    }

    #[test]
    fn a_header_counts_only_from_configured_senders() {
        let sent: [(&str, &[u8]); 1] = [("x-user-id", b"acme")];
        assert_eq!(found(&[header(HeaderFrom::Anyone)], false, &sent).as_deref(), Some("acme"));
        assert_eq!(found(&[header(HeaderFrom::TrustedProxies)], true, &sent).as_deref(), Some("acme"));
        assert_eq!(found(&[header(HeaderFrom::TrustedProxies)], false, &sent), None);
    }

    #[test]
    fn invalid_names_are_none() {
        let sources = [header(HeaderFrom::Anyone)];
        for value in [&b""[..], b"  ", b"a\tb", b"\xff", b"a\xc2\x85"] {
            assert_eq!(found(&sources, true, &[("x-user-id", value)]), None, "{}", value.escape_ascii());
        }
        assert_eq!(found(&sources, true, &[("x-user-id", "é b".as_bytes())]).as_deref(), Some("é b"));
        assert_eq!(found(&sources, true, &[("x-user-id", b"a"), ("x-user-id", b"a")]), None);
        assert_eq!(found(&sources, true, &[]), None);
        assert_eq!(found(&[], true, &[("x-user-id", b"a")]), None);
    }

    #[test]
    fn the_first_source_that_names_a_user_wins() {
        let sources =
            [header(HeaderFrom::TrustedProxies), UserSource::Cookie("session".to_owned()), UserSource::Basic];
        let all: [(&str, &[u8]); 3] =
            [("x-user-id", b"a"), ("cookie", b"session=b"), ("authorization", b"Basic Yzp3b3Jk")];
        assert_eq!(found(&sources, true, &all).as_deref(), Some("a"));
        assert_eq!(found(&sources, false, &all).as_deref(), Some("b"));
        assert_eq!(found(&sources, true, &all[1..]).as_deref(), Some("b"));
        assert_eq!(found(&sources, true, &all[2..]).as_deref(), Some("c"));
    }

    #[test]
    fn contradicting_cookies_name_no_user() {
        let sources = [UserSource::Cookie("session".to_owned())];
        let of = |lines: &[&'static [u8]]| {
            let fields: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
            found(&sources, false, &fields)
        };
        assert_eq!(of(&[b"session=a; session=a", b"x=1; session=\"a\""]).as_deref(), Some("a"));
        assert_eq!(of(&[b"session=a; session=b"]), None);
        assert_eq!(of(&[b"session=a", b"session=b"]), None);
        assert_eq!(of(&[b"session=; session=b"]), None);
    }

    #[test]
    fn basic_credentials_name_the_user() {
        for (field, name) in [
            (&b"Basic YWNtZTpzZWNyZXQ="[..], Some("acme")),
            (b"basic   YWNtZTpzZWNyZXQ", Some("acme")),
            (b"Basic YTpiOmM=", Some("a")),
            (b"Basic YTpi", Some("a")),
            (b"Basic OnNlY3JldA==", None),
            (b"Basic YWNtZQ==", None),
            (b"Basic /zpi", None),
            (b"Basic YQo6Yg==", None),
            (b"Basic !!!!", None),
            (b"Basic", None),
            (b"Basic ", None),
            (b"Bearer YWNtZTpzZWNyZXQ=", None),
            (b"BasicYWNtZTpzZWNyZXQ=", None),
        ] {
            let fields = [("authorization", field)];
            assert_eq!(
                found(&[UserSource::Basic], false, &fields).as_deref(),
                name,
                "{}",
                field.escape_ascii()
            );
        }
        let twice: [(&str, &[u8]); 2] = [("authorization", b"Basic YTpi"), ("authorization", b"Basic YTpi")];
        assert_eq!(found(&[UserSource::Basic], false, &twice), None);
    }
}
