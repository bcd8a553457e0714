//! The steps before the first request of a connection: the PROXY header of a load balancer, and the TLS handshake.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use rustls::{AlertDescription, Error, PeerIncompatible, ProtocolVersion, server::Acceptor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use super::{
    lingering_close::{Linger, lingering_close},
    proxy_protocol::{self, ProxyHeaderError},
    stream::{ClientStream, Socket, TlsSocket},
    tls::TlsContext,
};
use crate::{
    proxy::Peer,
    telemetry::{
        Throttle,
        metrics::{
            ConnectionRefusal, HandshakeFailure, Http2Abuse, OpeningMetrics, ProxyHeaderFailure,
            ThreadMetrics,
        },
    },
    tls::{TlsIdentity, TlsSession, client_certificate_hint, is_valid_now},
};

/// The type of a TLS record with a handshake message (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// Bytes read at a time before TLS: most handshakes begin with less.
const FIRST_READ: usize = 2048;

/// The response to a client that speaks plain HTTP on a TLS port (RFC 9457).
const SPEAK_TLS: &str = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"This port serves HTTPS: begin the URL with https:// instead of http://."}"#;

/// The protocols that a connection has to begin with.
pub(super) struct ConnectionOpening {
    /// Whether a PROXY header is expected, before TLS or first thing within it.
    pub(super) has_proxy_header: bool,
    pub(super) tls: Option<Arc<TlsContext>>,
}

/// A connection that is ready for requests.
pub(super) struct Opened {
    pub(super) stream: ClientStream,
    /// Bytes of the first request that were already read.
    pub(super) unread: Bytes,
    /// The client named in the PROXY header.
    pub(super) client: Option<SocketAddr>,
    /// `None`: the connection has no TLS.
    pub(super) tls: Option<Rc<TlsSession>>,
}

/// Why a connection is closed before its first request.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    #[error(transparent)]
    ProxyHeader(#[from] ProxyHeaderError),
    /// The reason, and details for the log.
    #[error("{1}")]
    Handshake(HandshakeFailure, String),
    /// Too many connections. The address is the client named in the PROXY header, if any.
    #[error("there are too many connections")]
    Refused(ConnectionRefusal, Option<SocketAddr>),
}

impl ConnectionOpening {
    /// Reads the PROXY header and completes the TLS handshake, within `limit`. `identify` is called once the PROXY
    /// header is read, with the client that it names or `None`; without a header, it is never called.
    ///
    /// # Errors
    /// The header or the handshake is wrong or incomplete, or `identify` refuses the client.
    pub(super) async fn open(
        self,
        socket: Socket,
        limit: Duration,
        identify: impl Fn(Option<SocketAddr>) -> Result<(), ConnectionRefusal>,
    ) -> Result<Opened, OpeningError> {
        let late = if self.tls.is_some() {
            OpeningError::Handshake(HandshakeFailure::Timeout, format!("not complete within {limit:?}"))
        } else {
            OpeningError::ProxyHeader(ProxyHeaderError::Incomplete)
        };
        timeout(limit, self.read(socket, identify)).await.unwrap_or(Err(late))
    }

    async fn read(
        self,
        mut socket: Socket,
        identify: impl Fn(Option<SocketAddr>) -> Result<(), ConnectionRefusal>,
    ) -> Result<Opened, OpeningError> {
        let identify = |client| identify(client).map_err(|refusal| OpeningError::Refused(refusal, client));
        let mut read = BytesMut::with_capacity(FIRST_READ);
        let mut client = None;
        let mut is_header_due = self.has_proxy_header;
        if self.tls.is_some() {
            socket.read_buf(&mut read).await.map_err(|error| broken(&error))?;
        }
        let may_be_header =
            |read: &[u8]| read.first().is_none_or(|first| proxy_protocol::begins_header(*first));
        if is_header_due && may_be_header(&read) {
            client = proxy_protocol::read_header(&mut socket, &mut read).await?;
            identify(client)?;
            is_header_due = false;
        }
        let Some(tls) = self.tls else {
            return Ok(Opened {
                stream: ClientStream::Plain(socket),
                unread: read.freeze(),
                client,
                tls: None,
            });
        };
        if read.is_empty() {
            socket.read_buf(&mut read).await.map_err(|error| broken(&error))?;
        }
        let mut stream = shake_hands(socket, read, &tls).await?;
        let session = Some(Rc::new(session(&stream)?));
        let mut unread = BytesMut::new();
        if is_header_due {
            client = proxy_protocol::read_header(&mut stream, &mut unread).await?;
            identify(client)?;
        }
        Ok(Opened {
            stream: ClientStream::Tls(Box::new(stream)),
            unread: unread.freeze(),
            client,
            tls: session,
        })
    }
}

/// Completes the handshake whose first bytes were `read`.
async fn shake_hands(
    socket: Socket,
    read: BytesMut,
    tls: &TlsContext,
) -> Result<TlsStream<TlsSocket>, OpeningError> {
    let failed = |failure, detail: &str| OpeningError::Handshake(failure, detail.to_owned());
    match read.first() {
        Some(&HANDSHAKE_RECORD) => {}
        Some(first) if first.is_ascii_uppercase() => {
            refuse_plain_http(socket).await;
            return Err(failed(HandshakeFailure::PlainHttp, "the client spoke plain HTTP"));
        }
        Some(_) => return Err(failed(HandshakeFailure::Malformed, "what the client sent is not TLS")),
        None => return Err(failed(HandshakeFailure::Closed, "the client closed the connection")),
    }
    let current = tls.current();
    let hello = LazyConfigAcceptor::new(Acceptor::default(), TlsSocket::new(socket, read.freeze()));
    let hello = hello.await.map_err(|error| handshake_error(&error, None))?;
    let name = hello.client_hello().server_name().map(str::to_owned);
    let unknown = name.filter(|name| !current.certificates.cover(name));
    let accepted = hello.into_stream(Arc::clone(&current.config)).await;
    accepted.map_err(|error| handshake_error(&error, unknown))
}

/// The session that the handshake established. A resumed session keeps its original certificate, unless that has
/// expired since.
fn session(stream: &TlsStream<TlsSocket>) -> Result<TlsSession, OpeningError> {
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates().filter(|chain| chain.first().is_some_and(is_valid_now));
    let identity = chain.map(TlsIdentity::from_chain).transpose();
    let identity = identity
        .map_err(|error| OpeningError::Handshake(HandshakeFailure::ClientCertificate, error.to_string()))?;
    let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    Ok(TlsSession { version: if is_tls13 { "TLSv1.3" } else { "TLSv1.2" }, identity })
}

/// Sends a response that tells a plain-HTTP client to use TLS.
async fn refuse_plain_http(mut socket: Socket) {
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{SPEAK_TLS}",
        SPEAK_TLS.len()
    );
    if socket.write_all(response.as_bytes()).await.is_ok() {
        lingering_close(ClientStream::Plain(socket), Linger::SHORT).await;
    }
}

fn broken(error: &io::Error) -> OpeningError {
    OpeningError::Handshake(HandshakeFailure::Closed, error.to_string())
}

/// Classifies `error`. `unknown`: the server name that the client asked for, if no certificate covers it.
fn handshake_error(error: &io::Error, unknown: Option<String>) -> OpeningError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let failure = match tls {
        None => HandshakeFailure::Closed,
        Some(Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            // TLS 1.1 does not have this extension, and rustls checks for it before it checks the version.
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
        )) => HandshakeFailure::NoSharedVersion,
        Some(Error::PeerIncompatible(_)) => HandshakeFailure::NoSharedParameters,
        Some(error @ Error::InvalidCertificate(wrong)) => {
            let detail = match client_certificate_hint(wrong) {
                Some(hint) => format!("{hint} ({error})"),
                None => error.to_string(),
            };
            return OpeningError::Handshake(HandshakeFailure::ClientCertificate, detail);
        }
        Some(Error::NoCertificatesPresented) => HandshakeFailure::ClientCertificate,
        Some(Error::AlertReceived(alert)) => match (refuses_certificate(*alert), unknown) {
            (true, Some(name)) => {
                let detail = format!("the client asked for {name:?}, which no certificate is for");
                return OpeningError::Handshake(HandshakeFailure::UnknownName, detail);
            }
            (true, None) => HandshakeFailure::RefusedCertificate,
            (false, _) => HandshakeFailure::Closed,
        },
        Some(_) => HandshakeFailure::Malformed,
    };
    OpeningError::Handshake(failure, tls.map_or_else(|| error.to_string(), ToString::to_string))
}

/// Whether this alert means that the client rejects the server's certificate (RFC 8446, 6.2).
fn refuses_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnrecognisedName
    )
}

/// Counts connections that fail or are refused before their first request, and logs a sample of them.
#[derive(Debug, Default)]
pub(super) struct OpeningFailures {
    /// By reason.
    messages: RefCell<HashMap<&'static str, Throttle>>,
}

impl OpeningFailures {
    /// Counts and logs a connection of `peer` that ended with `error`.
    pub(super) fn report(&self, metrics: &ThreadMetrics, peer: Peer, error: &OpeningError) {
        match error {
            OpeningError::Refused(refusal, client) => {
                self.refused(metrics, client.map_or(peer, Peer::Address), *refusal);
            }
            OpeningError::ProxyHeader(fault) => {
                let failure = match fault {
                    ProxyHeaderError::Missing => ProxyHeaderFailure::Missing,
                    ProxyHeaderError::Malformed => ProxyHeaderFailure::Malformed,
                    ProxyHeaderError::Incomplete => ProxyHeaderFailure::Incomplete,
                };
                metrics.openings().proxy_header_failures(failure).inc();
                self.log(failure.name(), |others| {
                    tracing::warn!(%peer, others, "a connection of {peer} was closed: {error}");
                });
            }
            OpeningError::Handshake(failure, detail) => {
                metrics.openings().handshake_failures(*failure).inc();
                self.log(failure.name(), |others| {
                    tracing::info!(%peer, reason = failure.name(), others, "a TLS handshake with {peer} failed: {detail}");
                });
            }
        }
    }

    /// Counts and logs a connection of `peer`, which is not a trusted proxy and so may not send a PROXY header.
    pub(super) fn untrusted(&self, metrics: &OpeningMetrics, peer: Peer) {
        let failure = ProxyHeaderFailure::Untrusted;
        metrics.proxy_header_failures(failure).inc();
        self.log(failure.name(), |others| {
            tracing::warn!(
                %peer, others,
                "a connection of {peer} was closed: this listener expects PROXY headers, and this address is not one of trusted_proxies"
            );
        });
    }

    /// Counts and logs a connection of `client` beyond the limits.
    pub(super) fn refused(&self, metrics: &ThreadMetrics, client: Peer, refusal: ConnectionRefusal) {
        metrics.connections_refused(refusal).inc();
        let client = client.address().ip().to_canonical();
        self.log(refusal.name(), |others| match refusal {
            ConnectionRefusal::Connections => tracing::warn!(
                %client, others,
                "a connection of {client} was refused: client_limits.connections are open, and none of them can make room"
            ),
            ConnectionRefusal::ConnectionsPerAddress => tracing::warn!(
                %client, others,
                "a connection of {client} was refused: this address has client_limits.connections_per_address open"
            ),
            ConnectionRefusal::Banned => {
                tracing::info!(%client, others, "a connection of {client} was refused: this address is banned");
            }
        });
    }

    /// Counts and logs a connection of `client` that is closed for abuse of HTTP/2.
    pub(super) fn abused(&self, metrics: &ThreadMetrics, client: Peer, abuse: Http2Abuse) {
        metrics.http2_abuse(abuse).inc();
        let client = client.address().ip().to_canonical();
        self.log(abuse.name(), |others| match abuse {
            Http2Abuse::RapidResets => {
                tracing::warn!(%client, others, "HTTP/2 connection closed: the client resets its requests as soon as it has sent them");
            }
            Http2Abuse::ExcessiveLoad => {
                tracing::warn!(%client, others, "HTTP/2 connection closed: the client floods it with frames");
            }
            Http2Abuse::EmptyFrames => {
                tracing::warn!(%client, others, "HTTP/2 connection closed: the client sends frames that ask for nothing");
            }
        });
    }

    /// Calls `write` with the number of suppressed messages, unless a failure with the same reason was logged just now.
    fn log(&self, reason: &'static str, write: impl FnOnce(u64)) {
        let mut messages = self.messages.borrow_mut();
        if let Some(others) = messages.entry(reason).or_default().pass(Instant::now()) {
            write(others);
        }
    }
}
