//! The socket to an endpoint.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A stream on which a failed write does not hide an answer that was already sent.
///
/// An upstream may answer early and close while the request is still being sent (RFC 9112, 9.3 and
/// 9.5). The next write then fails, although the answer waits to be read. So a failed write is not
/// reported; it stays pending, and the read side, which learns of the end as surely, tells what there
/// is to tell: the answer, or that there is none.
#[derive(Debug)]
pub(super) struct UpstreamIo {
    stream: TcpStream,
    write_failed: bool,
}

impl UpstreamIo {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, write_failed: false }
    }

    fn report_unless_hangup<T>(&mut self, result: io::Result<T>) -> Poll<io::Result<T>> {
        match result {
            Err(error) if is_hangup(&error) => {
                self.write_failed = true;
                Poll::Pending
            }
            other => Poll::Ready(other),
        }
    }
}

fn is_hangup(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_failed {
            return Poll::Pending;
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.report_unless_hangup(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
