//! A connection to a server that knows whether the server has closed it, and whether bytes were written.
//!
//! Redis' client reports neither. A restart, a failover or a proxy before Redis closes idle connections; a command on a
//! closed one was never sent, and may be sent again.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use bb8_redis::redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisFuture,
    Value,
    aio::{AsyncStream, ConnectionLike, MultiplexedConnection},
};
use futures_util::future::select_ok;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream, lookup_host},
    task::AbortHandle,
};
use tokio_rustls::TlsConnector;

use super::reply_bounds::{BoundedStream, ConnectionProgress};

/// An open connection, shared by its clones. It is closed when the last one is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ServerConnection {
    inner: MultiplexedConnection,
    task: Arc<ConnectionTask>,
}

/// The task that reads and writes the stream.
#[derive(Debug)]
struct ConnectionTask {
    state: Arc<ConnectionProgress>,
    handle: AbortHandle,
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // Otherwise the task would run until the server has replied to all commands.
        self.handle.abort();
    }
}

impl ServerConnection {
    /// Opens a connection. `tls`: for addresses with TLS.
    ///
    /// # Errors
    /// The server can't be reached, or refuses the handshake.
    pub(super) async fn open(
        info: &ConnectionInfo,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, RedisError> {
        let (stream, state) = open_stream(info, tls).await?;
        let config = AsyncConnectionConfig::new();
        let opened = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
        let (inner, task) = opened?;
        Ok(Self {
            inner,
            task: Arc::new(ConnectionTask { state, handle: tokio::spawn(task).abort_handle() }),
        })
    }

    /// Sets the timeout of each reply, on this clone and later clones of it; half a second at first.
    pub(crate) fn set_response_timeout(&mut self, timeout: Duration) {
        self.inner.set_response_timeout(timeout);
    }

    /// Whether the server has closed it, or it broke.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.state.has_ended.load(Relaxed)
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.task.state.written.load(Relaxed)
    }
}

impl ConnectionLike for ServerConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.inner.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.inner.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

/// Opens a stream to a server, and sends nothing yet. `tls`: for addresses with TLS.
///
/// # Errors
/// The server can't be reached, or refuses the handshake.
pub(super) async fn open_stream(
    info: &ConnectionInfo,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(BoundedStream<Pin<Box<dyn AsyncStream + Send + Sync>>>, Arc<ConnectionProgress>), RedisError> {
    let unsupported = || (ErrorKind::InvalidClientConfig, "an address that can't be reached");
    let state = Arc::<ConnectionProgress>::default();
    let stream: Pin<Box<dyn AsyncStream + Send + Sync>> = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Box::pin(watched(open_tcp(host, *port).await?, &state)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let tls = TlsConnector::from(Arc::clone(tls.ok_or_else(unsupported)?));
            let name = ServerName::try_from(host.as_str())?.to_owned();
            let stream = watched(open_tcp(host, *port).await?, &state);
            Box::pin(tls.connect(name, stream).await?)
        }
        ConnectionAddr::Unix(path) => Box::pin(watched(UnixStream::connect(path).await?, &state)),
        _ => return Err(unsupported().into()),
    };
    Ok((BoundedStream::new(stream, Arc::clone(&state)), state))
}

fn watched<S>(stream: S, state: &Arc<ConnectionProgress>) -> WatchedStream<S> {
    WatchedStream { stream, state: Arc::clone(state) }
}

/// Connects to all addresses of a host at once, and takes the first that succeeds: others may not reply.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let attempts: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    let (stream, _others) = select_ok(attempts).await?;
    // The end of a large batch must not wait until the server acknowledges its beginning.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A stream that records its end and the bytes written. It is below TLS, which may have written a part before it
/// reports an error.
struct WatchedStream<S> {
    stream: S,
    state: Arc<ConnectionProgress>,
}

impl<S> WatchedStream<S> {
    fn end_on_error<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|_| self.state.has_ended.store(true, Relaxed))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if before > 0 && buffer.remaining() == before {
            self.state.has_ended.store(true, Relaxed);
        }
        Poll::Ready(self.end_on_error(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        if let Ok(written) = written {
            self.state.written.fetch_add(written as u64, Relaxed);
        }
        Poll::Ready(self.end_on_error(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(self.end_on_error(flushed))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
