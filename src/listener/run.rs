//! A worker's loop: accept, serve, drain.

use std::{
    cell::RefCell,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use slab::Slab;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc::UnboundedReceiver, watch},
    task::{AbortHandle, JoinSet},
    time::MissedTickBehavior,
};

use super::{
    connection::Connection,
    current::{Current, Renewal},
    io::ClientIo,
    linger::linger,
    pulse::Pulse,
    visitor::Visitor,
};
use crate::{
    limit::StoreAdmin,
    proxy::{self, Parts, Patience, Waiting, Worker},
};

/// How often a worker hands on what it has gathered.
const TICK: Duration = Duration::from_millis(100);

/// What a connection has to send its first request that was accepted just before the drain.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// What the process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Accepting and serving.
    Serving,
    /// No longer accepting; finishing what runs.
    Draining,
    /// Breaking off what still runs.
    Ending,
}

/// The client connections of the whole process: how many there are, and how many there may be.
#[derive(Debug)]
pub struct Slots {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Slots {
    /// Room for `limit` connections.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), limit: AtomicUsize::new(limit) })
    }

    /// Has room for `limit` from now on. Whoever has a place keeps it.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Connections open now.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn take(self: &Arc<Self>) -> Option<Slot> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1))
            .ok()
            .map(|_| Slot(Arc::clone(self)))
    }
}

/// One connection's place among them, until it is dropped.
struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of one worker, so that they can be told to end, and waited for.
#[derive(Debug, Default)]
struct Connections {
    open: RefCell<Slab<Open>>,
    ended: Notify,
}

#[derive(Debug)]
struct Open {
    patience: Rc<Patience>,
    /// What serves it, once it does.
    task: Option<AbortHandle>,
}

impl Connections {
    fn register(self: &Rc<Self>, patience: &Rc<Patience>) -> Registered {
        let open = Open { patience: Rc::clone(patience), task: None };
        Registered { key: self.open.borrow_mut().insert(open), connections: Rc::clone(self) }
    }

    fn served(&self, key: usize, task: AbortHandle) {
        if let Some(open) = self.open.borrow_mut().get_mut(key) {
            open.task = Some(task);
        }
    }

    async fn drain(&self) {
        for (_, Open { patience, .. }) in self.open.borrow().iter() {
            if patience.waiting() != Waiting::FirstRequest {
                patience.drain();
            }
        }
        // Whoever was let in last is not turned away while its request is on its way.
        tokio::time::sleep(FIRST_REQUEST).await;
        for (_, Open { patience, .. }) in self.open.borrow().iter() {
            patience.drain();
        }
        self.ended().await;
    }

    /// Breaks off whatever runs, as if its clients had gone.
    async fn break_off(&self) {
        let tasks: Vec<AbortHandle> =
            self.open.borrow().iter().filter_map(|(_, open)| open.task.clone()).collect();
        tasks.iter().for_each(AbortHandle::abort);
        self.ended().await;
    }

    async fn ended(&self) {
        while !self.open.borrow().is_empty() {
            self.ended.notified().await;
        }
    }
}

/// One connection's entry among them, until it is dropped.
struct Registered {
    connections: Rc<Connections>,
    key: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(self.key);
        self.connections.ended.notify_one();
    }
}

/// Serves `sockets` with a worker of `parts`, and with those of `renewals` that come, until `phase` says to drain, and the last connection has ended or `phase` says to break
/// them off. What requests have held of their limits is given back before it returns.
///
/// # Errors
/// A socket can't be registered with the runtime.
pub async fn run<S: StoreAdmin + 'static>(
    parts: Parts<S>,
    renewals: UnboundedReceiver<Renewal>,
    sockets: Vec<std::net::TcpListener>,
    slots: Arc<Slots>,
    mut phase: watch::Receiver<Phase>,
    pulse: Pulse,
) -> io::Result<()> {
    let current = Rc::new(Current::new(Worker::new(parts)));
    let connections = Rc::<Connections>::default();
    let mut accepting = JoinSet::new();
    for socket in sockets {
        let listener = TcpListener::from_std(socket)?;
        let acceptor = Acceptor {
            current: Rc::clone(&current),
            slots: Arc::clone(&slots),
            connections: Rc::clone(&connections),
        };
        accepting.spawn_local(acceptor.accept(listener, phase.clone()));
    }
    let renewing = tokio::task::spawn_local(Rc::clone(&current).renew(renewals));
    let ticking = tokio::task::spawn_local(tick(Rc::clone(&current), Rc::clone(&connections), pulse));
    // A sender that is gone means the same: the process is ending.
    let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    accepting.join_all().await;
    let is_drained = tokio::select! {
        () = connections.drain() => true,
        _ = phase.wait_for(|phase| *phase == Phase::Ending) => false,
    };
    if !is_drained {
        connections.break_off().await;
    }
    current.worker().settled().await;
    renewing.abort();
    ticking.abort();
    current.tick(Instant::now(), 0);
    Ok(())
}

async fn tick<S: StoreAdmin>(current: Rc<Current<S>>, connections: Rc<Connections>, pulse: Pulse) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = ticks.tick().await.into_std();
        current.tick(now, connections.open.borrow().len());
        pulse.beat();
    }
}

struct Acceptor<S> {
    current: Rc<Current<S>>,
    slots: Arc<Slots>,
    connections: Rc<Connections>,
}

impl<S: StoreAdmin + 'static> Acceptor<S> {
    async fn accept(self, listener: TcpListener, mut phase: watch::Receiver<Phase>) {
        loop {
            tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                accepted = listener.accept() => self.accepted(accepted).await,
            }
        }
        // Who is in the kernel's queue already has been promised an answer. The queue itself is asked, not
        // what the runtime last heard of it, so that nobody is reset who came in between.
        let Ok(queue) = listener.into_std() else { return };
        loop {
            let accepted = queue.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?, peer))
            });
            match accepted {
                Err(error) if !is_of_the_connection(&error) => break,
                accepted => self.accepted(accepted).await,
            }
        }
    }

    async fn accepted(&self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, peer)) => match self.slots.take() {
                Some(slot) => self.serve(stream, peer, slot),
                None => self.current.worker().metrics().thread().connections_refused().inc(),
            },
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                // Most likely no file descriptors are left. Trying again at once would only burn CPU.
                tracing::error!("can't accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, slot: Slot) {
        let worker = self.current.worker();
        let limits = &worker.config().client_limits;
        let patience = Rc::new(Patience::new(limits.header_timeout));
        let io = ClientIo::new(stream, Rc::clone(&patience), limits.header_timeout, limits.idle_timeout);
        let visitor = Visitor::new(&worker, peer, Rc::clone(&patience));
        let current = Rc::clone(&self.current);
        let service = service_fn(move |request: Request<Incoming>| {
            let worker = current.worker();
            let client = visitor.client(&worker);
            proxy::serve(request, worker, client)
        });
        let registered = self.connections.register(&patience);
        let key = registered.key;
        let metrics = Arc::clone(worker.metrics().thread());
        let connection = Connection::new(io, service, self.current.http(), patience, metrics);
        let task = tokio::task::spawn_local(async move {
            if let Some(stream) = connection.await {
                // Boxed: it is rare, and has a buffer that every connection would pay for.
                Box::pin(linger(stream)).await;
            }
            drop((registered, slot));
        });
        self.connections.served(key, task.abort_handle());
    }
}

/// An error of the one connection that was to be accepted (accept(2)), not of the socket.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
