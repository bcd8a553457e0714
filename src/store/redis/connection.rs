//! Connections to one Redis server, for a pool.

use std::{fs, io, path::Path, time::Duration};

use bb8::ManageConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError,
    TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use crate::{config::model, limit::Unavailable};

/// For a new connection, from its first packet to the end of the greeting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a server can't be described.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    #[error("store.redis: {0}")]
    Settings(#[from] RedisError),
}

/// Where Redis is, and who we are to it.
#[derive(Debug, Clone)]
pub struct Server(Client);

impl Server {
    /// Reads the certificates, and connects to nothing.
    ///
    /// # Errors
    /// A file can't be read, or what it holds is no certificate or key.
    pub fn new(config: &model::Redis) -> Result<Self, ServerError> {
        let url = config.url.reveal();
        let address = url.into_connection_info()?;
        // It would say which library it is: a right of its own, that nothing else needs.
        let settings = address.redis_settings().clone().set_skip_set_lib_name();
        let address = address.set_redis_settings(settings);
        if !url.starts_with("rediss:") {
            return Ok(Self(Client::open(address)?));
        }
        // The first one that is installed holds; whoever installed another meant it.
        let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let root_cert = config.tls.ca.as_deref().map(read).transpose()?;
        let client_tls = match &config.tls.identity {
            Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            None => None,
        };
        Ok(Self(Client::build_with_tls(address, TlsCertificates { client_tls, root_cert })?))
    }

    /// Opens a connection. Nothing on it is bounded in time but its making: whoever asks waits as long as he
    /// likes.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let made = self.0.get_multiplexed_async_connection_with_config(&config).await;
        made.map_err(|error| if error.is_timeout() { self.late() } else { error })
    }

    /// A server that waits for the end of a line, as Redis without TLS does, says nothing to the beginning of a
    /// handshake.
    fn late(&self) -> RedisError {
        let also = if self.is_encrypted() { ": if the port takes no TLS, write redis://" } else { "" };
        let words = format!("no connection within {CONNECT_TIMEOUT:?}{also}");
        io::Error::new(io::ErrorKind::TimedOut, words).into()
    }

    /// Whether it is asked over TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self.0.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
    }

    /// As [`Server::connect`], for whoever asks for more than decisions.
    ///
    /// # Errors
    /// It can't be reached.
    pub async fn reach(&self) -> Result<impl ConnectionLike + use<>, Unavailable> {
        self.connect().await.map_err(|error| Unavailable(error.to_string()))
    }

    pub(super) fn client(&self) -> &Client {
        &self.0
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    fs::read(path).map_err(|error| ServerError::File { path: path.display().to_string(), error })
}

/// A connection of a pool, and whether it is still good.
pub(super) struct Connection {
    inner: MultiplexedConnection,
    /// Set by whoever saw it fail: an answer that came too late would be taken for the next one's, and a
    /// server that was demoted stays demoted.
    broken: bool,
}

impl Connection {
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self.inner.req_packed_command(command).await? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }

    /// What is asked on it is not to be trusted any more.
    pub(super) fn fail(&mut self) {
        self.broken = true;
    }

    pub(super) fn inner(&mut self) -> &mut MultiplexedConnection {
        &mut self.inner
    }
}

/// Makes a pool's connections.
pub(super) struct Manager(pub(super) Server);

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        Ok(Connection { inner: self.0.connect().await?, broken: false })
    }

    async fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        redis::cmd("PING").query_async(&mut connection.inner).await
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.broken
    }
}
