//! The records as the admin port asks for them.

use std::cell::RefCell;

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{super::bans, Scope, read, users, write};
use crate::{
    abuse::{Archive, Changes, Others, Whereabouts, bans::Key},
    limit::Unavailable,
};

/// Reads what other instances know, on one connection for as long as it serves. `connect` makes another.
#[derive(Debug)]
pub struct Records<F, C> {
    scope: Scope,
    connect: F,
    /// That of the last question, if it was answered.
    held: RefCell<Option<C>>,
}

impl<F, C> Records<F, C>
where
    F: AsyncFn() -> Result<C, Unavailable>,
{
    /// The records of `scope`, by the connections that `connect` gives.
    pub fn new(scope: Scope, connect: F) -> Self {
        Self { scope, connect, held: RefCell::new(None) }
    }

    /// Asks on the connection that is there, and, since that may have ended meanwhile, once more on a new one. Every
    /// question may be asked twice.
    async fn ask<T>(&self, question: impl AsyncFn(&mut C) -> RedisResult<T>) -> Result<T, Unavailable> {
        let held = self.held.take();
        if let Some(mut connection) = held
            && let Ok(answer) = question(&mut connection).await
        {
            self.held.replace(Some(connection));
            return Ok(answer);
        }
        let mut connection = (self.connect)().await?;
        let answer = question(&mut connection).await.map_err(unavailable)?;
        self.held.replace(Some(connection));
        Ok(answer)
    }
}

impl<F, C> Archive for Records<F, C>
where
    F: AsyncFn() -> Result<C, Unavailable>,
    C: ConnectionLike,
{
    async fn changed(&self, since: i64) -> Result<Changes, Unavailable> {
        self.ask(async |connection| read::changed(connection, &self.scope, since).await).await
    }

    async fn read(&self, addresses: &[IpNet], now: i64) -> Result<Vec<Others>, Unavailable> {
        self.ask(async |connection| read::read(connection, &self.scope, addresses, now).await).await
    }

    async fn user(&self, written: &str, now: i64) -> Result<Whereabouts, Unavailable> {
        self.ask(async |connection| users::user(connection, &self.scope, written, now).await).await
    }

    async fn forget(&self, address: IpNet, now: i64) -> Result<(), Unavailable> {
        self.ask(async |connection| write::forget(connection, &self.scope, address, now).await).await
    }

    async fn bans(&self, key: &Key) -> Result<u64, Unavailable> {
        self.ask(async |connection| bans::count(connection, self.scope.prefix(), key).await).await
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where a function of errors is wanted")]
fn unavailable(error: redis::RedisError) -> Unavailable {
    Unavailable(error.to_string())
}
