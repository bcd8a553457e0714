//! A worker's loop: accept, serve, drain.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::{MissedTickBehavior, timeout},
};

use super::{
    connection_table::{Client, ConnectionTable, Evictions},
    current_worker::{CurrentWorker, WorkerUpdate},
    handshake::{ConnectionOpening, Opened, OpeningFailures},
    http1::{ClientHttp1Connection, Http1End},
    http2::{ClientHttp2Connection, ClientHttp2Io, Http2End, Streams},
    io::ClientIo,
    lingering_close::{Linger, lingering_close},
    liveness::WorkerLiveness,
    socket::{AsyncListener, ListenSocket},
    stream::{ClientStream, Socket},
    tls::TlsContexts,
    worker_connections::{RegisteredConnection, WorkerConnections},
};
use crate::{
    config::model::ClientLimits,
    limit::StoreAdmin,
    proxy::{self, EarlyEnds, Peer, PhaseTimer, Transport, Worker, WorkerParts},
    telemetry::Throttle,
};

/// How often a worker flushes its metrics and records.
const TICK: Duration = Duration::from_millis(100);

/// The pause after an accept that failed for lack of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The same pause if an idle connection makes room.
const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// Time for the first request of a client whose TLS handshake was in progress when the drain began.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Time for tunnels to close in order after the drain timeout.
const TUNNELS_CLOSE: Duration = Duration::from_secs(1);

/// Time that a banned client has for each step up to the end of its request head.
const BANNED_HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// The stages of a process' life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// Accepting and serving.
    Serving,
    /// A new process accepts on the same sockets. Each connection closes after its next response.
    HandedOver,
    /// No longer accepting; waiting for the requests in flight.
    Draining,
    /// Aborting the remaining requests.
    Ending,
}

/// A listener's socket, for one worker.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The listener's index in the configuration.
    pub listener: usize,
    pub socket: ListenSocket,
}

/// The connections of the whole process, and the evictions for one worker.
#[derive(Debug)]
pub struct ConnectionTableHandle {
    pub table: Arc<ConnectionTable>,
    pub evictions: Evictions,
}

/// Serves `sockets` with a worker made of `parts`, which follows configuration `updates`, until `lifecycle` starts a
/// drain. Then waits until the last connection has ended or `lifecycle` aborts them. Reservations of limits are
/// returned before this function returns.
///
/// # Errors
/// A socket can't be registered with the runtime.
pub async fn run<S: StoreAdmin + 'static>(
    parts: WorkerParts<S>,
    updates: UnboundedReceiver<WorkerUpdate>,
    sockets: Vec<ListeningSocket>,
    tls: TlsContexts,
    shared: ConnectionTableHandle,
    mut lifecycle: watch::Receiver<Lifecycle>,
    liveness: WorkerLiveness,
) -> io::Result<()> {
    let index = parts.index;
    let current = Rc::new(CurrentWorker::new(Worker::new(parts)));
    let metrics = Arc::clone(current.worker().metrics().thread());
    let connections = WorkerConnections::new(index, shared.table, metrics);
    let mut accepting = JoinSet::new();
    let (failures, early_ends) = (Rc::<OpeningFailures>::default(), Rc::<EarlyEnds>::default());
    for ListeningSocket { listener, socket } in sockets {
        let acceptor = Rc::new(Acceptor {
            listener,
            tls: tls.clone(),
            current: Rc::clone(&current),
            connections: Rc::clone(&connections),
            failures: Rc::clone(&failures),
            early_ends: Rc::clone(&early_ends),
            accept_errors: Throttle::default(),
        });
        accepting.spawn_local(acceptor.accept(AsyncListener::new(socket)?, lifecycle.clone()));
    }
    let updating = tokio::task::spawn_local(Rc::clone(&current).apply_updates(updates));
    let evicting = tokio::task::spawn_local(Rc::clone(&connections).close_evicted(shared.evictions));
    let ticking = tokio::task::spawn_local(tick(Rc::clone(&current), Rc::clone(&connections), liveness));
    // An error means that the process is ending, too.
    let _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Serving).await;
    accepting.join_all().await;
    if *lifecycle.borrow() == Lifecycle::HandedOver {
        connections.announce_close();
        tokio::select! {
            () = connections.all_closed() => {}
            _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::HandedOver) => {}
        }
    }
    let drain = async {
        connections.drain().await;
        current.worker().drain_tunnels();
        connections.all_closed().await;
    };
    let is_drained = tokio::select! {
        () = drain => true,
        _ = lifecycle.wait_for(|lifecycle| *lifecycle == Lifecycle::Ending) => false,
    };
    if !is_drained {
        // Tunnels are closed in order even if some requests never end.
        current.worker().drain_tunnels();
        let _late = timeout(TUNNELS_CLOSE, connections.tunnels_closed()).await;
        connections.abort().await;
    }
    current.worker().drain_reservations().await;
    updating.abort();
    evicting.abort();
    ticking.abort();
    current.tick(Instant::now(), 0);
    Ok(())
}

async fn tick<S: StoreAdmin>(
    current: Rc<CurrentWorker<S>>,
    connections: Rc<WorkerConnections>,
    liveness: WorkerLiveness,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut addresses_banned = 0;
    loop {
        let now = ticks.tick().await.into_std();
        let worker = current.worker();
        if addresses_banned != worker.addresses_banned() {
            addresses_banned = worker.addresses_banned();
            connections.close_banned(|address| worker.is_banned(address)).await;
        }
        connections.shed();
        current.tick(now, connections.count());
        liveness.signal();
    }
}

struct Acceptor<S> {
    /// The listener's index in the configuration.
    listener: usize,
    tls: TlsContexts,
    current: Rc<CurrentWorker<S>>,
    connections: Rc<WorkerConnections>,
    failures: Rc<OpeningFailures>,
    early_ends: Rc<EarlyEnds>,
    /// Limits log messages about failed accepts.
    accept_errors: Throttle,
}

impl<S: StoreAdmin + 'static> Acceptor<S> {
    async fn accept(self: Rc<Self>, listener: AsyncListener, mut lifecycle: watch::Receiver<Lifecycle>) {
        loop {
            tokio::select! {
                biased;
                _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Serving) => break,
                accepted = listener.accept() => self.accepted(accepted).await,
            }
        }
        // Before the socket is closed: a load balancer that is refused a connection will then find all open ones
        // closing.
        self.connections.announce_close();
        // Clients in the kernel's queue are connected already and expect a response. Accept from the queue itself,
        // since the runtime's readiness may be outdated and clients that arrived since would be reset.
        let Ok(queue) = listener.into_socket() else { return };
        loop {
            match queue.accept() {
                Err(error) if !is_connection_error(&error) => break,
                accepted => self.accepted(accepted).await,
            }
        }
    }

    async fn accepted(self: &Rc<Self>, accepted: io::Result<(Socket, Peer)>) {
        match accepted {
            Ok((socket, peer)) => self.serve(socket, peer),
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                // Probably no file descriptors are left. An immediate retry would only burn CPU.
                let has_room = self.connections.make_room();
                if let Some(held_back) = self.accept_errors.pass(Instant::now()) {
                    tracing::error!(held_back, "a client's connection can't be accepted: {error}");
                }
                tokio::time::sleep(if has_room { ROOM_PAUSE } else { ACCEPT_PAUSE }).await;
            }
        }
    }

    /// Serves a connection in its own task.
    fn serve(self: &Rc<Self>, socket: Socket, peer: Peer) {
        let worker = self.current.worker();
        let config = worker.config().listeners.get(self.listener);
        let opening = ConnectionOpening {
            has_proxy_header: config.is_some_and(|listener| listener.has_proxy_protocol),
            tls: self.tls.of(self.listener),
        };
        let client = if opening.has_proxy_header && worker.trusts(peer) {
            Client::Unknown
        } else {
            client(&worker, peer)
        };
        let timer = Rc::new(PhaseTimer::new(header_timeout(&worker, client.is_banned())));
        let registered = match self.connections.register(&timer, client) {
            Ok(registered) => registered,
            Err(refusal) => return self.failures.refused(worker.metrics().thread(), peer, refusal),
        };
        let connection = Rc::clone(&registered);
        let task = if opening.has_proxy_header || opening.tls.is_some() {
            let acceptor = Rc::clone(self);
            // Boxed: this phase is short, and its buffers would be kept as long as the connection.
            let opened =
                Box::pin(self.open(socket, peer, opening, Rc::clone(&timer), Rc::clone(&connection)));
            tokio::task::spawn_local(async move {
                if let Some((opened, peer)) = opened.await {
                    acceptor.serve_requests(opened, peer, timer, connection).await;
                }
            })
        } else {
            let opened =
                Opened { stream: ClientStream::Plain(socket), unread: Bytes::new(), client: None, tls: None };
            tokio::task::spawn_local(self.serve_requests(opened, peer, timer, connection))
        };
        registered.set_task(task.abort_handle());
    }

    /// The connection and its client, after PROXY header and TLS handshake. `None`: they failed.
    fn open(
        self: &Rc<Self>,
        socket: Socket,
        peer: Peer,
        opening: ConnectionOpening,
        timer: Rc<PhaseTimer>,
        registered: Rc<RegisteredConnection>,
    ) -> impl Future<Output = Option<(Opened, Peer)>> + use<S> {
        let acceptor = Rc::clone(self);
        async move {
            let worker = acceptor.current.worker();
            let metrics = worker.metrics().thread();
            if opening.has_proxy_header && !worker.trusts(peer) {
                acceptor.failures.untrusted(metrics.openings(), peer);
                return None;
            }
            let limit = header_timeout(&worker, registered.is_banned());
            let unnamed = if opening.has_proxy_header { Peer::Balancer(peer.address()) } else { peer };
            let identify = |named: Option<SocketAddr>| {
                registered.set_client(client(&worker, named.map_or(unnamed, Peer::Address)))
            };
            match opening.open(socket, limit, identify).await {
                Ok(opened) => {
                    if let Some(handshake) = opened.stream.handshake() {
                        metrics.openings().handshakes(handshake).inc();
                    }
                    // The time for the first request begins now.
                    timer.restart(header_timeout(&worker, registered.is_banned()));
                    if timer.is_draining() {
                        // The first request is on its way.
                        let readable = poll_fn(|cx| opened.stream.poll_readable(cx));
                        let _none = timeout(FIRST_REQUEST, readable).await;
                    }
                    let peer = opened.client.map_or(unnamed, Peer::Address);
                    Some((opened, peer))
                }
                Err(error) => {
                    acceptor.failures.report(metrics, peer, &error);
                    None
                }
            }
        }
    }

    /// Serves the requests of a connection until its end.
    fn serve_requests(
        &self,
        opened: Opened,
        peer: Peer,
        timer: Rc<PhaseTimer>,
        registered: Rc<RegisteredConnection>,
    ) -> impl Future<Output = ()> + use<S> {
        registered.set_opened();
        let worker = self.current.worker();
        let header_timeout = header_timeout(&worker, registered.is_banned());
        let limits = ClientLimits { header_timeout, ..worker.config().client_limits.clone() };
        let Opened { stream, unread, tls, .. } = opened;
        let mut io = ClientIo::new(stream, Rc::clone(&timer), &limits);
        io.unread(unread);
        let transport = Transport { peer, listener: self.listener, tls };
        let client = Rc::new(worker.accepted(transport, Rc::clone(&timer)));
        let current = Rc::clone(&self.current);
        let failures = Rc::clone(&self.failures);
        let early_ends = worker.trusts(peer).then(|| Rc::clone(&self.early_ends));
        let speaks_http2 =
            worker.config().listeners.get(self.listener).is_some_and(|listener| listener.http2);
        let metrics = Arc::clone(worker.metrics().thread());
        let chosen = io.chose_http2();
        async move {
            let ended = if chosen == Some(true) {
                Http1End::Http2(Box::new(io))
            } else {
                let (current, client, served) =
                    (Rc::clone(&current), Rc::clone(&client), Rc::clone(&registered));
                let http = current.http();
                let service = service_fn(move |request: Request<Incoming>| {
                    served.set_busy();
                    let worker = current.worker();
                    let client = worker.client(&client);
                    proxy::serve(request, worker, client)
                });
                let may_be_http2 = chosen.is_none() && speaks_http2;
                ClientHttp1Connection::new(
                    io,
                    service,
                    http,
                    Rc::clone(&timer),
                    Rc::clone(&registered),
                    may_be_http2,
                )
                .await
            };
            match ended {
                Http1End::Closed => {}
                // Boxed: it is rare, and its buffer would be part of every connection's task.
                Http1End::Lingering(stream) => {
                    let linger = if registered.is_banned() { Linger::SHORT } else { Linger::UPLOAD };
                    Box::pin(lingering_close(stream, linger)).await;
                }
                Http1End::Refused(refused) => {
                    let worker = current.worker();
                    let response =
                        proxy::refuse_head(&worker, &worker.client(&client), refused.fault, &refused.head);
                    drop(worker);
                    Box::pin(refused.close(&response)).await;
                }
                Http1End::Tunnel(tunnel, io) => {
                    registered.set_has_only_tunnels(true);
                    let (stream, received) = io.into_parts();
                    // Boxed: most connections never become a tunnel.
                    if let Some(stream) = Box::pin(tunnel.relay(stream, received)).await {
                        stream.into_socket().reset();
                    }
                }
                Http1End::Http2(io) => {
                    let streams = Streams::new(&limits, Rc::clone(&registered), early_ends);
                    let (served, begun) = (Rc::clone(&registered), Rc::clone(&streams));
                    let (connection, worker) = (Rc::clone(&timer), Rc::clone(&current));
                    let service = service_fn(move |request: Request<Incoming>| {
                        served.set_busy();
                        if served.is_banned() {
                            // As with HTTP/1, where each response to a banned client closes the connection.
                            connection.drain();
                        }
                        let worker = current.worker();
                        let client = worker.client_of_stream(&client, begun.begin(&request));
                        // Boxed here: hyper and the start of the task would each copy it otherwise.
                        Box::pin(proxy::serve(request, worker, client))
                    });
                    let io = ClientHttp2Io::new(*io, Rc::clone(&streams));
                    // Boxed: its state would be part of every connection's task.
                    let end = Box::pin(ClientHttp2Connection::new(io.clone(), service, streams, timer)).await;
                    if let Http2End::Abuse(abuse) = end {
                        worker.worker().record_flood(peer, abuse);
                        failures.abused(&metrics, peer, abuse);
                    }
                    Box::pin(io.close(end)).await;
                }
            }
            drop(registered);
        }
    }
}

/// The client of a connection of `peer`.
fn client<S>(worker: &Worker<S>, peer: Peer) -> Client {
    let address = peer.address().ip();
    match worker.limited_network(peer) {
        Some(network) => Client::Limited { address, network, is_banned: worker.is_banned(address) },
        None => Client::Unlimited,
    }
}

fn header_timeout<S>(worker: &Worker<S>, is_banned: bool) -> Duration {
    let configured = worker.config().client_limits.header_timeout;
    if is_banned { configured.min(BANNED_HEADER_TIMEOUT) } else { configured }
}

/// Whether the error concerns only the connection to be accepted (accept(2)), not the socket.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
