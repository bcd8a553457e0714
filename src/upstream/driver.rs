//! What moves the bytes of one connection.
//!
//! hyper splits a connection in two: the handle that requests are sent on, and the machine that reads
//! and writes. The machine is mostly given a task of its own. Here whoever waits for an answer polls
//! it: that spares every request two switches of tasks, and a connection is closed by dropping it.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::{RequestBody, io::UpstreamIo};

type Machine<B> = Pin<Box<http1::Connection<TokioIo<UpstreamIo>, B>>>;

/// hyper's machine for one connection.
pub(super) enum Driver<B: RequestBody> {
    /// Polled by whoever uses the connection.
    Inline(Machine<B>),
    /// Running by itself.
    Spawned {
        _task: Task,
    },
    /// The connection is closed.
    Ended,
}

impl<B: RequestBody> Driver<B> {
    pub(super) fn new(connection: http1::Connection<TokioIo<UpstreamIo>, B>) -> Self {
        Self::Inline(Box::pin(connection))
    }

    /// Reads and writes what there is.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Inline(machine) = self
            && let Poll::Ready(ended) = machine.as_mut().poll(cx)
        {
            // Whoever sent the request learns of an error from its answer.
            drop(ended);
            *self = Self::Ended;
        }
    }

    /// Reads and writes what there is, of a connection for which nobody waits.
    pub(super) fn glance(&mut self) {
        self.poll(&mut Context::from_waker(Waker::noop()));
    }

    /// Lets the connection run by itself from now on. Wanted where the request is still being sent while
    /// its answer comes: then one must not wait for the other.
    pub(super) fn spawn(&mut self) {
        if let Self::Inline(machine) = std::mem::replace(self, Self::Ended) {
            let task = tokio::task::spawn_local(async move { drop(machine.await) });
            *self = Self::Spawned { _task: Task(task.abort_handle()) };
        }
    }

    pub(super) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }
}

/// A task that ends when this is dropped.
pub(super) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
