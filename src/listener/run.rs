//! A worker's loop: accept, serve, drain.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
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
    time::{sleep, timeout},
};

use super::{
    connection_table::{Client, ConnectionTable, Evictions},
    current_worker::{CurrentWorker, WorkerUpdate},
    handshake::{ConnectionOpening, Opened, OpeningFailures},
    http1::{ClientHttp1Connection, Http1End, RefusedHead},
    http2::{ClientHttp2Connection, ClientHttp2Io, Http2End, Streams},
    io::ClientIo,
    lingering_close::{Linger, lingering_close, reset_once_taken},
    liveness::WorkerLiveness,
    socket::{AsyncListener, ListenSocket},
    stream::{ClientStream, Socket},
    tls::TlsContexts,
    worker_connections::{RegisteredConnection, WorkerConnections},
};
use crate::{
    changes::Changes,
    config::model::ClientLimits,
    limit::StoreAdmin,
    proxy::{
        self, ClientConnection, ConnectionState, EarlyEnds, NextProtocol, Peer, Transport, Worker,
        WorkerParts,
    },
    telemetry::{Throttle, metrics::ThreadMetrics},
};

/// How often a busy worker flushes its metrics and records.
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

/// Flushes the worker's metrics and records several times a second while it is busy. A worker without requests rests
/// until a connection begins, ends, gets a request or becomes idle, something changes in other threads, or its signal is
/// asked for.
async fn tick<S: StoreAdmin>(
    current: Rc<CurrentWorker<S>>,
    connections: Rc<WorkerConnections>,
    liveness: WorkerLiveness,
) {
    let (mut changes, mut addresses_banned) = (Changes::new(), 0);
    // Whether there may have been requests since the last tick.
    let mut was_busy = true;
    loop {
        let rest = {
            let worker = current.worker();
            if addresses_banned != worker.addresses_banned() {
                addresses_banned = worker.addresses_banned();
                connections.close_banned(|address| worker.is_banned(address)).await;
            }
            connections.shed();
            current.tick(Instant::now(), connections.count())
        };
        liveness.signal();
        if was_busy {
            liveness.signal_busy();
        }
        sleep(TICK).await;
        was_busy = match rest.filter(|_| !connections.are_busy()) {
            Some(rest) => tokio::select! {
                () = connections.stirred() => true,
                () = changes.next() => false,
                () = liveness.asked() => false,
                () = sleep(rest) => false,
            },
            None => true,
        };
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
        let mut ends = pin!(lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Serving));
        loop {
            tokio::select! {
                biased;
                _ = &mut ends => break,
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
                sleep(if has_room { ROOM_PAUSE } else { ACCEPT_PAUSE }).await;
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
        let state = Rc::new(ConnectionState::new(header_timeout(&worker, client.is_banned())));
        let registered = match self.connections.register(&state, client) {
            Ok(registered) => registered,
            Err(refusal) => return self.failures.refused(worker.metrics().thread(), peer, refusal),
        };
        let connection = Rc::clone(&registered);
        let task = if opening.has_proxy_header || opening.tls.is_some() {
            let acceptor = Rc::clone(self);
            // Boxed: this phase is short, and its buffers would be kept as long as the connection.
            let opened =
                Box::pin(self.open(socket, peer, opening, Rc::clone(&state), Rc::clone(&connection)));
            tokio::task::spawn_local(async move {
                if let Some((opened, peer)) = opened.await {
                    acceptor.serve_requests(opened, peer, state, connection).await;
                }
            })
        } else {
            let opened =
                Opened { stream: ClientStream::Plain(socket), unread: Bytes::new(), client: None, tls: None };
            tokio::task::spawn_local(self.serve_requests(opened, peer, state, connection))
        };
        registered.set_task(task.abort_handle());
    }

    /// The connection and its client, after PROXY header and TLS handshake. `None`: they failed.
    fn open(
        self: &Rc<Self>,
        socket: Socket,
        peer: Peer,
        opening: ConnectionOpening,
        state: Rc<ConnectionState>,
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
                    state.timer().restart(header_timeout(&worker, registered.is_banned()));
                    if state.is_draining() {
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
        state: Rc<ConnectionState>,
        registered: Rc<RegisteredConnection>,
    ) -> impl Future<Output = ()> + use<S> {
        registered.set_opened();
        let worker = self.current.worker();
        let header_timeout = header_timeout(&worker, registered.is_banned());
        let limits = ClientLimits { header_timeout, ..worker.config().client_limits.clone() };
        let Opened { stream, unread, tls, .. } = opened;
        let mut io = ClientIo::new(stream, Rc::clone(&state), &limits);
        io.unread(unread);
        let transport = Transport { peer, listener: self.listener, tls };
        let speaks_http2 =
            worker.config().listeners.get(self.listener).is_some_and(|listener| listener.http2);
        let connection = ServedConnection {
            client: Rc::new(worker.accepted(transport, Rc::clone(&state))),
            peer,
            state,
            registered,
            current: Rc::clone(&self.current),
            failures: Rc::clone(&self.failures),
            early_ends: worker.trusts(peer).then(|| Rc::clone(&self.early_ends)),
            metrics: Arc::clone(worker.metrics().thread()),
            limits,
        };
        async move {
            let ended = match io.chose_http2() {
                Some(true) => Http1End::Http2(Box::new(io)),
                chosen => connection.serve_http1(io, chosen.is_none() && speaks_http2).await,
            };
            // Boxed: these are rare, and their state would be part of every connection's task.
            match ended {
                Http1End::Closed => {}
                Http1End::Lingering(stream) => {
                    let linger =
                        if connection.registered.is_banned() { Linger::SHORT } else { Linger::UPLOAD };
                    Box::pin(lingering_close(stream, linger)).await;
                }
                Http1End::BrokenOff(socket) => Box::pin(reset_once_taken(socket)).await,
                Http1End::Refused(refused) => Box::pin(connection.refuse(refused)).await,
                Http1End::Tunnel(tunnel, io) => Box::pin(connection.relay(tunnel, io)).await,
                Http1End::Http2(io) => Box::pin(connection.serve_http2(io)).await,
            }
        }
    }
}

/// A connection whose PROXY header and TLS handshake are complete.
struct ServedConnection<S> {
    client: Rc<ClientConnection>,
    peer: Peer,
    state: Rc<ConnectionState>,
    registered: Rc<RegisteredConnection>,
    current: Rc<CurrentWorker<S>>,
    failures: Rc<OpeningFailures>,
    /// Set if the client is a trusted proxy, with many clients behind it.
    early_ends: Option<Rc<EarlyEnds>>,
    metrics: Arc<ThreadMetrics>,
    limits: ClientLimits,
}

impl<S: StoreAdmin + 'static> ServedConnection<S> {
    /// Serves HTTP/1.1, if the client does not begin with the preface of HTTP/2 where it may.
    fn serve_http1(&self, io: ClientIo, may_be_http2: bool) -> impl Future<Output = Http1End> + use<S> {
        let (current, client) = (Rc::clone(&self.current), Rc::clone(&self.client));
        let (http, registered) = (current.http(), Rc::clone(&self.registered));
        let service = service_fn(move |request: Request<Incoming>| {
            registered.set_busy();
            let worker = current.worker();
            let client = worker.client(&client);
            proxy::serve(request, worker, client)
        });
        let (state, registered) = (Rc::clone(&self.state), Rc::clone(&self.registered));
        ClientHttp1Connection::new(io, service, http, state, registered, may_be_http2)
    }

    /// Responds to a head that hyper could not parse.
    async fn refuse(&self, refused: Box<RefusedHead>) {
        self.registered.set_busy();
        let response = {
            let worker = self.current.worker();
            proxy::refuse_head(&worker, &worker.client(&self.client), refused.fault, &refused.head)
        };
        refused.close(&response).await;
    }

    /// Relays the bytes of a tunnel.
    async fn relay(&self, tunnel: Box<dyn NextProtocol>, io: Box<ClientIo>) {
        self.registered.set_has_only_tunnels(true);
        let (mut stream, received) = io.into_parts();
        if tunnel.relay(&mut stream, received).await {
            stream.into_socket().reset();
        }
    }

    async fn serve_http2(&self, io: Box<ClientIo>) {
        let streams = Streams::new(&self.limits, Rc::clone(&self.registered), self.early_ends.clone());
        let (current, client, begun) =
            (Rc::clone(&self.current), Rc::clone(&self.client), Rc::clone(&streams));
        let (state, registered) = (Rc::clone(&self.state), Rc::clone(&self.registered));
        let service = service_fn(move |request: Request<Incoming>| {
            registered.set_busy();
            if registered.is_banned() {
                // As with HTTP/1, where each response to a banned client closes the connection.
                state.drain();
            }
            begun.begin(&request).serve(|stream| {
                let worker = current.worker();
                let client = worker.client_of_stream(&client, stream);
                proxy::serve(request, worker, client)
            })
        });
        let io = ClientHttp2Io::new(*io, Rc::clone(&streams));
        let state = Rc::clone(&self.state);
        let end = ClientHttp2Connection::new(io.clone(), service, streams, state).await;
        if let Http2End::Abuse(abuse) = end {
            self.registered.set_busy();
            self.current.worker().record_flood(self.peer, abuse);
            self.failures.abused(&self.metrics, self.peer, abuse);
        }
        // Boxed: its buffer would be part of every connection's task.
        Box::pin(io.close(end)).await;
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
