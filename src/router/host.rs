//! The host of a request (RFC 9110, 7.2; RFC 3986, 3.2.2).

use std::net::Ipv6Addr;

use http::{HeaderMap, HeaderValue, Uri, Version, header::HOST, uri::Scheme};

use super::Rejection;

/// A well-formed `uri-host [":" port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    field: HeaderValue,
    /// The end of the name in `field`, without port and trailing dot.
    name_end: usize,
}

impl Host {
    /// The host of a request. `None` only if HTTP/1.0 leaves it out.
    ///
    /// # Errors
    /// 400 as required by RFC 9112, 3.2: HTTP/1.1 without Host, or Host repeated or malformed. The absolute form takes
    /// precedence over Host (3.2.2), but does not excuse a malformed one.
    pub(super) fn from_request(
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, Rejection> {
        let field = field(version, uri.authority().is_some(), headers)?;
        let Some(authority) = uri.authority() else { return Ok(field) };
        if uri.scheme().is_none_or(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
            return Err(Rejection::bad_request("The request target is neither a path nor an http URL."));
        }
        let host = HeaderValue::from_str(authority.as_str())
            .ok()
            .and_then(Self::parse)
            .ok_or(Rejection::bad_request("The host in the request target is malformed."))?;
        // RFC 9113, 8.3.1. An origin may use either.
        if version == Version::HTTP_2
            && field.is_some_and(|field| !field.field.as_bytes().eq_ignore_ascii_case(host.field.as_bytes()))
        {
            return Err(Rejection::bad_request("The Host header and :authority differ."));
        }
        Ok(Some(host))
    }

    /// The authority as sent in `Host`.
    pub fn field(&self) -> &HeaderValue {
        &self.field
    }

    /// The name without port and trailing dot, in the client's letter case.
    pub fn name(&self) -> &str {
        str::from_utf8(self.name_bytes()).unwrap_or_default()
    }

    /// The name as bytes, without the UTF-8 check of [`Host::name`]. All are ASCII.
    pub fn name_bytes(&self) -> &[u8] {
        self.field.as_bytes().get(..self.name_end).unwrap_or_default()
    }

    fn parse(field: HeaderValue) -> Option<Self> {
        let name_end = name_end(field.as_bytes())?;
        Some(Self { field, name_end })
    }
}

fn field(version: Version, has_authority: bool, headers: &HeaderMap) -> Result<Option<Host>, Rejection> {
    let Some(field) = headers.get(HOST) else {
        // HTTP/1.0 has no Host, and HTTP/2 has :authority.
        return match version {
            Version::HTTP_11 => Err(Rejection::bad_request("The Host header is missing.")),
            Version::HTTP_2 if !has_authority => {
                Err(Rejection::bad_request("The request has neither :authority nor Host."))
            }
            _ => Ok(None),
        };
    };
    // More fields than names: a name is repeated.
    if headers.len() > headers.keys_len() && headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Rejection::bad_request("There is more than one Host header."));
    }
    Host::parse(field.clone()).map(Some).ok_or(Rejection::bad_request("The Host header is malformed."))
}

/// The longest name (RFC 1035, 2.3.4). Each label is looked up among the hosts of routes.
const MAX_NAME: usize = 253;

/// The end of the name in a well-formed authority without userinfo.
fn name_end(authority: &[u8]) -> Option<usize> {
    if let Some(bracketed) = authority.strip_prefix(b"[") {
        let length = bracketed.iter().position(|&byte| byte == b']')?;
        let (address, rest) = bracketed.split_at(length);
        str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?;
        return is_port(&rest[1..]).then_some(length + 2);
    }
    let length = authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len());
    let (name, port) = authority.split_at(length);
    let bare = name.strip_suffix(b".").unwrap_or(name);
    (!bare.is_empty()
        && bare.len() <= MAX_NAME
        && name.iter().all(|&byte| NAME_BYTES[usize::from(byte)])
        && is_port(port))
    .then_some(bare.len())
}

/// The bytes of a `reg-name`, except two that are only used to mislead: a comma, which joins two Host fields, and a
/// percent sign, which some origins would decode to a different name.
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let is_name_byte = matches!(
            byte as u8,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'='
        );
        table[byte] = is_name_byte;
        byte += 1;
    }
    table
};

/// Nothing, or `":" *DIGIT` up to 65535.
fn is_port(rest: &[u8]) -> bool {
    let [b':', digits @ ..] = rest else { return rest.is_empty() };
    let mut port = 0_u32;
    for digit in digits {
        if !digit.is_ascii_digit() || port > u32::from(u16::MAX) {
            return false;
        }
        port = port * 10 + u32::from(digit - b'0');
    }
    port <= u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(
        uri: &str,
        version: Version,
        fields: &[&[u8]],
    ) -> Result<Option<(String, String)>, &'static str> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(HOST, HeaderValue::from_bytes(field).unwrap());
        }
        let host = Host::from_request(&uri.parse().unwrap(), version, &headers).map_err(|rejection| {
            assert_eq!(rejection.status, 400);
            rejection.detail
        })?;
        Ok(host.map(|host| (host.name().to_owned(), host.field().to_str().unwrap().to_owned())))
    }

    #[test]
    fn well_formed_hosts_have_a_name_and_are_kept_as_sent() {
        for (sent, name) in [
            ("example.org", "example.org"),
            ("Example.ORG", "Example.ORG"),
            ("example.org.", "example.org"),
            ("example.org:8080", "example.org"),
            ("example.org.:8080", "example.org"),
            ("example.org:", "example.org"),
            ("example.org:0080", "example.org"),
            ("under_score-1.example", "under_score-1.example"),
            ("203.0.113.7:65535", "203.0.113.7"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[::ffff:1.2.3.4]:80", "[::ffff:1.2.3.4]"),
        ] {
            let found = parse("/", Version::HTTP_11, &[sent.as_bytes()]);
            assert_eq!(found, Ok(Some((name.to_owned(), sent.to_owned()))), "{sent}");
        }
    }

    #[test]
    fn malformed_hosts_are_refused() {
        let bad: &[&[u8]] = &[
            b"",
            b".",
            b":80",
            b"user@example.org",
            b"user:word@example.org",
            b"a b",
            b"a,b",
            b"a\tb",
            b"a/b",
            b"a\\b",
            b"a?b",
            b"a#b",
            b"<script>",
            b"ex%61mple.org",
            b"m\xc3\xbcller.example",
            b"example.org:65536",
            b"example.org:+80",
            b"example.org:80a",
            b"example.org:80:80",
            b"example.org: 80",
            b"2001:db8::1",
            b"[2001:db8::1",
            b"[2001:db8::1]80",
            b"[2001:db8::1].",
            b"[fe80::1%25eth0]",
            b"[v1.x]",
            b"[]",
            b"[1.2.3.4]",
        ];
        for sent in bad {
            for version in [Version::HTTP_10, Version::HTTP_11] {
                let found = parse("/", version, &[sent]);
                assert_eq!(found, Err("The Host header is malformed."), "{}", sent.escape_ascii());
            }
        }
    }

    #[test]
    fn there_is_exactly_one_host_field() {
        assert_eq!(parse("/", Version::HTTP_11, &[]), Err("The Host header is missing."));
        assert_eq!(parse("/", Version::HTTP_10, &[]), Ok(None));
        for version in [Version::HTTP_10, Version::HTTP_11] {
            assert_eq!(parse("/", version, &[b"a", b"a"]), Err("There is more than one Host header."));
        }
    }

    #[test]
    fn the_absolute_form_wins_but_excuses_nothing() {
        let wins = parse("http://A.example:81/p", Version::HTTP_11, &[b"b.example"]);
        assert_eq!(wins, Ok(Some(("A.example".to_owned(), "A.example:81".to_owned()))));
        assert!(parse("https://a.example", Version::HTTP_10, &[]).is_ok());

        assert_eq!(parse("http://a/", Version::HTTP_11, &[]), Err("The Host header is missing."));
        assert_eq!(parse("http://a/", Version::HTTP_11, &[b"a b"]), Err("The Host header is malformed."));
        let malformed = Err("The host in the request target is malformed.");
        assert_eq!(parse("http://user@a/", Version::HTTP_11, &[b"a"]), malformed);
        assert_eq!(parse("http://a,b/", Version::HTTP_11, &[b"a"]), malformed);
        let no_url = Err("The request target is neither a path nor an http URL.");
        assert_eq!(parse("ftp://a/", Version::HTTP_11, &[b"a"]), no_url);
        assert_eq!(parse("a.example:80", Version::HTTP_11, &[b"a"]), no_url);
    }
}
