//! Reads the head of a response (RFC 9112, 4 and 5), and determines how its body ends (6.3).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, response};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use memchr::memchr_iter;
use smallvec::SmallVec;

use super::ResponseFault;

/// Most bytes of a head. A client that does not read makes the proxy hold about this much of a body, too.
pub(in crate::upstream) const MAX_HEAD: usize = 64 << 10;
/// Most header lines of a head. A higher limit would cost every response a larger array.
pub(in crate::upstream) const MAX_FIELDS: usize = 100;

/// How the body of a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// It has this many bytes. 0: there is none.
    Length(u64),
    Chunked,
    /// It ends with the connection.
    UntilClose,
    /// There is none: the connection carries another protocol from now on.
    Switched,
}

/// A head that is not informational.
#[derive(Debug)]
pub(super) struct FinalHead {
    pub(super) parts: response::Parts,
    pub(super) framing: Framing,
    /// Whether the connection may carry another request.
    pub(super) is_kept: bool,
}

/// The head of a response.
#[derive(Debug)]
pub(super) enum Head {
    /// One of the responses 100 and 102 to 199, which another follows.
    Informational(Response<()>),
    Final(FinalHead),
}

/// Takes the head of a response to a request with this `method` from `buffer`. `None`: a part of it is still to come.
/// `searched`: bytes of the buffer that have no end of a head.
///
/// # Errors
/// The head is malformed or too large, or its framing is ambiguous.
pub(super) fn take_head(
    buffer: &mut BytesMut,
    searched: &mut usize,
    method: &Method,
) -> Result<Option<Head>, ResponseFault> {
    // A head that arrives in many parts is parsed when its end has come, and not with each part.
    if buffer.is_empty() || *searched > 0 && !has_end(buffer, *searched) {
        return incomplete(buffer, searched);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, buffer, &mut fields);
    let length = match status {
        Ok(Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Err(ResponseFault::LargeHead);
        }
        Ok(Status::Partial) => return incomplete(buffer, searched),
        Err(error) => return Err(ResponseFault::MalformedHead(error)),
    };
    let malformed = || ResponseFault::MalformedHead(httparse::Error::Status);
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(malformed)?;
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let reason = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    let reason = reason.map(|reason| Bytes::copy_from_slice(reason.as_bytes()));

    let start = buffer.as_ptr() as usize;
    let range = |part: &[u8]| {
        let from = part.as_ptr() as usize - start;
        from..from + part.len()
    };
    let places: SmallVec<[_; 16]> =
        parsed.headers.iter().map(|field| (range(field.name.as_bytes()), range(field.value))).collect();
    let text = buffer.split_to(length).freeze();
    *searched = 0;
    let (mut head, ()) = Response::new(()).into_parts();
    // The proxy adds a few.
    head.headers = HeaderMap::with_capacity(places.len() + 4);
    let mut message = MessageFields::default();
    for (name, value) in places {
        let name = HeaderName::from_bytes(&text[name]);
        let value = HeaderValue::from_maybe_shared(text.slice(value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ResponseFault::MalformedHead(httparse::Error::HeaderName));
        };
        message.note(&name, &value);
        head.headers.append(name, value);
    }
    (head.status, head.version) = (status, version);
    if let Some(reason) = reason.and_then(|reason| ReasonPhrase::try_from(reason).ok()) {
        head.extensions.insert(reason);
    }
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Some(Head::Informational(Response::from_parts(head, ()))));
    }
    let framing = message.framing(&head, method)?;
    let is_kept = framing != Framing::UntilClose
        && framing != Framing::Switched
        && !message.closes
        && (version == Version::HTTP_11 || message.keeps_alive);
    Ok(Some(Head::Final(FinalHead { parts: head, framing, is_kept })))
}

/// # Errors
/// What has come of the head is too large already.
fn incomplete(buffer: &BytesMut, searched: &mut usize) -> Result<Option<Head>, ResponseFault> {
    *searched = buffer.len();
    if buffer.len() > MAX_HEAD { Err(ResponseFault::LargeHead) } else { Ok(None) }
}

/// Whether the end of a head, an empty line, is in `bytes`, of which the first `searched` have none.
fn has_end(bytes: &[u8], searched: usize) -> bool {
    // The empty line may have begun before.
    let from = searched.saturating_sub(3);
    memchr_iter(b'\n', &bytes[from..])
        .any(|at| matches!(&bytes[from + at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// What the fields of a head say of its message and its connection.
#[derive(Debug, Default)]
struct MessageFields {
    /// The length in all `Content-Length` lines.
    length: Option<Length>,
    /// Whether the last transfer coding is `chunked`.
    ends_with_chunked: Option<bool>,
    /// `Connection: close`
    closes: bool,
    /// `Connection: keep-alive`
    keeps_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    /// There are several, or one that is no number.
    Ambiguous,
}

impl MessageFields {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        match *name {
            header::CONTENT_LENGTH => {
                for element in value.as_bytes().split(|&byte| byte == b',') {
                    let length = decimal(element.trim_ascii()).map_or(Length::Ambiguous, Length::Bytes);
                    let is_same = self.length.is_none_or(|other| other == length);
                    self.length = Some(if is_same { length } else { Length::Ambiguous });
                }
            }
            header::TRANSFER_ENCODING => {
                let codings = value.to_str().unwrap_or_default();
                let last = codings.rsplit(',').next().unwrap_or_default();
                self.ends_with_chunked = Some(last.trim_ascii().eq_ignore_ascii_case("chunked"));
            }
            header::CONNECTION => {
                for option in value.as_bytes().split(|&byte| byte == b',') {
                    self.closes |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                    self.keeps_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
    }

    /// How the body of a response with this `head` ends, in reply to a request with this `method` (RFC 9112, 6.3).
    fn framing(&self, head: &response::Parts, method: &Method) -> Result<Framing, ResponseFault> {
        match head.status {
            StatusCode::SWITCHING_PROTOCOLS => return Ok(Framing::Switched),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => return Ok(Framing::Length(0)),
            _ if *method == Method::HEAD => return Ok(Framing::Length(0)),
            _ => {}
        }
        match (self.ends_with_chunked, self.length) {
            (None, None) => Ok(Framing::UntilClose),
            (None, Some(Length::Bytes(length))) => Ok(Framing::Length(length)),
            (Some(true), None) if head.version == Version::HTTP_11 => Ok(Framing::Chunked),
            (Some(false), None) if head.version == Version::HTTP_11 => Ok(Framing::UntilClose),
            // A proxy before or behind may go by another one (RFC 9112, 6.1 and 11.2).
            _ => Err(ResponseFault::AmbiguousLength),
        }
    }
}

/// The number with these digits.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    let number = digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    // Two values less are special in hyper, which clients' connections use.
    number.filter(|&number| !digits.is_empty() && number < u64::MAX - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str, method: &Method) -> Result<Option<Head>, ResponseFault> {
        take_head(&mut text.into(), &mut 0, method)
    }

    /// The framing of a response to GET, and whether its connection is kept.
    fn framed(text: &str) -> Result<(Framing, bool), ResponseFault> {
        match take(text, &Method::GET)? {
            Some(Head::Final(FinalHead { framing, is_kept, .. })) => Ok((framing, is_kept)),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn the_framing_follows_the_head() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", (Framing::Length(5), true)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length:5\r\n\r\n",
                (Framing::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x, close\r\n\r\n",
                (Framing::Length(5), false),
            ),
            ("HTTP/1.1 200\r\ntransfer-encoding: gzip, Chunked\r\n\r\n", (Framing::Chunked, true)),
            ("HTTP/1.1 200 \r\ntransfer-encoding: gzip\r\n\r\n", (Framing::UntilClose, false)),
            ("HTTP/1.1 200 OK\r\n\r\n", (Framing::UntilClose, false)),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", (Framing::Length(0), false)),
            ("HTTP/1.0 200 OK\ncontent-length: 0\nconnection: Keep-Alive\n\n", (Framing::Length(0), true)),
            ("\r\nHTTP/1.1 204 No\r\ncontent-length: 7\r\n\r\n", (Framing::Length(0), true)),
            ("HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n", (Framing::Length(0), true)),
            ("HTTP/1.1 205 Reset\r\ncontent-length: 2\r\n\r\n", (Framing::Length(2), true)),
            ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", (Framing::Switched, false)),
        ] {
            assert_eq!(framed(text).ok(), Some(expected), "{text:?}");
        }
        let head = take("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", &Method::HEAD);
        assert!(matches!(head, Ok(Some(Head::Final(FinalHead { framing: Framing::Length(0), .. })))));
    }

    #[test]
    fn ambiguous_and_malformed_heads_are_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n",
        ] {
            assert!(matches!(framed(text), Err(ResponseFault::AmbiguousLength)), "{text:?}");
        }
        for text in [
            "HTTP/1.1 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "<html>\r\n\r\n",
            "HTTP/1.1 200 OK\r\na : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\rc\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
            "HTTP/1.1 200 O\0K\r\n\r\n",
        ] {
            let taken = take(text, &Method::GET);
            assert!(matches!(taken, Err(ResponseFault::MalformedHead(_))), "{text:?}: {taken:?}");
        }
        let lines = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(framed(&lines(MAX_FIELDS)).is_ok());
        assert!(matches!(take(&lines(MAX_FIELDS + 1), &Method::GET), Err(ResponseFault::LargeHead)));
        let long = |end: &str| format!("HTTP/1.1 200 OK\r\na: {}{end}", "b".repeat(MAX_HEAD));
        for text in [long(""), long("\r\n\r\n")] {
            assert!(matches!(take(&text, &Method::GET), Err(ResponseFault::LargeHead)));
        }
    }

    #[test]
    fn a_head_is_taken_once_it_is_whole_and_leaves_the_rest() {
        let text = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 Fine\r\nx: y\r\ncontent-length: 3\r\n\r\nabc";
        let (mut buffer, mut searched, mut heads) = (BytesMut::new(), 0, Vec::new());
        for byte in text.bytes() {
            buffer.extend_from_slice(&[byte]);
            if heads.len() < 2 {
                heads.extend(take_head(&mut buffer, &mut searched, &Method::GET).unwrap());
            }
        }
        assert_eq!(&buffer[..], b"abc");
        let [Head::Informational(hints), Head::Final(head)] = &heads[..] else { panic!("{heads:?}") };
        assert_eq!(
            (hints.status().as_u16(), &hints.headers()["link"]),
            (103, &HeaderValue::from_static("</a>"))
        );
        assert_eq!(head.parts.headers["x"], "y");
        assert_eq!(
            head.parts.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes),
            Some(&b"Fine"[..])
        );
    }
}
