//! Reads and changes the shared records for the admin API.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{super::bans, RecordScope, read, unblock, users};
use crate::{
    abuse::{Archive, ChangesPage, PeerView, UserAddresses, bans::BannedKey},
    limit::Unavailable,
};

/// Reads the records of other instances, on a connection that is reused; `connect` opens one.
#[derive(Debug)]
pub struct RecordArchive<F, C> {
    scope: RecordScope,
    patience: Duration,
    connect: F,
    /// By key: the connections of the last successful requests on records and on bans. In a cluster they may be to
    /// different nodes.
    idle: RefCell<HashMap<String, C>>,
}

impl<F, C> RecordArchive<F, C>
where
    F: AsyncFn(&str) -> Result<C, Unavailable>,
{
    /// `connect` gives a connection to the server that has a key. `patience`: for a few round trips.
    pub fn new(scope: RecordScope, patience: Duration, connect: F) -> Self {
        Self { scope, patience, connect, idle: RefCell::default() }
    }

    /// Runs a request on the idle connection; if that fails, once more on a new one. Requests must be safe to repeat.
    async fn run<T>(
        &self,
        key: String,
        request: impl AsyncFn(&mut C) -> RedisResult<T>,
    ) -> Result<T, Unavailable> {
        let idle = self.idle.borrow_mut().remove(&key);
        if let Some(mut connection) = idle
            && let Ok(reply) = request(&mut connection).await
        {
            self.idle.borrow_mut().insert(key, connection);
            return Ok(reply);
        }
        let mut connection = (self.connect)(&key).await?;
        let reply = request(&mut connection).await.map_err(unavailable)?;
        self.idle.borrow_mut().insert(key, connection);
        Ok(reply)
    }
}

impl<F, C> Archive for RecordArchive<F, C>
where
    F: AsyncFn(&str) -> Result<C, Unavailable>,
    C: ConnectionLike,
{
    fn patience(&self) -> Duration {
        self.patience
    }

    async fn changed(&self, since: i64) -> Result<ChangesPage, Unavailable> {
        self.run(self.scope.changed_key(), async |connection| {
            read::read_changed(connection, &self.scope, since).await
        })
        .await
    }

    async fn read(&self, addresses: &[IpNet]) -> Result<Vec<PeerView>, Unavailable> {
        self.run(self.scope.changed_key(), async |connection| {
            read::read_clients(connection, &self.scope, addresses).await
        })
        .await
    }

    async fn user(&self, written: &str, now: i64) -> Result<UserAddresses, Unavailable> {
        self.run(self.scope.changed_key(), async |connection| {
            users::read_addresses(connection, &self.scope, written, now).await
        })
        .await
    }

    async fn unblock(&self, address: IpNet, by: &str) -> Result<(), Unavailable> {
        self.run(self.scope.changed_key(), async |connection| {
            unblock::unblock(connection, &self.scope, address, by).await
        })
        .await
    }

    async fn bans(&self, key: &BannedKey) -> Result<u64, Unavailable> {
        let place = bans::key(self.scope.prefix());
        self.run(place, async |connection| bans::count_bans(connection, self.scope.prefix(), key).await).await
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used where an error function is expected")]
fn unavailable(error: redis::RedisError) -> Unavailable {
    Unavailable::Connection(error.to_string().into())
}
