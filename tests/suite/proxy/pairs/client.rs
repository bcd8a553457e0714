//! One request of a client, step by step, by any protocol.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderName, Request};
use rustls::{ClientConfig, pki_types::ServerName};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Handle,
    task::JoinHandle,
    time::timeout,
};

use crate::harness::{Authority, Client, Framing, PATIENCE, TlsConnector, framing, send_body};

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProtocol {
    Http1,
    Https,
    Http2,
    Http2OverTls,
}

/// How long a body is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is none.
    None,
    Known(usize),
    Unknown,
}

/// How a client gives a request up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// The connection ends without a word, also of TLS.
    Close,
    /// The connection is reset.
    ResetConnection,
    /// The stream alone is reset.
    ResetStream(Reason),
}

impl ClientProtocol {
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Http2OverTls)
    }

    pub const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2OverTls)
    }

    /// All that this client may do.
    pub fn aborts(self) -> Vec<Abort> {
        let mut all = vec![Abort::Close, Abort::ResetConnection];
        if self.is_http2() {
            // As if nothing were wrong, as if it were no longer wanted, and as if it had gone wrong.
            all.extend([Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR].map(Abort::ResetStream));
        }
        all
    }
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub fields: Fields,
}

pub type Fields = Vec<(String, String)>;

/// A body and its trailers, or why there is no whole one.
pub type Whole = Result<(Vec<u8>, Fields), String>;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A request on a connection of its own, and its answer.
pub struct Call {
    side: Side,
    /// For what a client does to its connection.
    socket: TcpStream,
    /// Bytes of the answer's body that came and were not taken yet.
    unread: Vec<u8>,
}

enum Side {
    Http1 {
        client: Client<Box<dyn Stream>>,
        is_chunked: bool,
        framing: Framing,
    },
    Http2 {
        upload: SendStream<Bytes>,
        answer: Option<ResponseFuture>,
        body: Option<RecvStream>,
        connection: JoinHandle<()>,
    },
}

/// Drives all connections of HTTP/2.
static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

#[track_caller]
fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async { timeout(PATIENCE, future).await }).expect("it happens in time")
}

impl Call {
    /// Sends the head of a request.
    pub fn begin(
        protocol: ClientProtocol,
        address: SocketAddr,
        authority: &Authority,
        path: &str,
        length: Length,
    ) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let socket = stream.try_clone().unwrap();
        let connector = protocol.is_tls().then(|| TlsConnector::new(authority));
        let side = if protocol.is_http2() {
            wait(begin_http2(stream, connector, address, path, length))
        } else {
            let stream: Box<dyn Stream> = match connector {
                Some(connector) => Box::new(connector.over(stream, "localhost").unwrap().0),
                None => Box::new(stream),
            };
            begin_http1(Client::on(stream), path, length)
        };
        Self { side, socket, unread: Vec::new() }
    }

    /// Sends a part of the body.
    pub fn send(&mut self, data: &[u8]) {
        match &mut self.side {
            Side::Http1 { client, is_chunked: true, .. } => {
                client.send(format!("{:x}\r\n", data.len())).send(data).send("\r\n");
            }
            Side::Http1 { client, .. } => {
                client.send(data);
            }
            Side::Http2 { upload, .. } => wait(send_body(upload, Bytes::copy_from_slice(data))).unwrap(),
        }
    }

    /// Ends the body.
    pub fn finish(&mut self, trailers: &[(&str, &str)]) {
        match &mut self.side {
            Side::Http1 { client, is_chunked: true, .. } => {
                client.send("0\r\n");
                for (name, value) in trailers {
                    client.send(format!("{name}: {value}\r\n"));
                }
                client.send("\r\n");
            }
            Side::Http1 { .. } => assert!(trailers.is_empty(), "a body of known length has none"),
            Side::Http2 { upload, .. } if trailers.is_empty() => {
                upload.send_data(Bytes::new(), true).unwrap();
            }
            Side::Http2 { upload, .. } => {
                let field = |(name, value): &(&str, &str)| {
                    (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
                };
                upload.send_trailers(trailers.iter().map(field).collect()).unwrap();
            }
        }
    }

    /// Reads the head of the answer.
    pub fn head(&mut self) -> Result<Head, String> {
        match &mut self.side {
            Side::Http1 { client, framing: of_body, .. } => {
                let head = client.try_head().map_err(|error| error.to_string())?;
                *of_body = framing(&head.headers).map_err(|error| error.to_string())?;
                Ok(Head { status: head.status, fields: head.headers })
            }
            Side::Http2 { answer, body, .. } => {
                let answer = wait(answer.take().unwrap()).map_err(|error| error.to_string())?;
                let head = Head { status: answer.status().as_u16(), fields: to_fields(answer.headers()) };
                *body = Some(answer.into_body());
                Ok(head)
            }
        }
    }

    /// Reads what comes next of the answer's body. `None`: it has ended, as a whole one.
    fn data(&mut self) -> Result<Option<Vec<u8>>, String> {
        match &mut self.side {
            Side::Http1 { client, framing, .. } => {
                let part = match framing {
                    Framing::Chunked => client.chunk(),
                    Framing::Length(0) => Ok(None),
                    Framing::Length(left) => {
                        let part = client.take((*left).min(1_000));
                        *left = left.saturating_sub(1_000);
                        part.map(Some)
                    }
                    Framing::Unframed => unreachable!("Tollgate frames what it sends by HTTP/1.1"),
                };
                part.map_err(|error| error.to_string())
            }
            Side::Http2 { body, .. } => {
                let body = body.as_mut().expect("the head was read");
                let Some(data) = wait(body.data()) else { return Ok(None) };
                let data = data.map_err(|error| error.to_string())?;
                body.flow_control().release_capacity(data.len()).map_err(|error| error.to_string())?;
                Ok(Some(data.to_vec()))
            }
        }
    }

    /// Reads so many bytes of the answer's body.
    pub fn take(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.unread.len() < length {
            let data = self.data()?.ok_or("the body has ended")?;
            self.unread.extend(data);
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Reads the rest of the answer's body, and its trailers.
    pub fn rest(&mut self) -> Whole {
        let mut body = std::mem::take(&mut self.unread);
        while let Some(data) = self.data()? {
            body.extend(data);
        }
        let trailers = match &mut self.side {
            Side::Http1 { client, framing: Framing::Chunked, .. } => {
                client.trailers().map_err(|error| error.to_string())?
            }
            Side::Http1 { .. } => Fields::new(),
            Side::Http2 { body, .. } => {
                let trailers = wait(body.as_mut().unwrap().trailers()).map_err(|error| error.to_string())?;
                to_fields(&trailers.unwrap_or_default())
            }
        };
        Ok((body, trailers))
    }

    /// Reads the whole answer.
    pub fn answer(&mut self) -> Result<(Head, Vec<u8>, Fields), String> {
        let head = self.head()?;
        let (body, trailers) = self.rest()?;
        Ok((head, body, trailers))
    }

    /// Gives it up. What is left of it is for a client that goes on with its connection.
    pub fn abort(mut self, how: Abort) -> Option<Self> {
        match (how, &mut self.side) {
            (Abort::Close, _) => self.socket.shutdown(Shutdown::Both).unwrap(),
            // The RST is sent when the last descriptor is closed.
            (Abort::ResetConnection, side) => {
                SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
                if let Side::Http2 { connection, .. } = side {
                    connection.abort();
                }
                return None;
            }
            (Abort::ResetStream(reason), Side::Http2 { upload, .. }) => upload.send_reset(reason),
            (Abort::ResetStream(_), Side::Http1 { .. }) => unreachable!("it has no streams"),
        }
        Some(self)
    }
}

fn begin_http1(mut client: Client<Box<dyn Stream>>, path: &str, length: Length) -> Side {
    let framing = match length {
        Length::None => String::new(),
        Length::Known(length) => format!("content-length: {length}\r\n"),
        Length::Unknown => "transfer-encoding: chunked\r\ntrailer: x-sum\r\n".to_owned(),
    };
    let method = if length == Length::None { "GET" } else { "POST" };
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te\r\n{framing}\r\n"
    ));
    Side::Http1 { client, is_chunked: length == Length::Unknown, framing: Framing::Unframed }
}

async fn begin_http2(
    stream: TcpStream,
    connector: Option<TlsConnector>,
    address: SocketAddr,
    path: &str,
    length: Length,
) -> Side {
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let scheme = if connector.is_some() { "https" } else { "http" };
    let (mut requests, connection) = match connector {
        Some(connector) => {
            let mut config = ClientConfig::clone(connector.config());
            config.alpn_protocols = vec![b"h2".to_vec()];
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let name = ServerName::try_from("localhost").unwrap();
            handshake(connector.connect(name, stream).await.unwrap()).await
        }
        None => handshake(stream).await,
    };
    let method = if length == Length::None { "GET" } else { "POST" };
    let mut request = Request::builder().method(method).uri(format!("{scheme}://{address}{path}"));
    request = request.header("te", "trailers");
    match length {
        Length::None => {}
        Length::Known(length) => request = request.header("content-length", length),
        // HTTP/1.1 upstreams get trailers that were announced.
        Length::Unknown => request = request.header("trailer", "x-sum"),
    }
    let (answer, upload) = requests.send_request(request.body(()).unwrap(), length == Length::None).unwrap();
    Side::Http2 { upload, answer: Some(answer), body: None, connection }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    // How it ends is told by its streams.
    let connection = tokio::spawn(async move { drop(connection.await) });
    (requests.ready().await.unwrap(), connection)
}

fn to_fields(map: &HeaderMap) -> Fields {
    map.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}
