//! Origins of HTTP/2 that do exactly what a test says, and remember what they received.

use std::{
    future::poll_fn,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    server::{Builder, SendResponse},
};
use http::{HeaderMap, Request, Response};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::Issued;

/// What a handler returns. An error is part of many tests.
pub type Handled = Result<(), h2::Error>;

/// An origin on a free port, which speaks HTTP/2 from its first byte, or over TLS by ALPN.
pub struct Http2Origin {
    pub address: SocketAddr,
    state: Arc<OriginState>,
    ending: watch::Sender<Ending>,
}

#[derive(Default)]
struct OriginState {
    connections: AtomicUsize,
    open: AtomicUsize,
    streams: AtomicUsize,
    heads: Mutex<Vec<Request<()>>>,
    resets: Mutex<Vec<Reason>>,
}

/// What becomes of the connections that are open.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ending {
    go_aways: usize,
    closes: usize,
}

/// One request, and the answer to come. Dropped before it was answered, the stream is reset.
pub struct Http2Exchange {
    pub head: Request<()>,
    pub body: RecvStream,
    pub answer: SendResponse<Bytes>,
    /// The number of its connection, counted from 0.
    pub connection: usize,
    closing: Rc<Notify>,
    state: Arc<OriginState>,
}

impl Http2Origin {
    /// Every stream is handled by `handler`, all of them at once.
    pub fn start<F>(handler: impl Fn(Http2Exchange) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Handled> + 'static,
    {
        Self::with(Builder::new(), handler)
    }

    /// Likewise with settings of its own.
    pub fn with<F>(settings: Builder, handler: impl Fn(Http2Exchange) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Handled> + 'static,
    {
        Self::serve(settings, None, handler)
    }

    /// Likewise over TLS with this certificate, as ALPN says.
    pub fn over_tls<F>(
        certificate: &Issued,
        settings: Builder,
        handler: impl Fn(Http2Exchange) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Handled> + 'static,
    {
        let chain = CertificateDer::pem_file_iter(&certificate.cert).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::serve(settings, Some(TlsAcceptor::from(Arc::new(config))), handler)
    }

    /// Reads every request to its end and answers 200 with its body, its trailers, and a description of it in fields:
    /// `x-method`, `x-target`, and each of its fields behind `x-got-`.
    pub fn echo() -> Self {
        Self::start(|mut exchange| async move {
            let (body, trailers) = exchange.read().await?;
            let mut answer = Response::new(());
            let fields = answer.headers_mut();
            fields.insert("x-method", exchange.head.method().as_str().parse().unwrap());
            fields.insert("x-target", exchange.head.uri().to_string().parse().unwrap());
            for (name, value) in exchange.head.headers() {
                let name = format!("x-got-{name}").parse::<http::HeaderName>().unwrap();
                fields.append(name, value.clone());
            }
            let mut stream = exchange.answer.send_response(answer, false)?;
            send_body(&mut stream, Bytes::from(body)).await?;
            match trailers {
                Some(trailers) => stream.send_trailers(trailers),
                None => stream.send_data(Bytes::new(), true),
            }
        })
    }

    /// Answers every request with 200 and a short body.
    pub fn ok() -> Self {
        Self::start(|mut exchange| async move {
            exchange.read().await?;
            exchange.respond(200, &[], b"ok")
        })
    }

    fn serve<F>(
        settings: Builder,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(Http2Exchange) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Handled> + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<OriginState>::default();
        let (ending, ended) = watch::channel(Ending::default());
        let their_state = Arc::clone(&state);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let accept = async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    stream.set_nodelay(true).unwrap();
                    let (settings, handler, tls) = (settings.clone(), handler.clone(), tls.clone());
                    let (state, ended) = (Arc::clone(&their_state), ended.clone());
                    tokio::task::spawn_local(async move {
                        let Some(tls) = tls else {
                            return connection(stream, settings, state, ended, handler).await;
                        };
                        // A connection that the proxy does not open is part of many tests.
                        if let Ok(stream) = tls.accept(stream).await {
                            connection(stream, settings, state, ended, handler).await;
                        }
                    });
                }
            };
            tokio::task::LocalSet::new().block_on(&runtime, accept);
        });
        Self { address, state, ending }
    }

    /// Tells the proxy on every open connection that no other stream will be served, and serves those that are open.
    pub fn go_away(&self) {
        self.ending.send_modify(|ending| ending.go_aways += 1);
    }

    /// Closes every open connection.
    pub fn close(&self) {
        self.ending.send_modify(|ending| ending.closes += 1);
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Streams whose handlers have not returned.
    pub fn open_streams(&self) -> usize {
        self.state.streams.load(Ordering::SeqCst)
    }

    /// The heads of all requests so far, as they came.
    pub fn heads(&self) -> Vec<Request<()>> {
        self.state.heads.lock().unwrap().clone()
    }

    /// The reasons of all resets that [`Http2Exchange::reset`] has waited for so far.
    pub fn resets(&self) -> Vec<Reason> {
        self.state.resets.lock().unwrap().clone()
    }
}

impl Http2Exchange {
    /// Reads the body to its end, and its trailers.
    pub async fn read(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let mut body = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data?;
            self.body.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        Ok((body, self.body.trailers().await?))
    }

    /// The next bytes of the body, none at its end. Their window is given back.
    pub async fn data(&mut self) -> Result<Bytes, h2::Error> {
        let Some(data) = self.body.data().await else { return Ok(Bytes::new()) };
        let data = data?;
        self.body.flow_control().release_capacity(data.len())?;
        Ok(data)
    }

    /// Answers with a head alone; the body is to come.
    pub fn head(&mut self, status: u16, fields: &[(&str, &str)]) -> Result<SendStream<Bytes>, h2::Error> {
        self.answer.send_response(answer(status, fields), false)
    }

    /// Answers at once.
    pub fn respond(&mut self, status: u16, fields: &[(&str, &str)], body: &[u8]) -> Handled {
        let mut stream = self.answer.send_response(answer(status, fields), body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true)?;
        }
        Ok(())
    }

    /// Closes its connection, with all streams on it.
    pub fn close_connection(&self) {
        self.closing.notify_one();
    }

    /// Waits until the proxy resets `stream`, and remembers why.
    pub async fn reset(&self, stream: &mut SendStream<Bytes>) -> Handled {
        let reason = poll_fn(|cx| stream.poll_reset(cx)).await?;
        self.state.resets.lock().unwrap().push(reason);
        Ok(())
    }

    /// Likewise of a request that was not answered.
    pub async fn reset_unanswered(&mut self) -> Handled {
        let reason = poll_fn(|cx| self.answer.poll_reset(cx)).await?;
        self.state.resets.lock().unwrap().push(reason);
        Ok(())
    }
}

/// Counts a stream until its handler has returned.
struct OpenStream(Arc<OriginState>);

impl OpenStream {
    fn new(state: &Arc<OriginState>) -> Self {
        state.streams.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends a part of a body, as fast as the proxy takes it.
pub async fn send_body(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Handled {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(capacity) => stream.send_data(data.split_to(capacity?.min(data.len())), false)?,
            None => return Err(Reason::STREAM_CLOSED.into()),
        }
    }
    Ok(())
}

fn answer(status: u16, fields: &[(&str, &str)]) -> Response<()> {
    let mut answer = Response::builder().status(status);
    for (name, value) in fields {
        answer = answer.header(*name, *value);
    }
    answer.body(()).unwrap()
}

/// Serves one connection to its end.
async fn connection<F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    settings: Builder,
    state: Arc<OriginState>,
    mut ended: watch::Receiver<Ending>,
    handler: impl Fn(Http2Exchange) -> F,
) where
    F: Future<Output = Handled> + 'static,
{
    let number = state.connections.fetch_add(1, Ordering::SeqCst);
    state.open.fetch_add(1, Ordering::SeqCst);
    let before = *ended.borrow_and_update();
    let mut handlers = JoinSet::new();
    let closing = Rc::<Notify>::default();
    if let Ok(mut connection) = settings.handshake::<_, Bytes>(stream).await {
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(Ok((request, answer))) = accepted else { break };
                    let (head, body) = request.into_parts();
                    let mut seen = Request::from_parts(head.clone(), ());
                    // What h2 keeps there belongs to the connection.
                    seen.extensions_mut().clear();
                    state.heads.lock().unwrap().push(seen);
                    let open = OpenStream::new(&state);
                    let exchange = Http2Exchange {
                        head: Request::from_parts(head, ()),
                        body,
                        answer,
                        connection: number,
                        closing: Rc::clone(&closing),
                        state: Arc::clone(&state),
                    };
                    let handled = handler(exchange);
                    handlers.spawn_local(async move {
                        // A stream that the proxy ends is part of many tests.
                        let _ = handled.await;
                        drop(open);
                    });
                }
                () = closing.notified() => break,
                _ = ended.changed() => {
                    let now = *ended.borrow_and_update();
                    if now.closes > before.closes {
                        break;
                    }
                    connection.graceful_shutdown();
                }
            }
        }
    }
    state.open.fetch_sub(1, Ordering::SeqCst);
}
