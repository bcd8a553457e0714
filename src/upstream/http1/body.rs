//! Reads the body of a response (RFC 9112, 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Status};
use memchr::{memchr, memmem};

use super::{
    ResponseFault,
    head::{Framing, MAX_FIELDS},
};

/// Most bytes of all extensions of the chunks of a body. Nobody needs them.
const MAX_EXTENSIONS: usize = 16 << 10;
/// Most bytes of the trailers.
const MAX_TRAILERS: usize = 16 << 10;
/// Digits of the largest size of a chunk.
const SIZE_DIGITS: usize = 16;

/// Finds the end of a body in the bytes that arrive.
#[derive(Debug)]
pub(super) struct BodyDecoder {
    state: BodyState,
    /// Bytes of extensions that the chunks may still have.
    extensions_left: usize,
    /// Bytes of the buffer that have no end of a line, or of the trailers.
    searched: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// This many bytes are left.
    Length(u64),
    UntilClose,
    ChunkSize,
    /// This many bytes of the chunk are left.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Ended,
}

/// A part of a body.
#[derive(Debug, PartialEq)]
pub(super) enum BodyPart {
    Data(Bytes),
    /// The end of a body with trailers.
    Trailers(HeaderMap),
    End,
    /// More bytes are needed.
    Pending,
}

impl BodyDecoder {
    pub(super) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) | Framing::Switched => BodyState::Ended,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::ChunkSize,
            Framing::UntilClose => BodyState::UntilClose,
        };
        Self { state, extensions_left: MAX_EXTENSIONS, searched: 0 }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == BodyState::Ended
    }

    /// Bytes that are still to come, if the body's length was announced.
    pub(super) fn exact(&self) -> Option<u64> {
        match self.state {
            BodyState::Length(left) => Some(left),
            BodyState::Ended => Some(0),
            _ => None,
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The body has not.
    pub(super) fn connection_ended(&mut self) -> Result<(), ResponseFault> {
        match self.state {
            BodyState::UntilClose | BodyState::Ended => {
                self.state = BodyState::Ended;
                Ok(())
            }
            _ => Err(ResponseFault::EarlyEnd),
        }
    }

    /// Takes the next part of the body from `buffer`.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<BodyPart, ResponseFault> {
        loop {
            match self.state {
                BodyState::Ended => return Ok(BodyPart::End),
                _ if buffer.is_empty() => return Ok(BodyPart::Pending),
                BodyState::UntilClose => return Ok(BodyPart::Data(buffer.split().freeze())),
                BodyState::Length(left) => {
                    let (data, left) = split(buffer, left);
                    self.state = if left == 0 { BodyState::Ended } else { BodyState::Length(left) };
                    return Ok(BodyPart::Data(data));
                }
                BodyState::Chunk(left) => {
                    let (data, left) = split(buffer, left);
                    self.state = if left == 0 { BodyState::ChunkEnd } else { BodyState::Chunk(left) };
                    return Ok(BodyPart::Data(data));
                }
                BodyState::ChunkEnd => match &buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        self.state = BodyState::ChunkSize;
                    }
                    [b'\r'] => return Ok(BodyPart::Pending),
                    _ => return Err(ResponseFault::MalformedChunk),
                },
                BodyState::ChunkSize => match self.take_size(buffer)? {
                    None => return Ok(BodyPart::Pending),
                    Some(0) => self.state = BodyState::Trailers,
                    Some(size) => self.state = BodyState::Chunk(size),
                },
                BodyState::Trailers => return self.take_trailers(buffer),
            }
        }
    }

    /// Takes the line with the size of a chunk. `None`: a part of it is still to come.
    fn take_size(&mut self, buffer: &mut BytesMut) -> Result<Option<u64>, ResponseFault> {
        let Some(end) = memchr(b'\n', &buffer[self.searched..]).map(|at| self.searched + at) else {
            self.searched = buffer.len();
            let longest = SIZE_DIGITS + 1 + self.extensions_left;
            return if buffer.len() > longest { Err(ResponseFault::MalformedChunk) } else { Ok(None) };
        };
        let line = buffer[..end].strip_suffix(b"\r").ok_or(ResponseFault::MalformedChunk)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(digits);
        let behind_space = rest.iter().find(|&byte| !matches!(byte, b' ' | b'\t'));
        let is_extension = matches!(behind_space, None | Some(b';')) && memchr(b'\r', rest).is_none();
        let size = str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let size = size.filter(|_| is_extension && rest.len() <= self.extensions_left);
        let size = size.ok_or(ResponseFault::MalformedChunk)?;
        self.extensions_left -= rest.len();
        self.searched = 0;
        buffer.advance(end + 1);
        Ok(Some(size))
    }

    /// Takes the trailers and the empty line behind them.
    fn take_trailers(&mut self, buffer: &mut BytesMut) -> Result<BodyPart, ResponseFault> {
        match &buffer[..] {
            [b'\r', b'\n', ..] => {
                buffer.advance(2);
                self.state = BodyState::Ended;
                return Ok(BodyPart::End);
            }
            [b'\r'] => return Ok(BodyPart::Pending),
            _ => {}
        }
        let from = self.searched.saturating_sub(3);
        let Some(end) = memmem::find(&buffer[from..], b"\r\n\r\n").map(|at| from + at + 4) else {
            self.searched = buffer.len();
            return if buffer.len() > MAX_TRAILERS {
                Err(ResponseFault::MalformedTrailers)
            } else {
                Ok(BodyPart::Pending)
            };
        };
        let text = buffer.split_to(end).freeze();
        self.state = BodyState::Ended;
        trailers(&text)
            .filter(|_| end <= MAX_TRAILERS)
            .map(BodyPart::Trailers)
            .ok_or(ResponseFault::MalformedTrailers)
    }
}

/// Takes at most `left` bytes from `buffer`. Returns them, and how many are left.
fn split(buffer: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let taken = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    (buffer.split_to(taken).freeze(), left - taken as u64)
}

/// Parses trailers. `None`: they are malformed.
fn trailers(text: &Bytes) -> Option<HeaderMap> {
    // The parser takes a line feed alone for the end of a line.
    let mut lines = text.strip_suffix(b"\n")?.split(|&byte| byte == b'\n');
    if lines.any(|line| !line.ends_with(b"\r")) {
        return None;
    }
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let Ok(Status::Complete((_, fields))) = httparse::parse_headers(text, &mut fields) else { return None };
    let field = |field: &httparse::Header<'_>| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_maybe_shared(text.slice_ref(field.value)).ok()?))
    };
    let mut map = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields.iter().map(field).collect::<Option<Vec<_>>>()? {
        map.append(name, value);
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the trailers in `text`, which arrives in pieces of `size`, and the rest.
    fn read(
        framing: Framing,
        text: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, HeaderMap, usize), ResponseFault> {
        let (mut decoder, mut buffer) = (BodyDecoder::new(framing), BytesMut::new());
        let (mut body, mut trailers, mut pieces) = (Vec::new(), HeaderMap::new(), text.chunks(size));
        loop {
            match decoder.take(&mut buffer)? {
                BodyPart::Data(data) => {
                    assert!(!data.is_empty());
                    body.extend_from_slice(&data);
                }
                BodyPart::Trailers(found) => trailers = found,
                BodyPart::End => {
                    return Ok((body, trailers, buffer.len() + pieces.map(<[u8]>::len).sum::<usize>()));
                }
                BodyPart::Pending => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => decoder.connection_ended()?,
                },
            }
        }
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let chunks =
            b"5\r\nhello\r\n00c ; a=\"b\"\r\n, wide world\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\nHTTP/1.1";
        for size in 1..chunks.len() {
            let (body, trailers, rest) = read(Framing::Chunked, chunks, size).unwrap();
            assert_eq!((&body[..], rest), (&b"hello, wide world"[..], 8), "{size}");
            assert_eq!(trailers.get_all("x-sum").iter().collect::<Vec<_>>(), ["1", "2"]);
            for (framing, length, rest) in [
                (Framing::Length(7), 7, chunks.len() - 7),
                (Framing::Length(0), 0, chunks.len()),
                (Framing::UntilClose, chunks.len(), 0),
            ] {
                let read = read(framing, chunks, size).unwrap();
                assert_eq!((read.0.len(), read.2), (length, rest), "{framing:?} {size}");
            }
        }
        assert_eq!(read(Framing::Chunked, b"0\r\n\r\n", 1).map(|read| read.0).ok(), Some(Vec::new()));
    }

    #[test]
    fn bodies_that_end_early_are_errors() {
        for (framing, text) in [
            (Framing::Length(5), &b"hell"[..]),
            (Framing::Chunked, b""),
            (Framing::Chunked, b"5\r\nhell"),
            (Framing::Chunked, b"5\r\nhello\r\n"),
            (Framing::Chunked, b"0\r\n"),
            (Framing::Chunked, b"0\r\na: b\r\n"),
        ] {
            for size in 1..9 {
                assert!(matches!(read(framing, text, size), Err(ResponseFault::EarlyEnd)), "{text:?}");
            }
        }
    }

    #[test]
    fn malformed_chunks_are_errors() {
        let long = |text: &str| [text.as_bytes(), &[b'x'; MAX_EXTENSIONS + 32], b"\r\n"].concat();
        let many = b"1;aaaaaaaaaaaaaaaa\r\nx\r\n".repeat(MAX_EXTENSIONS / 16);
        for text in [
            &b"\r\n"[..],
            b";a\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"+1\r\nx\r\n",
            b"0x1\r\n",
            b"1 1\r\n",
            b"10000000000000000\r\n",
            b"5\nhello",
            b"5;a\nb\r\n",
            b"5;a\rb\r\n",
            b"5\x0c\r\nhello",
            b"5\r\r\n",
            b"5\r\nhelloo\r\n",
            b"5\r\nhello\n",
            &long("5;"),
            &long(""),
            &many,
        ] {
            for size in [1, 7, text.len()] {
                let read = read(Framing::Chunked, text, size);
                assert!(
                    matches!(read, Err(ResponseFault::MalformedChunk)),
                    "{:?}: {read:?}",
                    text.escape_ascii()
                );
            }
        }
        let trailers = |line: &str, count| format!("0\r\n{}\r\n", line.repeat(count)).into_bytes();
        for text in [
            trailers("a : b\r\n", 1),
            trailers("a\r\n", 1),
            trailers("a: b\nc: d\r\n", 1),
            trailers("\na: b\r\n", 1),
            trailers("a: b\r\n\nc: d\r\n", 1),
            trailers("a: b\r\n c\r\n", 1),
            trailers("a: \0\r\n", 1),
            trailers("a: b\r\n", MAX_FIELDS + 1),
            trailers(&format!("a: {}\r\n", "b".repeat(MAX_TRAILERS)), 1),
        ] {
            for size in [1, 7, text.len()] {
                assert!(
                    matches!(read(Framing::Chunked, &text, size), Err(ResponseFault::MalformedTrailers)),
                    "{:?}",
                    text.escape_ascii()
                );
            }
        }
    }
}
