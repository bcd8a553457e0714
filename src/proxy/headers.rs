//! Header fields: the ones that must not pass from one connection to the next (RFC 9110, 7.6), and the ones that the
//! proxy adds.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version,
    header::{self, Entry},
    request,
};
use smallvec::SmallVec;

use super::field_survey::{FieldKind, FieldSurvey, hop_by_hop};

/// [`remove_hop_by_hop`] for a head with this `survey`. Most heads name no field in `Connection`.
pub(super) fn remove_surveyed_hop_by_hop(
    headers: &mut HeaderMap,
    survey: FieldSurvey,
    kept: impl Fn(&str) -> bool,
) {
    if survey.has(FieldKind::HopByHop) {
        remove_hop_by_hop(headers, kept);
    } else if survey.has(FieldKind::PlainConnection) {
        headers.remove(header::CONNECTION);
    }
}

/// Removes the hop-by-hop fields of a request or a response (RFC 9110, 7.6.1): the fields that `Connection` names,
/// and the standard ones whether it names them or not. hyper frames the message anew.
///
/// Fields that `Connection` names are not removed if they are `kept`: HAProxy and others pass on the client's
/// `Connection`, which would remove fields that they have set themselves.
///
/// `TE: trailers` is kept, with the `Connection: te` that it requires: hyper passes trailers on in both directions.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, kept: impl Fn(&str) -> bool) {
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
    named.retain(|name| !kept(name.as_str()));
    for name in found.into_iter().chain(&named) {
        if *name == header::TRANSFER_ENCODING {
            // RFC 9112, 6.3: a length is void beside a transfer coding.
            headers.remove(header::CONTENT_LENGTH);
        }
        // `Connection` can remove neither the message's length nor the Host, which a request must have.
        if *name != header::CONTENT_LENGTH && *name != header::HOST {
            headers.remove(name);
        }
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Addresses of the client and of the proxies after it.
pub(super) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The scheme of the client's request.
pub(super) static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a message has a transfer coding other than `chunked`, or several. Even an empty element counts: another
/// server may have framed such a message by its length.
///
/// hyper decodes a body whose last coding is `chunked`, but does not keep the codings before it. Forwarded without
/// them, it would be another message (RFC 9112, 6.1).
pub(super) fn has_other_coding(headers: &HeaderMap, survey: FieldSurvey) -> bool {
    if !survey.has(FieldKind::TransferEncoding) {
        return false;
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

/// Whether HTTP/1 reads each HTTP/2 field as it was sent. hyper has refused invalid fields, but keeps white space
/// around values (RFC 9113, 8.2.1), and reads an empty length as 0.
pub(super) fn are_readable(headers: &HeaderMap) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_length = headers.get(header::CONTENT_LENGTH).is_none_or(|length| !length.is_empty());
    let mut fields = headers.iter();
    has_length
        && fields.all(|(name, value)| {
            is_token(name) && !is_space(value.as_bytes().first()) && !is_space(value.as_bytes().last())
        })
}

/// Whether `name` is a token, as required (RFC 9110, 5.1): `http` accepts quotation marks in names.
pub(super) fn is_token(name: &HeaderName) -> bool {
    !name.as_str().contains('"')
}

/// Merges repeated lengths into one (RFC 9110, 8.6). hyper has refused lengths that differ, except in a response to
/// HEAD, where the length frames nothing.
pub(super) fn merge_lengths(headers: &mut HeaderMap) {
    let Some(first) = headers.get(header::CONTENT_LENGTH) else { return };
    let repeated = headers.len() > headers.keys_len();
    if repeated || first.as_bytes().contains(&b',') {
        // A part of a valid value is valid.
        let length = elements(first).find_map(|length| HeaderValue::from_bytes(length).ok());
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length);
        }
    }
}

/// The elements of one line of a list, without the empty ones, which do not count (RFC 9110, 5.6.1.2).
pub(super) fn elements(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let elements = line.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty())
}

/// The fields that a `Connection` line names. `close` and `keep-alive` are options; the field Keep-Alive is removed
/// anyway.
fn connection_options(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let is_plain = matches!(value.as_bytes(), b"keep-alive" | b"close");
    let options = (!is_plain).then(|| elements(value)).into_iter().flatten();
    options
        .filter(|option| {
            !option.eq_ignore_ascii_case(b"close") && !option.eq_ignore_ascii_case(b"keep-alive")
        })
        .filter_map(|option| HeaderName::from_bytes(option).ok())
}

fn accepts_trailers(value: &HeaderValue) -> bool {
    elements(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Gives an HTTP/2 request the fields that it would have over HTTP/1.1.
pub(super) fn translate_http2(request: &mut request::Parts, has_body: bool) {
    join_cookies(&mut request.headers);
    merge_lengths(&mut request.headers);
    // With a body, it is not a preflight.
    if has_body && request.method == Method::OPTIONS {
        announce_body(&mut request.headers);
    }
}

/// Joins the fields into which HTTP/2 may split `Cookie` (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut fields = headers.get_all(header::COOKIE).iter();
    if let (Some(first), Some(_)) = (fields.next(), fields.next()) {
        let mut joined = first.as_bytes().to_vec();
        for field in headers.get_all(header::COOKIE).iter().skip(1) {
            joined.extend_from_slice(b"; ");
            joined.extend_from_slice(field.as_bytes());
        }
        // Valid values joined by valid bytes are valid.
        if let Ok(joined) = HeaderValue::from_bytes(&joined) {
            headers.insert(header::COOKIE, joined);
        }
    }
}

/// Announces a body of unknown length as HTTP/1 does: HTTP/2 needs no field for it.
fn announce_body(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Appends the proxy to `Via` (RFC 9110, 7.6.3).
pub(super) fn append_via(headers: &mut HeaderMap, via: &Via, received: Version) {
    let own = match received {
        Version::HTTP_10 => &via.http_10,
        Version::HTTP_2 => &via.http_2,
        _ => &via.http_11,
    };
    append_to_list(headers, &header::VIA, own);
}

/// The proxy's own `Via` members, by the version of the received message.
#[derive(Debug, Clone)]
pub struct Via {
    http_10: HeaderValue,
    http_11: HeaderValue,
    http_2: HeaderValue,
}

impl Via {
    /// The members for the pseudonym `name`.
    ///
    /// # Errors
    /// `name` has characters that are not allowed in a field.
    pub(super) fn new(name: &str) -> Result<Self, header::InvalidHeaderValue> {
        Ok(Self {
            http_10: HeaderValue::try_from(format!("1.0 {name}"))?,
            http_11: HeaderValue::try_from(format!("1.1 {name}"))?,
            http_2: HeaderValue::try_from(format!("2.0 {name}"))?,
        })
    }
}

/// Appends `member` to the list field `name`, and joins its lines into one. Empty elements at the ends of lines are
/// dropped, because not all origins ignore them.
pub(super) fn append_to_list(headers: &mut HeaderMap, name: &HeaderName, member: &HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(member.clone());
        }
        Entry::Occupied(mut lines) => {
            let mut joined = Vec::new();
            let is_in_element = |byte: &u8| !matches!(byte, b',' | b' ' | b'\t');
            for line in lines.iter().map(HeaderValue::as_bytes) {
                let ends = line.iter().position(is_in_element).zip(line.iter().rposition(is_in_element));
                if let Some((first, last)) = ends {
                    joined.extend_from_slice(&line[first..=last]);
                    joined.extend_from_slice(b", ");
                }
            }
            joined.extend_from_slice(member.as_bytes());
            // Valid values joined by valid bytes are valid. If they were not, only the proxy's own member would be
            // kept.
            lines.insert(HeaderValue::from_bytes(&joined).unwrap_or_else(|_| member.clone()));
        }
    }
}

/// The request's ID, which identifies its lines in all logs: the ID of a trusted proxy, or a new one of 128 random
/// bits in hex.
pub(super) fn request_id(headers: &HeaderMap, name: &HeaderName, trusted: bool) -> HeaderValue {
    if trusted && let Some(id) = headers.get(name) {
        return never_indexed(id.clone());
    }
    let mut hex = [0; 32];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(fastrand::u128(..).to_le_bytes()) {
        digits.copy_from_slice(&HEX[usize::from(byte)]);
    }
    // It will be cloned. Made from a slice, its first clone would allocate a reference count.
    let id = HeaderValue::from_maybe_shared(Bytes::from_owner(hex));
    never_indexed(id.unwrap_or_else(|_| HeaderValue::from_static("")))
}

/// Keeps a value that differs from message to message out of HTTP/2's field table (RFC 7541, 6.2.3), where it would
/// displace values that are sent again.
pub(super) fn never_indexed(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Two digits per byte.
const HEX: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    table
};

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in crate::proxy) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    pub(in crate::proxy) fn names(map: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::{
        testing::{headers, names},
        *,
    };

    #[test]
    fn fields_named_by_connection_are_removed() {
        let mut map = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", ""),
            ("connection", ",, x-other,"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut map, |_| false);
        assert_eq!(names(&map), ["accept"]);
    }

    #[test]
    fn connection_cannot_strip_host_or_length() {
        let mut map =
            headers(&[("connection", "host, content-length"), ("host", "a"), ("content-length", "3")]);
        remove_hop_by_hop(&mut map, |_| false);
        assert_eq!(names(&map), ["content-length", "host"]);
    }

    #[test]
    fn connection_cannot_strip_what_is_kept() {
        let mut map =
            headers(&[("connection", "x-user-id, x-other"), ("x-user-id", "ann"), ("x-other", "1")]);
        remove_hop_by_hop(&mut map, |name| name == "x-user-id");
        assert_eq!(names(&map), ["x-user-id"]);
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_void() {
        let mut map = headers(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        remove_hop_by_hop(&mut map, |_| false);
        assert!(map.is_empty());
    }

    #[test]
    fn trailers_are_still_asked_for() {
        for codings in ["gzip;q=0.5, Trailers", ",trailers,, gzip,"] {
            let mut map = headers(&[("te", codings), ("connection", ", te,")]);
            remove_hop_by_hop(&mut map, |_| false);
            assert_eq!(map["te"], "trailers");
            assert_eq!(map["connection"], "te");
        }
    }

    #[test]
    fn lists_are_appended_to_in_one_line() {
        let mut map = headers(&[("via", "1.0 a"), ("via", "1.1 b")]);
        append_via(&mut map, &Via::new("tollgate").unwrap(), Version::HTTP_10);
        assert_eq!(map.get_all("via").iter().collect::<Vec<_>>(), ["1.0 a, 1.1 b, 1.0 tollgate"]);
    }

    #[test]
    fn lists_are_appended_to_without_empty_elements_at_their_ends() {
        for (lines, joined) in [
            (&["1.0 a,", "", " , ", ", 1.1 b (\"x,,y\") ,"][..], "1.0 a, 1.1 b (\"x,,y\"), 1.1 tollgate"),
            (&["", ","], "1.1 tollgate"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("via", *line)).collect();
            let mut map = headers(&lines);
            append_via(&mut map, &Via::new("tollgate").unwrap(), Version::HTTP_11);
            assert_eq!(map.get_all("via").iter().collect::<Vec<_>>(), [joined], "{lines:?}");
        }
    }

    #[test]
    fn a_merged_length_is_a_number() {
        for lines in [&["5", "5"][..], &["5, 5"], &[", 5"], &[",5,"]] {
            let lines: Vec<_> = lines.iter().map(|line| ("content-length", *line)).collect();
            let mut map = headers(&lines);
            merge_lengths(&mut map);
            assert_eq!(map.get_all("content-length").iter().collect::<Vec<_>>(), ["5"], "{lines:?}");
        }
    }
}
