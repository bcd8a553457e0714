//! Header hygiene: what must not pass from one connection to the next, and what the proxy adds.

use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{self, Entry},
};
use smallvec::SmallVec;

/// Tells the upstream who the client is.
pub static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Tells the upstream the scheme of the client's request.
pub static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Tells the upstream the host of the client's request.
pub static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Removes what belongs to the client's connection (RFC 9110, 7.6.1) from a request, or what belongs to
/// the upstream's from an answer: the fields that `Connection` names, and those that are hop-by-hop
/// whether it names them or not. hyper frames the message anew.
///
/// `TE: trailers` stays, with the `Connection: te` it demands: hyper passes trailers on in both
/// directions.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let mut found: SmallVec<[&HeaderName; 4]> = SmallVec::new();
    let mut named: SmallVec<[HeaderName; 4]> = SmallVec::new();
    let mut trailers = false;
    for (name, value) in &*headers {
        let Some(hop_by_hop) = hop_by_hop(name) else { continue };
        found.push(hop_by_hop);
        match *name {
            header::CONNECTION => named.extend(connection_options(value)),
            header::TE => trailers |= accepts_trailers(value),
            _ => {}
        }
    }
    for name in found.into_iter().chain(&named) {
        if *name == header::TRANSFER_ENCODING {
            // RFC 9112, 6.3: a length beside a transfer coding is void.
            headers.remove(header::CONTENT_LENGTH);
        }
        // The message's own length is not the connection's to drop, and a request without Host is none.
        if *name != header::CONTENT_LENGTH && *name != header::HOST {
            headers.remove(name);
        }
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

static HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// The one of [`HOP_BY_HOP`] that `name` is. Hardly any name begins like one of them.
fn hop_by_hop(name: &HeaderName) -> Option<&'static HeaderName> {
    match name.as_str().as_bytes().first() {
        Some(b'c' | b'h' | b'k' | b'p' | b't' | b'u') => HOP_BY_HOP.iter().find(|hop| *hop == name),
        _ => None,
    }
}

/// Whether a message has another transfer coding than `chunked`, or several.
///
/// hyper takes a body whose last coding is `chunked` for what it is, but not the codings before it:
/// passed on without them, it would be another message (RFC 9112, 6.1).
pub fn is_coded(headers: &HeaderMap) -> bool {
    if !headers.contains_key(header::TRANSFER_ENCODING) {
        return false;
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

/// Leaves one length of several in an answer (RFC 9110, 8.6). hyper has refused those that differ,
/// other than on HEAD, where the length frames nothing.
pub fn merge_lengths(headers: &mut HeaderMap) {
    let Some(first) = headers.get(header::CONTENT_LENGTH) else { return };
    let repeated = headers.len() > headers.keys_len();
    if (repeated || first.as_bytes().contains(&b','))
        && let Some(length) = first.as_bytes().split(|&byte| byte == b',').next()
    {
        // A part of a valid value is valid.
        if let Ok(length) = HeaderValue::from_bytes(length.trim_ascii()) {
            headers.insert(header::CONTENT_LENGTH, length);
        }
    }
}

/// The fields that a `Connection` line names. `close` and `keep-alive` are its own words; the field
/// Keep-Alive goes anyway.
fn connection_options(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let value = value.as_bytes();
    let plain = value == b"keep-alive" || value == b"close";
    (if plain { b"" } else { value })
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|option| {
            !option.eq_ignore_ascii_case(b"close") && !option.eq_ignore_ascii_case(b"keep-alive")
        })
        .filter_map(|option| HeaderName::from_bytes(option).ok())
}

fn accepts_trailers(value: &HeaderValue) -> bool {
    value
        .as_bytes()
        .split(|&byte| byte == b',')
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Removes what an untrusted client claims about itself: every field by which proxies tell each other
/// whose request it is, or what it is for. `configured` are those that the configuration names.
///
/// Spellings with underscores go too: many frameworks can't tell `X_Forwarded_For` from the real one.
pub fn remove_forwarding_claims(headers: &mut HeaderMap, configured: &[HeaderName]) {
    remove_where(headers, |name| {
        configured.iter().any(|claim| is_spelling(name.as_str(), claim.as_str()))
            || is_forwarding_claim(name.as_str())
    });
}

/// Removes from trailers what only a head may say (RFC 9110, 6.5.1): what belongs to the connection, and
/// whose request it is. What would frame a message or name its host, hyper leaves out itself.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    remove_where(trailers, |name| hop_by_hop(name).is_some() || is_forwarding_claim(name.as_str()));
}

fn remove_where(headers: &mut HeaderMap, condition: impl Fn(&HeaderName) -> bool) {
    let names: SmallVec<[HeaderName; 4]> = headers.keys().filter(|name| condition(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn is_forwarding_claim(name: &str) -> bool {
    // Of the names that clients do send, hardly any begins like these.
    if !matches!(name.as_bytes().first(), Some(b'x' | b'f' | b't' | b'c')) {
        return false;
    }
    begins_like(name, "x-forwarded-") || CLAIMS.iter().any(|claim| is_spelling(name, claim))
}

const CLAIMS: [&str; 11] = [
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-original-host",
    // Some origins take these for the path, which then is not the one that was matched.
    "x-original-url",
    "x-rewrite-url",
    "client-ip",
];

/// Whether `name` is `field`, but for underscores in place of dashes.
fn is_spelling(name: &str, field: &str) -> bool {
    name.len() == field.len() && begins_like(name, field)
}

fn begins_like(name: &str, prefix: &str) -> bool {
    name.len() >= prefix.len()
        && name.bytes().zip(prefix.bytes()).all(|(byte, want)| byte == want || (byte, want) == (b'_', b'-'))
}

/// Adds the proxy to `Via` (RFC 9110, 7.6.3), after whoever stands there already.
pub fn append_via(headers: &mut HeaderMap, via: &Via, received: Version) {
    let own = if received == Version::HTTP_10 { &via.http_10 } else { &via.http_11 };
    append_to_list(headers, &header::VIA, own);
}

/// The proxy's own `Via` member, by the version of the message that was received.
#[derive(Debug, Clone)]
pub struct Via {
    http_10: HeaderValue,
    http_11: HeaderValue,
}

impl Via {
    /// For the pseudonym `name`.
    ///
    /// # Errors
    /// `name` has characters that a field must not have.
    pub fn new(name: &str) -> Result<Self, header::InvalidHeaderValue> {
        Ok(Self {
            http_10: HeaderValue::try_from(format!("1.0 {name}"))?,
            http_11: HeaderValue::try_from(format!("1.1 {name}"))?,
        })
    }
}

/// Makes `member` the last of the list field `name`: in one line, whatever lines it had.
pub fn append_to_list(headers: &mut HeaderMap, name: &HeaderName, member: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(member.clone());
        }
        Entry::Occupied(mut lines) => {
            let mut joined = Vec::new();
            for value in lines.iter() {
                joined.extend_from_slice(value.as_bytes());
                joined.extend_from_slice(b", ");
            }
            joined.extend_from_slice(member.as_bytes());
            // Joined from valid values by valid bytes, it is valid; if not, the proxy's own member
            // stands alone.
            lines.insert(HeaderValue::from_bytes(&joined).unwrap_or_else(|_| member.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    fn names(map: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_connection_names_goes_with_it() {
        let mut map = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other,"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut map);
        assert_eq!(names(&map), ["accept"]);
    }

    #[test]
    fn connection_can_not_strip_host_or_length() {
        let mut map =
            headers(&[("connection", "host, content-length"), ("host", "a"), ("content-length", "3")]);
        remove_hop_by_hop(&mut map);
        assert_eq!(names(&map), ["content-length", "host"]);
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_void() {
        let mut map = headers(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        remove_hop_by_hop(&mut map);
        assert!(map.is_empty());
    }

    #[test]
    fn trailers_are_still_asked_for() {
        let mut map = headers(&[("te", "gzip;q=0.5, Trailers"), ("connection", "te")]);
        remove_hop_by_hop(&mut map);
        assert_eq!(map["te"], "trailers");
        assert_eq!(map["connection"], "te");
    }

    #[test]
    fn claims_go_in_every_spelling() {
        let mut map = headers(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("fastly-client-ip", "1.1.1.1"),
            ("x-request-id", "abc"),
            ("forwarded-by-me", "kept"),
            ("from", "me@example.org"),
        ]);
        remove_forwarding_claims(&mut map, &[HeaderName::from_static("fastly-client-ip")]);
        assert_eq!(names(&map), ["forwarded-by-me", "from", "x-request-id"]);
        map.insert("x_request_id", HeaderValue::from_static("abc"));
        remove_forwarding_claims(&mut map, &[HeaderName::from_static("x-request-id")]);
        assert_eq!(names(&map), ["forwarded-by-me", "from"]);
    }

    #[test]
    fn lists_are_appended_to_in_one_line() {
        let mut map = headers(&[("via", "1.0 a"), ("via", "1.1 b")]);
        append_via(&mut map, &Via::new("tollgate").unwrap(), Version::HTTP_10);
        assert_eq!(map.get_all("via").iter().collect::<Vec<_>>(), ["1.0 a, 1.1 b, 1.0 tollgate"]);
    }
}
