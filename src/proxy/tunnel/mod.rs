//! Tunnels: connections that no longer carry HTTP once both sides have agreed on another protocol, such as WebSocket.

mod handshake;
mod relay;
mod websocket_frames;

use std::{
    cell::Cell,
    fmt,
    future::poll_fn,
    io,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::{Instant, sleep_until, timeout, timeout_at},
};

pub(super) use handshake::Upgrade;
use relay::Direction;
use websocket_frames::close_frame;

use super::{
    client::ClientInfo,
    connection_state::{Boxed, ByteStream, NextProtocol},
    exchange::Exchange,
    headers,
    open_exchanges::{Closing, ExchangeKind, ExchangeOwner, OpenExchangeGuard},
    reply::Reply,
    request_body::RequestBody,
    response_body::ResponseBody,
    upstream_response::UpstreamResponse,
    worker::Worker,
};
use crate::{config::model::Route, telemetry::access_log::AbortedBy, upstream::UpgradedConnection};

/// When a tunnel is closed: how long a frame in transit may take to end, and then how long both sides may take to
/// reply to a Close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The same where others wait for the connection, who do not wait for long.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(100);

/// How long one side may continue once the other has gone, if its bytes have nowhere to go. The request's reservation
/// is released within a second.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_millis(500);

// Status codes of a Close (RFC 6455, 7.4.1).
const GOING_AWAY: u16 = 1001;
const POLICY_VIOLATION: u16 = 1008;
/// Registered with IANA, later than the RFC.
const TRY_AGAIN_LATER: u16 = 1013;

/// A tunnel that is about to open: the upstream's side, and the exchange of the request.
pub struct Tunnel {
    upstream: UpgradedConnection<RequestBody>,
    /// The client's side, if it is an HTTP/2 stream.
    client_stream: Option<OnUpgrade>,
    exchange: Box<Exchange>,
    guard: OpenExchangeGuard,
    /// How long both directions may be silent.
    idle_timeout: Duration,
    is_websocket: bool,
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

/// How a tunnel ended.
enum TunnelEnd {
    /// Both sides have ended.
    InOrder,
    /// One side of a WebSocket has ended.
    OneSide,
    /// No byte was received from either side for too long.
    Idle,
    Closing(Closing),
    /// The client's address has more than its share of the upstream's connections, and others wait for one.
    Evicted,
    Broken {
        error: io::Error,
        is_to_client: bool,
    },
}

/// Responds to a request for `upgrade`, which the upstream has accepted in `forwarded`. The tunnel is left for the
/// connection, which takes it once the response is written.
pub(super) async fn open<S>(
    worker: &Worker<S>,
    client: &ClientInfo,
    mut exchange: Box<Exchange>,
    route: &Route,
    (upgrade, owner): (Upgrade, ExchangeOwner),
    forwarded: UpstreamResponse,
) -> Response<ResponseBody> {
    let UpstreamResponse { response, connection, .. } = forwarded;
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers = response.headers().clone();
    headers::remove_hop_by_hop(&mut head.headers, |_| false);
    headers::append_via(&mut head.headers, &worker.rules.via, response.version());
    worker.rules.quotas.add_fields(&mut head.headers, &exchange.outcomes);
    head.status = upgrade.respond(&mut head.headers);

    let upstream = pin!(connection.upgrade(response));
    let Ok(Some(upstream)) = client.timer().timeout(route.timeouts.response, upstream).await else {
        let mut reply = Reply::bad_gateway();
        worker.rules.quotas.add_fields(&mut reply.headers, &exchange.outcomes);
        return exchange.reply(reply);
    };
    let guard = worker.register_exchange(ExchangeKind::Tunnel, owner);
    let (idle_timeout, is_websocket) = (route.timeouts.idle, upgrade.is_websocket());
    exchange.begin_tunnel(&mut head, idle_timeout);
    let client_stream = upgrade.into_client_stream();
    let tunnel = Tunnel { upstream, client_stream, exchange, guard, idle_timeout, is_websocket };
    client.hand_off().set_tunnel(Box::new(tunnel));
    Response::from_parts(head, ResponseBody::none())
}

impl NextProtocol for Tunnel {
    fn relay<'a>(self: Box<Self>, client: &'a mut dyn ByteStream, received: Bytes) -> Boxed<'a, bool> {
        Box::pin(self.relay_bytes(client, received))
    }

    fn relay_stream(mut self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            let Some(stream) = self.client_stream.take() else { return };
            // It is available as soon as the response is written.
            if let Ok(Ok(client)) = timeout(self.idle_timeout, stream).await {
                self.relay_bytes(&mut TokioIo::new(client), Bytes::new()).await;
            }
        })
    }
}

impl Tunnel {
    async fn relay_bytes(self, client: &mut dyn ByteStream, received: Bytes) -> bool {
        let Self { mut upstream, exchange, guard, idle_timeout, is_websocket, .. } = self;
        let active = Cell::new(Instant::now());
        let evicted = upstream.evicted();
        let mut relay = Relay {
            to_client: Direction::new(upstream.take_received(), is_websocket),
            to_upstream: Direction::new(received, is_websocket),
            client,
            upstream,
            exchange,
            active: &active,
            is_websocket,
        };
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| relay.poll(cx)) => ended,
            closing = guard.closing() => TunnelEnd::Closing(closing),
            () = evicted => TunnelEnd::Evicted,
            () = idle(&active, idle_timeout) => TunnelEnd::Idle,
        };
        match ended {
            TunnelEnd::InOrder => {}
            TunnelEnd::OneSide => {
                let _late = timeout(LAST_BYTES_TIMEOUT, poll_fn(|cx| relay.poll_both(cx))).await;
            }
            TunnelEnd::Broken { error, is_to_client: false } => {
                relay.exchange.broke_off(match relay.to_upstream.is_source_broken() {
                    true => AbortedBy::Client,
                    false => AbortedBy::Upstream,
                });
                tracing::debug!("the client's side of a tunnel broke, or the upstream took no more: {error}");
                // The bytes that the upstream or the client sent before it ended have to be delivered.
                let _late = timeout(LAST_BYTES_TIMEOUT, poll_fn(|cx| relay.poll_to_client(cx))).await;
            }
            TunnelEnd::Broken { error, is_to_client: true } => {
                relay.exchange.broke_off(match relay.to_client.is_source_broken() {
                    true => AbortedBy::Upstream,
                    false => AbortedBy::Client,
                });
                tracing::debug!("the upstream's side of a tunnel broke, or the client took no more: {error}");
                return true;
            }
            TunnelEnd::Idle => {
                let code = (GOING_AWAY, "idle timeout");
                relay.close(code, code, CLOSE_TIMEOUT).await;
            }
            TunnelEnd::Evicted => {
                relay.exchange.tunnel_evicted();
                let code = (TRY_AGAIN_LATER, "too many connections");
                relay.close(code, (GOING_AWAY, ""), EVICTION_TIMEOUT).await;
            }
            TunnelEnd::Closing(Closing::Draining) => {
                relay.close((GOING_AWAY, ""), (GOING_AWAY, ""), CLOSE_TIMEOUT).await;
            }
            TunnelEnd::Closing(Closing::Banned) => {
                relay.exchange.broke_off(AbortedBy::Client);
                relay.close((POLICY_VIOLATION, "banned"), (GOING_AWAY, ""), CLOSE_TIMEOUT).await;
            }
        }
        false
    }
}

/// Ready once nothing was `active` for `limit`.
async fn idle(active: &Cell<Instant>, limit: Duration) {
    loop {
        let deadline = active.get() + limit;
        if deadline <= Instant::now() {
            return;
        }
        sleep_until(deadline).await;
    }
}

/// Both sides of an open tunnel.
struct Relay<'a> {
    client: &'a mut dyn ByteStream,
    upstream: UpgradedConnection<RequestBody>,
    to_client: Direction,
    to_upstream: Direction,
    exchange: Box<Exchange>,
    /// When a byte was last received or written.
    active: &'a Cell<Instant>,
    is_websocket: bool,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let to_upstream = self.poll_to_upstream(cx);
        let to_client = self.poll_to_client(cx);
        match (to_upstream, to_client) {
            (_, Poll::Ready(Err(error))) => Poll::Ready(TunnelEnd::Broken { error, is_to_client: true }),
            (Poll::Ready(Err(error)), _) => Poll::Ready(TunnelEnd::Broken { error, is_to_client: false }),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(TunnelEnd::InOrder),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            // Other protocols may have one side closed for as long as they like.
            _ if self.is_websocket => Poll::Ready(TunnelEnd::OneSide),
            _ => Poll::Pending,
        }
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to_upstream = self.poll_to_upstream(cx)?;
        let to_client = self.poll_to_client(cx)?;
        if to_upstream.is_ready() && to_client.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.to_client.relayed();
        let polled = self.to_client.poll_relay(cx, &mut self.upstream, &mut self.client);
        self.note(self.to_client.relayed() - before, Exchange::add_sent);
        polled
    }

    fn poll_to_upstream(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.to_upstream.relayed();
        let polled = self.to_upstream.poll_relay(cx, &mut self.client, &mut self.upstream);
        self.note(self.to_upstream.relayed() - before, Exchange::add_received);
        polled
    }

    /// Counts this number of relayed bytes.
    fn note(&mut self, bytes: u64, count: impl FnOnce(&mut Exchange, u64)) {
        if bytes > 0 {
            count(&mut self.exchange, bytes);
            self.active.set(Instant::now());
        }
    }

    /// Closes both sides in order, with a time limit per step. A WebSocket gets a Close with a code and a reason on
    /// both sides.
    async fn close(&mut self, for_client: (u16, &str), for_upstream: (u16, &str), limit: Duration) {
        if self.is_websocket {
            let deadline = Instant::now() + limit;
            // A frame that does not end is cut off.
            let _late = timeout_at(deadline, poll_fn(|cx| self.poll_finish_frames(cx))).await;
            let (code, reason) = for_client;
            if self.to_client.may_close() {
                let frame = close_frame(code, reason, false);
                let _gone = timeout_at(deadline, write_all(&mut self.client, &frame)).await;
            }
            let (code, reason) = for_upstream;
            if self.to_upstream.may_close() {
                let frame = close_frame(code, reason, true);
                let _gone = timeout_at(deadline, write_all(&mut self.upstream, &frame)).await;
            }
            // A socket closed with unread bytes would be reset, and the reset may overtake the Close.
            let _late = timeout(limit, poll_fn(|cx| self.poll_discard(cx))).await;
        }
        let shutdown = async {
            let _gone = self.client.shutdown().await;
            let _gone = self.upstream.shutdown().await;
            if !self.is_websocket {
                let _gone = poll_fn(|cx| self.poll_discard(cx)).await;
            }
        };
        let _late = timeout(limit, shutdown).await;
    }

    fn poll_finish_frames(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = (self.to_client.relayed(), self.to_upstream.relayed());
        // A direction that fails has no frame to finish any more.
        let to_client = self.to_client.poll_finish_frame(cx, &mut self.upstream, &mut self.client).is_ready();
        let to_upstream =
            self.to_upstream.poll_finish_frame(cx, &mut self.client, &mut self.upstream).is_ready();
        self.note(self.to_client.relayed() - before.0, Exchange::add_sent);
        self.note(self.to_upstream.relayed() - before.1, Exchange::add_received);
        if to_client && to_upstream { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let from_upstream = self.to_client.poll_discard(cx, &mut self.upstream).is_ready();
        let from_client = self.to_upstream.poll_discard(cx, &mut self.client).is_ready();
        if from_upstream && from_client { Poll::Ready(()) } else { Poll::Pending }
    }
}

async fn write_all(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
