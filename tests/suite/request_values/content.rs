//! Which bodies are JSON, by the header.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::request_values::{BodyContent, content};

/// What a body is with these fields and this beginning: a kind, or a status.
fn of(fields: &[(&'static str, &'static str)], begin: &[u8]) -> Result<BodyContent, u16> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let kind = content(&headers).and_then(|kind| kind.check(begin, begin.len() < 1_000).map(|()| kind));
    kind.map_err(|unreadable| unreadable.status.as_u16())
}

const TYPE: &str = "content-type";
const CODING: &str = "content-encoding";

#[test]
fn a_body_is_json_by_its_type_or_without_one() {
    for fields in [
        &[][..],
        &[(TYPE, "")],
        &[(TYPE, "application/json")],
        &[(TYPE, "Application/JSON ; charset=UTF-8")],
        &[(TYPE, "application/json; charset=\"utf-8\"")],
        &[(TYPE, "application/json;")],
        &[(TYPE, "application/vnd.api+json")],
        &[(CODING, "identity"), (TYPE, "application/json")],
        &[(CODING, "")],
    ] {
        assert_eq!(of(fields, b"{"), Ok(BodyContent::Json), "{fields:?}");
    }
    for fields in [
        &[(TYPE, "application/json"), (TYPE, "application/json")][..],
        &[(TYPE, "application/json"), (TYPE, "text/plain")],
        &[(TYPE, "application/json; charset=utf-16")],
        &[(TYPE, "application/json; charset=latin1")],
        &[(TYPE, "application/json, text/plain")],
        &[(TYPE, "application/x-www-form-urlencoded x")],
        &[(TYPE, "application/json; charset =utf-16")],
        &[(TYPE, "application/json; charset*=utf-8''utf-7")],
        &[(TYPE, "application/json; charset*0=utf-7")],
        &[(CODING, "gzip")],
        &[(CODING, "identity, br")],
        &[(CODING, "identity"), (CODING, "deflate"), (TYPE, "text/plain")],
    ] {
        assert_eq!(of(fields, b"{"), Err(415), "{fields:?}");
    }
}

#[test]
fn json_under_another_type_is_refused() {
    for (media_type, kind) in [
        ("text/plain", BodyContent::PerhapsForm),
        ("application/x-www-form-urlencoded-x", BodyContent::PerhapsForm),
        ("application/x-www-form-urlencoded; charset=iso-8859-1", BodyContent::LatinForm),
        ("application/jsonp", BodyContent::Other),
        ("multipart/form-data; boundary=a", BodyContent::Multipart),
        ("application/x-www-form-urlencoded", BodyContent::Form),
        ("Application/X-WWW-Form-Urlencoded; charset=UTF-8", BodyContent::Form),
    ] {
        for begin in [&b"{"[..], b" \r\n\t[", b"\xEF\xBB\xBF{}", b"\xFF\xFE{\0", b"\0{", b" \xEF\xBB\xBF ["] {
            assert_eq!(of(&[(TYPE, media_type)], begin), Err(415), "{media_type}: {begin:?}");
        }
        for begin in [&b""[..], b"--a", b"a={}", b"\xFF\xD8\xFF\xE0{", b"\x89PNG", b"\"{", b"  "] {
            assert_eq!(of(&[(TYPE, media_type)], begin), Ok(kind), "{media_type}: {begin:?}");
        }
        assert_eq!(of(&[(TYPE, media_type)], &b" ".repeat(64 << 10)), Err(415));
        // Sound may begin with silence.
        assert_eq!(of(&[(TYPE, media_type)], &[&[0; 100][..], b"{"].concat()), Ok(kind));
    }
    assert_eq!(of(&[(TYPE, "application/x-www-form-urlencoded; charset=latin1")], b"a=b"), Err(415));
    assert_eq!(of(&[(TYPE, "application/grpc+proto")], b"\0\0\0\0{"), Ok(BodyContent::Grpc));
}
