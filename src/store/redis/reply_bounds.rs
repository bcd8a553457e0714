//! Bounds the replies of a server. Redis' client keeps a reply in memory until it is complete, and messages of a
//! subscription until they are read; a server that was replaced, or that somebody else commands, may send without end.
//!
//! Source: [the protocol](https://redis.io/docs/latest/develop/reference/protocol-spec/).

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of a reply, with [`ELEMENT`] for each element that it announces. The largest replies have 200
/// API keys of 16 KiB, 1,000 entries of the audit log of 6 KiB, or the map of a cluster with 14,000 ranges of slots.
const MAX_REPLY: usize = 16 << 20;
/// Bytes of an element in memory, besides its text.
const ELEMENT: usize = 64;
/// Most bytes of all replies since something was written. A subscription writes a PING every few seconds.
const MAX_UNASKED: usize = 2 * MAX_REPLY;
/// Most bytes of a line: an error, a number, or a length.
const MAX_LINE: usize = 64 << 10;
/// How deep arrays may be nested: the map of a cluster has four levels.
const MAX_DEPTH: usize = 8;

/// The observed events of the stream.
#[derive(Debug, Default)]
pub(super) struct ConnectionProgress {
    pub(super) has_ended: AtomicBool,
    pub(super) written: AtomicU64,
    /// The bound of replies that the server has exceeded.
    pub(super) exceeded: OnceLock<&'static str>,
}

/// Follows the replies in a stream of bytes.
#[derive(Debug, Default)]
struct ReplyBounds {
    /// The current line, as far as it has arrived.
    line: Vec<u8>,
    /// Bytes of the current text that have not arrived.
    text_left: usize,
    /// Elements that have not arrived, of each array that is not complete.
    open: Vec<usize>,
    /// Size of the current reply.
    size: usize,
    /// Size of the complete replies since something was written.
    unasked: usize,
}

impl ReplyBounds {
    /// Reads the next bytes.
    ///
    /// # Errors
    /// The bound that they exceed, as text.
    fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.text_left > 0 {
                let arrived = self.text_left.min(bytes.len());
                self.text_left -= arrived;
                bytes = &bytes[arrived..];
                if self.text_left == 0 {
                    self.end_value();
                }
                continue;
            }
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (part, rest) = bytes.split_at(end);
            bytes = rest;
            if self.line.len() + part.len() > MAX_LINE {
                return Err("the server sends a line of more than 64 KiB");
            }
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\r\n") {
                self.end_line()?;
                self.line.clear();
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), &'static str> {
        self.add(self.line.len())?;
        let kind = self.line[0];
        let number = str::from_utf8(&self.line[1..]).ok().and_then(|text| text.trim().parse::<i64>().ok());
        let length = number.map_or(0, |number| usize::try_from(number).unwrap_or(0));
        let elements = match kind {
            b'$' | b'!' | b'=' => {
                self.add(length)?;
                // A null has no text, and no end of it. The client takes a negative length of the others for a huge one.
                match (kind, number) {
                    (b'$', Some(..0)) => self.end_value(),
                    (_, Some(..0)) => return Err(TOO_LARGE),
                    _ => self.text_left = length + 2,
                }
                return Ok(());
            }
            b'*' | b'~' | b'>' => length,
            b'%' => length.saturating_mul(2),
            // The value follows its attributes.
            b'|' => length.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        if elements == 0 {
            self.end_value();
            return Ok(());
        }
        if self.open.len() == MAX_DEPTH {
            return Err("the server sends a reply that is nested too deep");
        }
        self.add(elements.saturating_mul(ELEMENT))?;
        self.open.push(elements);
        Ok(())
    }

    fn add(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.size = self.size.saturating_add(bytes);
        match () {
            () if self.size > MAX_REPLY => Err(TOO_LARGE),
            () if self.unasked + self.size > MAX_UNASKED => Err("the server sends more than 32 MiB unasked"),
            () => Ok(()),
        }
    }

    /// A value is complete, and so are the arrays whose last element it is.
    fn end_value(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        self.unasked += std::mem::take(&mut self.size) + ELEMENT;
    }
}

const TOO_LARGE: &str = "the server sends a reply of more than 16 MiB";

/// A stream whose other side may not send replies without end: reading from it fails then.
pub(super) struct BoundedStream<S> {
    stream: S,
    bounds: ReplyBounds,
    progress: Arc<ConnectionProgress>,
}

impl<S> BoundedStream<S> {
    pub(super) fn new(stream: S, progress: Arc<ConnectionProgress>) -> Self {
        Self { stream, bounds: ReplyBounds::default(), progress }
    }

    /// The client continues after other kinds of errors.
    fn fail(why: &'static str) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(why) = self.progress.exceeded.get() {
            return Self::fail(why);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        match self.bounds.read(&buffer.filled()[before..]) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(why) => {
                self.progress.has_ended.store(true, Relaxed);
                Self::fail(self.progress.exceeded.get_or_init(|| why))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bounds.unasked = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of all kinds.
    const REPLIES: [&str; 16] = [
        "+OK\r\n",
        "-ERR a lone\nline feed\r\n",
        ":-7\r\n",
        "$5\r\na\r\nb\n\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n*1\r\n$1\r\nx\r\n:1\r\n",
        "%1\r\n+a\r\n*1\r\n_\r\n",
        "|1\r\n+a\r\n#t\r\n~1\r\n,1.5\r\n",
        ">2\r\n+message\r\n(1\r\n",
        "=5\r\ntxt:a\r\n",
        "!3\r\nERR\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n:0\r\n",
    ];

    fn read(texts: &[&str]) -> (ReplyBounds, Result<(), &'static str>) {
        let mut bounds = ReplyBounds::default();
        let outcome = texts.iter().try_for_each(|text| bounds.read(text.as_bytes()));
        (bounds, outcome)
    }

    #[test]
    fn a_reply_ends_where_it_ends_however_it_is_cut() {
        for reply in REPLIES {
            for cut in 0..reply.len() {
                let (bounds, outcome) = read(&[&reply[..cut], &reply[cut..]]);
                assert_eq!((outcome, bounds.size), (Ok(()), 0), "{reply:?} cut at {cut}");
                assert!(bounds.open.is_empty() && bounds.line.is_empty() && bounds.unasked >= ELEMENT);
                let (bounds, _) = read(&[&reply[..cut]]);
                assert_eq!(bounds.unasked, 0, "{reply:?} is not complete after {cut} bytes");
            }
        }
        let (bounds, outcome) = read(&REPLIES);
        assert_eq!((outcome, bounds.size), (Ok(()), 0));
    }

    #[test]
    fn replies_that_are_too_long_or_too_deep_are_refused() {
        let line = "x".repeat(MAX_LINE);
        let deep = "*1\r\n".repeat(MAX_DEPTH + 1);
        for begin in [
            "*1000000000\r\n",
            "%140000\r\n",
            "$16777216\r\n",
            "$9223372036854775807\r\n",
            "!-2\r\n",
            "*2\r\n$9000000\r\n",
            &["+", &line].concat(),
            &deep,
        ] {
            let text = format!("\r\n{}", "y".repeat(9_000_000));
            let (_, outcome) = read(&[begin, &text[2..], &text[..2], "$9000000\r\n"]);
            assert!(outcome.is_err(), "{}", &begin[..begin.len().min(40)]);
        }
        let (_, outcome) = read(&["*262000\r\n"]);
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn replies_without_end_are_refused_unless_something_is_written() {
        let (mut bounds, mut count) = (ReplyBounds::default(), 0);
        while bounds.read(b"+OK\r\n").is_ok() {
            count += 1;
        }
        assert!(count > 100_000 && count < MAX_UNASKED / ELEMENT, "{count}");
        bounds = ReplyBounds::default();
        for _ in 0..2 * count {
            bounds.unasked = 0;
            assert_eq!(bounds.read(b"+OK\r\n"), Ok(()));
        }
    }
}
