//! Connections to one Redis server, for a pool.

use std::{fs, io, path::Path, time::Duration};

use bb8_redis::{
    RedisConnectionManager,
    bb8::ManageConnection,
    redis::{
        self, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, RedisError, Script,
        TlsCertificates, Value,
        aio::{ConnectionLike, MultiplexedConnection},
        io::tcp::TcpSettings,
    },
};
use tokio::time::Instant;

use super::failure;
use crate::{config::model, limit::Unavailable};

/// For a new connection, from its first packet to the end of the greeting: the crate's own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that has been idle for so long is tested before it is used.
const TEST_AFTER: Duration = Duration::from_secs(1);

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
pub struct Server {
    client: Client,
    manager: RedisConnectionManager,
}

impl Server {
    /// Reads the certificates, and connects to nothing.
    ///
    /// # Errors
    /// A file can't be read, or what it holds is no certificate or key.
    pub fn new(config: &model::Redis) -> Result<Self, ServerError> {
        let url = config.url.reveal();
        let server = url.into_connection_info()?;
        // It would say which library it is: a right of its own, that nothing else needs.
        let settings = server.redis_settings().clone().set_skip_set_lib_name();
        // The end of a large batch must not wait until the server has acknowledged its beginning.
        let tcp = TcpSettings::default().set_nodelay(true);
        let server = server.set_redis_settings(settings).set_tcp_settings(tcp);
        if !url.starts_with("rediss:") {
            return Self::of_client(Client::open(server)?);
        }
        // A provider that is installed already stays.
        let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let root_cert = config.tls.ca.as_deref().map(read).transpose()?;
        let client_tls = match &config.tls.identity {
            Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            None => None,
        };
        Self::of_client(Client::build_with_tls(server, TlsCertificates { client_tls, root_cert })?)
    }

    fn of_client(client: Client) -> Result<Self, ServerError> {
        // What the client was told of TLS is part of this.
        let manager = RedisConnectionManager::new(client.get_connection_info().clone())?;
        Ok(Self { client, manager })
    }

    /// Opens a connection. Only its making is bounded in time: callers have timeouts of their own for what they ask.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let made = self.manager.connect().await;
        let mut connection =
            made.map_err(|error| if error.is_timeout() { self.timed_out() } else { error })?;
        // Half a second unless it is told otherwise, which store.redis.timeout may exceed.
        connection.set_response_timeout(Duration::MAX);
        Ok(connection)
    }

    /// A server that waits for the end of a line, as Redis without TLS does, says nothing to the beginning of a
    /// handshake.
    fn timed_out(&self) -> RedisError {
        let also = if self.is_encrypted() { ": if the port does not use TLS, write redis://" } else { "" };
        let words = format!("no connection within {CONNECT_TIMEOUT:?}{also}");
        io::Error::new(io::ErrorKind::TimedOut, words).into()
    }

    /// Whether it is asked over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Opens a connection for more than decisions.
    ///
    /// # Errors
    /// The server can't be reached.
    pub async fn open_connection(&self) -> Result<impl ConnectionLike + use<>, Unavailable> {
        self.connect().await.map_err(|error| Unavailable::Connection(error.to_string().into()))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    fs::read(path).map_err(|error| ServerError::File { path: path.display().to_string(), error })
}

/// A connection of a pool, or why there is none: a pool does not tell waiting tasks that a connection could not be made.
pub(super) struct Connection {
    inner: Result<MultiplexedConnection, RedisError>,
    /// When it was made, or was found to answer.
    known_good: Instant,
    /// Whether nothing is to be asked on it any more. True while an answer is awaited: a future that is dropped before
    /// leaves it so.
    broken: bool,
}

impl Connection {
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let inner = self.inner.as_mut().map_err(|error| error.clone())?;
        self.broken = true;
        let reply = match inner.req_packed_command(command).await {
            Ok(Value::ServerError(error)) => Err(error.into()),
            reply => reply,
        };
        self.broken = reply.as_ref().is_err_and(failure::breaks_the_connection);
        self.known_good = Instant::now();
        reply
    }

    /// Makes a script known to the server.
    pub(super) async fn load(&mut self, script: &Script) -> Result<(), RedisError> {
        let inner = self.inner.as_mut().map_err(|error| error.clone())?;
        self.broken = true;
        let loaded = script.load_async(inner).await;
        self.broken = loaded.as_ref().is_err_and(failure::breaks_the_connection);
        loaded.map(drop)
    }

    /// Whether it is to be given up.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it could not be made, and that was before this.
    pub(super) fn failed_before(&self, moment: Instant) -> bool {
        self.inner.is_err() && self.known_good < moment
    }
}

/// Makes a pool's connections.
pub(super) struct Manager(pub(super) Server);

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        let inner = self.0.connect().await;
        Ok(Connection { broken: inner.is_err(), inner, known_good: Instant::now() })
    }

    /// Tests one that was idle for a while: servers, and what stands before them, close idle connections, and to
    /// ask in vain would cost a decision.
    async fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        if connection.inner.is_err() || connection.known_good.elapsed() < TEST_AFTER {
            return Ok(());
        }
        match connection.ask(&redis::cmd("PING")).await {
            Err(error) if error.is_unrecoverable_error() => Err(error),
            // Whatever it says, it answers.
            _ => {
                connection.broken = false;
                Ok(())
            }
        }
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_end_of_a_batch_waits_for_an_acknowledgement_of_its_beginning() {
        for url in ["redis://127.0.0.1", "rediss://127.0.0.1"] {
            let config = model::Redis {
                url: model::Secret::new(url.to_owned()),
                tls: model::RedisTls::default(),
                timeout: Duration::from_millis(50),
                connections: 2,
                prefix: "ratelimit".to_owned(),
                breaker: model::Breaker { failures: 5, retry_after: Duration::from_secs(1) },
            };
            let server = Server::new(&config).unwrap();
            assert!(server.client().get_connection_info().tcp_settings().nodelay(), "{url}");
        }
    }
}
