//! The thread of the admin port: accepts connections, serves them, and shuts down.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{Extension, Router};
use http::Request;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::watch,
    task::{self, LocalSet},
    time,
};

use super::{
    AdminState, background,
    connection_slots::{ConnectionSlot, ConnectionSlots},
    context::HandlerContext,
    extract::{RemoteAddress, ShutdownSignal},
    peer_reader::PeerReader,
    router::router,
    store_client::StoreClient,
};
use crate::{abuse::Archive, limit::StoreAdmin};

/// Concurrent connections; for one more, another is evicted.
pub(super) const CONNECTIONS: usize = 256;
/// Longest time from a response to the end of the next request head. Closes slow and idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection: a client may never read its response.
const LIFETIME: Duration = Duration::from_secs(300);
/// Time for requests in flight at a shutdown.
const GRACE: Duration = Duration::from_secs(1);
/// Largest request head, in bytes.
const HEAD: usize = 32 << 10;
/// Pause after a failed accept (no file descriptor left, say): trying again at once would only burn CPU.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// The running admin port. Dropping it shuts the port down.
#[derive(Debug)]
pub struct AdminHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl AdminHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections and lets requests in flight finish. Does not wait for them.
    pub fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Stops accepting connections, waits a second or two for requests in flight, and ends the thread.
    pub fn stop(self) {
        self.close();
        if self.thread.join().is_err() {
            tracing::error!("the admin port crashed");
        }
    }
}

/// The stores behind the admin port. Clients of the store and of the archive may be bound to one thread, so the port's
/// thread makes them.
pub struct Backends<S, A, T> {
    /// Makes a client of the store of the limits.
    pub store: S,
    /// Makes a client of the archive of limited clients that instances share.
    pub archive: A,
    /// The store of this process that counts wrong tokens.
    pub wrong_tokens: T,
}

/// Starts the admin port on a socket that is bound already.
///
/// # Errors
/// The socket, the runtime or the thread can't be set up.
pub fn spawn<S, A>(
    listener: std::net::TcpListener,
    state: AdminState,
    backends: Backends<
        impl FnOnce() -> S + Send + 'static,
        impl FnOnce() -> A + Send + 'static,
        impl StoreAdmin + Send + 'static,
    >,
) -> io::Result<AdminHandle>
where
    S: StoreAdmin + 'static,
    A: Archive + 'static,
{
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().thread_name("admin-work").build()?;
    let (stop, stopped) = watch::channel(false);
    let run = move || {
        let local = LocalSet::new();
        let result = local.block_on(&runtime, async {
            let Backends { store, archive, wrong_tokens } = backends;
            let (registry, clock) = (Arc::clone(&state.registry), Arc::clone(&state.clock));
            let peers = PeerReader::new(archive(), registry, clock);
            let (store, wrong_tokens) = (StoreClient::new(store()), StoreClient::new(wrong_tokens));
            let context = Arc::new(HandlerContext::new(state, store, peers, wrong_tokens));
            task::spawn_local(background::sample(Arc::clone(&context)));
            task::spawn_local(background::refresh(Arc::clone(&context)));
            task::spawn_local(background::tick(Arc::clone(&context)));
            accept(TcpListener::from_std(listener)?, router(context), stopped).await;
            io::Result::Ok(())
        });
        if let Err(error) = result {
            tracing::error!(%error, "Tollgate can't listen on the admin port: {error}");
        }
        // Does not wait for a DNS lookup of the store.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("admin".into()).spawn(run)?;
    Ok(AdminHandle { address, stop, thread })
}

async fn accept(listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let slots = ConnectionSlots::new(CONNECTIONS);
    loop {
        let (stream, peer) = tokio::select! {
            _ = stopped.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
                Err(error) => {
                    tracing::warn!(%error, "a connection to the admin port can't be accepted: {error}");
                    time::sleep(AFTER_ERROR).await;
                    continue;
                }
            },
        };
        let router = router.clone().layer(Extension(RemoteAddress(peer)));
        task::spawn_local(serve(stream, router, slots.acquire(), stopped.clone()));
    }
    drop(listener);
    // Once every slot is released, every connection has ended.
    let _late = time::timeout(2 * GRACE, slots.all_released()).await;
}

async fn serve(
    stream: TcpStream,
    router: Router,
    slot: Arc<ConnectionSlot>,
    mut stopped: watch::Receiver<bool>,
) {
    let _unsupported = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEAD);
    let (end, ending) = watch::channel(false);
    let service = TowerToHyperService::new(router);
    let of_request = Arc::clone(&slot);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ShutdownSignal(ending.clone()));
        request.extensions_mut().insert(Arc::clone(&of_request));
        service.call(request)
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        _ = stopped.changed() => None,
        () = time::sleep(LIFETIME) => None,
        // Closed at once: a new connection has taken the slot.
        () = slot.evicted() => return,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            end.send_replace(true);
            connection.as_mut().graceful_shutdown();
            time::timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin port failed");
    }
}
