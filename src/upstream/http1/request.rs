//! Writes a request (RFC 9112, 3 and 7.1), byte for byte as hyper's client does.

use std::io::Write;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, header, request};
use http_body::Body;

use super::head::decimal;

/// Data of at most this many bytes is copied behind the bytes before it. Measured: cheaper than a vectored write.
const COPIED: usize = 16 << 10;

/// Bytes of memory that an idle connection keeps for the next head: most fit in.
const MOST_IDLE: usize = 512;

/// How the end of a request's body is marked.
#[derive(Debug)]
pub(super) enum BodyEncoding {
    /// It has this many bytes, which are not written yet.
    Length(u64),
    /// With the trailers that the head announces.
    Chunked(Vec<HeaderName>),
}

/// The bytes of a request that the connection has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    copied: Vec<u8>,
    /// Bytes of `copied` that were sent.
    sent: usize,
    /// Follows them.
    data: Bytes,
    /// Follows the data.
    end: &'static [u8],
}

/// The body ended before its announced length.
#[derive(Debug)]
pub(super) struct ShortBody;

impl Unsent {
    /// The bytes to write next. Empty: there are none.
    pub(super) fn next(&self) -> &[u8] {
        [&self.copied[self.sent..], &self.data, self.end]
            .into_iter()
            .find(|part| !part.is_empty())
            .unwrap_or_default()
    }

    /// This many of [`Unsent::next`] were sent.
    pub(super) fn advance(&mut self, bytes: usize) {
        if self.sent < self.copied.len() {
            self.sent += bytes;
            if self.sent == self.copied.len() {
                self.copied.clear();
                self.sent = 0;
            }
        } else if self.data.is_empty() {
            self.end = &self.end[bytes..];
        } else {
            self.data.advance(bytes);
            if self.data.is_empty() {
                self.data = Bytes::new();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next().is_empty()
    }

    /// Everything was sent. Frees memory that an idle connection should not keep.
    pub(super) fn rest(&mut self) {
        self.copied.shrink_to(MOST_IDLE);
    }

    /// Adds `data` and the `end` behind it. Only at the end of everything else.
    fn push(&mut self, data: Bytes, end: &'static [u8]) {
        if self.data.is_empty() && self.end.is_empty() && data.len() <= COPIED {
            self.copied.extend_from_slice(&data);
            self.copied.extend_from_slice(end);
        } else {
            debug_assert!(
                self.data.is_empty() && self.end.is_empty(),
                "data is added once the rest was sent"
            );
            (self.data, self.end) = (data, end);
        }
    }

    /// Adds the head of `request`, which has this `body`. Returns how the body ends; `None`: it has none.
    pub(super) fn head(&mut self, request: &mut request::Parts, body: &impl Body) -> Option<BodyEncoding> {
        let encoding = encoding(request, body);
        let request::Parts { method, uri, headers, .. } = request;
        let bytes = &mut self.copied;
        bytes.reserve(64 + uri.path().len() + 40 * headers.len());
        bytes.extend_from_slice(method.as_str().as_bytes());
        bytes.push(b' ');
        match uri.path_and_query().filter(|_| uri.scheme().is_none()) {
            Some(target) => bytes.extend_from_slice(target.as_str().as_bytes()),
            // Writing to memory can't fail.
            None => drop(write!(bytes, "{uri}")),
        }
        bytes.extend_from_slice(b" HTTP/1.1\r\n");
        fields(bytes, &*headers);
        bytes.extend_from_slice(b"\r\n");
        encoding
    }

    /// Adds a part of the body. Nothing else may wait. Returns whether no more follows.
    pub(super) fn data(&mut self, mut data: Bytes, encoding: &mut BodyEncoding) -> bool {
        match encoding {
            BodyEncoding::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                self.push(data, b"");
                *left == 0
            }
            // An empty chunk would end the body.
            BodyEncoding::Chunked(_) if data.is_empty() => false,
            BodyEncoding::Chunked(_) => {
                drop(write!(self.copied, "{:X}\r\n", data.len()));
                self.push(data, b"\r\n");
                false
            }
        }
    }

    /// Adds the end of the body.
    ///
    /// # Errors
    /// It is shorter than announced.
    pub(super) fn end(
        &mut self,
        trailers: Option<&HeaderMap>,
        encoding: &BodyEncoding,
    ) -> Result<(), ShortBody> {
        match encoding {
            BodyEncoding::Length(0) => Ok(()),
            BodyEncoding::Length(_) => Err(ShortBody),
            // Behind data that is not copied there are never trailers: they follow once it was sent.
            BodyEncoding::Chunked(_) if !self.end.is_empty() => {
                self.end = b"\r\n0\r\n\r\n";
                Ok(())
            }
            BodyEncoding::Chunked(announced) => {
                self.copied.extend_from_slice(b"0\r\n");
                let is_sent = |name: &HeaderName| announced.contains(name) && is_trailer(name);
                fields(&mut self.copied, trailers.into_iter().flatten().filter(|(name, _)| is_sent(name)));
                self.copied.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

fn fields<'f>(bytes: &mut Vec<u8>, fields: impl IntoIterator<Item = (&'f HeaderName, &'f HeaderValue)>) {
    for (name, value) in fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
}

/// Decides how the body ends, and sets the header for it.
fn encoding(request: &mut request::Parts, body: &impl Body) -> Option<BodyEncoding> {
    let headers = &mut request.headers;
    if body.is_end_stream() {
        headers.remove(header::TRANSFER_ENCODING);
        return None;
    }
    // Ours, or a client's that was checked: there is one.
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| decimal(length.as_bytes()));
    let known = body.size_hint().exact();
    match headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
        // Ours alone: clients' are removed.
        Some(_) => {}
        None if announced.is_some() => {
            return announced.filter(|&length| length > 0).map(BodyEncoding::Length);
        }
        None if known.is_some() => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(known.unwrap_or_default()));
            return known.map(BodyEncoding::Length);
        }
        None => drop(headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
    }
    headers.remove(header::CONTENT_LENGTH);
    let announced = headers.get_all(header::TRAILER).iter().filter_map(|line| line.to_str().ok());
    let announced = announced.flat_map(|line| line.split(','));
    let names = announced.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
    Some(BodyEncoding::Chunked(names.collect()))
}

/// Whether the field may be a trailer (RFC 9110, 6.5.1).
fn is_trailer(name: &HeaderName) -> bool {
    use header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    };
    ![
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ]
    .contains(name)
}
