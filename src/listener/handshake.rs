//! What comes before the first request of a connection: the PROXY header of a load balancer, and the TLS handshake.

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
    connection::{Linger, lingering_close},
    proxy_protocol::{self, ProxyHeaderError},
    stream::{Socket, Stream, TlsSocket},
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
/// Read at once before TLS: most handshakes begin with less.
const FIRST_READ: usize = 2048;

/// For a client that speaks HTTP where TLS is spoken (RFC 9457).
const SPEAK_TLS: &str = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"This port serves HTTPS: begin the URL with https:// instead of http://."}"#;

/// What a connection has to begin with.
pub(super) struct Opening {
    /// A PROXY header, before TLS or as the first thing within.
    pub(super) has_proxy_header: bool,
    pub(super) tls: Option<Arc<TlsContext>>,
}

/// A connection on which requests can be read.
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// The first bytes of requests, which were read already.
    pub(super) unread: Bytes,
    /// The client that the PROXY header names.
    pub(super) client: Option<SocketAddr>,
    /// `None`: it has no TLS.
    pub(super) tls: Option<Rc<TlsSession>>,
}

/// Why no request can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    #[error(transparent)]
    ProxyHeader(#[from] ProxyHeaderError),
    /// The reason, and what exactly was wrong.
    #[error("{1}")]
    Handshake(HandshakeFailure, String),
    /// The client that the PROXY header names, if it names one, has too many connections.
    #[error("there are too many connections")]
    Refused(ConnectionRefusal, Option<SocketAddr>),
}

impl Opening {
    /// Reads what comes before the first request, within `limit`. `identify` is called with the client that the PROXY
    /// header names, `None` where it names none, as soon as it is read; where there is no header, never.
    ///
    /// # Errors
    /// It is not what it has to be, or does not come in time; or `identify` refuses the client.
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
            return Ok(Opened { stream: Stream::Plain(socket), unread: read.freeze(), client, tls: None });
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
        Ok(Opened { stream: Stream::Tls(Box::new(stream)), unread: unread.freeze(), client, tls: session })
    }
}

/// Completes the handshake that begins with the bytes that were `read`.
async fn shake_hands(
    socket: Socket,
    read: BytesMut,
    tls: &TlsContext,
) -> Result<TlsStream<TlsSocket>, OpeningError> {
    let failed = |failure, detail: &str| OpeningError::Handshake(failure, detail.to_owned());
    match read.first() {
        Some(&HANDSHAKE_RECORD) => {}
        Some(first) if first.is_ascii_uppercase() => {
            answer_in_plain_text(socket).await;
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

/// What the handshake has proved. A resumed session has the certificate with which it began, unless that has expired
/// since.
fn session(stream: &TlsStream<TlsSocket>) -> Result<TlsSession, OpeningError> {
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates().filter(|chain| chain.first().is_some_and(is_valid_now));
    let identity = chain.map(TlsIdentity::from_chain).transpose();
    let identity = identity
        .map_err(|error| OpeningError::Handshake(HandshakeFailure::ClientCertificate, error.to_string()))?;
    let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    Ok(TlsSession { version: if is_tls13 { "TLSv1.3" } else { "TLSv1.2" }, identity })
}

/// Tells a client that speaks HTTP what is spoken here.
async fn answer_in_plain_text(mut socket: Socket) {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{SPEAK_TLS}",
        SPEAK_TLS.len()
    );
    if socket.write_all(answer.as_bytes()).await.is_ok() {
        lingering_close(Stream::Plain(socket), Linger::SHORT).await;
    }
}

fn broken(error: &io::Error) -> OpeningError {
    OpeningError::Handshake(HandshakeFailure::Closed, error.to_string())
}

/// The reason of `error`. `unknown`: the name that the client asked for, if no certificate is for it.
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
            // TLS 1.1 has no such extension, and rustls looks for it before it looks at the version.
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

/// Whether a client that sends this alert refuses the certificate that it was shown (RFC 8446, 6.2).
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

/// Counts the connections of a worker that fail or are refused before their first request, and logs some of them.
#[derive(Debug, Default)]
pub(super) struct OpeningFailures {
    /// By the reason.
    messages: RefCell<HashMap<&'static str, Throttle>>,
}

impl OpeningFailures {
    /// `error` has ended the connection of `peer`.
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

    /// `peer` is no trusted proxy, and is not asked for a PROXY header.
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

    /// A connection of `client` is one too many.
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

    /// The connection of `client` is closed for what it does by HTTP/2.
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

    /// Has `write` log a failure, unless one of its kind was logged just now. It gets the number of those that were not.
    fn log(&self, reason: &'static str, write: impl FnOnce(u64)) {
        let mut messages = self.messages.borrow_mut();
        if let Some(others) = messages.entry(reason).or_default().pass(Instant::now()) {
            write(others);
        }
    }
}
