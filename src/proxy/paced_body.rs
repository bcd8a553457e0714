//! A request's body from a client that has to keep up with `client_limits`.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    connection_state::{ConnectionState, Phase},
    min_rate::RateBudget,
};
use crate::{config::model::ClientLimits, upstream::ClientWait};

/// A body whose client has a time limit whenever it is waited for.
#[derive(Debug)]
pub(super) struct PacedBody {
    incoming: Incoming,
    client: Rc<ConnectionState>,
    idle_timeout: Duration,
    budget: RateBudget,
    /// When the wait for the client's bytes began: the deadline is set then, not at every poll.
    waits_since: Option<Instant>,
}

impl PacedBody {
    pub(super) fn new(incoming: Incoming, client: Rc<ConnectionState>, limits: &ClientLimits) -> Self {
        let idle_timeout = limits.idle_timeout;
        let budget = RateBudget::new(limits.min_rate, idle_timeout);
        Self { incoming, client, idle_timeout, budget, waits_since: None }
    }

    /// The part of the body that was not read.
    pub(super) fn into_inner(self) -> Incoming {
        self.incoming
    }

    /// Whether the end of the frames is the real end of the body. hyper reports a stream that was reset without an
    /// error amid its body like one that has ended (RFC 9113, 8.1).
    pub(super) fn is_at_end(&self) -> bool {
        !self.client.is_stream() || self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    /// The next frame. While a body that `is_paced` is waited for, the phase is [`Phase::RequestBody`].
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        is_paced: bool,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.client.meter().add_received(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        let Poll::Ready(frame) = frame else {
            if is_paced && self.waits_since.is_none() {
                self.client.timer().wait_for_client(
                    Phase::RequestBody,
                    self.idle_timeout,
                    self.budget.left(),
                );
                self.client.client_wait_begins(ClientWait::Request);
                self.waits_since = Some(self.client.timer().now());
            }
            return Poll::Pending;
        };
        if let Some(since) = self.waits_since.take() {
            self.budget.spend(self.client.timer().now().saturating_duration_since(since));
            self.client.client_wait_ends(ClientWait::Request);
        }
        Poll::Ready(frame)
    }

    /// Counts received bytes, and returns whether they were late. While the response is sent, its own time limits are
    /// in force, and no deadline ends the wait for the request's body.
    pub(super) fn is_late(&mut self, bytes: u64) -> bool {
        let is_late = self.budget.left().is_zero();
        self.budget.earn(bytes);
        is_late
    }
}
