//! Opens a connection for an attempt to forward a request.

use std::{pin::pin, rc::Rc};

use super::{
    attempt_context::AttemptContext, connection_state::TimedOut, reply::Reply, request_body::RequestBody,
    retries::Retries,
};
use crate::{
    config::model::RetryReason,
    telemetry::metrics::AttemptOutcome,
    upstream::{ConnectError, HostChoice, HostPool, StreamNeeds, UpstreamConnection},
};

/// Why there is no connection. The client gets the reply unless the request is retried.
pub(super) enum ConnectFailure {
    /// Another endpoint may accept a connection.
    Retryable(Box<Reply>),
    /// No other endpoint would accept one.
    Final(Box<Reply>),
}

impl ConnectFailure {
    /// Whether to try another host than `host`, which could not be reached.
    ///
    /// # Errors
    /// The reply for the client: the request is not retried.
    pub(super) fn retry(
        self,
        host: &HostPool<RequestBody>,
        retries: &mut Retries<'_>,
    ) -> Result<(), Box<Reply>> {
        match self {
            Self::Retryable(_) if retries.may_retry(RetryReason::Connect, host) => Ok(()),
            Self::Retryable(reply) | Self::Final(reply) => Err(reply),
        }
    }
}

impl AttemptContext<'_> {
    /// Waits for a new connection to `host`, or to another one that the pool prefers in the meantime.
    pub(super) async fn connect(
        &self,
        host: &mut Rc<HostPool<RequestBody>>,
        choice: &HostChoice<'_>,
        needs: StreamNeeds,
    ) -> Result<UpstreamConnection<RequestBody>, ConnectFailure> {
        // The pool limits each of its two waits itself.
        let backstop = self.timeouts.connect.saturating_mul(3);
        let connected = {
            let connect = pin!(self.upstream.connect(host, self.client, choice, needs));
            self.timer.timeout(backstop, connect).await
        };
        let error = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(ConnectError::NoHost)) => return Err(ConnectFailure::Final(self.no_endpoint())),
            Ok(Err(error)) => error,
            Err(TimedOut) if self.timer.is_call_over() => {
                self.count(AttemptOutcome::Cancelled);
                return Err(ConnectFailure::Final(Box::new(Reply::gateway_timeout())));
            }
            // `timeouts.total` has passed, which says nothing about the host.
            Err(TimedOut) if self.timer.is_response_late() => {
                self.count(AttemptOutcome::Timeout);
                return Err(ConnectFailure::Final(Box::new(Reply::gateway_timeout())));
            }
            Err(TimedOut) => ConnectError::Timeout,
        };
        let (name, url) = (&self.upstream.shared().config.name, host.url());
        match &error {
            ConnectError::Full(_) => self.warn(format_args!("upstream {name} is overloaded: {error}")),
            ConnectError::Exhausted(_) => {
                self.warn(format_args!("a connection to endpoint {url} can't be opened: {error}"));
            }
            error => {
                let why = self.upstream.shared().describe_connect_error(host, error);
                self.warn(format_args!("endpoint {url} could not be reached: {why}"));
            }
        }
        let (outcome, reply) = match error {
            ConnectError::NoHost | ConnectError::Unreachable(_) | ConnectError::Handshake(_) => {
                (AttemptOutcome::ConnectError, Reply::bad_gateway())
            }
            ConnectError::Full(_) | ConnectError::Exhausted(_) => {
                (AttemptOutcome::Overloaded, Reply::overloaded())
            }
            ConnectError::Timeout | ConnectError::HandshakeTimeout => {
                (AttemptOutcome::Timeout, Reply::gateway_timeout())
            }
        };
        self.count(outcome);
        let reply = Box::new(reply);
        Err(match outcome {
            AttemptOutcome::Overloaded => ConnectFailure::Final(reply),
            _ if !self.upstream.has_other_hosts() => ConnectFailure::Final(reply),
            _ => ConnectFailure::Retryable(reply),
        })
    }

    /// Refuses an upgrade that `connection` can't carry.
    ///
    /// # Errors
    /// The reply for the client.
    pub(super) fn check_upgrade(
        &self,
        connection: &UpstreamConnection<RequestBody>,
    ) -> Result<(), Box<Reply>> {
        if let Some(upgrade) = self.upgrade
            && connection.is_shared()
            && !(upgrade.is_websocket() && connection.offers_websockets())
        {
            let url = connection.host().url();
            self.warn(format_args!(
                "endpoint {url} speaks HTTP/2 and does not offer WebSockets by it (RFC 8441); other upgrades pass by HTTP/1.1 alone: set `protocol: h1`"
            ));
            self.count(AttemptOutcome::Error);
            return Err(Box::new(Reply::no_upgrade()));
        }
        Ok(())
    }
}
