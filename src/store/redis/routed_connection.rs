//! A connection for commands on keys of one slot, which follows the slot to other nodes.

use std::{sync::Arc, time::Duration};

use bb8_redis::redis::{
    self, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
    aio::ConnectionLike,
};
use tokio::time::sleep;

use super::{
    failure::Failure, server_address::ServerAddress, server_connection::ServerConnection, topology::Topology,
};
use crate::limit::Unavailable;

/// Time between attempts while a slot is being moved.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Most attempts of one command, over redirections and while its slot is being moved.
const MAX_TRIES: usize = 25;

/// A connection to the server that has a key. In a cluster it follows the key to another node, and repeats commands
/// that no node has run.
#[derive(Debug, Clone)]
pub(crate) struct RoutedConnection {
    topology: Arc<Topology>,
    connection: ServerConnection,
    /// The address of the connected server.
    address: ServerAddress,
    /// The node that imports the slot, if it did not know a script: the next command, which loads the script, is sent
    /// there.
    importing: Option<ServerConnection>,
}

impl Topology {
    /// Opens a connection for commands on keys in the slot of `key`, other than decisions.
    ///
    /// # Errors
    /// The server can't be reached.
    pub async fn connect(self: &Arc<Self>, key: &str) -> Result<impl ConnectionLike + use<>, Unavailable> {
        Ok(RoutedConnection::open(self, key).await?)
    }
}

impl RoutedConnection {
    /// Uses an open connection to a server.
    pub(crate) fn new(topology: Arc<Topology>, connection: ServerConnection, address: ServerAddress) -> Self {
        Self { topology, connection, address, importing: None }
    }

    /// Connects to the server that has `key`.
    ///
    /// # Errors
    /// No known server has it, or the server can't be reached.
    pub(crate) async fn open(topology: &Arc<Topology>, key: &str) -> Result<Self, Failure> {
        let node = topology.owner_of(key.as_bytes()).ok_or_else(Failure::no_node)?;
        let connection = node.server.connect().await?;
        Ok(Self::new(Arc::clone(topology), connection, node.address.clone()))
    }

    async fn connect(&self, address: &ServerAddress) -> RedisResult<ServerConnection> {
        let words = "a node of the cluster is named that can't be reached";
        let node = self.topology.node_at(address).ok_or((ErrorKind::Extension, words))?;
        node.server.connect().await
    }

    /// Checks that the server is still the primary: a former one may still reply.
    ///
    /// # Errors
    /// Sentinels have named another.
    fn check_primary(&self) -> RedisResult<()> {
        let is_primary = || self.topology.map().node_at(&self.address).is_some();
        if !self.topology.has_sentinels() || is_primary() {
            return Ok(());
        }
        Err((ErrorKind::Server(ServerErrorKind::ReadOnly), "the server is no primary any more").into())
    }

    async fn run(&mut self, command: &Cmd) -> RedisResult<Value> {
        if let Some(mut importing) = self.importing.take() {
            return importing.req_packed_command(command).await;
        }
        let mut tries = 0;
        loop {
            let reply = into_result(self.connection.req_packed_command(command).await);
            let Err(error) = reply else { return reply };
            tries += 1;
            if tries >= MAX_TRIES {
                return Err(error);
            }
            match (error.kind(), self.target(&error)) {
                (ErrorKind::Server(ServerErrorKind::Moved), Some((address, slot))) => {
                    self.topology.moved(slot, &address);
                    self.connection = self.connect(&address).await?;
                    self.address = address;
                }
                (ErrorKind::Server(ServerErrorKind::Ask), Some((address, _))) => {
                    let mut importing = self.connect(&address).await?;
                    let mut pipeline = redis::pipe();
                    pipeline.cmd("ASKING").add_command(command.clone());
                    let replies = importing.req_packed_commands(&pipeline, 0, 2).await?;
                    let reply = into_result(Ok(replies.into_iter().nth(1).unwrap_or(Value::Nil)));
                    match &reply {
                        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                            self.importing = Some(importing);
                            return reply;
                        }
                        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) => {
                            sleep(RETRY_AFTER).await;
                        }
                        _ => return reply,
                    }
                }
                (ErrorKind::Server(ServerErrorKind::TryAgain), _) => sleep(RETRY_AFTER).await,
                _ => return Err(error),
            }
        }
    }

    /// The address and slot of a redirection.
    fn target(&self, error: &RedisError) -> Option<(ServerAddress, u16)> {
        let (address, slot) = error.redirect_node()?;
        Some((ServerAddress::parse(address, &self.address.host)?, slot))
    }

    async fn run_all(&mut self, pipeline: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.check_primary()?;
        let mut replies = self.connection.req_packed_commands(pipeline, offset, count).await?;
        if offset > 0 || !self.topology.is_cluster() {
            return Ok(replies);
        }
        // Each command that was not run here is redirected by itself.
        for (reply, command) in replies.iter_mut().zip(pipeline.cmd_iter()) {
            let is_rerouted = matches!(reply, Value::ServerError(error)
                if matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN"));
            if is_rerouted {
                *reply = match self.run(command).await {
                    Ok(reply) => reply,
                    Err(_) => continue,
                };
            }
        }
        Ok(replies)
    }
}

impl ConnectionLike for RoutedConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if self.topology.is_cluster() {
            return Box::pin(self.run(command));
        }
        match self.check_primary() {
            Ok(()) => self.connection.req_packed_command(command),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.run_all(pipeline, offset, count))
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

fn into_result(reply: RedisResult<Value>) -> RedisResult<Value> {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}
