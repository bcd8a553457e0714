//! HTTP/1.1 to endpoints: one connection for each request in flight.

use std::io;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::{
    connect::ConnectError,
    io::{Received, UpstreamIo},
    outgoing::OutgoingBody,
};

/// Bytes read from a response at a time. Its head has to fit in. A client that does not read makes the proxy buffer
/// twice this much: here, and on the way to the client. hyper's own default is 408 KiB.
pub(super) const MAX_BUFFER: usize = 64 << 10;

/// A connection as the pool keeps it between requests. Closed when dropped.
///
/// A task of its own drives hyper's connection. It was tried to poll the connection from the request that waits on it:
/// that saves task switches, but costs more in the kernel, because requests are then sent one by one instead of in
/// batches, and the origin is woken for each.
pub(super) struct Http1Connection<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) task: AbortHandle,
    /// The version of the TLS settings that it was opened under. 0: it has no TLS.
    pub(super) tls_version: u64,
    /// Whether anything was received since the last request was sent.
    pub(super) received: Received,
}

impl<B> Drop for Http1Connection<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<B: OutgoingBody> Http1Connection<B> {
    /// Begins HTTP/1.1 on `io`.
    ///
    /// # Errors
    /// The connection ended before it could be used.
    pub(super) async fn open(io: UpstreamIo, tls_version: u64) -> Result<Self, ConnectError> {
        let received = io.received();
        let (sender, connection) = Builder::new()
            // Measured: copying a small body behind its head is cheaper than a vectored write.
            .writev(false)
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| ConnectError::from_io(io::Error::other(error)))?;
        // The request on it gets the error from its response future.
        let task = tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
        Ok(Self { sender, task: task.abort_handle(), tls_version, received })
    }
}
