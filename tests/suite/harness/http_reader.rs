//! Reads HTTP/1.1 messages off a connection, strictly: what RFC 9112 leaves a recipient free to repair is an error.
//! Client and origin of the tests share it, so that both see whatever the proxy writes with the same eyes.

use std::io::{self, Read};

/// What was read from a connection and not taken yet.
#[derive(Debug, Default)]
pub struct HttpReader {
    unread: Vec<u8>,
}

/// How a message's body ends (RFC 9112, section 6.3).
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Framing {
    Length(usize),
    Chunked,
    /// Neither field: a request has no body then, a response lasts until the connection ends.
    Unframed,
}

impl HttpReader {
    /// Reads once more: whether anything came.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut chunk = [0; 64 << 10];
        let read = loop {
            // A read with a time limit begins no more by itself when the process was stopped and goes on (signal(7)).
            match from.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.unread.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    fn must_fill(&mut self, from: &mut impl Read) -> io::Result<()> {
        if self.fill(from)? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Everything that was not taken yet.
    pub fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }

    /// Reads so many bytes.
    pub fn take(&mut self, from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.must_fill(from)?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Reads so many bytes, and keeps none of them.
    fn skip(&mut self, from: &mut impl Read, length: usize) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            if self.unread.is_empty() {
                self.must_fill(from)?;
            }
            let ready = self.unread.len().min(left);
            self.unread.drain(..ready);
            left -= ready;
        }
        Ok(())
    }

    /// Reads a line, without its CRLF.
    pub fn line(&mut self, from: &mut impl Read) -> io::Result<String> {
        loop {
            if let Some(end) = line_end(&self.unread)? {
                let line = String::from_utf8_lossy(&self.unread[..end]).into_owned();
                self.unread.drain(..end + 2);
                return Ok(line);
            }
            self.must_fill(from)?;
        }
    }

    /// Reads a message's head, without the empty line that ends it. `None` if the connection ends before it begins. A head
    /// that breaks off stays in `unread`.
    pub fn head(&mut self, from: &mut impl Read) -> io::Result<Option<String>> {
        let mut start = 0;
        loop {
            match line_end(&self.unread[start..])? {
                Some(0) if start == 0 => return Err(invalid("an empty line before a message")),
                Some(0) => {
                    let head = String::from_utf8_lossy(&self.unread[..start - 2]).into_owned();
                    self.unread.drain(..start + 2);
                    return Ok(Some(head));
                }
                Some(length) => start += length + 2,
                None if self.fill(from)? => {}
                None if self.unread.is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Reads the next chunk; `None` for the last one, whose trailers are to be read next.
    pub fn chunk(&mut self, from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
        let line = self.line(from)?;
        // `from_str_radix` takes a sign; the proxy has no reason to write extensions.
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid(format!("not a chunk size: {line:?}")));
        }
        let size = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
        if size == 0 {
            return Ok(None);
        }
        let chunk = self.take(from, size)?;
        // Not as a line: it would wait for the end of whatever stands there instead.
        if self.take(from, 2)? != b"\r\n" {
            return Err(invalid("a chunk is longer than it says"));
        }
        Ok(Some(chunk))
    }

    /// Reads trailers up to the empty line, as they came.
    pub fn trailers(&mut self, from: &mut impl Read) -> io::Result<Vec<String>> {
        let mut trailers = Vec::new();
        loop {
            let line = self.line(from)?;
            if line.is_empty() {
                return Ok(trailers);
            }
            field(&line)?;
            trailers.push(line);
        }
    }

    /// Reads a chunked body and its trailers.
    pub fn chunks(&mut self, from: &mut impl Read) -> io::Result<(Vec<u8>, Vec<String>)> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(from)? {
            body.extend(chunk);
        }
        Ok((body, self.trailers(from)?))
    }

    /// Reads a body and its trailers, and keeps none of them: how many bytes the body had.
    pub fn skip_body(&mut self, from: &mut impl Read, framing: Framing) -> io::Result<usize> {
        let mut length = 0;
        match framing {
            Framing::Length(announced) => {
                self.skip(from, announced)?;
                length = announced;
            }
            Framing::Chunked => {
                while let Some(chunk) = self.chunk(from)? {
                    length += chunk.len();
                }
                self.trailers(from)?;
            }
            Framing::Unframed => {}
        }
        Ok(length)
    }
}

/// Where the first line's CRLF begins, if it is there yet.
fn line_end(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(at) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else { return Ok(None) };
    match (bytes[at], bytes.get(at + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(at)),
        (b'\r', None) => Ok(None),
        (b'\r', _) => Err(invalid("a CR without LF")),
        (b'\n', _) => Err(invalid("a LF without CR")),
        _ => Err(invalid("a NUL in a line")),
    }
}

/// Name, in lower case, and value of a field's line.
pub fn field(line: &str) -> io::Result<(String, String)> {
    let is_token =
        |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() && is_token(name) => {
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        }
        _ => Err(invalid(format!("not a field: {line:?}"))),
    }
}

/// Names, in lower case, and values of all fields of `head`, whose first line is none.
pub fn fields(head: &str) -> io::Result<Vec<(String, String)>> {
    head.split("\r\n").skip(1).map(field).collect()
}

/// What these fields say of the body's end.
pub fn framing(fields: &[(String, String)]) -> io::Result<Framing> {
    let values = |name: &str| -> Vec<&str> {
        fields.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    };
    match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => Ok(Framing::Unframed),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        // `parse` takes a sign.
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(Framing::Length(length.parse().map_err(io::Error::other)?))
        }
        (lengths, codings) => Err(invalid(format!("no one framing: {lengths:?}, {codings:?}"))),
    }
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

mod tests {
    use std::io::{self, ErrorKind};

    use super::{Framing, HttpReader, field, fields, framing};

    /// What `read` makes of these bytes, however they are cut; nothing follows them.
    fn read<T: PartialEq + std::fmt::Debug>(
        bytes: &str,
        read: impl Fn(&mut HttpReader, &mut dyn io::Read) -> io::Result<T>,
    ) -> Result<T, ErrorKind> {
        let outcome = read(&mut HttpReader::default(), &mut bytes.as_bytes()).map_err(|error| error.kind());
        let bytewise = read(&mut HttpReader::default(), &mut Bytewise(bytes.as_bytes()));
        assert_eq!(bytewise.map_err(|error| error.kind()), outcome, "byte by byte: {bytes:?}");
        outcome
    }

    /// One byte at a time.
    struct Bytewise<'a>(&'a [u8]);

    impl io::Read for Bytewise<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            io::Read::read(&mut self.0, &mut buffer[..1])
        }
    }

    fn line(bytes: &str) -> Result<String, ErrorKind> {
        read(bytes, |reader, mut from| reader.line(&mut from))
    }

    fn head(bytes: &str) -> Result<Option<String>, ErrorKind> {
        read(bytes, |reader, mut from| reader.head(&mut from))
    }

    fn chunks(bytes: &str) -> Result<(Vec<u8>, Vec<String>), ErrorKind> {
        read(bytes, |reader, mut from| reader.chunks(&mut from))
    }

    #[test]
    fn a_line_ends_with_crlf_and_nothing_else() {
        assert_eq!(line("a b\r\nc").as_deref(), Ok("a b"));
        assert_eq!(line("\r\n").as_deref(), Ok(""));
        for bad in ["a\nb\r\n", "\n", "a\rb\r\n", "a\r\r\n", "a\0b\r\n"] {
            assert_eq!(line(bad), Err(ErrorKind::InvalidData), "{bad:?}");
        }
        for short in ["", "a", "a\r"] {
            assert_eq!(line(short), Err(ErrorKind::UnexpectedEof), "{short:?}");
        }
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        assert_eq!(
            head("GET / HTTP/1.1\r\nhost: a\r\n\r\nbody"),
            Ok(Some("GET / HTTP/1.1\r\nhost: a".into()))
        );
        assert_eq!(head(""), Ok(None));
        for short in ["GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: a\r\n\r"] {
            assert_eq!(head(short), Err(ErrorKind::UnexpectedEof), "{short:?}");
        }
        for bad in
            ["\r\nGET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\n\n", "GET / HTTP/1.1\r\nhost: a\nx: b\r\n\r\n"]
        {
            assert_eq!(head(bad), Err(ErrorKind::InvalidData), "{bad:?}");
        }
    }

    #[test]
    fn a_head_that_breaks_off_can_be_shown() {
        let mut reader = HttpReader::default();
        assert!(reader.head(&mut &b"GET / HTTP/1.1\r\nho"[..]).is_err());
        assert_eq!(reader.unread(), b"GET / HTTP/1.1\r\nho");
    }

    #[test]
    fn a_field_has_a_name_and_a_colon() {
        assert_eq!(field("X-A:  b c ").unwrap(), ("x-a".into(), "b c".into()));
        assert_eq!(field("x:").unwrap(), ("x".into(), String::new()));
        for bad in ["", "no colon", ": a", "x : a", " folded: a", "\tfolded", "x(: a", "ä: a"] {
            assert_eq!(field(bad).unwrap_err().kind(), ErrorKind::InvalidData, "{bad:?}");
        }
    }

    #[test]
    fn a_body_has_one_framing() {
        let framed = |lines: &str| {
            fields(&format!("GET / HTTP/1.1{lines}"))
                .and_then(|fields| framing(&fields))
                .map_err(|error| error.kind())
        };
        assert_eq!(framed(""), Ok(Framing::Unframed));
        assert_eq!(framed("\r\ncontent-length: 12"), Ok(Framing::Length(12)));
        assert_eq!(framed("\r\nTransfer-Encoding: Chunked"), Ok(Framing::Chunked));
        for bad in [
            "\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
            "\r\ncontent-length: 1\r\ncontent-length: 1",
            "\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "\r\ntransfer-encoding: gzip",
            "\r\ncontent-length: +1",
            "\r\ncontent-length: 1, 1",
        ] {
            assert_eq!(framed(bad), Err(ErrorKind::InvalidData), "{bad:?}");
        }
    }

    #[test]
    fn chunks_are_as_long_as_they_say() {
        let whole = "3\r\nabc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
        assert_eq!(chunks(whole), Ok((b"abc0123456789".to_vec(), vec!["x: y".to_owned()])));
        for bad in [
            "3\nabc\r\n0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "3;a=b\r\nabc\r\n0\r\n\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            "\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n\n",
        ] {
            assert_eq!(chunks(bad), Err(ErrorKind::InvalidData), "{bad:?}");
        }
        for short in ["3\r\nab", "3\r\nabc\r\n", "0\r\n", "0\r\nx: y\r\n"] {
            assert_eq!(chunks(short), Err(ErrorKind::UnexpectedEof), "{short:?}");
        }
    }

    #[test]
    fn a_skipped_body_is_read_to_its_end() {
        for (bytes, framing, length) in [
            ("abcnext", Framing::Length(3), 3),
            ("3\r\nabc\r\n0\r\nx: y\r\n\r\nnext", Framing::Chunked, 3),
            ("next", Framing::Unframed, 0),
        ] {
            let mut reader = HttpReader::default();
            let mut from = bytes.as_bytes();
            assert_eq!(reader.skip_body(&mut from, framing).unwrap(), length);
            assert_eq!(reader.take(&mut from, 4).unwrap(), b"next");
        }
    }
}
