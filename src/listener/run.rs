//! A worker's loop: accept, serve, drain.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};

use super::{
    connection::{Connection, lingering_close},
    connections::{ConnectionLimit, ConnectionPermit, Connections},
    current_worker::{CurrentWorker, WorkerUpdate},
    io::ClientIo,
    liveness::WorkerLiveness,
};
use crate::{
    limit::StoreAdmin,
    proxy::{self, ClientConnection, PhaseTimer, Worker, WorkerParts},
};

/// How often a worker flushes what it has gathered.
const TICK: Duration = Duration::from_millis(100);

/// The pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// Accepting and serving.
    Serving,
    /// No longer accepting; finishing the requests in flight.
    Draining,
    /// Aborting the requests that still run.
    Ending,
}

/// Serves `sockets` with a worker of `parts`, which follows `updates` of the configuration, until `lifecycle` says to
/// drain, and then until the last connection has ended or `lifecycle` says to abort them. What requests have reserved of
/// their limits is given back before it returns.
///
/// # Errors
/// A socket can't be registered with the runtime.
pub async fn run<S: StoreAdmin + 'static>(
    parts: WorkerParts<S>,
    updates: UnboundedReceiver<WorkerUpdate>,
    sockets: Vec<std::net::TcpListener>,
    limit: Arc<ConnectionLimit>,
    mut lifecycle: watch::Receiver<Lifecycle>,
    liveness: WorkerLiveness,
) -> io::Result<()> {
    let current = Rc::new(CurrentWorker::new(Worker::new(parts)));
    let connections = Rc::<Connections>::default();
    let mut accepting = JoinSet::new();
    for socket in sockets {
        let listener = TcpListener::from_std(socket)?;
        let acceptor = Acceptor {
            current: Rc::clone(&current),
            limit: Arc::clone(&limit),
            connections: Rc::clone(&connections),
        };
        accepting.spawn_local(acceptor.accept(listener, lifecycle.clone()));
    }
    let updating = tokio::task::spawn_local(Rc::clone(&current).apply_updates(updates));
    let ticking = tokio::task::spawn_local(tick(Rc::clone(&current), Rc::clone(&connections), liveness));
    // An error means the same: without a sender the process is ending.
    let _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Serving).await;
    accepting.join_all().await;
    let is_drained = tokio::select! {
        () = connections.drain() => true,
        _ = lifecycle.wait_for(|lifecycle| *lifecycle == Lifecycle::Ending) => false,
    };
    if !is_drained {
        connections.abort().await;
    }
    current.worker().drain_reservations().await;
    updating.abort();
    ticking.abort();
    current.tick(Instant::now(), 0);
    Ok(())
}

async fn tick<S: StoreAdmin>(
    current: Rc<CurrentWorker<S>>,
    connections: Rc<Connections>,
    liveness: WorkerLiveness,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = ticks.tick().await.into_std();
        current.tick(now, connections.count());
        liveness.signal();
    }
}

struct Acceptor<S> {
    current: Rc<CurrentWorker<S>>,
    limit: Arc<ConnectionLimit>,
    connections: Rc<Connections>,
}

impl<S: StoreAdmin + 'static> Acceptor<S> {
    async fn accept(self, listener: TcpListener, mut lifecycle: watch::Receiver<Lifecycle>) {
        loop {
            tokio::select! {
                biased;
                _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Serving) => break,
                accepted = listener.accept() => self.accepted(accepted).await,
            }
        }
        // Clients in the kernel's queue are connected already, and expect an answer. Ask the queue itself rather
        // than the runtime's last knowledge of it, so that no client that came in between is reset.
        let Ok(queue) = listener.into_std() else { return };
        loop {
            let accepted = queue.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            });
            match accepted {
                Err(error) if !is_connection_error(&error) => break,
                accepted => self.accepted(accepted).await,
            }
        }
    }

    async fn accepted(&self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, peer)) => match self.limit.try_acquire() {
                Some(permit) => self.serve(stream, peer, permit),
                None => self.current.worker().metrics().thread().connections_refused().inc(),
            },
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                // Most likely no file descriptors are left. Retrying at once would only burn CPU.
                tracing::error!("can't accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
        let worker = self.current.worker();
        let limits = &worker.config().client_limits;
        let timer = Rc::new(PhaseTimer::new(limits.header_timeout));
        let io = ClientIo::new(stream, Rc::clone(&timer), limits.header_timeout, limits.idle_timeout);
        let client = ClientConnection::new(&worker, peer, Rc::clone(&timer));
        let current = Rc::clone(&self.current);
        let service = service_fn(move |request: Request<Incoming>| {
            let worker = current.worker();
            let client = client.info(&worker);
            proxy::serve(request, worker, client)
        });
        let registered = self.connections.register(&timer);
        let key = registered.key;
        let metrics = Arc::clone(worker.metrics().thread());
        let connection = Connection::new(io, service, self.current.http(), timer, metrics);
        let task = tokio::task::spawn_local(async move {
            if let Some(stream) = connection.await {
                // Boxed: it is rare, and has a buffer that every connection would pay for.
                Box::pin(lingering_close(stream)).await;
            }
            drop((registered, permit));
        });
        self.connections.set_task(key, task.abort_handle());
    }
}

/// An error of the one connection that was to be accepted (accept(2)), not of the socket.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
