//! The identifiers that a policy limits: `ip:203.0.113.7+path:/login`.

use std::borrow::Cow;

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, Method};
use smallvec::SmallVec;

use super::{
    AddressIdentifier,
    encode::{push_path, push_text},
    jwt::TokenClaims,
};
use crate::{
    api_keys::ApiKey,
    config::model::{KeyPart, KeyRecipe, Missing, PathCase, PathMatching, TrailingSlash},
    request_values::{FoundValue, FoundValues},
    router::{cookies, query_values},
    tls::TlsIdentity,
};

/// The attributes of a request that may identify it. Borrowed: each is computed only when a key needs it.
#[derive(Debug, Clone, Copy)]
pub struct RequestAttributes<'a> {
    /// The client's address.
    pub address: &'a AddressIdentifier,
    /// False: it is another's, since nobody knows the client's.
    pub has_address: bool,
    pub user: Option<&'a str>,
    /// The replacement for the user in identifiers, if names must not be stored.
    pub pseudonym: Option<&'a str>,
    /// Whether a token or a trusted proxy vouches for the user.
    pub is_user_verified: bool,
    /// The claims of a verified token.
    pub claims: Option<&'a TokenClaims>,
    /// The verified certificate of the connection.
    pub certificate: Option<&'a TlsIdentity>,
    /// The request's valid API key.
    pub key: Option<&'a ApiKey>,
    /// Whether the request was received from a trusted proxy.
    pub is_peer_trusted: bool,
    pub method: &'a Method,
    /// Without port and trailing dot, in any letter case.
    pub host: Option<&'a [u8]>,
    /// In a canonical form, with `%` only in percent-encodings.
    pub path: &'a str,
    /// Which spellings of a path the route treats as equal.
    pub path_matching: PathMatching,
    /// Without its question mark.
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    /// The route's name.
    pub route: &'a str,
    /// The values that the configuration names.
    pub values: &'a FoundValues,
    /// The entries of the descriptor that stands for the request, in its order.
    pub descriptor: &'a [(String, String)],
}

/// The identifier of a request by `recipe`: its parts, each `KIND:VALUE`, joined by `+`.
///
/// | part | written |
/// | --- | --- |
/// | address | `ip:203.0.113.7`, `ip:2001:db8:1:2::/64` |
/// | customer, ID and plan of an API key | `customer:acme`, `api_key:Xk3vT9aLq0`, `plan:pro` |
/// | user, route, method | `user:acme`, `route:login`, `method:GET` (for HEAD as well) |
/// | path, in one spelling for all that the route treats as equal | `path:/a` |
/// | user, if names must not be stored | `user:hmac:5559b01469a0a939` |
/// | claim of a verified token | `jwt:plan=VALUE` |
/// | verified certificate | `tls:subject=CN=acme,O=Acme`, `tls:fingerprint=HEX` |
/// | host, in lower case | `host:example.org` |
/// | header; several lines joined by commas | `header:x-api-key=VALUE` |
/// | cookie; several of one name joined by commas | `cookie:session=VALUE` |
/// | value that the configuration names, or its group; empty if it can't be read | `value:model=big` |
/// | entry of a descriptor; several of one name joined by commas | `descriptor:generic_key=VALUE` |
/// | query parameter, decoded; several of one name joined by commas | `query:page=VALUE` |
/// | one budget for all | `global` |
///
/// If a name has several values, some origins take the first, others the last, and the proxy cannot know which. All
/// values count, so that a request is never limited only by a value that its origin does not use. A different list is a
/// different key, just as a different value is.
///
/// In all parts but addresses, `{ } + : %` and control characters are percent-encoded, so that `+` and `:` are
/// unambiguous separators. A value of more than 128 bytes is written as `%sha256-` with half of its hash. `None` if the
/// request lacks a part, or has an empty one.
pub fn identifier(recipe: &KeyRecipe, attributes: &RequestAttributes<'_>) -> Option<CompactString> {
    // The most frequent one, computed in advance.
    if let [KeyPart::Ip] = *recipe.0 {
        return attributes.has_address.then(|| attributes.address.identifier().clone());
    }
    let mut out = CompactString::const_new("");
    for part in &recipe.0 {
        if !out.is_empty() {
            out.push('+');
        }
        push_part(&mut out, part, attributes)?;
    }
    Some(out)
}

/// The identifier of the user alone. `None`: the request has no user.
pub fn user_identifier(user: Option<&str>, pseudonym: Option<&str>) -> Option<CompactString> {
    let mut out = CompactString::default();
    push_user(&mut out, user, pseudonym)?;
    Some(out)
}

fn push_part(out: &mut CompactString, part: &KeyPart, attributes: &RequestAttributes<'_>) -> Option<()> {
    match part {
        KeyPart::Ip if !attributes.has_address => return None,
        KeyPart::Ip => out.push_str(attributes.address.identifier()),
        KeyPart::User => push_user(out, attributes.user, attributes.pseudonym)?,
        KeyPart::Header(name) => {
            push_named(out, "header:", name.as_str(), &header(attributes.headers, name)?)?;
        }
        KeyPart::Cookie(name) => push_named(out, "cookie:", name, &cookie(attributes.headers, name)?)?,
        KeyPart::Query(name) => push_named(out, "query:", name, &query_value(attributes.query?, name)?)?,
        KeyPart::Jwt(claim) => push_named(out, "jwt:", claim, attributes.claims?.get(claim)?.as_bytes())?,
        KeyPart::Tls(field) => {
            let value = attributes.certificate?.field(*field);
            push_named(out, "tls:", field.name(), value.as_bytes())?;
        }
        KeyPart::OfKey(field) => {
            let value = attributes.key?.field(*field)?;
            out.extend([field.name(), ":"]);
            push_text(out, value.as_bytes());
        }
        KeyPart::Path => {
            out.push_str("path:");
            push_path(out, &attributes.path_matching.canonical(attributes.path));
        }
        KeyPart::Route => push_plain(out, "route:", attributes.route.as_bytes())?,
        KeyPart::Host => {
            let host = attributes.host?;
            match host.iter().any(u8::is_ascii_uppercase) {
                true => push_plain(out, "host:", &host.to_ascii_lowercase())?,
                false => push_plain(out, "host:", host)?,
            }
        }
        // Origins serve HEAD like GET, so both share a limit.
        KeyPart::Method if attributes.method.as_str().eq_ignore_ascii_case("HEAD") => {
            out.push_str("method:GET");
        }
        // Some services accept `post` for POST.
        KeyPart::Method => {
            push_plain(out, "method:", attributes.method.as_str().to_ascii_uppercase().as_bytes())?;
        }
        KeyPart::Value(name) => {
            out.extend(["value:", name, "="]);
            push_text(out, attributes.values.key_text(name)?.as_bytes());
        }
        KeyPart::Descriptor(name) => {
            push_named(out, "descriptor:", name, &entry(attributes.descriptor, name)?)?;
        }
        KeyPart::Global => out.push_str("global"),
    }
    Some(())
}

fn push_user(out: &mut CompactString, user: Option<&str>, pseudonym: Option<&str>) -> Option<()> {
    match pseudonym {
        // A pseudonym has an unescaped colon, which no name can have.
        Some(pseudonym) => out.extend(["user:", pseudonym]),
        None => push_plain(out, "user:", user?.as_bytes())?,
    }
    Some(())
}

fn push_plain(out: &mut CompactString, kind: &str, value: &[u8]) -> Option<()> {
    if value.is_empty() {
        return None;
    }
    out.push_str(kind);
    push_text(out, value);
    Some(())
}

fn push_named(out: &mut CompactString, kind: &str, name: &str, value: &[u8]) -> Option<()> {
    if value.is_empty() {
        return None;
    }
    out.push_str(kind);
    push_text(out, name.as_bytes());
    out.push('=');
    push_text(out, value);
    Some(())
}

/// Several lines of one field are one list (RFC 9110, 5.3).
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    joined(headers.get_all(name).iter().map(|line| line.as_bytes().trim_ascii().into()))
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, [u8]>> {
    joined(cookies(headers, name).map(Cow::Borrowed))
}

fn query_value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    joined(query_values(query, name))
}

fn entry<'a>(descriptor: &'a [(String, String)], name: &str) -> Option<Cow<'a, [u8]>> {
    joined(descriptor.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_bytes().into()))
}

/// All values, joined by commas. A single one is borrowed.
fn joined<'a>(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Option<Cow<'a, [u8]>> {
    let first = values.next()?;
    Some(values.fold(first, |mut list, value| {
        list.to_mut().push(b',');
        list.to_mut().extend_from_slice(&value);
        list
    }))
}

/// Without duplicates, in the order of the policy's keys. Empty: the request lacks the values that they name.
pub type Identifiers = SmallVec<[CompactString; 2]>;

/// The request lacks a key of a policy with `missing: deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has none of the policy's keys")]
pub struct MissingIdentifier;

/// The identifiers of a request by a policy's `keys`. A composite that lacks a part is missing. [`Missing::Skip`]
/// leaves out a missing one, [`Missing::Ip`] replaces it by the address. A request with none of them is limited by
/// address, so that omitting a header bypasses nothing. But where each of them lacks a value that the configuration names,
/// there is none: most requests of an API name no model.
///
/// # Errors
/// With [`Missing::Deny`], if one is missing; with [`Missing::Ip`], if the address is missing as well.
pub fn identifiers(
    keys: &[KeyRecipe],
    missing: Missing,
    attributes: &RequestAttributes<'_>,
) -> Result<Identifiers, MissingIdentifier> {
    let by_address = || attributes.has_address.then(|| attributes.address.identifier().clone());
    let mut found = Identifiers::new();
    let mut lacks_values = !keys.is_empty();
    for key in keys {
        let next = match (identifier(key, attributes), missing) {
            (Some(identifier), _) => identifier,
            (None, Missing::Skip) => {
                lacks_values &=
                    key.value_names().any(|name| *attributes.values.get(name) == FoundValue::Absent);
                continue;
            }
            (None, Missing::Ip) => by_address().ok_or(MissingIdentifier)?,
            (None, Missing::Deny) => return Err(MissingIdentifier),
        };
        if !found.contains(&next) {
            found.push(next);
        }
    }
    Ok(match found.is_empty() {
        // The proxy that makes a descriptor leaves out what does not count.
        true if !lacks_values && attributes.descriptor.is_empty() => by_address().into_iter().collect(),
        _ => found,
    })
}

/// The value of a request that a policy with distinct counting counts, by `recipe`. If the request lacks it,
/// [`Missing::Skip`] returns `None`, and [`Missing::Ip`] the address.
///
/// # Errors
/// With [`Missing::Deny`], if it is missing.
pub fn distinct_value(
    recipe: &KeyRecipe,
    missing: Missing,
    attributes: &RequestAttributes<'_>,
) -> Result<Option<CompactString>, MissingIdentifier> {
    // Each spelling counts: merging two could hide a value.
    let strict = PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };
    let attributes = &RequestAttributes { path_matching: strict, ..*attributes };
    match (identifier(recipe, attributes), missing) {
        (Some(value), _) => Ok(Some(value)),
        (None, Missing::Skip) => Ok(None),
        (None, Missing::Ip) if attributes.has_address => Ok(Some(attributes.address.identifier().clone())),
        (None, Missing::Ip) => Err(MissingIdentifier),
        (None, Missing::Deny) => Err(MissingIdentifier),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use http::{HeaderValue, header::COOKIE};
    use proptest::prelude::*;

    use super::*;
    use crate::tls::CertificateField;

    static ADDRESS: LazyLock<AddressIdentifier> =
        LazyLock::new(|| AddressIdentifier::new([203, 0, 113, 7].into(), 64));

    pub(in crate::identity) fn attributes(headers: &HeaderMap) -> RequestAttributes<'_> {
        RequestAttributes {
            address: &ADDRESS,
            has_address: true,
            user: Some("acme"),
            pseudonym: None,
            is_user_verified: false,
            claims: None,
            certificate: None,
            key: None,
            is_peer_trusted: false,
            method: &Method::GET,
            host: Some(b"Example.org"),
            path: "/a/b",
            path_matching: PathMatching::LOOSE,
            query: Some("page=2&q=a%62+c&page=3&empty=&%70lus=%2B&bare"),
            headers,
            route: "/a/*",
            values: FoundValues::NONE,
            descriptor: &[],
        }
    }

    fn x_api_key() -> KeyPart {
        KeyPart::Header(HeaderName::from_static("x-api-key"))
    }

    fn query(name: &str) -> KeyPart {
        KeyPart::Query(name.to_owned())
    }

    fn written(parts: &[KeyPart], attributes: &RequestAttributes<'_>) -> Option<String> {
        identifier(&KeyRecipe(parts.to_vec()), attributes).map(String::from)
    }

    #[test]
    fn every_kind_of_part_has_its_form() {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("k:1")),
            (COOKIE, HeaderValue::from_static("session=s%31")),
        ]);
        for (parts, expected) in [
            (vec![KeyPart::Ip], "ip:203.0.113.7"),
            (vec![KeyPart::User], "user:acme"),
            (vec![x_api_key()], "header:x-api-key=k%3A1"),
            (vec![KeyPart::Cookie("session".to_owned())], "cookie:session=s%2531"),
            (vec![query("page")], "query:page=2,3"),
            (vec![query("q")], "query:q=ab c"),
            (vec![query("plus")], "query:plus=%2B"),
            (vec![KeyPart::Path], "path:/a/b"),
            (vec![KeyPart::Route], "route:/a/*"),
            (vec![KeyPart::Host], "host:example.org"),
            (vec![KeyPart::Method], "method:GET"),
            (vec![KeyPart::Global], "global"),
            (vec![KeyPart::Ip, KeyPart::Path], "ip:203.0.113.7+path:/a/b"),
            (vec![KeyPart::Global, KeyPart::Method, KeyPart::User], "global+method:GET+user:acme"),
        ] {
            assert_eq!(written(&parts, &attributes(&headers)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_pseudonym_stands_for_the_user() {
        let headers = HeaderMap::new();
        let known = RequestAttributes { pseudonym: Some("hmac:5559b01469a0a939"), ..attributes(&headers) };
        let key = written(&[KeyPart::Ip, KeyPart::User], &known);
        assert_eq!(key.as_deref(), Some("ip:203.0.113.7+user:hmac:5559b01469a0a939"));
        let posing = RequestAttributes { user: Some("hmac:5559b01469a0a939"), ..attributes(&headers) };
        assert_eq!(written(&[KeyPart::User], &posing).as_deref(), Some("user:hmac%3A5559b01469a0a939"));
    }

    #[test]
    fn certificates_are_written_like_any_other_value() {
        let headers = HeaderMap::new();
        let of = |subject: &str, field| {
            let identity = TlsIdentity::assumed(subject.to_owned(), "ab".repeat(32));
            let attributes = RequestAttributes { certificate: Some(&identity), ..attributes(&headers) };
            written(&[KeyPart::Tls(field)], &attributes)
        };
        let [subject, fingerprint] = CertificateField::ALL.map(|(_, field)| field);
        assert_eq!(of("CN=a,O=Acme", subject).as_deref(), Some("tls:subject=CN=a,O=Acme"));
        assert_eq!(of("CN=a+UID=b\\0d:", subject).as_deref(), Some("tls:subject=CN=a%2BUID=b\\0d%3A"));
        assert_eq!(of("", subject), None, "a certificate may have no subject");
        assert_eq!(of("", fingerprint), Some(format!("tls:fingerprint={}", "ab".repeat(32))));
        let long = of(&format!("CN={}", "a".repeat(200)), subject).unwrap();
        assert!(long.starts_with("tls:subject=%sha256-"), "{long}");
        let parts = CertificateField::ALL.map(|(_, field)| KeyPart::Tls(field));
        assert_eq!(written(&parts, &attributes(&headers)), None);
    }

    #[test]
    fn addresses_are_written_as_they_are() {
        let headers = HeaderMap::new();
        let address = AddressIdentifier::new("2001:db8:1:2:3::4".parse().unwrap(), 64);
        let attributes = RequestAttributes { address: &address, ..attributes(&headers) };
        assert_eq!(written(&[KeyPart::Ip], &attributes).as_deref(), Some("ip:2001:db8:1:2::/64"));
        let with_method = written(&[KeyPart::Ip, KeyPart::Method], &attributes);
        assert_eq!(with_method.as_deref(), Some("ip:2001:db8:1:2::/64+method:GET"));
        let attributes = RequestAttributes { host: Some(b"[::1]"), ..attributes };
        assert_eq!(written(&[KeyPart::Host], &attributes).as_deref(), Some("host:[%3A%3A1]"));
    }

    #[test]
    fn a_missing_or_empty_part_makes_no_identifier() {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("")),
            (COOKIE, HeaderValue::from_static("session=")),
        ]);
        let without = RequestAttributes { user: None, host: None, ..attributes(&headers) };
        for parts in [
            vec![KeyPart::User],
            vec![KeyPart::Host],
            vec![x_api_key()],
            vec![KeyPart::Header(HeaderName::from_static("x-other"))],
            vec![KeyPart::Cookie("session".to_owned())],
            vec![KeyPart::Cookie("other".to_owned())],
            vec![query("empty")],
            vec![query("bare")],
            vec![query("other")],
            vec![KeyPart::Ip, KeyPart::User],
            vec![KeyPart::User, KeyPart::Ip],
        ] {
            assert_eq!(written(&parts, &without), None, "{parts:?}");
        }
        assert_eq!(written(&[query("page")], &RequestAttributes { query: None, ..without }), None);
    }

    #[test]
    fn several_lines_of_a_header_are_one_value() {
        let mut headers = HeaderMap::new();
        for line in ["a", "b", "c"] {
            headers.append("x-api-key", HeaderValue::from_static(line));
        }
        assert_eq!(written(&[x_api_key()], &attributes(&headers)).as_deref(), Some("header:x-api-key=a,b,c"));
    }

    #[test]
    fn all_values_of_a_repeated_name_count() {
        let mut headers = HeaderMap::new();
        for line in ["session=a; x=1; session=b", "session=a"] {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        let session = KeyPart::Cookie("session".to_owned());
        assert_eq!(written(&[session], &attributes(&headers)).as_deref(), Some("cookie:session=a,b,a"));

        let repeated = RequestAttributes { query: Some("k=a+b&x=1&%6b=%63&k=&k=d"), ..attributes(&headers) };
        assert_eq!(written(&[query("k")], &repeated).as_deref(), Some("query:k=a b,c,,d"));
    }

    #[test]
    fn no_value_passes_for_another_part() {
        let headers = HeaderMap::new();
        let sly = RequestAttributes { user: Some("a+path:/b"), ..attributes(&headers) };
        assert_eq!(written(&[KeyPart::User], &sly).as_deref(), Some("user:a%2Bpath%3A/b"));
        let sly = RequestAttributes { path: "/a+user:b", ..sly };
        assert_eq!(written(&[KeyPart::Path], &sly).as_deref(), Some("path:/a%2Buser%3Ab"));
    }

    proptest! {
        #[test]
        fn different_requests_have_different_identifiers(
            first in ("[ -~é\u{85}]{1,6}", "/[a-c:+{}]{0,4}"),
            second in ("[ -~é\u{85}]{1,6}", "/[a-c:+{}]{0,4}"),
        ) {
            let headers = HeaderMap::new();
            let recipe = [KeyPart::User, KeyPart::Path];
            let of = |(user, path): &(String, String)| {
                written(&recipe, &RequestAttributes { user: Some(user), path, ..attributes(&headers) })
            };
            prop_assert_eq!(of(&first) == of(&second), first == second);
        }

        #[test]
        fn any_query_can_be_searched(query in any::<String>(), name in "[a-z]{0,2}") {
            let _ = query_value(&query, &name);
        }
    }

    #[test]
    fn missing_identifiers_are_skipped_replaced_or_denied() {
        let headers = HeaderMap::new();
        let anonymous = RequestAttributes { user: None, ..attributes(&headers) };
        let [ip, user, both] =
            [vec![KeyPart::Ip], vec![KeyPart::User], vec![KeyPart::User, KeyPart::Path]].map(KeyRecipe);
        let absent = KeyRecipe(vec![query("none")]);
        const ADDRESS: &str = "ip:203.0.113.7";

        for (keys, missing, expected) in [
            (vec![ip.clone()], Missing::Deny, Ok(vec![ADDRESS])),
            (vec![ip.clone(), user.clone()], Missing::Skip, Ok(vec![ADDRESS])),
            (vec![user.clone(), both.clone()], Missing::Skip, Ok(vec![ADDRESS])),
            (vec![ip.clone(), user.clone()], Missing::Ip, Ok(vec![ADDRESS])),
            (vec![user.clone(), both.clone()], Missing::Ip, Ok(vec![ADDRESS])),
            (vec![ip.clone(), both.clone()], Missing::Deny, Err(MissingIdentifier)),
        ] {
            let found = identifiers(&keys, missing, &anonymous);
            assert_eq!(
                found.map(|found| found.to_vec()),
                expected.map(|all| all.into_iter().map(Into::into).collect())
            );
        }

        let acme = attributes(&headers);
        let found = |keys: &[&KeyRecipe], missing| {
            let keys: Vec<_> = keys.iter().copied().cloned().collect();
            identifiers(&keys, missing, &acme).map(|found| found.join(" "))
        };
        assert_eq!(
            found(&[&ip, &user, &both], Missing::Deny).unwrap(),
            "ip:203.0.113.7 user:acme user:acme+path:/a/b"
        );
        assert_eq!(found(&[&user, &absent], Missing::Skip).unwrap(), "user:acme");
        assert_eq!(found(&[&absent, &user], Missing::Ip).unwrap(), "ip:203.0.113.7 user:acme");
        assert_eq!(found(&[&user, &user], Missing::Skip).unwrap(), "user:acme");
    }

    #[test]
    fn a_missing_distinct_value_is_skipped_replaced_or_denied() {
        let headers = HeaderMap::new();
        let acme = attributes(&headers);
        let anonymous = RequestAttributes { user: None, ..acme };
        let user = KeyRecipe(vec![KeyPart::User]);
        assert_eq!(distinct_value(&user, Missing::Deny, &acme), Ok(Some("user:acme".into())));
        assert_eq!(distinct_value(&user, Missing::Skip, &anonymous), Ok(None));
        assert_eq!(distinct_value(&user, Missing::Ip, &anonymous), Ok(Some("ip:203.0.113.7".into())));
        assert_eq!(distinct_value(&user, Missing::Deny, &anonymous), Err(MissingIdentifier));
    }
}
