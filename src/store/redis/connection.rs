//! Connections to one Redis server, for a pool.

use std::{
    cell::Cell,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bb8_redis::{
    bb8::ManageConnection,
    redis::{
        self, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
        ServerErrorKind, Value, aio::ConnectionLike, io::tcp::TcpSettings,
    },
};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout};

use super::{failure, server_address::ServerAddress, server_connection::ServerConnection};
use crate::{
    config::model::{self, Secret},
    file,
    tls::{self, PemError, system_authorities},
};

/// The largest file of a certificate or a key, in bytes.
const MAX_TLS_FILE: u64 = 4 << 20;

/// An error in the settings of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    #[error("store.redis: {0}")]
    Settings(#[from] RedisError),
    #[error("{path}: {error}")]
    Pem { path: String, error: PemError },
    #[error("store.redis.tls: {0}")]
    Tls(#[from] rustls::Error),
}

/// The address of a server, and our credentials and TLS settings for it.
#[derive(Debug, Clone)]
pub struct Server {
    client: Client,
    /// `None` without TLS.
    tls: Option<Arc<ClientConfig>>,
    /// Whether a connection is only valid if the server is a primary now: Sentinels may name a former one.
    must_be_primary: bool,
    /// Timeout of each reply, except to decisions.
    call_timeout: Duration,
    /// Timeout from the first packet of a connection to the end of the handshake.
    connect_timeout: Duration,
}

/// Credentials that are not in a URL.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerCredentials<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a Secret>,
}

impl Server {
    /// The server at `url`. `credentials` apply if the URL has none. Reads the certificates, but does not connect.
    ///
    /// # Errors
    /// A file can't be read, or is not a certificate or key.
    pub(super) fn open(
        url: &str,
        credentials: ServerCredentials<'_>,
        config: &model::Redis,
    ) -> Result<Self, ServerError> {
        let server = url.into_connection_info()?;
        // Without CLIENT SETINFO, which would need a right of its own.
        let mut settings = server.redis_settings().clone().set_skip_set_lib_name();
        if settings.password().is_none() {
            if let Some(user) = credentials.user {
                settings = settings.set_username(user);
            }
            if let Some(password) = credentials.password {
                settings = settings.set_password(password.reveal());
            }
        }
        // The end of a large batch must not wait until the server acknowledges its beginning.
        let tcp = TcpSettings::default().set_nodelay(true);
        let server = server.set_redis_settings(settings).set_tcp_settings(tcp);
        if !url.starts_with("rediss:") {
            return Ok(Self::with(Client::open(server)?, None, config));
        }
        // An installed provider is kept.
        let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let model::Redis { tls, .. } = config;
        let ca = tls.ca.as_deref().map(|path| Ok::<_, ServerError>((path, read(path)?))).transpose()?;
        let authorities = match &ca {
            Some((path, bytes)) => Arc::new(in_file(path, tls::authorities(bytes))?),
            None => system_authorities::trusted(),
        };
        let builder = ClientConfig::builder().with_root_certificates(authorities);
        let client_config = match &tls.certificate {
            Some(model::ClientCertificate { cert, key }) => {
                let (client_cert, client_key) = (read(cert)?, read(key)?);
                let chain = in_file(cert, tls::certificates(&client_cert))?;
                let private_key = in_file(key, tls::private_key(&client_key))?;
                builder.with_client_auth_cert(chain, private_key)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self::with(Client::open(server)?, Some(Arc::new(client_config)), config))
    }

    fn with(client: Client, tls: Option<Arc<ClientConfig>>, config: &model::Redis) -> Self {
        let (call_timeout, connect_timeout) = (config.call_timeout(), config.connect_timeout());
        Self { client, tls, must_be_primary: false, call_timeout, connect_timeout }
    }

    /// The same settings for a server at another address.
    pub(super) fn at(&self, address: &ServerAddress) -> Result<Self, ServerError> {
        let info = self.info();
        let ServerAddress { host, port } = address.clone();
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = Client::open(info.clone().set_addr(address))?;
        Ok(Self { client, ..self.clone() })
    }

    /// The same server, whose connections are only valid while it is a primary.
    pub(super) fn into_primary(self, database: u32) -> Result<Self, ServerError> {
        let info = self.info().clone();
        let settings = info.redis_settings().clone().set_db(i64::from(database));
        let client = Client::open(info.set_redis_settings(settings))?;
        Ok(Self { client, must_be_primary: true, ..self })
    }

    /// `HOST:PORT`, or the path of a socket.
    pub(super) fn address(&self) -> ServerAddress {
        match self.info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                ServerAddress { host: host.clone(), port: *port }
            }
            ConnectionAddr::Unix(path) => ServerAddress { host: path.display().to_string(), port: 0 },
            _ => ServerAddress { host: String::new(), port: 0 },
        }
    }

    /// Whether there is a password for it.
    pub(super) fn has_password(&self) -> bool {
        self.info().redis_settings().password().is_some()
    }

    /// Opens a connection on which each reply has a timeout.
    pub(crate) async fn connect(&self) -> Result<ServerConnection, RedisError> {
        let opening = ServerConnection::open(self.info(), self.tls());
        let opened = timeout(self.connect_timeout, opening).await.map_err(|_| self.timed_out())?;
        let mut connection =
            opened.map_err(|error| if error.is_timeout() { self.timed_out() } else { error })?;
        connection.set_response_timeout(self.call_timeout);
        if self.must_be_primary {
            let role = redis::cmd("ROLE").query_async::<Vec<Value>>(&mut connection).await?;
            if !matches!(role.first(), Some(Value::BulkString(name)) if name == b"master") {
                let words = "the server is no primary any more";
                return Err((ErrorKind::Server(ServerErrorKind::ReadOnly), words).into());
            }
        }
        Ok(connection)
    }

    /// The error of a connection attempt that timed out. A server that waits for the end of a line, such as Redis
    /// without TLS, does not reply to a TLS handshake.
    fn timed_out(&self) -> RedisError {
        let also = if self.is_encrypted() { ": if the port does not use TLS, write redis://" } else { "" };
        let words = format!("no connection within {:?}{also}", self.connect_timeout);
        io::Error::new(io::ErrorKind::TimedOut, words).into()
    }

    /// Whether connections use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.info().addr(), ConnectionAddr::TcpTls { .. })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    pub(super) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }
}

fn in_file<T>(path: &Path, read: Result<T, PemError>) -> Result<T, ServerError> {
    read.map_err(|error| ServerError::Pem { path: path.display().to_string(), error })
}

fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    file::read_file(path, MAX_TLS_FILE)
        .map_err(|error| ServerError::File { path: path.display().to_string(), error })
}

/// A connection of a pool, or the error of opening it: a pool does not report that error to waiting tasks. Several
/// tasks may use it at once: the server replies in order.
pub(super) struct LinkConnection {
    inner: Result<ServerConnection, RedisError>,
    made: Instant,
    /// Whether it must not be used any more.
    broken: Cell<bool>,
}

/// The reply to a call that the connection has got. Keeps the connection open.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = Result<Value, RedisError>>>>;

/// The reply to a call that was cancelled, which may still arrive. `None`: the connection has not got the call.
pub(super) type LateReply = Cell<Option<PendingReply>>;

/// A call in progress. If it is cancelled, the connection must not be used any more.
struct PendingCall<'a> {
    connection: &'a LinkConnection,
    /// `None` once it has arrived.
    reply: Option<PendingReply>,
    late: &'a LateReply,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.connection.broken.set(true);
            self.late.set(Some(reply));
        }
    }
}

impl Future for PendingCall<'_> {
    type Output = Result<Value, RedisError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(reply) = &mut self.reply else { return Poll::Pending };
        let reply = match ready!(reply.as_mut().poll(context)) {
            Ok(Value::ServerError(error)) => Err(error.into()),
            reply => reply,
        };
        self.reply = None;
        if reply.as_ref().is_err_and(failure::breaks_the_connection) {
            self.connection.broken.set(true);
        }
        Poll::Ready(reply)
    }
}

impl LinkConnection {
    /// Runs a command. If this is cancelled, `late` gets its reply.
    pub(super) async fn ask(&self, command: Cmd, late: &LateReply) -> Result<Value, RedisError> {
        let mut inner = self.inner.clone()?;
        let reply = Box::pin(async move { inner.req_packed_command(&command).await });
        PendingCall { connection: self, reply: Some(reply), late }.await
    }

    /// Runs `command` after others that prepare for it, in one write, so that no other client's command runs in between
    /// unless the server reads them in pieces. If this is cancelled, `late` gets its reply.
    ///
    /// # Errors
    /// The first error among the replies.
    pub(super) async fn ask_after(
        &self,
        before: Vec<Cmd>,
        command: Cmd,
        late: &LateReply,
    ) -> Result<Value, RedisError> {
        let mut inner = self.inner.clone()?;
        let mut pipeline = redis::pipe();
        for each in before.into_iter().chain([command]) {
            pipeline.add_command(each);
        }
        let reply = Box::pin(async move {
            let mut replies = inner.req_packed_commands(&pipeline, 0, pipeline.len()).await?;
            let error = replies.iter().position(|reply| matches!(reply, Value::ServerError(_)));
            let reply =
                if let Some(error) = error { Some(replies.swap_remove(error)) } else { replies.pop() };
            reply.ok_or_else(|| (ErrorKind::UnexpectedReturnType, "no reply to several commands").into())
        });
        PendingCall { connection: self, reply: Some(reply), late }.await
    }

    /// The error of opening it: nothing was sent.
    pub(super) fn opening_error(&self) -> Option<&RedisError> {
        self.inner.as_ref().err()
    }

    /// Whether it must be closed.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get() || self.has_ended()
    }

    /// Whether the other side has closed it.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.as_ref().is_ok_and(ServerConnection::has_ended)
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.inner.as_ref().map_or(0, ServerConnection::written)
    }

    /// Whether opening it failed, before `moment`.
    pub(super) fn failed_before(&self, moment: Instant) -> bool {
        self.inner.is_err() && self.made < moment
    }
}

/// Opens a pool's connections.
pub(super) struct Manager(pub(super) Server);

impl ManageConnection for Manager {
    type Connection = LinkConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<LinkConnection, RedisError> {
        let mut inner = self.0.connect().await;
        if let Ok(inner) = &mut inner {
            // Each decision has its own timeout.
            inner.set_response_timeout(Duration::MAX);
        }
        let broken = Cell::new(inner.is_err());
        Ok(LinkConnection { inner, made: Instant::now(), broken })
    }

    /// Servers, and proxies before them, close idle connections.
    async fn is_valid(&self, connection: &mut LinkConnection) -> Result<(), RedisError> {
        match connection.has_ended() {
            true => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            false => Ok(()),
        }
    }

    fn has_broken(&self, connection: &mut LinkConnection) -> bool {
        connection.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_end_of_a_batch_waits_for_an_acknowledgement_of_its_beginning() {
        for url in ["redis://127.0.0.1", "rediss://127.0.0.1"] {
            let server =
                Server::open(url, ServerCredentials::default(), &model::Redis::at(Secret::new("redis://h")))
                    .unwrap();
            let other = server.at(&ServerAddress { host: "10.0.0.1".to_owned(), port: 7000 }).unwrap();
            for server in [server, other] {
                assert!(server.info().tcp_settings().nodelay(), "{url}");
            }
        }
    }

    #[test]
    fn a_server_at_another_address_is_reached_in_the_same_way() {
        let password = Secret::new("hunter2");
        let credentials = ServerCredentials { user: Some("app"), password: Some(&password) };
        let server =
            Server::open("rediss://10.0.0.1:6380", credentials, &model::Redis::at(Secret::new("redis://h")))
                .unwrap();
        let other = server.at(&ServerAddress::parse("redis-2.internal:6381", "").unwrap()).unwrap();
        assert!(other.is_encrypted() && other.has_password());
        assert_eq!(other.address().to_string(), "redis-2.internal:6381");
        let primary = other.into_primary(3).unwrap();
        let settings = primary.info().redis_settings();
        assert_eq!((settings.db(), settings.username(), primary.must_be_primary), (3, Some("app"), true));
        let own = Server::open("redis://me:word@h", credentials, &model::Redis::at(Secret::new("redis://h")))
            .unwrap();
        assert_eq!(own.info().redis_settings().username(), Some("me"));
    }
}
