//! What a body is, by the header of its request.

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use memchr::memmem;

use super::BodyRefusal;

/// What a body is, by the header of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyContent {
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// One in ISO 8859-1, as some libraries write them by default.
    LatinForm,
    /// Something that some servers take for a form.
    PerhapsForm,
    /// `multipart/form-data` and others in parts, whose fields are not read.
    Multipart,
    /// Something else, if it does not begin as JSON does: some servers read JSON whatever its type is.
    Other,
    /// Messages of gRPC, which begin with their length.
    Grpc,
}

/// What the body of a request with these `headers` is. Without a type, it is JSON.
///
/// # Errors
/// It has a coding, several types or a malformed one, or it is JSON or a form of another charset than UTF-8.
pub fn content(headers: &HeaderMap) -> Result<BodyContent, BodyRefusal> {
    let is_coded = |coding: &[u8]| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity");
    let codings =
        headers.get_all(CONTENT_ENCODING).iter().flat_map(|field| field.as_bytes().split(|b| *b == b','));
    if codings.map(<[u8]>::trim_ascii).any(is_coded) {
        return Err(BodyRefusal::unsupported(
            "has a content coding, so it can't be read: send it without one",
        ));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (first, None) = (types.next(), types.next()) else {
        return Err(BodyRefusal::unsupported("has several content types"));
    };
    let Some(field) = first.filter(|field| !field.is_empty()) else { return Ok(BodyContent::Json) };
    let mut parts = field.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    if media_type.starts_with(b"application/grpc") {
        return Ok(BodyContent::Grpc);
    }
    // Some servers take the part before a comma or a blank.
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(byte);
    if !media_type.iter().all(is_token) {
        return Err(BodyRefusal::unsupported("has a malformed content type"));
    }
    if media_type.starts_with(b"multipart/") {
        return Ok(BodyContent::Multipart);
    }
    let is_form = media_type == b"application/x-www-form-urlencoded";
    let is_like_form = media_type == b"text/plain"
        || [&b"form"[..], b"url"].iter().any(|word| memmem::find(&media_type, word).is_some());
    if !is_form && is_like_form {
        return Ok(BodyContent::PerhapsForm);
    }
    // RFC 6839, 3.1
    if !is_form && media_type != b"application/json" && !media_type.ends_with(b"+json") {
        return Ok(BodyContent::Other);
    }
    let charset = |part: &[u8]| {
        let mut sides = part.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
        let (name, value) = (sides.next()?.to_ascii_lowercase(), sides.next()?);
        // `charset*` and `charset*0` are other ways to write it (RFC 8187, RFC 2231).
        (name.split(|byte| *byte == b'*').next() == Some(&b"charset"[..])).then(|| value.to_ascii_lowercase())
    };
    let is_utf8 = |charset: &Vec<u8>| matches!(&**charset, b"utf-8" | b"\"utf-8\"" | b"utf8");
    let charsets: Vec<Vec<u8>> = parts.filter_map(charset).collect();
    let is_latin = |charset: &Vec<u8>| matches!(&**charset, b"iso-8859-1" | b"us-ascii");
    match charsets.iter().all(is_utf8) {
        false if is_form && charsets.iter().all(is_latin) => Ok(BodyContent::LatinForm),
        true if is_form => Ok(BodyContent::Form),
        true => Ok(BodyContent::Json),
        false => Err(BodyRefusal::unsupported("is not UTF-8, by its content type")),
    }
}

/// Most bytes before the first that tells what a body is.
pub const MAX_BLANKS: usize = 64 << 10;

impl BodyContent {
    /// Checks the beginning of a body of another type. `is_whole`: whether it is all of the body.
    ///
    /// # Errors
    /// It begins as JSON does, or with so many blanks that it could.
    pub fn check(self, begin: &[u8], is_whole: bool) -> Result<(), BodyRefusal> {
        // A frame of gRPC begins with its flags.
        if self == Self::Json || self == Self::Grpc && matches!(begin.first(), None | Some(0 | 1)) {
            return Ok(());
        }
        let first = begin.iter().enumerate().position(|(at, byte)| !is_before_json(at, *byte));
        let rest = first.and_then(|first| begin.get(first..)).unwrap_or_default();
        match rest.first() {
            Some(_) if [&b"/*"[..], b"//", b")]}'"].iter().any(|prefix| rest.starts_with(prefix)) => {
                Err(BodyRefusal::unsupported(
                    "begins as some servers let JSON begin, but has another content type",
                ))
            }
            Some(b'{' | b'[') => Err(BodyRefusal::unsupported(
                "begins as JSON does, but has another content type: send `content-type: application/json`",
            )),
            None if !is_whole => Err(BodyRefusal::unsupported("begins with too many blanks")),
            _ => Ok(()),
        }
    }
}

/// Whether JSON may begin after this byte: a blank, or at the beginning one of a byte order mark or of an encoding in two or
/// four bytes.
pub fn is_before_json(at: usize, byte: u8) -> bool {
    byte.is_ascii_whitespace() || at < 4 && matches!(byte, 0 | 0xEF | 0xBB | 0xBF | 0xFE | 0xFF)
}
