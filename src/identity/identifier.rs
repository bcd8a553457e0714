//! What one key of a policy says of one request: `ip:203.0.113.7+path:/login`.

use std::borrow::Cow;

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, Method};
use percent_encoding::percent_decode;

use super::{
    claims::Claims,
    cookie::cookies,
    encode::{push_path, push_text},
};
use crate::config::model::{KeyPart, KeyRecipe};

/// What of a request may identify it. Borrowed; nothing is computed before a key asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// As [`super::address_text`] writes it.
    pub address: &'a str,
    pub user: Option<&'a str>,
    /// Whether the user is who he says, because a token or a trusted proxy says so.
    pub is_user_verified: bool,
    /// Those of a verified token.
    pub claims: Option<&'a Claims>,
    /// Whether the request came over a trusted proxy.
    pub is_peer_trusted: bool,
    pub method: &'a Method,
    /// Without port and trailing dot, in any case.
    pub host: Option<&'a str>,
    /// In a form in which two paths that are one read the same, with `%` only in escapes.
    pub path: &'a str,
    /// Without its question mark.
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    /// The route's name.
    pub route: &'a str,
}

/// The identifier that `recipe` makes of a request: its parts, each `KIND:VALUE`, joined by `+`.
///
/// | part | written |
/// | --- | --- |
/// | address | `ip:203.0.113.7`, `ip:2001:db8:1:2::/64` |
/// | user, route, path, method | `user:acme`, `route:login`, `path:/a`, `method:GET` |
/// | claim of a verified token | `jwt:plan=VALUE` |
/// | host, in lower case | `host:example.org` |
/// | header; several lines joined by commas | `header:x-api-key=VALUE` |
/// | cookie; several of the name joined by commas | `cookie:session=VALUE` |
/// | query parameter, decoded; several of the name joined by commas | `query:page=VALUE` |
/// | one budget for all | `global` |
///
/// Of a name that stands several times origins take the first or the last, which the proxy can't know.
/// All values count, so that no request is limited by a value alone that its origin may not use. Another
/// list is another key nevertheless, as another value is.
///
/// In all but addresses `{ } + : %` and control characters are percent-encoded, so that `+` and `:`
/// part unmistakably; a value of more than 128 bytes is written as `%sha256-` with half of its hash.
/// `None` where the request lacks a part, or has it empty.
pub fn identifier(recipe: &KeyRecipe, facts: &Facts<'_>) -> Option<CompactString> {
    let mut out = CompactString::const_new("");
    for part in &recipe.0 {
        if !out.is_empty() {
            out.push('+');
        }
        push_part(&mut out, part, facts)?;
    }
    Some(out)
}

/// The identifier of the client's address alone.
pub(super) fn by_address(facts: &Facts<'_>) -> CompactString {
    let mut out = CompactString::const_new("ip:");
    out.push_str(facts.address);
    out
}

fn push_part(out: &mut CompactString, part: &KeyPart, facts: &Facts<'_>) -> Option<()> {
    match part {
        KeyPart::Ip => {
            out.push_str("ip:");
            out.push_str(facts.address);
        }
        KeyPart::User => push_plain(out, "user:", facts.user?.as_bytes())?,
        KeyPart::Header(name) => push_named(out, "header:", name.as_str(), &header(facts.headers, name)?)?,
        KeyPart::Cookie(name) => push_named(out, "cookie:", name, &cookie(facts.headers, name)?)?,
        KeyPart::Query(name) => push_named(out, "query:", name, &query_value(facts.query?, name)?)?,
        KeyPart::Jwt(claim) => push_named(out, "jwt:", claim, facts.claims?.get(claim)?.as_bytes())?,
        KeyPart::Path => {
            out.push_str("path:");
            push_path(out, facts.path);
        }
        KeyPart::Route => push_plain(out, "route:", facts.route.as_bytes())?,
        KeyPart::Host => {
            let host = facts.host?;
            match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
                true => push_plain(out, "host:", host.to_ascii_lowercase().as_bytes())?,
                false => push_plain(out, "host:", host.as_bytes())?,
            }
        }
        KeyPart::Method => push_plain(out, "method:", facts.method.as_str().as_bytes())?,
        KeyPart::Global => out.push_str("global"),
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
    joined(query.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*form_decoded(key) == *name.as_bytes()).then(|| form_decoded(value))
    }))
}

/// All values with commas between; one alone stays borrowed.
fn joined<'a>(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Option<Cow<'a, [u8]>> {
    let first = values.next()?;
    Some(values.fold(first, |mut list, value| {
        list.to_mut().push(b',');
        list.to_mut().extend_from_slice(&value);
        list
    }))
}

/// As forms are encoded: `+` is a space, the rest is percent-encoded.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode(spaced.as_bytes()).collect());
    }
    percent_decode(text.as_bytes()).into()
}

#[cfg(test)]
pub(super) mod tests {
    use http::{HeaderValue, header::COOKIE};
    use proptest::prelude::*;

    use super::*;

    pub(in crate::identity) fn facts(headers: &HeaderMap) -> Facts<'_> {
        Facts {
            address: "203.0.113.7",
            user: Some("acme"),
            is_user_verified: false,
            claims: None,
            is_peer_trusted: false,
            method: &Method::GET,
            host: Some("Example.org"),
            path: "/a/b",
            query: Some("page=2&q=a%62+c&page=3&empty=&%70lus=%2B&bare"),
            headers,
            route: "/a/*",
        }
    }

    fn x_api_key() -> KeyPart {
        KeyPart::Header(HeaderName::from_static("x-api-key"))
    }

    fn query(name: &str) -> KeyPart {
        KeyPart::Query(name.to_owned())
    }

    fn written(parts: &[KeyPart], facts: &Facts<'_>) -> Option<String> {
        identifier(&KeyRecipe(parts.to_vec()), facts).map(String::from)
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
            assert_eq!(written(&parts, &facts(&headers)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn addresses_are_written_as_they_are() {
        let headers = HeaderMap::new();
        let facts = Facts { address: "2001:db8:1:2::/64", ..facts(&headers) };
        assert_eq!(written(&[KeyPart::Ip], &facts).as_deref(), Some("ip:2001:db8:1:2::/64"));
        assert_eq!(by_address(&facts), "ip:2001:db8:1:2::/64");
        let facts = Facts { host: Some("[::1]"), ..facts };
        assert_eq!(written(&[KeyPart::Host], &facts).as_deref(), Some("host:[%3A%3A1]"));
    }

    #[test]
    fn what_is_missing_or_empty_makes_no_identifier() {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("")),
            (COOKIE, HeaderValue::from_static("session=")),
        ]);
        let without = Facts { user: None, host: None, ..facts(&headers) };
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
        assert_eq!(written(&[query("page")], &Facts { query: None, ..without }), None);
    }

    #[test]
    fn several_lines_of_a_header_are_one_value() {
        let mut headers = HeaderMap::new();
        for line in ["a", "b", "c"] {
            headers.append("x-api-key", HeaderValue::from_static(line));
        }
        assert_eq!(written(&[x_api_key()], &facts(&headers)).as_deref(), Some("header:x-api-key=a,b,c"));
    }

    #[test]
    fn all_values_of_a_repeated_name_count() {
        let mut headers = HeaderMap::new();
        for line in ["session=a; x=1; session=b", "session=a"] {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        let session = KeyPart::Cookie("session".to_owned());
        assert_eq!(written(&[session], &facts(&headers)).as_deref(), Some("cookie:session=a,b,a"));

        let repeated = Facts { query: Some("k=a+b&x=1&%6b=%63&k=&k=d"), ..facts(&headers) };
        assert_eq!(written(&[query("k")], &repeated).as_deref(), Some("query:k=a b,c,,d"));
    }

    #[test]
    fn no_value_passes_for_another_part() {
        let headers = HeaderMap::new();
        let sly = Facts { user: Some("a+path:/b"), ..facts(&headers) };
        assert_eq!(written(&[KeyPart::User], &sly).as_deref(), Some("user:a%2Bpath%3A/b"));
        let sly = Facts { path: "/a+user:b", ..sly };
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
                written(&recipe, &Facts { user: Some(user), path, ..facts(&headers) })
            };
            prop_assert_eq!(of(&first) == of(&second), first == second);
        }

        #[test]
        fn any_query_can_be_searched(query in any::<String>(), name in "[a-z]{0,2}") {
            let _ = query_value(&query, &name);
        }
    }
}
